"""What an unhealthy node does: it drains itself, logs it, and sets its Comment if its pool has too many drained nodes."""

import contextlib
import syslog
import time
from pathlib import Path

from gpucluster.agent.health import drain, programs
from gpucluster.agent.health.drain import Drained, Outcome
from gpucluster.agent.health.programs import Argv
from gpucluster.checks.check import QueryOutput
from gpucluster.checks.node_health import HealthSettings
from gpucluster.plan import names
from gpucluster.text import short

SCONTROL_S = 8.0  # three calls and the queries stay below HealthCheckTimeout, 60 s
GOES_ON = "unhealthy, and not drained"


def drain_node(found: HealthSettings, node: str, words: str) -> bool:
    """Drain the node for `words`, within the limit of its pool. Return whether it is drained."""
    outcome = drain.drain(found, node, words, _scontrol)
    _tell(found, node, words, outcome)
    return outcome.outcome in (Outcome.DRAINED, Outcome.DRAINED_ALREADY)


def remove_comment(node: str) -> None:
    """Remove the Comment that a limit made, if slurmctld answers."""
    if drain.comment(node, "", _scontrol):
        Path(names.HEALTH_COMMENTED).unlink(missing_ok=True)


def _tell(found: HealthSettings, node: str, words: str, drained: Drained) -> None:
    outcomes = {
        Outcome.DRAINED: "drained",
        Outcome.DRAINED_ALREADY: "unhealthy, and drained already",
        Outcome.LIMIT: f"{GOES_ON}: {drained.others} other nodes of pool {found.pool} are drained for their health, and the limit is {found.limit}",
        Outcome.NO_ANSWER: f"{GOES_ON}: slurmctld did not answer",
    }[drained.outcome]
    syslog.syslog(syslog.LOG_WARNING, f"{outcomes}: {short(words)}")
    if drained.outcome is Outcome.DRAINED:
        _save(names.HEALTH_JUDGED, f"{time.time():.3f}\n")
    if drained.outcome is Outcome.LIMIT:
        text = f"{GOES_ON}, because {drained.others} of pool {found.pool} are (limit {found.limit}): {words}"
        if drain.comment(node, text, _scontrol):
            _save(names.HEALTH_COMMENTED, "")


def _save(path: str, text: str) -> None:
    with contextlib.suppress(OSError):
        Path(path).write_text(text)


def _scontrol(argv: Argv) -> QueryOutput:
    return programs.run_all([argv], SCONTROL_S, programs.MOST_OF_SLURM)[argv]
