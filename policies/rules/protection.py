"""Resources with user data are protected from deletion."""

from collections.abc import Iterator

from gpucluster.engine.policy import EnforcementLevel, Rule, RuleResult, Stack, Violation

# types whose loss is the loss of data that nothing makes again; a bucket of bundles is made again by the next `up`
DATA = (
    "aws:ebs/volume:Volume",
    "aws:efs/fileSystem:FileSystem",
    "aws:fsx/lustreFileSystem:LustreFileSystem",
    "aws:fsx/ontapFileSystem:OntapFileSystem",
    "aws:fsx/openZfsFileSystem:OpenZfsFileSystem",
    "aws:rds/cluster:Cluster",
    "aws:rds/instance:Instance",
)


def protected(stack: Stack) -> Iterator[RuleResult]:
    """Check that file systems, volumes and databases have Pulumi's protection."""
    for resource in stack.of_type(*DATA):
        if not resource.protect:
            yield Violation(
                resource=resource,
                property="protect",
                found="false",
                expected="true",
                next_step="declare it with ResourceOptions(protect=True); `gpucluster down --delete-data` is the way to be rid of it",
            )


RULES = (
    Rule(name="unprotected-data", level=EnforcementLevel.MANDATORY, about="File systems and data volumes are protected.", check=protected),
)  # fmt: skip
