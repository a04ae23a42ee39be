"""Check that our programs and units on a machine are those of the package that is installed there."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.checks.check import CheckResult, ParseError, Query, QueryOutput, failed, listed, passed
from gpucluster.plan import machine_files, names
from gpucluster.text import short

_UNITS = "/etc/systemd/system/"
_RELOADED = ("service", "service.d", "timer")  # what systemd reads a unit's settings from
# Each line: same|differs|missing, the path, its copy in the package.
_COMPARE = f"""\
cd {names.VENV}/lib/python3*/site-packages/gpucluster || exit 3
compare() {{
  if [ ! -e "$2" ]; then echo "missing $2 $PWD/$1"
  elif cmp -s -- "$1" "$2"; then echo "same $2 $PWD/$1"
  else echo "differs $2 $PWD/$1"; fi
}}
for pair in "$@"; do compare "elastic/${{pair#*=}}" "${{pair%%=*}}"; done
find agent/units -mindepth 2 -type f ! -name '*.pyc' | sort | while read -r file; do
  compare "$file" "/${{file#agent/units/}}"
done
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramsWant:
    """Beginnings of the paths that the machine has; empty: all of the package."""

    below: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledFile:
    """A file of the package and its place on the machine. `state`: same, differs or missing."""

    state: str
    path: str
    copy: str


def query_programs(_want: ProgramsWant) -> tuple[Query, ...]:
    hooks = (f"{names.HOOK_DIR}/{name}={module}" for name, module in machine_files.HOOKS.items())
    return (Query(argv=("sh", "-c", _COMPARE, "sh", *hooks)),)


def parse_programs(got: tuple[QueryOutput, ...]) -> tuple[InstalledFile, ...]:
    """One file a line."""
    return tuple(map(_file, got[0].text().splitlines()))


def _file(line: str) -> InstalledFile:
    match = re.fullmatch(r"(same|differs|missing) (/\S+) (/\S+)", line)
    if match is None:
        raise ParseError(f"the comparison printed {short(line, 80)}")
    return InstalledFile(state=match[1], path=match[2], copy=match[3])


def evaluate_programs(found: tuple[InstalledFile, ...], want: ProgramsWant) -> CheckResult:
    """Culprits are the paths."""
    ours = [one for one in found if not want.below or one.path.startswith(want.below)]
    bad = [one for one in ours if one.state != "same"]
    expected = f"{len(ours)} files as in the installed package"
    if not ours:
        return failed("the installed package has none of them", "our programs and units")
    if not bad:
        return passed(expected)
    words = [f"{one.path} {'is missing' if one.state == 'missing' else 'is another'}" for one in bad]
    steps = dict.fromkeys([*map(_install, bad), *_reload(bad)])
    return failed(
        listed(words), expected, tuple(one.path for one in bad), "on {machine}: " + "; ".join(steps)
    )


def _install(one: InstalledFile) -> str:
    mode = "755" if one.path.startswith(f"{names.HOOK_DIR}/") else "644"
    return f"install -D -m {mode} {shlex.quote(one.copy)} {shlex.quote(one.path)}"


def _reload(bad: list[InstalledFile]) -> Iterator[str]:
    """systemd reads changed units, and those that run start again: jobs go on."""
    units = [unit for one in bad if (unit := _unit_of(one.path))]
    if units:
        yield "systemctl daemon-reload"
        yield f"systemctl try-restart {' '.join(dict.fromkeys(units))}"


def _unit_of(path: str) -> str:
    """The unit that a file below /etc/systemd/system sets; empty for a template, whose instances are of jobs."""
    unit = path.removeprefix(_UNITS).partition("/")[0]
    name, _, kind = unit.partition(".")
    if unit == path or kind not in _RELOADED or name.endswith("@"):
        return ""
    return f"{name}.{kind.removesuffix('.d')}"
