"""What the daemon cannot read now, in sentences: since when, the error, what stops and what goes on."""

from collections.abc import Iterator, Mapping

from gpucluster.elastic.abilities import LOSSES, Dependency, Loss, denied
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.status_endpoint import CopyState
from gpucluster.text import relative_time, short

SILENT = "no answer in time"


def not_copied(copy: CopyState, now: float) -> str:
    """Return one sentence about orders or spend that only the journal has; empty: the copy has all."""
    if copy.waits_since is not None:
        why = f": {short(copy.error, 200)}" if copy.error else ""
        return f"not copied yet, since {relative_time(copy.waits_since, now)}{why}; the journal has them"
    return f"their copy: {short(copy.error, 200)}" if copy.error else ""


def of(snapshot: ClusterSnapshot) -> tuple[str, ...]:
    """Return one sentence for each dependency that the cluster's daemon cannot use now. `status`, `why`, the list of pools and the dry run show them."""
    return tuple(sentences(snapshot.lost, snapshot.now, snapshot.plan.name))


def sentences(lost: Mapping[Dependency, Loss], now: float, cluster: str = "NAME") -> Iterator[str]:
    """Yield one sentence for each lost dependency. A loss without a time is one of this reader alone."""
    refused = denied(lost)
    for dependency, loss in lost.items():
        error, row = short(loss.words, 200) or SILENT, LOSSES[dependency]
        if loss.since is None:
            yield f"this command cannot read {dependency} ({error}): it does not show what the daemon does with instances"
            continue
        since = relative_time(loss.since, now)
        remedy = row.remedy(loss.words, cluster)
        step = f"; run `{remedy}`" if remedy else ""
        yield f"the daemon cannot {row.fails} {dependency}, since {since} ({error}): {row.stops}; {row.still(refused)}{step}"
