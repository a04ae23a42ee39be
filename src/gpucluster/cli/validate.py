"""`gpucluster validate NAME`: check that a running cluster is what its plan says."""

import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from gpucluster.cli.k8s import BindingsOption, ContextOption, NoChartsOption
from gpucluster.cli.output import Output, OutputOption, answer, print_result, progress, reporting
from gpucluster.cli.transport import KNOWN_HOSTS
from gpucluster.cli.validate_kubernetes import (
    KubernetesOptions,
    KubernetesPart,
    find_kubernetes,
    session_for,
)
from gpucluster.cli.validate_target import Backend, SshOptions, ValidationTarget, find_target
from gpucluster.errors import GpuclusterError

if TYPE_CHECKING:
    from gpucluster.cost.price_list import PriceList
    from gpucluster.plan.model import SlurmPlan
    from gpucluster.validate.expectation import Expectation
    from gpucluster.validate.results import Run

Select = Callable[["Sequence[Expectation]"], "Sequence[Expectation]"]
USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")  # never an option of runuser or ssh


def validate(
    name: Annotated[
        str,
        typer.Argument(
            help="A running sandbox, or a spec file or stack: hosts by ssh, AWS by Systems Manager, Kubernetes by kubectl."
        ),
    ],
    *,
    tier: Annotated[
        int,
        typer.Option(
            "--tier",
            min=0,
            max=1,
            help="0: takes seconds and starts nothing. 1: also starts short jobs, and small pods on Kubernetes.",
        ),
    ] = 1,
    no_launch: Annotated[
        bool, typer.Option("--no-launch", help="Leave out the jobs for which the cluster launches machines.")
    ] = False,
    only: Annotated[
        str, typer.Option("--only", help="Checks or ids, separated by commas: `ctl.ping,disk[head]`.")
    ] = "",
    backend: Annotated[
        Backend | None, typer.Option("--backend", help="Connection to the machines.", show_default=False)
    ] = None,
    junit: Annotated[Path | None, typer.Option("--junit", help="Write JUnit XML to this file.")] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a self-contained HTML page to this file.")
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", help="A user without root rights, who submits the jobs.")
    ] = None,
    known_hosts: Annotated[
        Path,
        typer.Option(
            "--known-hosts", help="File with the host keys that ssh trusts, instead of your own file."
        ),
    ] = KNOWN_HOSTS,
    identity: Annotated[Path | None, typer.Option("--identity", help="The private key for ssh.")] = None,
    ssh_config: Annotated[
        Path | None,
        typer.Option("--ssh-config", help="ssh configuration file, for jump hosts; OpenSSH only."),
    ] = None,
    ssh_user: Annotated[str | None, typer.Option("--ssh-user", help="Value instead of the spec's.")] = None,
    ssh_port: Annotated[
        int | None, typer.Option("--ssh-port", min=1, max=65535, help="Value instead of the spec's.")
    ] = None,
    every: Annotated[
        bool,
        typer.Option("--all", help="Show each result, instead of one line for each group of passed checks."),
    ] = False,
    context: ContextOption = None,
    bindings: BindingsOption = None,
    no_charts: NoChartsOption = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Check that a running cluster is what its plan says. Exit 0 healthy, 1 not proven healthy or work is stopped, 2 could not run."""
    with reporting(output):
        _require_user("--user", user)
        _require_user("--ssh-user", ssh_user)
        _require_writable("--html", html)
        _require_writable("--junit", junit)
        words = [word for word in only.split(",") if word]
        options = KubernetesOptions(context=context, bindings=bindings, charts=not no_charts)
        kubernetes = find_kubernetes(name, options)
        ssh = SshOptions(
            paramiko=backend is Backend.PARAMIKO,
            known_hosts=known_hosts.expanduser(),
            identity=identity,
            config=ssh_config,
            user=ssh_user,
            port=ssh_port,
        )

        def select(every: "Sequence[Expectation]") -> "Sequence[Expectation]":
            return _chosen(every, tier, words)

        if kubernetes is not None and kubernetes.is_alone:
            run = _run_kubernetes(kubernetes, select, junit)
        else:
            run = _run(find_target(name, backend, ssh, user), kubernetes, select, junit, launch=not no_launch)
        _end(run, html, output, every=every)


def _end(run: "Run", html: Path | None, output: Output, *, every: bool) -> NoReturn:
    _write(html, run)
    _print_run(run, output, every=every)
    raise typer.Exit(0 if run.ok else 1)


def _print_run(run: "Run", output: Output, *, every: bool) -> None:
    if output is Output.JSON:
        answer(ok=run.ok, **run.as_json())
        return
    from gpucluster.cli.validate_table import final

    print_result(final(run, every=every))


def _require_user(option: str, word: str | None) -> None:
    if word is not None and not USER.fullmatch(word):
        raise GpuclusterError(
            f"{option}: {word!r} is not a user name",
            next_step="letters, digits, . _ and -; the first is not -",
        )


def _require_writable(option: str, path: Path | None) -> None:
    """Check options before the run, which takes long."""
    if path is None:
        return
    folder = path.parent
    if path.is_dir() or not folder.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        why = "is a folder" if path.is_dir() else "cannot be written"
        raise GpuclusterError(f"{path} {why}", next_step=f"name a file in an existing folder with {option}")


def _run(
    target: ValidationTarget,
    kubernetes: KubernetesPart | None,
    select: Select,
    junit: Path | None,
    *,
    launch: bool,
) -> "Run":
    """Run the checks of the machines, then those of a hybrid cluster's Kubernetes."""
    from gpucluster.cli.validate_table import Live
    from gpucluster.validate import launches
    from gpucluster.validate.run import run
    from gpucluster.validate.session import RunContext

    with closing(target.reach):  # it may have a connection already
        chosen = _of_target(target, kubernetes, select, launch=launch)
        for words in launches.sentences(chosen, target.plan, _prices(target.plan)):
            progress(words)
        context = RunContext(plan=target.plan, user=target.user, sudo=target.sudo, aws=target.aws)
        with session_for(kubernetes, chosen) as second, Live(len(chosen), sys.stderr) as live:
            return run(
                context, target.reach, chosen,
                kubernetes=second, on_progress=live.update, on_wait=live.wait, junit=junit,
            )  # fmt: skip


def _of_target(
    target: ValidationTarget, kubernetes: KubernetesPart | None, select: Select, *, launch: bool
) -> "Sequence[Expectation]":
    """The expectations of the options; GpuclusterError if there is none."""
    from gpucluster.validate import launches
    from gpucluster.validate.expect import expectations

    every = expectations(
        target.plan,
        target.bindings,
        up=target.up,
        bundle=target.bundle,
        reviewed=target.reviewed,
        accepted=target.accepted,
        folders=target.folders,
    )
    chosen = select((*every, *(() if kubernetes is None else kubernetes.expectations)))
    if launch:
        return chosen
    if not (rest := launches.without(chosen, target.plan)):
        raise GpuclusterError(
            "every chosen check needs machines that are launched for it", next_step="without --no-launch"
        )
    return rest


def _prices(plan: "SlurmPlan") -> "PriceList":
    from gpucluster.catalog import prices
    from gpucluster.cost.price_list import PriceList

    return PriceList(prices(), plan.aws.region if plan.aws is not None else None)


def _run_kubernetes(kubernetes: KubernetesPart, select: Select, junit: Path | None) -> "Run":
    from gpucluster.cli.validate_table import Live
    from gpucluster.validate.run import run_session

    chosen = select(kubernetes.expectations)
    with kubernetes.session(chosen) as session, Live(len(chosen), sys.stderr) as live:
        name = kubernetes.target.plan.name
        return run_session(name, session, chosen, on_progress=live.update, junit=junit)


def _chosen(every: "Sequence[Expectation]", tier: int, only: Sequence[str]) -> "Sequence[Expectation]":
    """The expectations of the options; GpuclusterError if there is none."""
    from gpucluster.validate.expect import select

    try:
        chosen = select(every, tier=tier, only=only)
    except ValueError as error:
        raise GpuclusterError(
            str(error), next_step="--only takes checks, or one of a target: --only 'disk[head]'"
        ) from error
    if not chosen:
        raise GpuclusterError(
            f"tier {tier} has no checks of {', '.join(only)}",
            next_step="without --only, or with --tier 1",
        )
    return chosen


def _write(path: Path | None, run: "Run") -> None:
    if path is None:
        return
    from gpucluster.validate.report import html

    try:
        path.write_text(html(run))
    except OSError as error:
        raise GpuclusterError(
            f"{path}: {error.strerror}", next_step="name another file with --html"
        ) from error
