"""`python -m gpucluster.agent.health check|prolog|epilog|report`: Slurm's health programs on a node.

check   HealthCheckProgram: all checks. A node that fails one is drained. Exit 0.
prolog  the checks before a job. Exit 1 if the node is drained: slurmctld then starts the job elsewhere.
epilog  the checks after a job. Exit 0.
report  all checks, one line each: ID, verdict and what was found, with tabs. Nothing is drained.

A program error of ours is logged and never drains a node.
"""

import contextlib
import os
import sys
import syslog
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpucluster.agent.health import programs
from gpucluster.checks import node_health
from gpucluster.checks.check import CheckResult, ParseError, failed
from gpucluster.checks.node_health import HealthSettings
from gpucluster.plan import codec, names
from gpucluster.text import short

PROLOG_S, CHECK_S = 10.0, 20.0  # for all queries of one run, which run side by side


@dataclass(frozen=True, slots=True)
class Verdict:
    """A check's id and its result."""

    check: str
    result: CheckResult

    @property
    def words(self) -> str:
        return f"{self.check}: {self.result.found}, expected {self.result.expected}"


def run_checks(found: HealthSettings, only: Sequence[str] | None, limit_s: float) -> tuple[Verdict, ...]:
    """Run the checks of this node. An answer that is missing or cannot be read is a failure: nobody knows that the node is well."""
    wants = [
        (check, want)
        for check, want in node_health.wanted(found, _judged_at())
        if only is None or check.id in only
    ]
    queries = {check.id: tuple(query.argv for query in check.query(want)) for check, want in wants}
    got = programs.run_all([argv for argvs in queries.values() for argv in argvs], limit_s)
    verdicts: list[Verdict] = []
    for check, want in wants:
        try:
            value = check.parse(tuple(got[argv] for argv in queries[check.id]))
            result = check.evaluate(value, want)
        except ParseError as error:
            result = failed(short(str(error), 120), "an answer that can be read")
        verdicts.append(Verdict(check.id, result))
    return tuple(verdicts)


def run(verb: str, found: HealthSettings, node: str) -> int:
    """Run one of the programs. Return its exit code."""
    only = {"prolog": node_health.PROLOG, "epilog": node_health.EPILOG}.get(verb)
    verdicts = run_checks(found, only, CHECK_S if only is None else PROLOG_S)
    if verb == "report":
        _report(verdicts)
        return 0
    bad = [verdict for verdict in verdicts if not verdict.result.is_healthy]
    if not bad:
        if verb == "check":
            _healthy_again(node)
        return 0
    is_drained = _drain(found, node, "; ".join(verdict.words for verdict in bad))
    return 1 if verb == "prolog" and is_drained else 0


def _drain(found: HealthSettings, node: str, words: str) -> bool:
    from gpucluster.agent.health import unhealthy  # noqa: PLC0415  slow: it imports the parser of Slurm's answers

    return unhealthy.drain_node(found, node, words)


def _healthy_again(node: str) -> None:
    if Path(names.HEALTH_COMMENTED).exists():
        from gpucluster.agent.health import unhealthy  # noqa: PLC0415  as above

        unhealthy.remove_comment(node)


def main(verb: str) -> int:
    syslog.openlog(f"gpucluster-health-{verb}", 0, syslog.LOG_DAEMON)
    try:
        found = codec.loads(HealthSettings, Path(names.HEALTH_FILE).read_bytes())
        return run(verb, found, os.environ.get("SLURMD_NODENAME") or found.node)
    except FileNotFoundError:
        return _without_settings(verb)
    except Exception as error:  # noqa: BLE001  our own mistake drains no node
        syslog.syslog(syslog.LOG_ERR, f"no check was made: {type(error).__name__}: {short(str(error))}")
        sys.stderr.write(f"no check was made: {short(str(error))}\n")
        return 2 if verb == "report" else 0


def _without_settings(verb: str) -> int:
    if verb == "report":
        sys.stderr.write(f"{names.HEALTH_FILE} is missing: restart gpucluster-agent\n")
        return 2
    return 0


def _report(verdicts: Iterable[Verdict]) -> None:
    for verdict in verdicts:
        sys.stdout.write(f"{verdict.check}\t{verdict.result.verdict.value}\t{short(verdict.result.found)}\n")


def _judged_at() -> float:
    """Return the time of the last drain since the boot: a person who resumes the node has seen what was there then."""
    with contextlib.suppress(OSError, ValueError):
        return float(Path(names.HEALTH_JUDGED).read_text())
    return 0.0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
