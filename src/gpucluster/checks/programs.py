"""Check that our programs and units on a machine are those of the package that is installed there."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from gpucluster import shipment
from gpucluster.checks import json_fields, limits, remedies
from gpucluster.checks.check import (
    CheckResult,
    ParseError,
    Query,
    QueryOutput,
    failed,
    listed,
    passed,
    unknown,
)
from gpucluster.plan import machine_files, names
from gpucluster.text import short

_UNIT = re.compile(r"(?:/etc|/run|/usr/local/lib)/systemd/system(?:\.control)?/([^/]+)")
_RELOADED = ("service", "service.d", "timer")  # what systemd reads a unit's settings from
# The package's files against the hashes that its wheel brought. Without a record `recorded` is null.
_RECORD = """\
import base64, csv, glob, hashlib, json, os, sys
found = glob.glob(sys.argv[1] + "/python3*/site-packages/gpucluster-*.dist-info/RECORD")
if not found:
    print(json.dumps({"recorded": None, "wrong": []}))
    sys.exit()
os.chdir(os.path.dirname(os.path.dirname(found[0])))
with open(found[0], newline="") as file:
    rows = [row for row in csv.reader(file) if row[0].startswith("gpucluster/") and row[1]]
wrong = []
for path, digest, _ in rows:
    try:
        with open(path, "rb") as file:
            total = hashlib.sha256(file.read()).digest()
    except OSError:
        wrong.append([path, "missing"])
        continue
    if digest != "sha256=" + base64.urlsafe_b64encode(total).rstrip(b"=").decode():
        wrong.append([path, "another"])
known = {row[0] for row in rows}
for folder, _, names in os.walk("gpucluster/agent/units"):
    paths = (os.path.join(folder, name) for name in names if not name.endswith(".pyc"))
    wrong += [[path, "by hand"] for path in paths if path not in known]
print(json.dumps({"recorded": len(rows), "wrong": sorted(wrong)[:50]}))
"""
_OWN_UNITS = (
    *("munge", "slurmd", "slurmctld", "slurmdbd", "sackd"),
    *("gpucluster-agent", "gpucluster-elastic", "gpucluster-guard"),
)
# Each line: same|differs|missing, the path, its copy in the package; or foreign and the path of a setting of our units
# that the package does not have; or open and a path of the program's environment that every user may write.
# systemd.unit(5) has the folders; those below /usr/lib are of packages.
_COMPARE = f"""\
at=
cd "$at"{names.VENV}/lib/python3*/site-packages/gpucluster || exit 3
compare() {{
  if [ ! -e "$at$2" ]; then echo "missing $2 $PWD/$1"
  elif cmp -s -- "$1" "$at$2"; then echo "same $2 $PWD/$1"
  else echo "differs $2 $PWD/$1"; fi
}}
for pair in "$@"; do compare "elastic/${{pair#*=}}" "${{pair%%=*}}"; done
find agent/units -mindepth 2 -type f ! -name '*.pyc' | sort | while read -r file; do
  compare "$file" "/${{file#agent/units/}}"
done
find "$at"{names.VENV} ! -type l -perm -002 ! -name '*[[:space:]]*' | head -n 50 | while read -r file; do echo "open ${{file#"$at"}}"; done
foreign() {{
  for file in "$@"; do
    if [ -f "$file" ] && [ ! -e "agent/units${{file#"$at"}}" ]; then echo "foreign ${{file#"$at"}}"; fi
  done
}}
foreign "$at"/etc/systemd/system/service.d/*.conf
for folder in /etc/systemd/system /etc/systemd/system.control /run/systemd/system /run/systemd/system.control /usr/local/lib/systemd/system; do
  for unit in {" ".join(_OWN_UNITS)}; do
    foreign "$at$folder/$unit.service" "$at$folder/$unit.service.d"/*.conf
  done
done
"""
_FOREIGN, _OPEN = "foreign", "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramsWant:
    """Beginnings of the paths that the machine has; empty: all of the package."""

    below: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledFile:
    """A file of the package and its place on the machine. `state`: same, differs, missing; foreign or open without a copy."""

    state: str
    path: str
    copy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramsFound:
    """`recorded`: the files of the package with a hash; None without the wheel's RECORD. `wrong`: those that are not as recorded."""

    recorded: int | None
    wrong: dict[str, str]
    files: tuple[InstalledFile, ...]


def query_programs(_want: ProgramsWant) -> tuple[Query, ...]:
    hooks = (f"{names.HOOK_DIR}/{name}={module}" for name, module in machine_files.HOOKS.items())
    python = (f"{names.VENV}/bin/python", "-I", "-S", "-c", _RECORD, f"{names.VENV}/lib")
    return (Query(argv=python, limit_s=20.0), Query(argv=("sh", "-c", _COMPARE, "sh", *hooks)))


def parse_programs(got: tuple[QueryOutput, ...]) -> ProgramsFound:
    """The first answer is JSON; the second has one file a line."""
    record, compared = got
    whole = json_fields.table(record.text())
    if "recorded" not in whole:
        raise ParseError("the answer has no `recorded`")
    count = None if whole["recorded"] is None else int(json_fields.number(whole, "recorded"))
    return ProgramsFound(
        recorded=count,
        wrong=dict(_wrong(whole.get("wrong"))),
        files=tuple(map(_file, compared.text().splitlines())),
    )


def _wrong(rows: object) -> Iterator[tuple[str, str]]:
    for row in cast("list[object]", rows) if isinstance(rows, list) else []:
        match row:
            case [str(path), str(word)]:
                yield path, word
            case _:
                raise ParseError(f"the comparison printed {short(repr(row), 80)}")


def _file(line: str) -> InstalledFile:
    match = re.fullmatch(r"(?:(same|differs|missing) (/\S+) (/\S+)|(foreign|open) (/\S+))", line)
    if match is None:
        raise ParseError(f"the comparison printed {short(line, 80)}")
    return InstalledFile(state=match[1] or match[4], path=match[2] or match[5], copy=match[3] or "")


def evaluate_programs(found: ProgramsFound, want: ProgramsWant) -> CheckResult:
    """Compare the package with its record, and what is installed with the package. Culprits are the paths.

    An existing host may have settings of its own for munge and Slurm: they are not judged.
    """
    ours = [one for one in found.files if one.copy and (not want.below or one.path.startswith(want.below))]
    expected = f"{len(ours)} files as in the installed package"
    foreign = [one for one in found.files if one.state == _FOREIGN and one.path != limits.DROP_IN]
    writable = [one for one in found.files if one.state == _OPEN]
    bad = [
        *(one for one in ours if one.state != "same"),
        *(foreign if not want.below else ()),
        *writable,
    ]
    if found.wrong:
        words = [f"the package's {short(path, 100)} is {word}" for path, word in found.wrong.items()]
        culprits = (*found.wrong, *(one.path for one in bad))
        return failed(listed(words, 4), expected, culprits, _REINSTALL[bool(want.below)])
    if not ours:
        return failed("the installed package has none of them", "our programs and units")
    if bad:
        words = [f"{one.path} {_STATES[one.state]}" for one in bad]
        steps = dict.fromkeys([*map(_heal, bad), *_reload(bad)])
        remedy = "on {machine}: " + "; ".join(steps)
        return failed(listed(words), expected, tuple(one.path for one in bad), remedy)
    if found.recorded is None:
        return unknown("the package has no RECORD of a wheel to compare it with", expected)
    return passed(expected)


_STATES = {
    "differs": "is another",
    "missing": "is missing",
    _FOREIGN: "is not ours",
    _OPEN: "may be written by every user",
}
_REINSTALL = {  # whether the machine is an existing host: there the playbook skips code whose digest it finds
    True: f"on {{machine}}: rm {shipment.CODE_MARK}; then playbooks/site.yml again",
    False: "replace the machine; a node, on the head: scontrol update nodename={machine} state=power_down_asap",
}


def _heal(one: InstalledFile) -> str:
    if one.state == _OPEN:
        return f"chmod -R o-w {names.VENV}"
    if one.state == _FOREIGN:
        return f"rm {shlex.quote(one.path)}"
    mode = "755" if one.path.startswith(f"{names.HOOK_DIR}/") else "644"
    return f"install -D -m {mode} {shlex.quote(one.copy)} {shlex.quote(one.path)}"


def _reload(bad: Sequence[InstalledFile]) -> Iterator[str]:
    """systemd reads changed units, and those that run start again: jobs go on."""
    units = [unit for one in bad if (unit := _unit_of(one.path))]
    if units or any(one.state == _FOREIGN for one in bad):
        yield "systemctl daemon-reload"
        restarted = units or [f"{unit}.service" for unit in _OWN_UNITS]  # of a setting for all services
        named = (unit.removesuffix(".service") for unit in dict.fromkeys(restarted))
        yield remedies.restart(*named, verb="try-restart")


def _unit_of(path: str) -> str:
    """The unit that a file in a folder of systemd sets; empty for a template, whose instances are of jobs, and for all services."""
    match = _UNIT.match(path)
    name, _, kind = (match[1] if match else "").partition(".")
    if not name or kind not in _RELOADED or name.endswith("@"):
        return ""
    return f"{name}.{kind.removesuffix('.d')}"
