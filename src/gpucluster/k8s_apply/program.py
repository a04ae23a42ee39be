"""Run kubectl and helm. The kernel ends them with this process, so that a killed run leaves no half of an operation behind."""

from collections.abc import Sequence
from pathlib import Path

from gpucluster import shell
from gpucluster.errors import HostError
from gpucluster.k8s_apply.faults import HungError, fault_of


def run(
    argv: Sequence[str],
    *,
    install: str,
    limit_s: float,
    stdin: str | None = None,
    cwd: Path | None = None,
) -> shell.Result:
    """Run it to its end. HungError: not done after `limit_s`. HostError: it is not in PATH; `install` is the next step."""
    missing = HostError(f"there is no {argv[0]} in PATH", next_step=install)
    ending = (*shell.ending_with_us(), *argv)
    try:
        done = shell.run(ending, stdin=stdin, cwd=cwd, timeout_s=limit_s, check=False)
    except shell.CommandError as error:
        if error.result.code == shell.MISSING:
            raise missing from error
        raise HungError(f"{argv[0]}: {error.result.stderr}") from error
    if done.code == shell.MISSING:
        raise missing
    return done


def output(done: shell.Result, what: str) -> str:
    """Return what it printed. KubernetesError: it failed."""
    if done.code:
        raise fault_of(what, done.stderr or done.stdout)
    return done.stdout
