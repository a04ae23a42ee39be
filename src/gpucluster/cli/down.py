"""`gpucluster down NAME`: delete the resources of a cluster in the right order, in the sandbox or on AWS.

It shows what it destroys, and asks. The order is: stop scaling, terminate the nodes, delete the resources that they use.
Something else in the network prevents its deletion: then nothing is deleted, the head neither. Resources with data are
protected and are retained, with their network: the next `up` uses them again. Each step can be repeated.
"""

import getpass
import platform
import secrets
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpucluster.cli.down_world import ClusterAccess, World, access_of, down_line
from gpucluster.cli.output import Output, OutputOption, answer, print_result, progress, reporting
from gpucluster.cli.retained import delete_line, retained_of
from gpucluster.errors import GpuclusterError, StateError

if TYPE_CHECKING:
    from gpucluster.cli.down_network import FindBlockers
    from gpucluster.cli.down_plan import DownPlan
    from gpucluster.cli.retained import RetainedResources
    from gpucluster.cloud.control import S3Control
    from gpucluster.cloud.port import Control
    from gpucluster.engine.deployment import DeployedResource
    from gpucluster.engine.events import Outcome


def down(
    name: Annotated[str, typer.Argument(help="The cluster's name: the spec's `name`.")],
    *,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask. Data is still deleted only with --confirm.")
    ] = False,
    sandbox: Annotated[
        bool, typer.Option("--sandbox", help="The sandbox of that name, if it is also a stack on AWS.")
    ] = False,
    aws: Annotated[
        bool, typer.Option("--aws", help="The stack on AWS, if there is also a sandbox of that name.")
    ] = False,
    delete_data: Annotated[
        bool,
        typer.Option(
            "--delete-data", help="Also delete file systems and disks with their data, permanently."
        ),
    ] = False,
    confirm: Annotated[
        str | None,
        typer.Option(
            "--confirm", help="The cluster's name, instead of the question; --delete-data needs it."
        ),
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show what is destroyed, and ask; then stop scaling, terminate every node and delete Pulumi's resources except data. It can be repeated."""
    if sandbox and aws:
        raise typer.BadParameter("--sandbox and --aws exclude each other")
    asked = World.SANDBOX if sandbox else World.AWS if aws else None
    with reporting(output), _cloud_errors(name):
        from gpucluster.cli.down_plan import plan_of

        if confirm is not None:
            _require_name(name, confirm, asked, delete_data=delete_data)
        access = access_of(name, asked)
        plan = plan_of(access, delete_data=delete_data)
        if not plan.destroys_nothing:
            for line in plan.lines():
                progress(line)
            if confirm is None:
                require_consent(plan, yes=yes)
        done = empty(access, plan)
        if output is Output.JSON:
            answer(ok=True, name=name, plan=plan.as_json(), **done.as_json())
        else:
            left = done.retained.lines(name, access.stack.world) if done.retained else ()
            print_result("\n".join((done.sentence(name), *left)))


@contextmanager
def _cloud_errors(name: str) -> Generator[None]:
    from gpucluster.cloud.port import CloudError

    try:
        yield
    except CloudError as error:
        raise GpuclusterError(
            f"AWS refused: {error}", next_step=f"correct this, then repeat: gpucluster down {name}"
        ) from error


def require_consent(plan: "DownPlan", *, yes: bool) -> None:
    """Ask, unless `yes` says it. StateError without a yes. Deleted data cannot be restored, so its question is the cluster's name."""
    name, world = plan.name, plan.stack.world
    if plan.delete_data:
        reply = _reply(f"type the cluster's name ({name}) to delete it with its data: ")
        if reply is None:
            raise StateError(
                f"--delete-data needs the cluster's name as confirmation, and {_NO_REPLY}: nothing was deleted",
                next_step=delete_line(name, world),
            )
        _require_name(name, reply, world, delete_data=True)
        return
    reply = "yes" if yes else _reply(f"destroy {name} in {plan.where}? Only `yes` is accepted: ")
    if reply != "yes":
        why = _NO_REPLY if reply is None else f"the answer is {reply!r}, not 'yes'"
        raise StateError(
            f"{name} is not destroyed: {why}; nothing was changed",
            next_step=f"{down_line(name, world)} --yes",
        )


_NO_REPLY = "there is no terminal, or its input ended"


def _require_name(name: str, confirm: str, world: World | None, *, delete_data: bool) -> None:
    if confirm != name:
        raise StateError(
            f"the confirmation is {confirm!r}, the cluster's name is {name!r}: nothing was deleted",
            next_step=delete_line(name, world) if delete_data else f"{down_line(name, world)} --yes",
        )


def _reply(question: str) -> str | None:
    """Return the line that is typed; None without a terminal, or at the end of its input."""
    if not sys.stdin.isatty():
        return None
    typer.echo(question, err=True, nl=False)
    try:
        line = sys.stdin.readline()
    except KeyboardInterrupt:
        progress("\nnothing was changed")
        raise
    return line.strip() if line else None


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


def empty(access: ClusterAccess, plan: "DownPlan") -> Emptied:
    """Destroy what the plan showed. StateError if the stack changed meanwhile."""
    from gpucluster.cli.down_network import EKS, blocker_finder, require_clear, require_no_karpenter, warn
    from gpucluster.cli.down_plan import has, report_later_nodes, require_unchanged
    from gpucluster.cloud.terminate_nodes import Clock, end_nodes

    found, name, region = plan.resources, plan.name, plan.region
    require_unchanged(plan, access.resources(), "nothing was deleted")
    if not found:
        return Emptied(was_empty=True, nodes=0, resources=0)
    occupants = access.occupants(region)
    if has(found, EKS):
        require_no_karpenter(blocker_finder(occupants, found, name, region, data=True), name, region)
    with _stopped_scaling(access, region, found, name) as stopped:
        launched = access.launched(region) if plan.has_head else frozenset[str]()
        warn(blocker_finder(occupants, found, name, region, data=True, launched=launched), name, progress)
        clock = Clock(time.monotonic, time.sleep)
        stopped.touches_nothing = False
        nodes = end_nodes(access.cloud(region), name, clock, report=progress)
        report_later_nodes(plan, nodes, progress)
        look = blocker_finder(occupants, found, name, region, data=plan.delete_data, launched=launched)
        require_clear(look, name, clock, progress)
        require_unchanged(plan, access.resources(), "its nodes are terminated, nothing else was deleted")
        deleted = _destroy(access, look, name)
        if plan.delete_data:
            deleted += _delete_data(access, look, plan)
    return Emptied(
        was_empty=not (plan.deleted or nodes),
        nodes=len(nodes),
        resources=deleted,
        retained=_retained_resources(access.resources(), region),
    )


def _destroy(access: ClusterAccess, look: "FindBlockers", name: str) -> int:
    from gpucluster.cli.down_network import destroyed

    return destroyed(lambda report: _count_deleted(access.destroy(report)), look, name, progress)


def _delete_data(access: ClusterAccess, look: "FindBlockers", plan: "DownPlan") -> int:
    """Delete the data after everything else. So no resource loses its protection earlier than needed."""
    from gpucluster.cli.down_plan import require_none_new

    left = access.resources()
    if not left:
        return 0
    require_none_new(plan, left, "the data was not deleted")
    progress("deleting the data")
    access.release()
    return _destroy(access, look, plan.name)


def _count_deleted(done: "Outcome") -> int:
    return sum(1 for one in done.changes if one.op == "delete" and not one.type.startswith("gpucluster:"))


def _retained_resources(found: "tuple[DeployedResource, ...]", region: str) -> "RetainedResources | None":
    from gpucluster.catalog import prices

    return retained_of(found, region, prices()) if found else None


@dataclass(slots=True, kw_only=True)
class _ScalingStop:
    """What happens to launches if `down` ends before the cluster is deleted."""

    touches_nothing: bool = True


@contextmanager
def _stopped_scaling(
    access: ClusterAccess, region: str, found: "tuple[DeployedResource, ...]", name: str
) -> Generator[_ScalingStop]:
    """Stop launches: the daemon reads the control object before each launch. Without a bucket there is no daemon.

    If the block fails before it touches anything, launches are again as they were.
    """
    from gpucluster.cloud.control import DOWN
    from gpucluster.cloud.port import CloudError, Scaling
    from gpucluster.engine.deployment import one

    state, bucket = _ScalingStop(), one(found, "aws:s3/bucket:Bucket")
    by = f"{DOWN}, {getpass.getuser()}@{platform.node()}, run {secrets.token_hex(3)}"
    control = None if bucket is None else access.control(region, bucket.id)
    try:
        before = None if control is None else control.scale(Scaling.STOP, by)
    except CloudError as error:
        if error.code != "NoSuchBucket":
            raise
        control = before = None
    if control is None or before is None:
        yield state
        return
    progress("scaling is stopped")
    try:
        yield state
    except BaseException:
        _leave_scaling(control, before, by, name, as_before=state.touches_nothing)
        raise


def _leave_scaling(control: "S3Control", before: "Control", by: str, name: str, *, as_before: bool) -> None:
    """Put launches back as they were, or leave them stopped. What somebody else wrote meanwhile stays."""
    from gpucluster.cloud.control import DOWN_ENDED
    from gpucluster.cloud.port import CloudError, Scaling

    try:
        if control.read().by != by:
            return
        if as_before:
            control.scale(before.scaling, before.by)
            progress("scaling is as it was before")
        else:
            control.scale(Scaling.STOP, f"{by}{DOWN_ENDED}")
            progress(f"scaling stays stopped; to launch again: gpucluster scaling start {name}")
    except CloudError as error:
        if error.code != "NoSuchBucket":  # it may be deleted already
            progress(f"scaling may stay stopped ({error}): gpucluster scaling show {name}")
