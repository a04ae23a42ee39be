"""`gpucluster k8s`: drive kubectl and helm, so that a Kubernetes cluster has what the spec says."""

import getpass
import os
import platform
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpucluster.cli.output import Output, OutputOption, answer, print_result, progress, reporting, steps
from gpucluster.errors import StateError

if TYPE_CHECKING:
    from gpucluster.k8s_apply.access import Access
    from gpucluster.k8s_apply.clock import Report
    from gpucluster.k8s_apply.steps import Steps
    from gpucluster.plan.model import AwsPlan, Bindings
    from gpucluster.plan.model.kubernetes import Kubernetes

app = typer.Typer(
    help="Apply the manifests and charts of a spec to its Kubernetes cluster with kubectl and helm, or delete them.",
    no_args_is_help=True,
)

ClusterArgument = Annotated[
    str, typer.Argument(metavar="NAME|FILE", help="A spec, or a name of stacks/, such as kube.")
]
ContextOption = Annotated[
    str | None,
    typer.Option(
        "--context", help="The context of the kubeconfig, instead of the spec's or the EKS cluster's."
    ),
]
BindingsOption = Annotated[
    Path | None,
    typer.Option("--bindings", metavar="FILE", help="File with ids from AWS: the volumes and the account."),
]
NoChartsOption = Annotated[
    bool, typer.Option("--no-charts", help="Leave the charts to others. Their kinds must be in the cluster.")
]
LimitOption = Annotated[
    float | None,
    typer.Option("--timeout", min=0, metavar="SECONDS", help="The limit of each wait, instead of its own."),
]


@app.command()
def up(
    cluster: ClusterArgument,
    *,
    context: ContextOption = None,
    bindings: BindingsOption = None,
    no_charts: NoChartsOption = False,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune",
            help="Delete objects and charts that the spec no longer has, except volumes, claims and namespaces with their policies.",
        ),
    ] = False,
    force_conflicts: Annotated[
        bool,
        typer.Option(
            "--force-conflicts",
            help="Set fields as the spec says also where others have set them, for example with `kubectl scale`.",
        ),
    ] = False,
    through: Annotated[
        str | None,
        typer.Option(
            "--through",
            metavar="WAVE",
            help="End after this folder, such as 10-access: then the namespaces are there for the Secrets of the teams.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the steps. Neither read nor change the cluster.")
    ] = False,
    timeout: LimitOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Install the charts, apply the waves in order, and check after each. It can be repeated, and goes on where it ended.

    Services are awaited after the last wave. Exit 2: one is not ready; all else is applied.
    """
    with reporting(output):
        from gpucluster.cli.k8s_text import up_lines
        from gpucluster.k8s_apply.up import up as apply
        from gpucluster.plan.codec import to_json

        target = target_of(cluster, bindings)
        if dry_run:
            _print_steps(target, output, charts=not no_charts, through=through)
            return
        with access_to(target, context, charts=not no_charts) as access:
            done = apply(
                access,
                target.steps,
                holder=holder(),
                prune=prune,
                force_conflicts=force_conflicts,
                through=through,
                limit_s=timeout,
            )
        if output is Output.JSON:
            context_name, name = access.kubectl.context, target.plan.name
            answer(ok=not done.waiting, name=name, context=context_name, applied=to_json(done))
        else:
            print_result("\n".join(up_lines(done, target.plan.name, access.kubectl.context, through)))
    if done.waiting:
        raise typer.Exit(StateError.exit_code)


@app.command()
def status(
    cluster: ClusterArgument,
    *,
    context: ContextOption = None,
    bindings: BindingsOption = None,
    no_charts: NoChartsOption = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the cluster is as the spec says.")] = False,
    timeout: LimitOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show charts, waves, node pools, queues, gangs and services, and what they wait for. Exit 2: the API server does not answer."""
    with reporting(output):
        from gpucluster.cli.k8s_text import lines
        from gpucluster.k8s_apply.status import WAIT_S, await_settled
        from gpucluster.k8s_apply.status import status as read
        from gpucluster.plan.codec import to_json

        target = target_of(cluster, bindings)
        with access_to(target, context, charts=not no_charts) as access:
            if wait:
                await_settled(access, target.steps, WAIT_S if timeout is None else timeout)
            found = read(access, target.steps)
        if output is Output.JSON:
            answer(ok=True, name=target.plan.name, context=access.kubectl.context, status=to_json(found))
        else:
            print_result("\n".join(lines(found)))


@app.command()
def why(
    cluster: ClusterArgument,
    subject: Annotated[
        str,
        typer.Argument(
            metavar="[NAMESPACE/[KIND/]]NAME", help="A pod, or what runs pods, such as research/tune."
        ),
    ],
    *,
    context: ContextOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show why a pod or a workload does not run, in the words of Kueue, the scheduler, Karpenter and the kubelet. Exit 1: there is none."""
    with reporting(output):
        from gpucluster.cli.k8s_text import why_lines
        from gpucluster.k8s_apply.clock import patiently
        from gpucluster.k8s_apply.why.explain import explain
        from gpucluster.k8s_apply.why.read import read, subject_of
        from gpucluster.plan.codec import to_json

        wanted = subject_of(subject)
        target = target_of(cluster, None)
        with access_to(target, context, charts=False, any_version=True) as access:
            seen = patiently(lambda: read(access.kubectl, wanted), access.clock, access.report)
        found = explain(seen)
        if output is Output.JSON:
            answer(ok=True, name=target.plan.name, context=access.kubectl.context, why=to_json(found))
        else:
            print_result("\n".join(why_lines(found)))


@app.command()
def upgrade(
    cluster: ClusterArgument,
    *,
    context: ContextOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show the way to the spec's version of Kubernetes, one minor version after the other, and what is in its way. Exit 1: something is."""
    with reporting(output):
        from gpucluster.cli.k8s_text import upgrade_lines
        from gpucluster.k8s_apply.clock import patiently
        from gpucluster.k8s_apply.upgrade import commands, read
        from gpucluster.k8s_apply.upgrade import upgrade as plan
        from gpucluster.plan.codec import to_json
        from gpucluster.plan.model.values import Distribution

        target = target_of(cluster, None)
        name, file = target.plan.name, target.file.as_posix()
        eks = target.kubernetes.distribution is Distribution.EKS
        with access_to(target, context, charts=False, any_version=True) as access:
            seen = patiently(lambda: read(access.kubectl), access.clock, access.report)
        found = plan(seen, target.kubernetes.version)
        steps = {version: commands(name, file, version, eks=eks) for version in found.path}
        if output is Output.JSON:
            answer(
                ok=not found.blocked,
                name=name,
                context=access.kubectl.context,
                upgrade=to_json(found),
                steps=steps,
            )
        else:
            print_result("\n".join(upgrade_lines(found, steps, name)))
    if found.blocked:
        raise typer.Exit(1)


@app.command()
def down(
    cluster: ClusterArgument,
    *,
    context: ContextOption = None,
    bindings: BindingsOption = None,
    no_charts: NoChartsOption = False,
    delete_data: Annotated[
        bool,
        typer.Option("--delete-data", help="Also delete claims and volumes. A file system keeps its files."),
    ] = False,
    confirm: Annotated[
        str | None, typer.Option("--confirm", help="The cluster's name, as confirmation of --delete-data.")
    ] = None,
    delete_others: Annotated[
        bool,
        typer.Option(
            "--delete-others", help="Also delete what is in the teams' namespaces and not in the spec."
        ),
    ] = False,
    timeout: LimitOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Delete gangs and services, Karpenter's machines, queues, namespaces without claims, then the charts. It can be repeated.

    --delete-data of a cluster on EKS needs --bindings or --context: another account can have a cluster of the same name.
    """
    with reporting(output):
        from gpucluster.k8s_apply.down import down as empty
        from gpucluster.plan.codec import to_json

        target = target_of(cluster, bindings)
        name = target.plan.name
        if delete_data and confirm != name:
            raise StateError(
                f"--delete-data needs the cluster's name as confirmation, and found {confirm!r}: nothing was deleted",
                next_step=f"gpucluster k8s down {name} --delete-data --confirm {name}",
            )
        if delete_data:
            _require_account(target, context)
        with access_to(target, context, charts=not no_charts) as access:
            done = empty(
                access,
                target.steps,
                holder=holder(),
                delete_data=delete_data,
                delete_others=delete_others,
                limit_s=timeout,
            )
        if output is Output.JSON:
            answer(ok=True, name=name, context=access.kubectl.context, emptied=to_json(done))
            return
        print_result(
            f"{name}: {done.deleted} objects deleted; charts uninstalled: {', '.join(done.charts) or 'none'}"
        )
        for line in (*done.retained, *(f"the chart {chart}" for chart in done.charts_left)):
            print_result(f"stays: {line}")


@dataclass(frozen=True, slots=True)
class Target:
    """A spec with Kubernetes, its plan, and its steps."""

    file: Path
    plan: "AwsPlan"
    kubernetes: "Kubernetes"
    steps: "Steps"
    bindings: "Bindings | None" = None

    @property
    def account(self) -> str:
        """Return the account of AWS by the bindings; empty if it is not known."""
        return "" if self.bindings is None else self.bindings.account


def target_of(cluster: str, bindings: Path | None) -> Target:
    """Return the plan with Kubernetes of a spec, and its steps."""
    from gpucluster.cli.context import bindings_of, resolve_file, workloads_beside
    from gpucluster.cli.spec_files import require_spec
    from gpucluster.k8s_apply.steps import steps as steps_of

    file = require_spec(cluster)
    resolved = resolve_file(file)
    plan = resolved.plan
    if plan.aws is None or plan.kubernetes is None:
        raise StateError(
            f"{plan.name} has no kubernetes in its spec",
            next_step="name a spec with kubernetes, such as kube",
        )
    running, more = workloads_beside(file, resolved)
    for warning in (*resolved.warnings, *more):
        progress(str(warning))
    bound = bindings_of(bindings, plan)
    return Target(file, plan, plan.kubernetes, steps_of(plan, running, bound), bound)


@contextmanager
def access_to(
    target: Target, context: str | None, *, charts: bool, any_version: bool = False
) -> "Generator[Access]":
    """Yield the cluster of the plan; its progress goes to stderr. StateError for another version than the plan's, if not `any_version`."""
    from gpucluster.k8s_apply.access import Access, require_version
    from gpucluster.k8s_apply.clock import Clock
    from gpucluster.k8s_apply.contexts import context_of
    from gpucluster.k8s_apply.helm import Helm
    from gpucluster.k8s_apply.kubectl import Kubectl, kubeconfig

    name = context_of(target.plan, target.kubernetes, kubeconfig(), context, target.account)
    clock = Clock(lambda: datetime.now(UTC), time.monotonic, time.sleep)
    with steps() as step:
        report: Report = step
        helm = Helm(name, target.plan.name) if charts else None
        access = Access(Kubectl(name), helm, clock, report, target.account)
        if not any_version:
            require_version(access, target.kubernetes.version)
        yield access


def _require_account(target: Target, context: str | None) -> None:
    """StateError if only a name says which cluster on EKS loses its data."""
    from gpucluster.plan.model.values import Distribution

    if target.account or context or target.kubernetes.distribution is not Distribution.EKS:
        return
    name = target.plan.name
    raise StateError(
        f"--delete-data needs the AWS account of {name}, which the spec does not have: nothing was deleted",
        next_step=f"pulumi stack output bindings --stack {name} > bindings.json; then repeat it with --bindings bindings.json."
        " Bindings without an account: name the cluster with --context",
    )


def _print_steps(target: Target, output: Output, *, charts: bool, through: str | None) -> None:
    from gpucluster.k8s_apply.steps import lines

    found = list(lines(target.steps, charts=charts, through=through))
    if output is Output.JSON:
        answer(ok=True, name=target.plan.name, steps=found)
    else:
        print_result("\n".join(found))


def holder() -> str:
    """Return who works, for the lease: a user, a host and a process."""
    try:
        user = os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return f"{user}@{platform.node()}, process {os.getpid()}"
