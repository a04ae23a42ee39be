"""Check what an ordinary user meets in a login shell: Slurm's own commands, and a slurmctld that takes a job."""

import re
from dataclasses import dataclass

from gpucluster.checks.check import (
    TIMED_OUT,
    CheckResult,
    ParseError,
    Query,
    QueryOutput,
    failed,
    listed,
    passed,
)
from gpucluster.text import short

PROGRAMS = ("sinfo", "squeue", "sbatch", "srun", "salloc", "scancel")
_MARK = "gpucluster-validate"  # begins our lines: a profile may print, too
_ELF = "ELF"
_TYPED = f"""
for one in {" ".join(PROGRAMS)}; do
  path=$(type -P "$one")
  echo "{_MARK} at $one $(type -t "$one") $(head -c 4 "$path" 2>/dev/null | tail -c 3 | tr -cd A-Z) $path"
done
echo "{_MARK} conf ${{SLURM_CONF:-}}"
# a file that is not there is looked for during a minute
[ -n "${{SLURM_CONF:-}}" ] || {{ sinfo --noheader --format=%P >/dev/null && sbatch --test-only "$@" --wrap=true; }}
echo "{_MARK} exit $?"
"""
# As PAM does it at the login: /etc/environment has KEY=VALUE lines, and no shell reads it. The user's own profile is the user's.
_LOGIN = r"""
typed=$1
shift
while IFS= read -r line || [ -n "$line" ]; do
  line=${line#export }
  name=${line%%=*}
  case $line in [A-Za-z_]*=*) ;; *) continue ;; esac
  case $name in *[!A-Za-z0-9_]*) continue ;; esac
  value=${line#*=}
  value=${value#[\"\']}
  export "$name=${value%[\"\']}"
done </etc/environment
HOME=$(mktemp -d)
export HOME
bash -lc "$typed" bash "$@" 2>&1
code=$?
rm -rf "$HOME"
exit "$code"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginShell:
    """The options of a job that the user may submit."""

    options: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A command as the login shell finds it. `kind`: bash's word, `file` for a program. `program`: it is no script."""

    kind: str
    program: bool
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginAnswer:
    """The answer of the shell; `code` is None if the shell ended before it ran a command."""

    commands: dict[str, Found]
    conf: str
    code: int | None
    words: str


def query_login(want: LoginShell) -> tuple[Query, ...]:
    return (Query(argv=("sh", "-c", _LOGIN, "sh", _TYPED, *want.options), as_user=True, limit_s=30),)


def parse_login(got: tuple[QueryOutput, ...]) -> LoginAnswer:
    late = got[0].code == TIMED_OUT
    text = got[0].text() if late else got[0].stdout  # the shell's own code may be that of a profile
    if got[0].code != 0 and not text and got[0].stderr:
        raise ParseError(f"exit {got[0].code}: {short(got[0].stderr)}")
    commands: dict[str, Found] = {}
    conf, code, words = "", None, ""
    for line in text.splitlines():
        if (row := re.fullmatch(rf"{_MARK} at (\S+) (\S*) (\S*) (.*)", line)) is not None:
            commands[row[1]] = Found(kind=row[2], program=row[3] == _ELF, path=row[4])
        elif (row := re.fullmatch(rf"{_MARK} conf (.*)", line)) is not None:
            conf = row[1]
        elif (row := re.fullmatch(rf"{_MARK} exit ([0-9]+)", line)) is not None:
            code = int(row[1])
        elif line.strip():
            words = line
    return LoginAnswer(commands=commands, conf=conf, code=code, words=short(words, 200))


def evaluate_login(found: LoginAnswer, want: LoginShell) -> CheckResult:
    """Culprits are the commands that are not Slurm's."""
    expected = "in a user's login shell Slurm's own commands run, and slurmctld takes a job"
    if found.code is None:
        after = f": {found.words}" if found.words else ""
        return failed(f"the login shell ends before it runs a command{after}", expected)
    other = {name: one for name, one in found.commands.items() if one.kind != "file" or not one.program}
    faults = [f"{name} is {_shown(one)}" for name, one in other.items()]
    if found.conf:
        faults.append(f"SLURM_CONF is {short(found.conf, 100)}")
    if found.code != 0:
        faults.append(f"exit {found.code}: {found.words or 'no output'}")
    return failed(listed(faults), expected, tuple(other)) if faults else passed(expected)


def _shown(one: Found) -> str:
    if one.kind != "file":
        return f"a {short(one.kind, 20)} of the shell" if one.kind else "not in the path"
    return f"{short(one.path, 100)}, which is no program of Slurm"
