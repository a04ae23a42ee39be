"""Whether a job's timeline shows each run told of the end of its node, and one requeue for one notice. Pure.

An event is one of `python -m gpucluster.elastic.inspect.timeline JOBID --json`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpucluster.elastic.decide.facts import TAKEN


def untold_runs(events: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Report runs that ended and came back without a signal after the daemon had heard a spot notice for one of their nodes."""
    running, heard = False, ""
    for m in events:
        match m["what"]:
            case "running":
                if heard:
                    yield heard
                running, heard = True, ""
            case "interrupted" if running and _is_notice(m["detail"]):
                heard = f"no signal for {m['instance']}: {m['detail']}"
            case "signalled":
                running, heard = False, ""  # one signal is enough for this run
            case "requeued" | "released":
                running = False
            case _:
                pass


def _is_notice(detail: str) -> bool:
    """The end of an instance that nobody announced is found afterwards, perhaps while Slurm still believes that the job runs."""
    return detail.startswith("spot") and not detail.endswith(TAKEN)


def second_requeues(events: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Report instances whose interruption requeued the job more than once."""
    count = Counter(m["instance"] for m in events if m["what"] == "requeued" and m["instance"])
    yield from (f"requeued {n} times for {instance}" for instance, n in sorted(count.items()) if n > 1)
