"""Check the answer of a node's health program: what its checks found, each with the remedy of that check."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpucluster.checks.check import CheckResult, ParseError, Query, QueryOutput, failed, listed, passed
from gpucluster.checks.node_health import NODE_CHECKS
from gpucluster.plan import names
from gpucluster.text import short

ABSENT = "absent"
FAMILIES = (ABSENT, *NODE_CHECKS)
_HERE = "on {machine}: "
MISSING = (
    f"{_HERE}{names.HEALTH_CHECK} --report; journalctl --no-pager -n 30 -t gpucluster-health-check; "
    "on your computer, if the program is missing: gpucluster image build, or playbooks/site.yml"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The health program of a node, and the checks that it must answer."""

    path: str
    checks: tuple[str, ...]


def query_program(want: Program) -> tuple[Query, ...]:
    return (Query(argv=(want.path, "--report"), limit_s=60.0),)


def parse_program(got: tuple[QueryOutput, ...]) -> Mapping[str, tuple[str, str]]:
    """Check -> (verdict, what was found): one check each line, with tabs."""
    found: dict[str, tuple[str, str]] = {}
    for line in got[0].text().splitlines():
        words = line.split("\t")
        if len(words) != 3:
            raise ParseError(f"the health program printed {short(line, 60)!r}")
        found[words[0]] = (words[1], short(words[2], 120))
    return found


def evaluate_program(found: Mapping[str, tuple[str, str]], want: Program) -> CheckResult:
    """Every expected check answers, and passes. The family is the first that does not, and the remedy has those of all."""
    expected = f"{len(want.checks)} checks pass"
    absent = [check for check in want.checks if check not in found]
    if absent:
        return failed(f"no answer of {listed(absent)}", expected, (), MISSING, family=ABSENT)
    wrong = {check: words for check, (verdict, words) in found.items() if verdict != "pass"}
    if not wrong:
        return passed(expected)
    words = listed([f"{check}: {fault}" for check, fault in wrong.items()], 3)
    return failed(words, expected, (), _remedy(want, tuple(wrong)), family=next(iter(wrong)))


def _remedy(want: Program, wrong: tuple[str, ...]) -> str:
    """What the program says now, then the remedies of its checks."""
    own = (NODE_CHECKS[check].remedy.removeprefix(_HERE) for check in wrong if check in NODE_CHECKS)
    return f"{_HERE}{'; '.join((f'{want.path} --report', *own))}"
