"""Run kubectl and helm. The kernel ends them with this process, so that a killed run leaves no half of an operation behind."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpucluster import shell
from gpucluster.errors import HostError
from gpucluster.json_text import parse_json
from gpucluster.k8s_apply.faults import HungError, RefusedError, fault_of
from gpucluster.text import short


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


def parsed(text: str, what: str, form: type[dict[str, Any]] | type[list[Any]] = dict) -> Any:
    """Return the JSON that it printed; an empty `form` for `null`. RefusedError: it printed something else, as a program that wraps it does."""
    found: Any = text
    with suppress(ValueError):
        found = parse_json(text)
    if found is None:
        return form()
    if not issubclass(type(found), form):
        raise RefusedError(
            f"{what}: it printed something other than JSON with a {'list' if form is list else 'mapping'}: {short(text)}",
            text=text,
            next_step=f"see which program this is: command -V {what.partition(' ')[0]}",
        )
    return found
