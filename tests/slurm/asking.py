"""The checks of `validate` on real daemons: their queries, parsers, rules and remedies."""

import re

from real_slurm import RealSlurm

from gpucluster.checks.check import CheckResult, Location, QueryOutput
from gpucluster.checks.table import CHECKS
from gpucluster.validate import Expectation, expectations


def expected(slurm: RealSlurm, check: str, target: str = "head") -> Expectation:
    """What `validate` expects of the plan."""
    return next(one for one in expectations(slurm.plan) if (one.check, one.target) == (check, target))


def finding(slurm: RealSlurm, check: str, target: str = "head") -> CheckResult:
    """The finding of one check. Its queries run on the head as root."""
    one = expected(slurm, check, target)
    return one.of.evaluate(one.of.parse(answers(slurm, one)), one.want)


def answers(slurm: RealSlurm, one: Expectation) -> tuple[QueryOutput, ...]:
    """The answers to the queries of the check, on the head as root."""
    got: list[QueryOutput] = []
    for query in one.of.query(one.want):
        assert query.at in (Location.SELF, Location.HEAD)
        fed = got[-1].stdout.strip() if got else ""
        done = slurm.run(*(word.replace("{fed}", fed) for word in query.argv))
        got.append(QueryOutput(code=done.code, stdout=done.out, stderr=done.err))
    return tuple(got)


def heal(slurm: RealSlurm, check: str) -> None:
    """Run the commands of the remedy for what the check finds now on the head."""
    remedy = finding(slurm, check).remedy or CHECKS[check].remedy
    commands = re.fullmatch(r"on \{machine\}: (.+)", remedy)
    assert commands is not None, remedy
    slurm.must("sh", "-ec", commands[1])
