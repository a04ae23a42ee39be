"""What running jobs get before their machine ends, where an edit gives them less. Pure.

The daemon reads it when a machine is about to end, so a job that runs gets what the new plan says. A batch script without a trap
ends by any of these signals (signal(7)).
"""

from collections.abc import Iterator

from gpucluster.gitops.field_effects import Note
from gpucluster.plan.model import SlurmOnAws, SlurmPlan
from gpucluster.plan.model.pools import Termination
from gpucluster.text import format_duration


def notes(old: SlurmPlan, new: SlurmPlan | None) -> Iterator[Note]:
    """Yield what is said of the jobs of each pool. A host has no end that we know."""
    if not (isinstance(old, SlurmOnAws) and isinstance(new, SlurmOnAws)):
        return
    before = {pool.name: pool.termination for pool in old.pools}
    for pool in new.pools:
        for text in _less(before.get(pool.name, pool.termination), pool.termination):
            yield Note(running=f"those on {pool.name} {text}")


def _less(was: Termination, now: Termination) -> Iterator[str]:
    if was.signal != now.signal:
        yield (
            f"get {now.signal} and not {was.signal} before their machine ends: a batch script without a trap for it ends then"
        )
    if now.lead_s > was.lead_s:
        yield f"are requeued {format_duration(now.lead_s)} before their machine ends, and not {format_duration(was.lead_s)}"
    if now.grace_s < was.grace_s:
        yield (
            f"are requeued {format_duration(now.grace_s)} after the signal, and not {format_duration(was.grace_s)}, "
            "if their machine has no fixed end"
        )
