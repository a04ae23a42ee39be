"""What the daemon cannot read now, in sentences: since when, the error, what stops and what goes on."""

from collections.abc import Iterator, Mapping

from gpucluster.elastic.abilities import LOSSES, Dependency, Loss
from gpucluster.text import relative_time, short

SILENT = "no answer in time"


def sentences(lost: Mapping[Dependency, Loss], now: float) -> Iterator[str]:
    """Yield one sentence for each lost dependency. A loss without a time is one of this reader alone."""
    for dependency, loss in lost.items():
        error, row = short(loss.words, 200) or SILENT, LOSSES[dependency]
        if loss.since is None:
            yield f"this command cannot read {dependency} ({error}): it does not show what the daemon does with instances"
            continue
        since = relative_time(loss.since, now)
        yield f"the daemon cannot read {dependency}, since {since} ({error}): {row.stops}; {row.goes_on}"
