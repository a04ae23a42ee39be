"""`gpucluster down NAME`: empty the cloud of a cluster, in the right order, in the sandbox or on AWS.

Scaling stops first, then the nodes end, and only then goes what they stand on. What holds data is protected and
stays, with the network that it hangs on: the next `up` finds it. Each step can be repeated.
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

from gpucluster.cli.kept import delete_line, left_of
from gpucluster.cli.output import Output, OutputOption, answer, progress, reporting
from gpucluster.errors import GpuclusterError, HostError, StateError

if TYPE_CHECKING:
    from gpucluster.cli.kept import Left
    from gpucluster.cloud.control import S3Control
    from gpucluster.cloud.port import CloudPort
    from gpucluster.engine.events import Outcome, Progress, Report
    from gpucluster.engine.standing import Standing
    from gpucluster.sandbox.ledger import Home


def down(
    name: Annotated[str, typer.Argument(help="The cluster's name: the spec's `name`.")],
    delete_data: Annotated[
        bool,
        typer.Option("--delete-data", help="Delete also what holds data: file systems and disks. For ever."),
    ] = False,
    confirm: Annotated[
        str | None,
        typer.Option(
            "--confirm", help="The cluster's name again, for --delete-data where nobody can be asked."
        ),
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Stop scaling, end every node, then delete what Pulumi made, but for data. Twice does no harm."""
    with reporting(output):
        if delete_data:
            _sure(name, confirm)
        done = _emptied(name, delete_data=delete_data)
        if output is Output.JSON:
            answer(ok=True, name=name, **done.as_json())
        else:
            typer.echo("\n".join((done.sentence(name), *(done.left.lines(name) if done.left else ()))))


def _sure(name: str, confirm: str | None) -> None:
    """The name typed once more, by hand or as an option: nothing brings the data back."""
    if confirm is None and sys.stdin.isatty():
        progress(
            f"--delete-data deletes the file systems and disks of '{name}', and what is in them, for ever"
        )
        confirm = typer.prompt(f"type the cluster's name ({name}) to go on", err=True)
    if confirm is None:
        raise StateError(
            "--delete-data asks for the cluster's name, and there is no terminal to ask at",
            next_step=delete_line(name),
        )
    if confirm != name:
        raise StateError(
            f"the name given was {confirm!r}, the cluster's is {name!r}: nothing was done",
            next_step=delete_line(name),
        )


def _emptied(name: str, *, delete_data: bool) -> "Emptied":
    from gpucluster.cloud.port import CloudError

    try:
        return empty(_place(name), name, delete_data=delete_data)
    except CloudError as error:
        raise GpuclusterError(
            f"the cloud did not do it: {error}", next_step=f"mend that, then again: gpucluster down {name}"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a cluster stands, and how to reach its cloud and its state."""

    standing: "Callable[[], tuple[Standing, ...]]"
    destroy: "Callable[[Report], Outcome]"  # but for what is protected
    release: "Callable[[], None]"  # from then on nothing is
    cloud: "Callable[[str], CloudPort]"  # by region
    control: "Callable[[str, str], S3Control]"  # by region and bucket
    region: str | None  # None: the resources say it


@dataclass(frozen=True, slots=True, kw_only=True)
class Emptied:
    """What was done, and what stays."""

    was_empty: bool
    nodes: int
    resources: int
    left: "Left | None" = None

    def sentence(self, name: str) -> str:
        """For people."""
        if self.was_empty:
            return f"{name} is already empty" + (", but for its data:" if self.left else "")
        done = f"{self.nodes} nodes ended, {self.resources} resources deleted"
        return f"{name} is {'down' if self.left else 'empty'}: {done}" + (
            "; its data stays:" if self.left else ""
        )

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        kept = [one.as_json() for one in self.left.data] if self.left else []
        ground = list(self.left.ground) if self.left else []
        done = {"was_empty": self.was_empty, "nodes": self.nodes, "resources": self.resources}
        return {**done, "kept": kept, "kept_network": ground}


def empty(place: Place, name: str, *, delete_data: bool = False) -> Emptied:
    """Take the cluster down to nothing, or to its data."""
    from gpucluster.cloud.ending import Clock, end_nodes

    found = place.standing()
    if not found:
        return Emptied(was_empty=True, nodes=0, resources=0)
    region = place.region or _region(found)
    was_empty = all(one.kept for one in found) and not delete_data
    _stop_scaling(place, region, found)
    clock = Clock(time.monotonic, time.sleep)
    nodes = end_nodes(place.cloud(region), name, clock, report=progress)
    deleted = _deleted(place.destroy(_say))
    if delete_data:
        deleted += _data_deleted(place)
    return Emptied(
        was_empty=was_empty and not nodes,
        nodes=len(nodes),
        resources=deleted,
        left=_left(place.standing(), region),
    )


def _data_deleted(place: Place) -> int:
    """The rest, once all else has gone: nothing is unprotected for longer than its own deletion takes."""
    if not place.standing():
        return 0
    progress("deleting the data")
    place.release()
    return _deleted(place.destroy(_say))


def _deleted(done: "Outcome") -> int:
    return sum(1 for one in done.changes if one.op == "delete" and not one.type.startswith("gpucluster:"))


def _left(found: "tuple[Standing, ...]", region: str) -> "Left | None":
    from gpucluster.catalog import prices

    return left_of(found, region, prices()) if found else None


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
    """The ARNs name it, but for those of IAM and S3."""
    arns = (str(one.outputs.get("arn", "")).split(":") for one in found)
    regions = sorted({arn[3] for arn in arns if len(arn) > 5 and arn[3]})
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
    from gpucluster.engine.blame import blamer

    aim, explain = home.target(pulumi), blamer(home.read_plan())
    run.refuse_if_busy(aim)
    return Place(
        standing=lambda: run.standing(aim),
        destroy=lambda report: run.destroy(aim, report=report, explain=explain),
        release=lambda: run.release(aim),
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
        release=lambda: user.release(Path(), name, pulumi),
        cloud=AwsCloud,
        control=S3Control,
        region=None,
    )
