"""`gpucluster down NAME`: delete the resources of a cluster in the right order, in the sandbox or on AWS.

The order is: stop scaling, terminate the nodes, delete the resources that they use. Something else in the network prevents
its deletion: then nothing is deleted, the head neither. Resources with data are protected and are retained, with their
network: the next `up` uses them again. Each step can be repeated.
"""

import getpass
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpucluster.cli.output import Output, OutputOption, answer, progress, reporting
from gpucluster.cli.retained import delete_line, retained_of
from gpucluster.errors import GpuclusterError, HostError, StateError

if TYPE_CHECKING:
    from gpucluster.cli.down_network import FindBlockers
    from gpucluster.cli.retained import RetainedResources
    from gpucluster.cloud.control import S3Control
    from gpucluster.cloud.network_interfaces import OccupantsPort
    from gpucluster.cloud.port import CloudPort
    from gpucluster.engine.deployment import DeployedResource
    from gpucluster.engine.events import Outcome, Report
    from gpucluster.sandbox.state_dir import SandboxDir


def down(
    name: Annotated[str, typer.Argument(help="The cluster's name: the spec's `name`.")],
    delete_data: Annotated[
        bool,
        typer.Option(
            "--delete-data", help="Also delete file systems and disks with their data, permanently."
        ),
    ] = False,
    confirm: Annotated[
        str | None,
        typer.Option(
            "--confirm", help="The cluster's name, as confirmation of --delete-data without a terminal."
        ),
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Stop scaling, terminate every node, then delete Pulumi's resources except data. It can be repeated."""
    with reporting(output):
        if delete_data:
            _require_confirmation(name, confirm)
        done = _empty_cluster(name, delete_data=delete_data)
        if output is Output.JSON:
            answer(ok=True, name=name, **done.as_json())
        else:
            typer.echo(
                "\n".join((done.sentence(name), *(done.retained.lines(name) if done.retained else ())))
            )


def _require_confirmation(name: str, confirm: str | None) -> None:
    """Require the cluster's name once more, typed or as an option: deleted data cannot be restored."""
    if confirm is None and sys.stdin.isatty():
        progress(f"--delete-data deletes the file systems and disks of '{name}' and their data permanently")
        confirm = typer.prompt(f"type the cluster's name ({name}) to continue", err=True)
    if confirm is None:
        raise StateError(
            "--delete-data needs the cluster's name as confirmation, and there is no terminal",
            next_step=delete_line(name),
        )
    if confirm != name:
        raise StateError(
            f"the confirmation is {confirm!r}, the cluster's name is {name!r}: nothing was deleted",
            next_step=delete_line(name),
        )


def _empty_cluster(name: str, *, delete_data: bool) -> "Emptied":
    from gpucluster.cloud.port import CloudError

    try:
        return empty(_access(name), name, delete_data=delete_data)
    except CloudError as error:
        raise GpuclusterError(
            f"AWS refused: {error}", next_step=f"correct this, then repeat: gpucluster down {name}"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """The access to one cluster: its resources, its cloud and its Pulumi state."""

    resources: "Callable[[], tuple[DeployedResource, ...]]"
    destroy: "Callable[[Report], Outcome]"  # except protected resources
    release: "Callable[[], None]"  # removes the protection
    cloud: "Callable[[str], CloudPort]"  # argument: the region
    occupants: "Callable[[str], OccupantsPort]"  # argument: the region
    control: "Callable[[str, str], S3Control]"  # arguments: the region and the bucket
    launched: "Callable[[str], frozenset[str]]"  # by the daemon's journal; argument: the region
    region: str | None  # None: taken from the resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Emptied:
    """The result: counts, and the retained resources."""

    was_empty: bool
    nodes: int
    resources: int
    retained: "RetainedResources | None" = None

    def sentence(self, name: str) -> str:
        """Return the text for people."""
        if self.was_empty:
            return f"{name} is already empty" + (", but for its data:" if self.retained else "")
        done = f"{self.nodes} nodes terminated, {self.resources} resources deleted"
        return f"{name} is {'down' if self.retained else 'empty'}: {done}" + (
            "; its data stays:" if self.retained else ""
        )

    def as_json(self) -> dict[str, Any]:
        """Return the JSON values."""
        retained = [one.as_json() for one in self.retained.data] if self.retained else []
        network = list(self.retained.network) if self.retained else []
        done = {"was_empty": self.was_empty, "nodes": self.nodes, "resources": self.resources}
        return {**done, "retained": retained, "retained_network": network}


def empty(access: ClusterAccess, name: str, *, delete_data: bool = False) -> Emptied:
    """Delete the cluster, except its data unless `delete_data`."""
    from gpucluster.cli.down_network import EKS, blocker_finder, require_clear, require_no_karpenter, warn
    from gpucluster.cloud.terminate_nodes import Clock, end_nodes

    found = access.resources()
    if not found:
        return Emptied(was_empty=True, nodes=0, resources=0)
    region = access.region or _region(found)
    was_empty = all(one.retained for one in found) and not delete_data
    occupants = access.occupants(region)
    if _has(found, EKS):
        require_no_karpenter(blocker_finder(occupants, found, name, region, data=True), name, region)
    _stop_scaling(access, region, found)
    has_head = _has(found, "aws:ec2/instance:Instance")  # a machine that can have the journal
    launched = access.launched(region) if has_head else frozenset[str]()
    warn(blocker_finder(occupants, found, name, region, data=True, launched=launched), name, progress)
    clock = Clock(time.monotonic, time.sleep)
    nodes = end_nodes(access.cloud(region), name, clock, report=progress)
    look = blocker_finder(occupants, found, name, region, data=delete_data, launched=launched)
    require_clear(look, name, clock, progress)
    deleted = _destroy(access, look, name)
    if delete_data:
        deleted += _delete_data(access, look, name)
    return Emptied(
        was_empty=was_empty and not nodes,
        nodes=len(nodes),
        resources=deleted,
        retained=_retained_resources(access.resources(), region),
    )


def _destroy(access: ClusterAccess, look: "FindBlockers", name: str) -> int:
    from gpucluster.cli.down_network import destroyed

    return destroyed(lambda report: _count_deleted(access.destroy(report)), look, name, progress)


def _delete_data(access: ClusterAccess, look: "FindBlockers", name: str) -> int:
    """Delete the data after everything else. So no resource loses its protection earlier than needed."""
    if not access.resources():
        return 0
    progress("deleting the data")
    access.release()
    return _destroy(access, look, name)


def _count_deleted(done: "Outcome") -> int:
    return sum(1 for one in done.changes if one.op == "delete" and not one.type.startswith("gpucluster:"))


def _retained_resources(found: "tuple[DeployedResource, ...]", region: str) -> "RetainedResources | None":
    from gpucluster.catalog import prices

    return retained_of(found, region, prices()) if found else None


def _stop_scaling(access: ClusterAccess, region: str, found: "tuple[DeployedResource, ...]") -> None:
    """Stop launches: the daemon reads the control object before each launch. Without a bucket there is no daemon."""
    from gpucluster.cloud.port import CloudError
    from gpucluster.engine.deployment import one

    bucket = one(found, "aws:s3/bucket:Bucket")
    if bucket is None:
        return
    try:
        access.control(region, bucket.id).stop(f"gpucluster down, {getpass.getuser()}@{platform.node()}")
        progress("scaling is stopped")
    except CloudError as error:
        if error.code != "NoSuchBucket":
            raise


def _has(found: "tuple[DeployedResource, ...]", kind: str) -> bool:
    return any(one.type == kind for one in found)


def _region(found: "tuple[DeployedResource, ...]") -> str:
    """Return the region of the ARNs. ARNs of IAM and S3 have none."""
    arns = (str(one.outputs.get("arn", "")).split(":") for one in found)
    regions = sorted({arn[3] for arn in arns if len(arn) > 5 and arn[3]})
    if not regions:
        raise StateError("the state names no region", next_step="pulumi destroy --exclude-protected")
    return regions[0]


def _access(name: str) -> ClusterAccess:
    from gpucluster.engine import find_or_build

    home = _sandbox(name)
    if home is None and not Path("Pulumi.yaml").is_file():
        raise StateError(
            f"there is no cluster '{name}' here: no sandbox of that name, and no Pulumi.yaml in this folder",
            next_step="go to the folder with Pulumi.yaml, or run gpucluster sandbox status",
        )
    pulumi = find_or_build(progress)
    return _of_user(name, pulumi) if home is None else _of_sandbox(home, pulumi)


def _sandbox(name: str) -> "SandboxDir | None":
    """Return the running sandbox of that name. Only root can read its files."""
    from gpucluster.sandbox import state_dir

    try:
        there = state_dir.SandboxDir(name=name).path.is_dir()
    except PermissionError as error:
        if Path("Pulumi.yaml").is_file():
            return None
        raise HostError(
            "only root can use the sandboxes of this machine", next_step=f"sudo gpucluster down {name}"
        ) from error
    return state_dir.living(name) if there else None


def _of_sandbox(home: "SandboxDir", pulumi: Path) -> ClusterAccess:
    from gpucluster.cli import transport
    from gpucluster.cli.down_network import launched_by
    from gpucluster.cloud.aws import AwsCloud
    from gpucluster.cloud.control import S3Control
    from gpucluster.cloud.network_interfaces import AwsOccupants
    from gpucluster.engine import run
    from gpucluster.engine.error_attribution import explainer

    aim, explain = home.target(pulumi), explainer(home.read_plan())
    run.refuse_if_busy(aim)
    return ClusterAccess(
        resources=lambda: run.deployed_resources(aim),
        destroy=lambda report: run.destroy(aim, report=report, explain=explain),
        release=lambda: run.release(aim),
        cloud=lambda region: AwsCloud(region, lambda _: home.client("ec2")),
        occupants=lambda region: AwsOccupants(region, lambda: home.client("ec2")),
        control=lambda region, bucket: S3Control(region, bucket, lambda: home.client("s3")),
        launched=lambda _: launched_by(
            transport.choose(transport.HeadOptions(cluster=home.name)).run, progress
        ),
        region=aim.environment["AWS_REGION"],
    )


def _of_user(name: str, pulumi: Path) -> ClusterAccess:
    from gpucluster.cli.down_network import launched_by
    from gpucluster.cli.transport_ssm import SsmMachines
    from gpucluster.cloud.aws import AwsCloud
    from gpucluster.cloud.control import S3Control
    from gpucluster.cloud.network_interfaces import AwsOccupants
    from gpucluster.engine import user

    return ClusterAccess(
        resources=lambda: user.deployed_resources(Path(), name, pulumi),
        destroy=lambda report: user.destroy(Path(), name, pulumi, report=report),
        release=lambda: user.release(Path(), name, pulumi),
        cloud=AwsCloud,
        occupants=AwsOccupants,
        control=S3Control,
        launched=lambda region: launched_by(SsmMachines(name, region).run, progress),
        region=None,
    )
