"""`gpucluster sandbox`: a cloud on this machine, to rehearse a cluster for real."""

import math
import os
import sys
from collections.abc import Set
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpucluster.cli.output import Output, OutputOption, answer, progress, reporting
from gpucluster.cli.shell import shell
from gpucluster.cli.ssh import ssh
from gpucluster.cli.still import steps
from gpucluster.errors import StateError
from gpucluster.plan.messages import NoticeKind

if TYPE_CHECKING:
    from gpucluster.engine.events import Change
    from gpucluster.plan.model import ClusterPlan
    from gpucluster.sandbox.control import SandboxControl
    from gpucluster.sandbox.inside import Resident
    from gpucluster.sandbox.ledger import Home
    from gpucluster.sandbox.plain_up import PlainUp
    from gpucluster.sandbox.up import Up

app = typer.Typer(
    help="Rehearse a cluster on this machine: the real engine, real Slurm, real jobs.", no_args_is_help=True
)


class Way(StrEnum):
    """How a machine and its cluster hear of a notice."""

    METADATA = "metadata"
    QUEUE = "queue"


_AFTER_S = {NoticeKind.SPOT: 120.0, NoticeKind.MAINTENANCE: 7200.0}
NameArgument = Annotated[str, typer.Argument(help="The sandbox's name: the spec's `name`.")]


@app.command()
def up(
    cluster: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A spec, or a name of stacks/, such as burst.")
    ],
    real_times: Annotated[
        bool, typer.Option("--real-times", help="Wait as long as on AWS: shorten no time.")
    ] = False,
    cloud_only: Annotated[
        bool,
        typer.Option(
            "--cloud-only", help="Only the cloud, empty: type the first `pulumi up` in `sandbox shell`."
        ),
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Bring the cluster up here; needs root. Ctrl-C at any moment leaves nothing."""
    with reporting(output):
        from gpucluster.cli.desk import resolve_file, the_spec
        from gpucluster.sandbox import up as sandbox

        file = the_spec(cluster)
        desk = resolve_file(file)
        for warning in desk.warnings:
            progress(str(warning))
        if desk.plan.hosts is not None:
            _up_plain(desk.plan, output)
            return
        if desk.plan.slurm is None:
            raise StateError(
                f"{desk.plan.name} has no Slurm, and the sandbox rehearses no Kubernetes yet",
                next_step=f"gpucluster render {file}, gpucluster lint FOLDER --spec {file}",
            )
        machines = desk.catalog.machines.items()
        with steps() as step:
            done = sandbox.up(
                desk.plan,
                gpus={name: machine.gpu.count if machine.gpu else 0 for name, machine in machines},
                program=_declare,
                progress=step,
                real_times=real_times,
                cloud_only=cloud_only,
            )
        if output is Output.JSON:
            _answer_up(done)
        else:
            typer.echo(_cloud_text(done) if cloud_only else _up_text(done))


@app.command()
def down(name: NameArgument, output: OutputOption = Output.TEXT) -> None:
    """End the sandbox and remove every file of it; the caches stay."""
    with reporting(output):
        from gpucluster.sandbox import down as sandbox

        sandbox.down(name)
        if output is Output.JSON:
            answer(ok=True, name=name)
        else:
            typer.echo(f"{name} is gone")


@app.command()
def status(
    name: Annotated[str | None, typer.Argument(help="One sandbox; all without it.")] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Until its head is ready: the last step after a typed `pulumi up`.")
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Say which sandboxes there are, their machines, what dead ones left, and our caches."""
    with reporting(output):
        from gpucluster.sandbox import status as sandbox

        if wait:
            _await(name)
        found = sandbox.status(name)
        if output is Output.JSON:
            answer(ok=True, **found.as_json())
        else:
            typer.echo(found.as_text())


@app.command()
def capacity(
    name: NameArgument,
    *,
    free: Annotated[
        str, typer.Option("--free", help="How many more can be had; 0 refuses, `unlimited` lifts it.")
    ],
    machine: Annotated[str, typer.Option("--machine", help="A machine type; `*` is any.")] = "*",
    zone: Annotated[str, typer.Option("--zone", help="An availability zone; `*` is any.")] = "*",
    market: Annotated[str, typer.Option("--market", help="spot or on-demand; `*` is both.")] = "*",
    output: OutputOption = Output.TEXT,
) -> None:
    """Order what the sandbox's cloud has left, to see what the cluster makes of a refusal."""
    with reporting(output):
        from gpucluster.plan.model import there
        from gpucluster.sandbox import host, ledger
        from gpucluster.sandbox.status import control

        if free != "unlimited" and not free.isdecimal():
            raise typer.BadParameter(f"{free!r}: expected a number, or `unlimited`", param_hint="--free")
        host.require_root()
        home = ledger.living(name)
        plan = home.read_plan()
        network = there(plan.aws).network
        sources = [source for pool in plan.pools for source in pool.sources]
        _one_of("--machine", machine, {one for source in sources for one in source.machines})
        _one_of("--zone", zone, {subnet.zone for subnet in network.subnets})
        _one_of("--market", market, {source.market.value for source in sources})
        left = None if free == "unlimited" else int(free)
        order: dict[str, Any] = {"machine": machine, "zone": zone, "market": market, "free": left}
        control(home).set_capacity(**order)
        if output is Output.JSON:
            answer(ok=True, name=name, **order)
        else:
            has = "as much as is asked for" if left is None else f"{left} more, then it refuses"
            progress(f"{name}: of machine {machine}, zone {zone}, market {market} the cloud has {has}")


@app.command()
def notice(
    name: NameArgument,
    machine: Annotated[str, typer.Argument(help="A Slurm node's name, or an instance id.")],
    *,
    kind: Annotated[
        NoticeKind, typer.Option("--kind", help="What is told; only a spot notice ends the machine.")
    ] = NoticeKind.SPOT,
    after: Annotated[
        float | None,
        typer.Option("--after", min=0, help="Seconds until it takes effect; 120, for maintenance 7200."),
    ] = None,
    silent: Annotated[
        list[Way] | None, typer.Option("--silent", help="A way that says nothing; may be given twice.")
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Tell a machine that it goes, as the cloud does: in its metadata, and in the cluster's queue. Only spot ones are taken back."""
    with reporting(output):
        from gpucluster.sandbox.status import control

        if after is not None and not math.isfinite(after):
            raise typer.BadParameter("expected seconds", param_hint="--after")
        if kind is NoticeKind.REBALANCE and after is not None:
            raise typer.BadParameter("a rebalance recommendation has no time", param_hint="--after")
        home, resident = _resident(name, machine)
        quiet = sorted({way.value for way in silent or ()})
        orders, seconds = control(home), _seconds_of(kind, after)
        _only_spot(kind, name, resident, orders)
        if kind is NoticeKind.SPOT:
            orders.interrupt(resident.instance, seconds, silent=quiet)
        elif kind is NoticeKind.REBALANCE:
            orders.rebalance(resident.instance, silent=quiet)
        else:
            orders.maintain(resident.instance, after_s=seconds, silent=quiet)
        told = {"instance": resident.instance, "node": resident.node, "kind": kind.value, "after_s": seconds}
        if output is Output.JSON:
            answer(ok=True, name=name, silent=quiet, **told)
        else:
            typer.echo(_notice_text(kind, resident.node or resident.instance, seconds))


@app.command()
def preview(
    name: NameArgument,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Compare with the cloud as it stands, not with the state.")
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show what Pulumi would change; with --refresh, what was changed behind its back. Nothing is done."""
    with reporting(output):
        from gpucluster.sandbox import drift as sandbox

        with steps() as step:
            found = sandbox.preview(name, refresh=refresh, program=_declare, progress=step)
        if output is Output.JSON:
            answer(ok=True, name=name, changes=[_change(one) for one in found])
        else:
            typer.echo("\n".join(map(_change_text, found)) or f"{name}: no change")


@app.command(context_settings={"ignore_unknown_options": True})
def exec(  # noqa: A001  the verb's name
    name: NameArgument,
    machine: Annotated[str, typer.Argument(help="`head`, a Slurm node's name, or an instance id.")],
    command: Annotated[list[str], typer.Argument(help="The command and its arguments, after `--`.")],
    user: Annotated[str | None, typer.Option("--user", help="Who runs it; root without it.")] = None,
) -> None:
    """Run a command in a machine; input, terminal and exit code are the command's own."""
    from gpucluster.sandbox.inside import enter_argv

    _, resident = _resident(name, machine)
    argv = enter_argv(resident.leader, command, user=user, term=os.environ.get("TERM", "dumb"))
    sys.stdout.flush()
    os.execvp(argv[0], argv)  # noqa: S606  we become the command, so that its exit code is ours


@app.command(context_settings={"ignore_unknown_options": True})
def run(
    name: NameArgument,
    command: Annotated[list[str], typer.Argument(help="A program of this machine, after `--`.")],
) -> None:
    """Run a program of this machine in the sandbox's network, where its machines have their addresses."""
    from gpucluster.sandbox import host, ledger
    from gpucluster.sandbox.plain import reach_argv

    host.require_root()
    capsule = ledger.living(name).read_capsule()
    argv = reach_argv(capsule.init if capsule else 0, tuple(command))
    sys.stdout.flush()
    os.execvp(argv[0], argv)  # noqa: S606  we become the command, so that its exit code is ours


@app.command()
def logs(
    name: NameArgument,
    machine: Annotated[
        str | None, typer.Argument(help="A machine's console; the sandbox's own log without it.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it grows.")] = False,
) -> None:
    """Show what a machine wrote to its console, or the sandbox's own log."""
    path = _log_of(name, machine)
    argv = ["tail", "--lines=+1", *(("--follow=name",) if follow else ()), str(path)]
    os.execvp(argv[0], argv)  # noqa: S606  we become tail


app.command(context_settings={"ignore_unknown_options": True})(shell)


def _await(name: str | None) -> None:
    from gpucluster.sandbox import host
    from gpucluster.sandbox.up import await_cluster

    if name is None:
        raise typer.BadParameter("wait for which one? Give its name", param_hint="--wait")
    host.require_root()
    with steps() as step:
        await_cluster(name, step)


app.command()(ssh)


def _seconds_of(kind: NoticeKind, after: float | None) -> float:
    return after if after is not None else _AFTER_S.get(kind, 0.0)


def _only_spot(kind: NoticeKind, name: str, resident: "Resident", orders: "SandboxControl") -> None:
    """EC2 takes back what is spot, and nothing else; a head that was told so would end."""
    if kind is NoticeKind.MAINTENANCE:
        return
    markets = {one["id"]: one["market"] for one in orders.instances()}
    market = markets.get(resident.instance, "unknown")
    if market != "spot":
        raise StateError(
            f"{resident.node or resident.role} is {market}, and only a spot machine is given a {kind.value} notice",
            next_step=f"--kind maintenance, or a spot machine: gpucluster sandbox status {name}",
        )


def _notice_text(kind: NoticeKind, machine: str, seconds: float) -> str:
    return {
        NoticeKind.SPOT: f"{machine} is told that it ends in {seconds:g} s",
        NoticeKind.REBALANCE: f"{machine} is told that it may be taken back",
        NoticeKind.MAINTENANCE: f"{machine} is told of maintenance in {seconds:g} s",
    }[kind]


def _declare(plan: "ClusterPlan") -> None:
    from gpucluster.aws.program import declare

    declare(plan)


def _up_plain(plan: "ClusterPlan", output: Output) -> None:
    """Plain machines, and beside them what Ansible is given for them."""
    from gpucluster.sandbox import plain_up

    with steps() as step:
        done = plain_up.up(plan, progress=step, furnish=_write_site)
    inventory = done.home.site / "inventory.yml"
    if output is Output.JSON:
        answer(
            ok=True,
            name=plan.name,
            inventory=str(inventory),
            state=str(done.home.path),
            differences=list(done.differences),
            seconds=dict(done.seconds),
        )
    else:
        typer.echo(_plain_text(plan, inventory, done.differences))


def _write_site(done: "PlainUp") -> None:
    from gpucluster.cli.inventory import write_site
    from gpucluster.site.folder import Access

    access = Access(known_hosts=done.known_hosts, private_key=done.private_key)
    write_site(done.plan, access, done.home.site)


def _plain_text(plan: "ClusterPlan", inventory: Path, differences: tuple[str, ...]) -> str:
    from gpucluster.files import shipped
    from gpucluster.plan.model import there

    name = plan.name
    return "\n".join(
        (
            f"{name}: plain machines, with nothing on them. They differ from hosts that exist in this:",
            *(f"  - {line}" for line in differences),
            "How to go on:",
            f"  gpucluster sandbox run {name} -- ansible-playbook -i {inventory} {shipped('playbooks') / 'site.yml'}",
            f"  gpucluster sandbox exec {name} {there(plan.head).name} -- sinfo",
            f"  gpucluster sandbox down {name}",
        )
    )


def _up_text(done: "Up") -> str:
    name = done.home.name
    return "\n".join(
        (
            f"{name} is up. It differs from AWS in this, and in nothing else that we know of:",
            *(f"  - {line}" for line in done.differences),
            f"  - at most {done.room} machines at once, the head included (fs.inotify.max_user_instances); then EC2 has no capacity",
            "How to go on:",
            f"  gpucluster sandbox exec {name} head {first_job(done.home.read_plan())}",
            f"  gpucluster sandbox exec {name} head -- sinfo",
            f"  gpucluster sandbox down {name}",
        )
    )


def first_job(plan: "ClusterPlan") -> str:
    """A job that fits the cluster: one of its users, where it names some, and the GPUs and nodes of one of its pools."""
    user = plan.users[0].name if plan.users else "researcher"
    default = next((part for part in plan.partitions if part.default), plan.partitions[0])
    pool = next(pool for pool in plan.pools if pool.name in default.pools)
    gpus = f" --gres=gpu:{pool.shape.gpu_count}" if pool.shape.gpu_count else ""
    named = "" if default.default else f" -p {default.name}"
    return f"--user {user} -- sbatch{named} -N{min(2, pool.max)}{gpus} --wrap 'srun hostname'"


def _cloud_text(done: "Up") -> str:
    name = done.home.name
    return "\n".join(
        (
            f"{name}: a cloud with nothing in it, at http://127.0.0.1:{done.port}. It differs from AWS in this:",
            *(f"  - {line}" for line in done.differences),
            "How to go on:",
            f"  gpucluster sandbox shell {name}     then: pulumi up, and gpucluster sandbox status {name} --wait",
            f"  gpucluster sandbox down {name}",
        )
    )


def _answer_up(done: "Up") -> None:
    answer(
        ok=True,
        name=done.home.name,
        endpoint=f"http://127.0.0.1:{done.port}",
        state=str(done.home.path),
        differences=list(done.differences),
        room=done.room,
        seconds=dict(done.seconds),
        bucket=done.outputs.get("bucket"),
        head=done.outputs.get("head"),
    )


def _one_of(option: str, value: str, known: Set[str]) -> None:
    """An order about what the cluster never asks for would refuse nothing, in silence."""
    if value != "*" and value not in known:
        raise typer.BadParameter(
            f"{value!r}: this cluster has {', '.join(sorted(known))}; `*` is any", param_hint=option
        )


def _change(change: "Change") -> dict[str, Any]:
    return {
        "op": change.op,
        "type": change.type,
        "name": change.name,
        "properties": list(change.properties),
        "follows": change.follows,
    }


def _change_text(change: "Change") -> str:
    what = f"{change.op:8} {change.type.rpartition(':')[2]} {change.name}"
    properties = f": {', '.join(change.properties)}" if change.properties else ""
    return what + properties + (" (follows another change)" if change.follows else "")


def _resident(name: str, machine: str) -> "tuple[Home, Resident]":
    from gpucluster.sandbox import host, inside, ledger

    host.require_root()
    home = ledger.living(name)
    return home, inside.find(home, host.cgroup_trees(Path("/proc/self/mountinfo").read_text()), machine)


def _log_of(name: str, machine: str | None) -> Path:
    from gpucluster.sandbox import host, ledger

    host.require_root()
    home = ledger.existing(name)
    if machine is None:
        return home.log
    console = home.console / machine
    if machine.startswith("i-") and console.is_file():  # also of a machine that has ended
        return console
    return home.console / _resident(name, machine)[1].instance
