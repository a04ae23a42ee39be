"""`gpucluster validate` of a stack on AWS: every machine by Systems Manager, the expected cluster from the published bundle."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpucluster.cli.reviewed import compared, recorded
from gpucluster.cli.shell import SANDBOX
from gpucluster.cli.transport import Run
from gpucluster.errors import GpuclusterError, StateError
from gpucluster.plan.names import ROLE_HEAD

if TYPE_CHECKING:
    from gpucluster.checks.reviewed_spec import Reviewed
    from gpucluster.cli.transport_ssm import SsmMachines
    from gpucluster.cloud.run_command import Clients
    from gpucluster.plan.model import Bindings, ClusterPlan, SlurmOnAws
    from gpucluster.plan.spec_source import SpecSource
    from gpucluster.validate.reach import Reach

SLURM_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OnAws:
    """The published cluster and the way to its machines. `folders`: a sandbox, whose file systems are folders of its host."""

    plan: "SlurmOnAws"
    bindings: "Bindings"
    bundle: str
    reach: "Reach"
    up: Sequence[str]
    user: str
    clients: "Clients"
    folders: bool
    reviewed: "Reviewed"


def on_aws(spec: "ClusterPlan", file: Path, user: str | None) -> OnAws:
    """Read the published bundle, and find the nodes that are up."""
    from gpucluster.cli.transport_ssm import SsmMachines, ssm_plan
    from gpucluster.validate.reach_by_run import by_run

    wanted = ssm_plan(spec, file)
    machines = SsmMachines(wanted.name, wanted.aws.region)
    found = _published(machines)
    plan = found.plan
    reviewed = compared(file, spec, found.source, place=found.place, bucket=found.bindings.bucket)
    return OnAws(
        plan=plan,
        bindings=found.bindings,
        bundle=found.digest,
        reach=by_run(machines.run),
        up=_up(machines.run),
        user=_user(plan, user),
        clients=machines.clients,
        folders=SANDBOX in os.environ,
        reviewed=reviewed,
    )


def _user(plan: "SlurmOnAws", user: str | None) -> str:
    found = user or next((one.name for one in plan.users), None)
    if found is None:
        raise StateError(
            f"{plan.name} has no user who could submit jobs",
            next_step="name a user of the machines: --user NAME",
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Published:
    """The bundle in the bucket: what `pulumi up` published last."""

    plan: "SlurmOnAws"
    bindings: "Bindings"
    digest: str
    source: "SpecSource | None"
    place: str  # and since when it is there


def _published(machines: "SsmMachines") -> _Published:
    from gpucluster import artifacts
    from gpucluster.cloud.run_command import asked
    from gpucluster.plan import codec, names, plan_json
    from gpucluster.plan.model import Bindings, SlurmOnAws

    place = {"Bucket": machines.find(ROLE_HEAD).bucket, "Key": names.BUNDLE_KEY}
    where = f"s3://{place['Bucket']}/{place['Key']}"
    answer = asked(where, lambda: machines.clients("s3").get_object(**place))
    try:
        body = answer["Body"].read()
        files = {one.path: one.content for one in artifacts.unpack(body)}
        found = plan_json.load_slurm(files[names.PLAN_FILE])
        bindings = codec.loads(Bindings, files[names.BINDINGS_FILE])
    except (OSError, ValueError, KeyError) as error:
        raise GpuclusterError(f"{where} cannot be read: {error}", next_step="repeat pulumi up") from error
    if not isinstance(found, SlurmOnAws):
        raise GpuclusterError(f"{where} is not of a cluster on AWS", next_step="repeat pulumi up")
    return _Published(
        plan=found,
        bindings=bindings,
        digest=artifacts.digest(body),
        source=_source(files),
        place=f"{where}, published {answer['LastModified']:%Y-%m-%d %H:%M} UTC,",
    )


def _source(files: "Mapping[str, bytes]") -> "SpecSource | None":
    """Return of which spec the bundle is. Its own plan counts, not what it says of it: a person may have changed one of them.

    A sandbox changes the plan of a spec, so there the record counts.
    """
    from dataclasses import replace
    from hashlib import sha256

    from gpucluster.plan import names
    from gpucluster.plan.spec_source import SpecSource

    said = recorded(files)
    if SANDBOX in os.environ:
        return said
    plan = sha256(files[names.PLAN_FILE]).hexdigest()
    unsaid = SpecSource(spec="", plan=plan, commit="", dirty=False, version="")
    return unsaid if said is None else replace(said, plan=plan)


def _up(run: Run) -> list[str]:
    """Return the nodes on which a command can run now; none while slurmctld does not answer: its own check reports that."""
    from gpucluster.checks import slurmctld
    from gpucluster.checks.check import ParseError, QueryOutput

    try:
        done = run(ROLE_HEAD, slurmctld.QUERY_NODES.argv, SLURM_S)
        answer = QueryOutput(code=done.code, stdout=done.stdout, stderr=done.stderr)
        nodes = slurmctld.parse_nodes((answer,))
    except (GpuclusterError, ParseError):
        return []
    return [node.name for node in nodes if not slurmctld.is_off_or_changing(node)]
