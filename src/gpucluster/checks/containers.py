"""Check the programs of containers: Apptainer, or Enroot with Slurm's plugin Pyxis, where the plan says that jobs use them.

Apptainer really starts a container, as an ordinary user: the programs of the machine in an empty folder. Enroot only answers.
"""

import re
from dataclasses import dataclass

from gpucluster.checks.check import CheckResult, ParseError, Query, QueryOutput, failed, passed
from gpucluster.text import short

# No image is needed: /usr of the machine is the whole container.
_IMAGE = "mkdir dev etc home proc root sys tmp usr var var/tmp && ln -s usr/bin usr/lib usr/lib64 ."
_START = 'apptainer --nocolor --quiet exec --contain --no-home --bind /usr "$d" /usr/bin/true'
APPTAINER = (
    *("sh", "-c"),
    f'd=$(mktemp -d) && trap \'rm -r "$d"\' EXIT && cd "$d" && {_IMAGE} && {_START} && apptainer --version',
)
_NAMESPACE = "user namespace"
_NO_NAMESPACE = (
    "let ordinary users make user namespaces on {machine}: `sysctl user.max_user_namespaces` is above 0, and on Ubuntu the "
    "package of Apptainer has its AppArmor profile"
)
_SERIOUS = re.compile(
    r"^(?:\x1b\[\d+m)?(?:ERROR|FATAL)\s*:\s*(.*)$", re.MULTILINE
)  # in colour also with --nocolor


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that must answer an ordinary user."""

    name: str
    argv: tuple[str, ...]
    part: str  # of `gpucluster image build --with`


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What it printed, or why it did not run."""

    version: str
    error: str


def query_program(want: Program) -> tuple[Query, ...]:
    return (Query(argv=want.argv, as_user=True, limit_s=30.0),)


def parse_program(got: tuple[QueryOutput, ...]) -> Answer:
    """126 and 127 are those of `timeout` and of the shell, which cannot start the program; 255 is Apptainer's."""
    answer = got[0]
    if answer.code in (126, 127, 255) or (answer.code == 1 and answer.stderr):
        serious = _SERIOUS.findall(answer.stderr)
        told = serious[-1] if serious else answer.stderr
        return Answer(version="", error=short(told, 120) or f"exit {answer.code}")
    if not answer.text().strip():
        raise ParseError("the program printed nothing")
    return Answer(version=short(answer.stdout, 60), error="")


def evaluate_program(found: Answer, want: Program) -> CheckResult:
    program, expected = want.name, f"{want.name} answers"
    if _NAMESPACE in found.error:
        return failed(f"{program}: {found.error}", expected, (), _NO_NAMESPACE)
    if found.error:
        remedy = f"install {program} on {{machine}}; on AWS, on your computer: gpucluster image build --with {want.part}, then replace the node"
        return failed(f"{program}: {found.error}", expected, (), remedy)
    return passed(f"{program} {found.version}", expected)
