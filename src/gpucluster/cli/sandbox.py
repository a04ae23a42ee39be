"""`gpucluster sandbox`: a cloud on this machine, to rehearse a cluster."""

import math
import os
import sys
from collections.abc import Set
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpucluster.cli.output import Output, OutputOption, answer, print_result, progress, reporting, steps
from gpucluster.cli.shell import shell, ssh
from gpucluster.errors import StateError
from gpucluster.plan.messages import NoticeKind

if TYPE_CHECKING:
    from gpucluster.engine.events import Change
    from gpucluster.plan.model import ClusterPlan, KubernetesOnAws, SlurmOnHosts, SlurmPlan
    from gpucluster.plan.spec_source import SpecSource
    from gpucluster.sandbox.aws.scenario_client import SandboxControl
    from gpucluster.sandbox.machines.inside import RunningMachine
    from gpucluster.sandbox.state_dir import SandboxDir
    from gpucluster.sandbox.up import RunningSandbox
    from gpucluster.sandbox.up_hosts import RunningHosts

app = typer.Typer(
    help="Rehearse a cluster on this machine: the real Pulumi engine, real Slurm, real jobs.",
    no_args_is_help=True,
)


class NoticePath(StrEnum):
    """The paths of a notice to a machine and its cluster."""

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
        bool, typer.Option("--real-times", help="Use the times of AWS instead of shorter ones.")
    ] = False,
    cloud_only: Annotated[
        bool,
        typer.Option(
            "--cloud-only", help="Start only an empty AWS. Run the first `pulumi up` in `sandbox shell`."
        ),
    ] = False,
    scale: Annotated[
        int | None,
        typer.Option(
            "--scale",
            min=1,
            help="Existing hosts: most hosts of each pool. Default: all of them up to 8 machines, else 2 or 1.",
        ),
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Start the cluster on this machine; needs root. Ctrl-C at any time leaves nothing behind."""
    with reporting(output):
        from gpucluster.cli.context import resolve_file
        from gpucluster.cli.spec_files import require_spec
        from gpucluster.sandbox import up as sandbox

        file = require_spec(cluster)
        resolved = resolve_file(file)
        for warning in resolved.warnings:
            progress(str(warning))
        if resolved.plan.hosts is not None:
            _up_plain(resolved.plan, file, scale, output)
            return
        if scale is not None:
            raise StateError("--scale is for existing hosts", next_step="lower `nodes.max` of the pools")
        if resolved.plan.slurm is None:
            _up_kubernetes(resolved.plan, file, cloud_only=cloud_only, output=output)
            return
        machines = resolved.catalog.machines.items()
        with steps() as step:
            done = sandbox.up(
                resolved.plan,
                gpus={name: machine.gpu.count if machine.gpu else 0 for name, machine in machines},
                program=_declare,
                progress=step,
                spec=file,
                real_times=real_times,
                cloud_only=cloud_only,
            )
        if output is Output.JSON:
            _answer_up(done)
        else:
            print_result(_cloud_text(done) if cloud_only else _up_text(done))


@app.command()
def down(name: NameArgument, output: OutputOption = Output.TEXT) -> None:
    """Stop the sandbox and remove all its files; caches stay."""
    with reporting(output):
        from gpucluster.sandbox import down as sandbox

        sandbox.down(name)
        if output is Output.JSON:
            answer(ok=True, name=name)
        else:
            print_result(f"{name} is gone")


@app.command()
def status(
    name: Annotated[str | None, typer.Argument(help="A sandbox. Default: all.")] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the head is ready: the last step after `pulumi up`.")
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show the sandboxes, their machines, leftovers of dead sandboxes, and the caches."""
    with reporting(output):
        from gpucluster.sandbox import status as sandbox

        if wait:
            _await(name)
        found = sandbox.status(name)
        if output is Output.JSON:
            answer(ok=True, **found.as_json())
        else:
            print_result(found.as_text())


@app.command()
def capacity(
    name: NameArgument,
    *,
    free: Annotated[
        str,
        typer.Option(
            "--free", help="Number of further machines; 0 refuses all, `unlimited` removes the limit."
        ),
    ],
    machine: Annotated[str, typer.Option("--machine", help="A machine type; `*` means every type.")] = "*",
    zone: Annotated[str, typer.Option("--zone", help="An availability zone; `*` means every zone.")] = "*",
    market: Annotated[str, typer.Option("--market", help="spot or on-demand; `*` means both.")] = "*",
    output: OutputOption = Output.TEXT,
) -> None:
    """Set the free capacity of the sandbox's cloud, to test how the cluster handles a refusal."""
    with reporting(output):
        from gpucluster.plan.model import eks_of
        from gpucluster.sandbox import host_checks, state_dir
        from gpucluster.sandbox.status import control

        if free != "unlimited" and not free.isdecimal():
            raise typer.BadParameter(f"{free!r}: expected a number, or `unlimited`", param_hint="--free")
        host_checks.require_root()
        home = state_dir.living(name)
        plan = home.read_plan()
        if plan.aws is None:
            raise StateError(
                f"{name} is a sandbox of hosts: it has no AWS, so it has no capacity setting",
                next_step="`gpucluster sandbox status` lists the sandboxes",
            )
        pools, plane = (*plan.pools, *(plan.kubernetes.pools if plan.kubernetes else ())), eks_of(plan)
        sources = [
            *(source for pool in pools for source in pool.sources),
            *(plane.groups if plane else ()),  # with the nodes of the add-ons, which no pool has
        ]
        _one_of("--machine", machine, {one for source in sources for one in source.machines})
        _one_of("--zone", zone, {subnet.zone for subnet in plan.aws.network.subnets})
        _one_of("--market", market, {source.market.value for source in sources})
        left = None if free == "unlimited" else int(free)
        order: dict[str, Any] = {"machine": machine, "zone": zone, "market": market, "free": left}
        control(home).set_capacity(**order)
        if output is Output.JSON:
            answer(ok=True, name=name, **order)
        else:
            has = "unlimited capacity" if left is None else f"capacity for {left} more"
            progress(f"{name}: of machine {machine}, zone {zone}, market {market} EC2 has {has}")


@app.command()
def notice(
    name: NameArgument,
    machine: Annotated[str, typer.Argument(help="A Slurm node name, or an instance id.")],
    *,
    kind: Annotated[
        NoticeKind, typer.Option("--kind", help="Kind of the notice. Only a spot notice ends the machine.")
    ] = NoticeKind.SPOT,
    after: Annotated[
        float | None,
        typer.Option("--after", min=0, help="Seconds until it takes effect; 120, for maintenance 7200."),
    ] = None,
    silent: Annotated[
        list[NoticePath] | None,
        typer.Option("--silent", help="A channel without the notice; may be given twice."),
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Send an interruption notice to a machine, as EC2 does: in its metadata and in the cluster's queue. Only for spot machines."""
    with reporting(output):
        from gpucluster.sandbox.status import control

        if after is not None and not math.isfinite(after):
            raise typer.BadParameter("expected a number of seconds", param_hint="--after")
        if kind is NoticeKind.REBALANCE and after is not None:
            raise typer.BadParameter("a rebalance recommendation has no time", param_hint="--after")
        home, running = _running_machine(name, machine)
        quiet = sorted({way.value for way in silent or ()})
        orders, seconds = control(home), _seconds_of(kind, after)
        _only_spot(kind, name, running, orders)
        if kind is NoticeKind.SPOT:
            orders.interrupt(running.instance, seconds, silent=quiet)
        elif kind is NoticeKind.REBALANCE:
            orders.rebalance(running.instance, silent=quiet)
        else:
            orders.maintain(running.instance, after_s=seconds, silent=quiet)
        notice = {
            "instance": running.instance,
            "node": running.node,
            "kind": kind.value,
            "after_s": seconds,
        }
        if output is Output.JSON:
            answer(ok=True, name=name, silent=quiet, **notice)
        else:
            print_result(_notice_text(kind, running.node or running.instance, seconds))


@app.command()
def preview(
    name: NameArgument,
    refresh: Annotated[
        bool,
        typer.Option(
            "--refresh", help="Compare with the resources that exist in the sandbox, not with the state."
        ),
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show what Pulumi would change after edits of the spec; with --refresh, also changes made outside Pulumi. Changes nothing."""
    with reporting(output):
        from gpucluster.cli.context import resolve_file
        from gpucluster.sandbox import preview as sandbox

        with steps() as step:
            found = sandbox.preview(
                name,
                refresh=refresh,
                plan_of=lambda spec: resolve_file(spec).plan,
                program=_declare,
                progress=step,
            )
        if output is Output.JSON:
            answer(ok=True, name=name, changes=[_change(one) for one in found])
        else:
            print_result("\n".join(map(_change_text, found)) or f"{name}: no change")
            if refresh:
                progress(
                    f"rules that were added to a security group by hand are not seen: gpucluster validate {name} --only cloud.rules"
                )


@app.command(context_settings={"ignore_unknown_options": True})
def exec(  # noqa: A001  the verb's name
    name: NameArgument,
    machine: Annotated[str, typer.Argument(help="`head`, a Slurm node name, or an instance id.")],
    command: Annotated[list[str], typer.Argument(help="The command and its arguments, after `--`.")],
    user: Annotated[str | None, typer.Option("--user", help="The user that runs it. Default: root.")] = None,
) -> None:
    """Run a command in a machine, with its input, terminal and exit code; 255 if the machine stops before the command ends."""
    from gpucluster.sandbox.machines.inside import enter_argv

    _, running = _running_machine(name, machine)
    argv = enter_argv(running.leader, command, user=user, term=os.environ.get("TERM", "dumb"))
    sys.stdout.flush()
    os.execvp(argv[0], argv)  # noqa: S606  we become the command, so that its exit code is ours


@app.command(context_settings={"ignore_unknown_options": True})
def run(
    name: NameArgument,
    command: Annotated[
        list[str], typer.Argument(help="A command of this machine and its arguments, after `--`.")
    ],
) -> None:
    """Run a program of this machine in the sandbox's network, where the machines have their addresses."""
    from gpucluster.sandbox import host_checks, state_dir
    from gpucluster.sandbox.machines.hosts import reach_argv

    host_checks.require_root()
    capsule = state_dir.living(name).read_capsule()
    argv = reach_argv(capsule.init if capsule else 0, tuple(command))
    sys.stdout.flush()
    os.execvp(argv[0], argv)  # noqa: S606  we become the command, so that its exit code is ours


@app.command()
def logs(
    name: NameArgument,
    machine: Annotated[
        str | None, typer.Argument(help="A machine, for its console. Default: the log of the sandbox.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the log.")] = False,
) -> None:
    """Show the console of a machine, or the log of the sandbox."""
    path = _log_of(name, machine)
    argv = ["tail", "--lines=+1", *(("--follow=name",) if follow else ()), str(path)]
    os.execvp(argv[0], argv)  # noqa: S606  we become tail


app.command(context_settings={"ignore_unknown_options": True})(shell)


def _await(name: str | None) -> None:
    from gpucluster.sandbox import host_checks
    from gpucluster.sandbox.up import await_cluster

    if name is None:
        raise typer.BadParameter("--wait needs the name of a sandbox", param_hint="--wait")
    host_checks.require_root()
    with steps() as step:
        await_cluster(name, step)


app.command()(ssh)


def _seconds_of(kind: NoticeKind, after: float | None) -> float:
    return after if after is not None else _AFTER_S.get(kind, 0.0)


def _only_spot(kind: NoticeKind, name: str, running: "RunningMachine", orders: "SandboxControl") -> None:
    """Refuse a notice to a machine that is not spot: EC2 does not send one, and a head would end."""
    if kind is NoticeKind.MAINTENANCE:
        return
    markets = {one["id"]: one["market"] for one in orders.instances()}
    market = markets.get(running.instance, "unknown")
    if market != "spot":
        raise StateError(
            f"{running.node or running.role} is {market}, and only a spot machine gets a {kind.value} notice",
            next_step=f"--kind maintenance, or a spot machine: gpucluster sandbox status {name}",
        )


def _notice_text(kind: NoticeKind, machine: str, seconds: float) -> str:
    return {
        NoticeKind.SPOT: f"{machine} gets a spot notice: it ends in {seconds:g} s",
        NoticeKind.REBALANCE: f"{machine} gets a rebalance recommendation",
        NoticeKind.MAINTENANCE: f"{machine} gets a notice of maintenance in {seconds:g} s",
    }[kind]


def _declare(plan: "ClusterPlan", source: "SpecSource | None" = None) -> None:
    from gpucluster.aws.program import declare

    declare(plan, source)


def _up_plain(plan: "SlurmOnHosts", file: Path, scale: int | None, output: Output) -> None:
    """Start plain machines, and write the files for Ansible."""
    from gpucluster.engine.spec_source import source_of
    from gpucluster.sandbox import up_hosts

    source = source_of(file, plan)
    with steps() as step:
        done = up_hosts.up(
            plan,
            file,
            progress=step,
            hosts=scale,
            write_inventory=lambda running: _write_site(running, source),
        )
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
        print_result(_plain_text(plan, inventory, done.differences))


def _write_site(done: "RunningHosts", source: "SpecSource") -> None:
    from gpucluster.cli.inventory import write_site
    from gpucluster.inventory.folder import SshAccess

    access = SshAccess(known_hosts=done.known_hosts, private_key=done.private_key)
    write_site(done.plan, source, access, done.home.site)


def _plain_text(plan: "SlurmOnHosts", inventory: Path, differences: tuple[str, ...]) -> str:
    from gpucluster.files import shipped

    name = plan.name
    return "\n".join(
        (
            f"{name}: empty machines. Differences from existing hosts:",
            *(f"  - {line}" for line in differences),
            "Next:",
            f"  gpucluster sandbox run {name} -- ansible-playbook -i {inventory} {shipped('playbooks') / 'site.yml'}",
            f"  gpucluster sandbox exec {name} {plan.head.name} -- sinfo",
            f"  gpucluster sandbox down {name}",
        )
    )


def _up_text(done: "RunningSandbox") -> str:
    name = done.home.name
    return "\n".join(
        (
            f"{name} is up. Known differences from AWS:",
            *(f"  - {line}" for line in done.differences),
            f"  - at most {done.room} machines at the same time, including the head (fs.inotify.max_user_instances); then EC2 has no capacity",
            "Next:",
            f"  gpucluster sandbox exec {name} head {first_job(done.home.read_slurm_plan())}",
            f"  gpucluster sandbox exec {name} head -- sinfo",
            f"  gpucluster sandbox down {name}",
        )
    )


def _up_kubernetes(plan: "KubernetesOnAws", file: Path, *, cloud_only: bool, output: Output) -> None:
    """Start a rehearsal with Kubernetes alone."""
    from gpucluster.plan.model import eks_of
    from gpucluster.sandbox import up_kubernetes

    if eks_of(plan) is None:
        raise StateError(
            f"{plan.name} names an existing Kubernetes: there is nothing to rehearse on AWS",
            next_step=f"gpucluster k8s up {file} --context CONTEXT, with a context of a test cluster",
        )
    with steps() as step:
        done = up_kubernetes.up(plan, file, program=_declare, progress=step, cloud_only=cloud_only)
    endpoint = f"http://127.0.0.1:{done.port}"
    if output is Output.JSON:
        answer(
            ok=True,
            name=done.home.name,
            endpoint=endpoint,
            state=str(done.home.path),
            differences=list(done.differences),
            seconds=dict(done.seconds),
        )
        return
    name = done.home.name
    first = "pulumi up" if cloud_only else "kubectl get clusterqueues"
    print_result(
        "\n".join(
            (
                f"{name}: AWS at {endpoint}{'' if cloud_only else ', with the cluster and its waves'}. Differences from AWS:",
                *(f"  - {line}" for line in done.differences),
                "Next:",
                f"  gpucluster sandbox shell {name} -- {first}",
                f"  gpucluster sandbox down {name}",
            )
        )
    )


def first_job(plan: "SlurmPlan") -> str:
    """Return a job that fits the cluster: a user of the spec, and the GPUs and nodes of one pool."""
    user = plan.users[0].name if plan.users else "researcher"
    default = next((part for part in plan.partitions if part.default), plan.partitions[0])
    pool = next(pool for pool in plan.pools if pool.name in default.pools)
    gpus = f" --gres=gpu:{pool.shape.gpu_count}" if pool.shape.gpu_count else ""
    named = "" if default.default else f" -p {default.name}"
    return f"--user {user} -- sbatch{named} -N{min(2, pool.max)}{gpus} --wrap 'srun hostname'"


def _cloud_text(done: "RunningSandbox") -> str:
    name = done.home.name
    return "\n".join(
        (
            f"{name}: an empty AWS at http://127.0.0.1:{done.port}. Differences from AWS:",
            *(f"  - {line}" for line in done.differences),
            "Next:",
            f"  gpucluster sandbox shell {name}     then: pulumi up, and gpucluster sandbox status {name} --wait",
            f"  gpucluster sandbox down {name}",
        )
    )


def _answer_up(done: "RunningSandbox") -> None:
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
    """Refuse a machine type that the cluster never launches: the setting would have no effect."""
    if value != "*" and value not in known:
        raise typer.BadParameter(
            f"{value!r}: this cluster has {', '.join(sorted(known))}; `*` means every one", param_hint=option
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


def _running_machine(name: str, machine: str) -> "tuple[SandboxDir, RunningMachine]":
    from gpucluster.sandbox import host_checks, state_dir
    from gpucluster.sandbox.machines import inside

    host_checks.require_root()
    home = state_dir.living(name)
    return home, inside.find(
        home, host_checks.cgroup_trees(Path("/proc/self/mountinfo").read_text()), machine
    )


def _log_of(name: str, machine: str | None) -> Path:
    from gpucluster.sandbox import host_checks, state_dir

    host_checks.require_root()
    home = state_dir.existing(name)
    if machine is None:
        return home.log
    console = home.console / machine
    if machine.startswith("i-") and console.is_file():  # also for a terminated machine
        return console
    return home.console / _running_machine(name, machine)[1].instance
