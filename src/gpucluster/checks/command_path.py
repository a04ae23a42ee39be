"""Check that Slurm's commands are the first of their name in the path of root and of an ordinary user who logs in."""

import re
from dataclasses import dataclass

from gpucluster.checks.check import (
    CheckResult,
    ParseError,
    Query,
    QueryOutput,
    failed,
    listed,
    passed,
    warned,
)
from gpucluster.text import short

COMMANDS = (
    *("sinfo", "squeue", "sbatch", "srun", "salloc", "scancel", "scontrol", "sacct", "sacctmgr"),
    *("sattach", "sbcast", "sdiag", "sprio", "sreport", "sshare", "sstat", "strigger"),
)
_MARK = "gpucluster-validate"  # begins our lines: a profile may print, too
_MANY = 6  # commands in one folder: it is an installation of Slurm
_TYPED = f"""
for one in {" ".join(COMMANDS)}; do
  kind=$(type -t "$one")
  [ -n "$kind" ] || continue
  mapfile -t paths < <(type -aP "$one" | xargs -r readlink -f)
  magic= state=added other=
  read -r -N 4 magic <"${{paths[0]}}"
  for path in "${{paths[@]}}"; do [ "$path" = "${{paths[0]}}" ] || other=$path; done
  if [ "${{magic:1}}" != ELF ]; then state=script
  elif [ -z "$other" ] || dpkg-query --search "$(type -P "$one")" "${{paths[0]}}" 2>/dev/null | grep -q . || rpm -qf "${{paths[0]}}" >/dev/null 2>&1
  then state=packaged
  fi
  echo "{_MARK} at $one $kind $state ${{paths[*]}}"
done
echo "{_MARK} end"
"""
_AS_ROOT = 'HOME=$(getent passwd root | cut -d: -f6); export HOME; exec bash -lc "$1"'
_AS_USER = (
    'HOME=$(mktemp -d); export HOME; bash -lc "$1"; rm -rf "$HOME"'  # the user's own profile is the user's
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandsWant:
    """`scripts`: the site's own run at boot, and what is added may be theirs: a warning."""

    scripts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InPath:
    """A command as a login shell finds it. `kind`: bash's word, `file` for a program; `state`: packaged, added, script.

    `paths`: all files of the name in the path, the first is the one that runs.
    """

    kind: str
    state: str
    paths: tuple[str, ...]


Shell = dict[str, InPath]  # by name


def query_commands(_want: CommandsWant) -> tuple[Query, ...]:
    """Of root, then of a user."""
    return (
        Query(argv=("sh", "-c", _AS_ROOT, "sh", _TYPED), limit_s=30.0),
        Query(argv=("sh", "-c", _AS_USER, "sh", _TYPED), as_user=True, limit_s=30.0),
    )


def parse_commands(got: tuple[QueryOutput, ...]) -> tuple[Shell, ...]:
    """Root's and the user's shell. A command that is not in the path has no line."""
    return tuple(_shell(answer) for answer in got)


def _shell(answer: QueryOutput) -> Shell:
    found: Shell = {}
    lines = answer.text().splitlines()
    for line in lines:
        if row := re.fullmatch(rf"{_MARK} at (\S+) (\S+) (packaged|added|script) (.*)", line):
            found[row[1]] = InPath(kind=row[2], state=row[3], paths=tuple(dict.fromkeys(row[4].split())))
    if f"{_MARK} end" not in lines or not found:
        raise ParseError("the shell did not name Slurm's commands")
    return found


def evaluate_commands(shells: tuple[Shell, ...], want: CommandsWant) -> CheckResult:
    """Culprits are the commands."""
    expected = "Slurm's own commands are the first in the path of root and of users"
    wrong = {
        name: f"{name} of {whose} is {_shown(one)}"
        for whose, shell in zip(("root", "users"), shells, strict=False)
        for name, one in shell.items()
        if _is_other(one, shell)
    }
    if not wrong:
        return passed(expected)
    if want.scripts:
        return warned(listed([*wrong.values()], 4), expected)
    remedy = "; ".join(f"type -a {name}" for name in wrong)
    added = {
        one.paths[0] for shell in shells for name, one in shell.items() if name in wrong and _is_before(one)
    }
    if len(added) == len(wrong) and all(re.fullmatch(r"[\w./-]+", path) for path in added):
        remedy = f"rm {' '.join(sorted(added))}"
    return failed(listed([*wrong.values()], 4), expected, tuple(wrong), f"on {{machine}}: {remedy}")


def _is_other(one: InPath, shell: Shell) -> bool:
    """A function, a script, or a program of no package before another. A folder with most of the commands is an installation."""
    if one.kind != "file" or one.state == "script":
        return True
    folder = one.paths[0].rpartition("/")[0] if one.paths else ""
    beside = [
        other for other in shell.values() if other.paths and other.paths[0].rpartition("/")[0] == folder
    ]
    return _is_before(one) and one.state == "added" and len(beside) < _MANY


def _is_before(one: InPath) -> bool:
    return one.kind == "file" and len(one.paths) > 1


def _shown(one: InPath) -> str:
    if one.kind != "file":
        return f"a {short(one.kind, 20)} of the shell"
    before = (
        f", before {short(one.paths[1], 100)}" if len(one.paths) > 1 else ", which is no program of Slurm"
    )
    return f"{short(one.paths[0] if one.paths else '', 100)}{before}"
