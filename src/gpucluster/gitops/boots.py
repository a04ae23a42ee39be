"""What a shorter `boot_timeout` does to nodes that boot. Pure.

How long a machine boots is in no file: what is said are the limits of the daemon (`elastic.decide.terminations`).
"""

from collections.abc import Iterator

from gpucluster.gitops.field_effects import Note
from gpucluster.plan.model import SlurmOnAws, SlurmPlan
from gpucluster.text import format_duration


def note(old: SlurmPlan, new: SlurmPlan) -> Note:
    """Return what fails. On hosts no daemon ends a machine."""
    if not (isinstance(old, SlurmOnAws) and isinstance(new, SlurmOnAws)):
        return Note()
    return Note(queued="; ".join(_shorter(old, new)))


def _shorter(old: SlurmOnAws, new: SlurmOnAws) -> Iterator[str]:
    before = {pool.name: pool.boot_timeout_s for pool in old.pools}
    for pool in new.pools:
        if pool.boot_timeout_s < before.get(pool.name, 0):
            yield (
                f"a node of {pool.name} that is not up {format_duration(pool.boot_timeout_s)} after its launch fails, "
                f"also one that boots now, and one whose agent is silent for {format_duration(pool.report_s)}; after "
                f"{pool.breaker.boots} failed boots in a row {pool.name} launches nothing for {format_duration(pool.breaker.cooldown_s)}"
            )
