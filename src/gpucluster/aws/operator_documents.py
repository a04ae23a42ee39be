"""Documents of the operator's policies within the size limits of IAM, and the boundary of the machines' roles."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gpucluster.aws.operator_policies import (
    SUFFIX,
    OperatorScope,
    apply_statements,
    command_statements,
    plan_statements,
)
from gpucluster.errors import GpuclusterError
from gpucluster.json_text import parse_json
from gpucluster.plan.iam_policies import (
    HeadScope,
    JobsScope,
    NodeScope,
    Statement,
    boot_script_arns,
    head_policy,
    jobs_policy,
    node_policy,
)
from gpucluster.plan.model import Efs, Market, SiteNetwork, SlurmOnAws, eks_of
from gpucluster.plan.names import ROLE_JOBS, ROLE_NODE

MANAGED_MAX = 6144  # characters of a managed policy, without white space
ATTACHED_MAX = 10  # managed policies of a role, the default quota


class PolicyRole(StrEnum):
    """The policies."""

    PLAN = "plan"
    APPLY = "apply"
    BOUNDARY = "boundary"
    COMMANDS = "commands"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDocument:
    """One managed policy. `size` is its length as IAM counts it."""

    name: str
    text: str

    @property
    def size(self) -> int:
        return size(self.text)


def documents(role: PolicyRole, scope: OperatorScope) -> tuple[PolicyDocument, ...]:
    """Return the managed policies of a role. GpuclusterError if they exceed the limits of IAM."""
    match role:
        case PolicyRole.PLAN:
            parts = list(_split(plan_statements(scope)))
        case PolicyRole.APPLY:
            parts = list(_split(apply_statements(scope)))
        case PolicyRole.BOUNDARY:
            parts = [boundary_statements(scope)]  # a role has one boundary
        case PolicyRole.COMMANDS:
            parts = list(_split(command_statements(scope)))
    name = f"{scope.plan.name}-{'operator-' if role is not PolicyRole.BOUNDARY else ''}{role}"
    numbered = [name] if len(parts) == 1 else [f"{name}-{number}" for number in range(1, len(parts) + 1)]
    made = tuple(PolicyDocument(name=n, text=text(p)) for n, p in zip(numbered, parts, strict=True))
    _check(made)
    return made


def text(statements: Sequence[Statement]) -> str:
    """Return the document as JSON with one statement a line."""
    lines = ",\n".join(json.dumps(one, sort_keys=True, separators=(",", ":")) for one in statements)
    return f'{{"Version":"2012-10-17","Statement":[\n{lines}\n]}}\n'


def size(document: str) -> int:
    """Return the characters that IAM counts: it leaves out white space."""
    return len(re.sub(r"\s", "", document))


def _split(statements: Iterable[Statement]) -> Iterator[list[Statement]]:
    """Fill one document after the other, in order, so that the same spec gives the same documents."""
    part: list[Statement] = []
    for one in statements:
        if part and size(text([*part, one])) > MANAGED_MAX:
            yield part
            part = []
        part.append(one)
    yield part


def _check(made: Sequence[PolicyDocument]) -> None:
    large = [one for one in made if one.size > MANAGED_MAX]
    if large:
        raise GpuclusterError(
            f"the policy {large[0].name} has {large[0].size} characters, IAM takes {MANAGED_MAX}",
            next_step="split the cluster into two specs",
        )
    if len(made) > ATTACHED_MAX:
        raise GpuclusterError(
            f"the policy needs {len(made)} documents, IAM attaches {ATTACHED_MAX} to a role",
            next_step="raise the quota `Managed policies per role`, or split the cluster into two specs",
        )


def boundary_statements(scope: OperatorScope) -> list[Statement]:
    """Return the most that the machines' roles need. A boundary gives no right: it limits the rights of each role.

    The statements are those of the roles, with patterns for names that only `pulumi up` knows.
    """
    plan = scope.plan
    if not isinstance(plan, SlurmOnAws) or eks_of(plan) is not None:
        raise GpuclusterError(
            f"{plan.name} has no boundary: the roles of EKS have AWS's own policies",
            next_step="set your own: aws.boundary of the spec",
        )
    head = _head(plan)
    wide = NodeScope(
        bucket=head.bucket,
        secret=head.secret,
        ssm=head.ssm,
        directory=head.directory,
        key=head.key,
        file_systems=head.file_systems,
        jobs_role=_role(plan, ROLE_JOBS) if plan.aws.jobs is not None else None,
        boot_scripts=boot_script_arns(plan),
    )
    jobs = plan.aws.jobs
    texts = [head_policy(head), node_policy(wide)]
    if jobs is not None:
        texts.append(jobs_policy(JobsScope(own_bucket=head.bucket, read=jobs.read, write=jobs.write)))
    every = [one for found in texts for one in parse_json(found)["Statement"] if one["Effect"] == "Allow"]
    return list(_without_repeats(every))


def _without_repeats(statements: Sequence[Statement]) -> Iterator[Statement]:
    """Yield each statement once; leave out what an earlier one with the same condition allows already."""
    seen: list[Statement] = []
    for one in statements:
        if not any(_covers(earlier, one) for earlier in seen):
            count = sum(earlier["Sid"].rstrip("0123456789") == one["Sid"] for earlier in seen)
            seen.append(one | {"Sid": f"{one['Sid']}{count + 1}"} if count else one)
            yield seen[-1]


def _covers(earlier: Statement, one: Statement) -> bool:
    return (
        {*one["Action"]} <= {*earlier["Action"]}
        and {*one["Resource"]} <= {*earlier["Resource"]}
        and earlier.get("Condition") in (None, one.get("Condition"))
    )


def _role(plan: SlurmOnAws, role: str) -> str:
    return f"arn:aws:iam::*:role/{plan.name}-{role}{SUFFIX}"


def _head(plan: SlurmOnAws) -> HeadScope:
    """Return the scope of the head with patterns instead of ids."""
    region, network = plan.aws.region, plan.aws.network
    sources = [source for pool in plan.pools for source in pool.sources]
    subnets = [span.id for span in network.subnets] if isinstance(network, SiteNetwork) else ["*"]
    own_efs = any(isinstance(mount.source, Efs) for mount in plan.storage)
    key = plan.aws.kms_key
    return HeadScope(
        cluster=plan.name,
        region=region,
        account="*",
        image="*",
        machines=sorted({machine for source in sources for machine in source.machines}),
        subnets=[f"arn:aws:ec2:{region}:*:subnet/{one}" for one in sorted(subnets)],
        node_group=f"arn:aws:ec2:{region}:*:security-group/*",
        node_role=_role(plan, ROLE_NODE),
        bucket=f"arn:aws:s3:::{plan.name}{SUFFIX}",
        secret=f"arn:aws:secretsmanager:{region}:*:secret:{plan.name}-munge{SUFFIX}-??????",
        queue=f"arn:aws:sqs:{region}:*:{plan.name}-events{SUFFIX}",
        key=key if key is None or ":key/" in key else f"arn:aws:kms:{region}:*:key/*",
        spot=any(s.market is Market.SPOT for s in sources),
        fleet=any(len(s.machines) > 1 for s in sources),
        reservations=sorted({s.reservation for s in sources if s.reservation is not None}),
        placement=any(pool.placement for pool in plan.pools),
        ssm=plan.access.ssm,
        directory=None if plan.directory is None else plan.directory.secret,
        database=None if plan.slurm.accounting is None else plan.slurm.accounting.secret,
        file_systems=[f"arn:aws:elasticfilesystem:{region}:*:file-system/*"] if own_efs else [],
    )
