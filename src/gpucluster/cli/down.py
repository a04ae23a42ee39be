"""`gpucluster down NAME`: empty the cloud of a cluster, in the right order, in the sandbox or on AWS.

Scaling stops first, then the nodes end, and only then goes what they stand on. Each step can be repeated.
"""

import getpass
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpucluster.cli.output import Output, OutputOption, answer, progress, reporting
from gpucluster.errors import GpuclusterError, HostError, StateError

if TYPE_CHECKING:
    from gpucluster.cloud.control import S3Control
    from gpucluster.cloud.port import CloudPort
    from gpucluster.engine.events import Outcome, Progress, Report
    from gpucluster.engine.standing import Standing
    from gpucluster.sandbox.ledger import Home


def down(
    name: Annotated[str, typer.Argument(help="The cluster's name: the spec's `name`.")],
    output: OutputOption = Output.TEXT,
) -> None:
    """Stop scaling, end every node, then delete what Pulumi made. Twice does no harm."""
    with reporting(output):
        done = _emptied(name)
        if output is Output.JSON:
            answer(ok=True, name=name, was_empty=done.was_empty, nodes=done.nodes, resources=done.resources)
        else:
            typer.echo(done.sentence(name))


def _emptied(name: str) -> "Emptied":
    from gpucluster.cloud.port import CloudError

    try:
        return empty(_place(name), name)
    except CloudError as error:
        raise GpuclusterError(
            f"the cloud did not do it: {error}", next_step=f"mend that, then again: gpucluster down {name}"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a cluster stands, and how to reach its cloud and its state."""

    standing: "Callable[[], tuple[Standing, ...]]"
    destroy: "Callable[[Report], Outcome]"
    cloud: "Callable[[str], CloudPort]"  # by region
    control: "Callable[[str, str], S3Control]"  # by region and bucket
    region: str | None  # None: the resources say it


@dataclass(frozen=True, slots=True, kw_only=True)
class Emptied:
    """What was done."""

    was_empty: bool
    nodes: int
    resources: int

    def sentence(self, name: str) -> str:
        """For people."""
        if self.was_empty:
            return f"{name} is already empty"
        return f"{name} is empty: {self.nodes} nodes ended, {self.resources} resources deleted"


def empty(place: Place, name: str) -> Emptied:
    """Take the cluster down to nothing."""
    from gpucluster.cloud.ending import Clock, end_nodes

    found = place.standing()
    if not found:
        return Emptied(was_empty=True, nodes=0, resources=0)
    region = place.region or _region(found)
    _stop_scaling(place, region, found)
    clock = Clock(time.monotonic, time.sleep)
    nodes = end_nodes(place.cloud(region), name, clock, report=progress)
    done = place.destroy(_say)
    deleted = [c for c in done.changes if c.op == "delete" and not c.type.startswith("gpucluster:")]
    return Emptied(was_empty=False, nodes=len(nodes), resources=len(deleted))


def _stop_scaling(place: Place, region: str, found: "tuple[Standing, ...]") -> None:
    """The daemon reads the control object before each launch; without a bucket there is no bundle, so no daemon."""
    from gpucluster.cloud.port import CloudError
    from gpucluster.engine.standing import one

    bucket = one(found, "aws:s3/bucket:Bucket")
    if bucket is None:
        return
    try:
        place.control(region, bucket.id).stop(f"gpucluster down, {getpass.getuser()}@{platform.node()}")
        progress("scaling is stopped")
    except CloudError as error:
        if error.code != "NoSuchBucket":
            raise


def _region(found: "tuple[Standing, ...]") -> str:
    """Every ARN of EC2 names it."""
    arns = (str(one.outputs.get("arn", "")) for one in found)
    regions = sorted({arn.split(":")[3] for arn in arns if arn.startswith("arn:aws:ec2:")})
    if not regions:
        raise StateError("the state names no region", next_step="pulumi destroy --exclude-protected")
    return regions[0]


def _say(step: "Progress") -> None:
    if step.done or step.message:
        progress(str(step))


def _place(name: str) -> Place:
    from gpucluster.engine import find_or_build

    home = _sandbox(name)
    if home is None and not Path("Pulumi.yaml").is_file():
        raise StateError(
            f"there is no cluster '{name}' here: no sandbox of that name, and no Pulumi.yaml in this folder",
            next_step="go to the folder with Pulumi.yaml, or see gpucluster sandbox status",
        )
    pulumi = find_or_build(progress)
    return _of_user(name, pulumi) if home is None else _of_sandbox(home, pulumi)


def _sandbox(name: str) -> "Home | None":
    """The living sandbox of that name. Its files are root's alone."""
    from gpucluster.sandbox import ledger

    try:
        there = ledger.Home(name=name).path.is_dir()
    except PermissionError as error:
        if Path("Pulumi.yaml").is_file():
            return None
        raise HostError(
            "the sandboxes of this machine are root's", next_step=f"sudo gpucluster down {name}"
        ) from error
    return ledger.living(name) if there else None


def _of_sandbox(home: "Home", pulumi: Path) -> Place:
    from gpucluster.cloud.aws import AwsCloud
    from gpucluster.cloud.control import S3Control
    from gpucluster.engine import run

    aim = home.target(pulumi)
    return Place(
        standing=lambda: run.standing(aim),
        destroy=lambda report: run.destroy(aim, report=report),
        cloud=lambda region: AwsCloud(region, lambda _: home.client("ec2")),
        control=lambda region, bucket: S3Control(region, bucket, lambda: home.client("s3")),
        region=aim.environment["AWS_REGION"],
    )


def _of_user(name: str, pulumi: Path) -> Place:
    from gpucluster.cloud.aws import AwsCloud
    from gpucluster.cloud.control import S3Control
    from gpucluster.engine import user

    return Place(
        standing=lambda: user.standing(Path(), name, pulumi),
        destroy=lambda report: user.destroy(Path(), name, pulumi, report=report),
        cloud=AwsCloud,
        control=S3Control,
        region=None,
    )
