"""`python -m gpucluster.elastic.timeline JOBID [--json]`, on the head: when each thing of a job happened.

Read from the journal of a running daemon; nothing is asked of Slurm or of the cloud.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpucluster.elastic.events import (
    BecameIdle,
    Booted,
    CameUp,
    EndAsked,
    Entry,
    HookCalled,
    InstanceGone,
    JobLeft,
    JobPlaced,
    JobRunning,
    LaunchAsked,
    LaunchDone,
    LaunchRefused,
    Needed,
    Registered,
)
from gpucluster.elastic.journal import read_only
from gpucluster.plan import codec, names


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One event of a job's story; `slot`, `request` and `instance` are empty where they mean nothing."""

    at: float
    what: str  # submitted placed asked requested launched refused booted registered up running left idle ending gone
    slot: str = ""
    request: str = ""
    instance: str = ""
    detail: str = ""


def main(argv: Sequence[str] | None = None) -> int:
    """Print a job's moments, oldest first."""
    parser = argparse.ArgumentParser(prog="gpucluster.elastic.timeline")
    parser.add_argument("job", type=int)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--journal", type=Path, default=Path(names.JOURNAL))
    options = parser.parse_args(argv)
    moments = timeline(options.job, read_only(options.journal))
    if options.json:
        sys.stdout.write(json.dumps([codec.to_json(m) for m in moments], indent=1) + "\n")
        return 0
    first = moments[0].at if moments else 0.0
    for m in moments:
        words = " ".join(w for w in (m.slot, m.request, m.instance, m.detail) if w)
        sys.stdout.write(f"{m.at - first:9.2f} s  {m.what:10}  {words}\n")
    return 0


def timeline(job: int, entries: Iterable[Entry]) -> tuple[Moment, ...]:
    """The moments of one job: its own, and those of the slots from its placement to their end."""
    story = _Story(job)
    for entry in entries:
        story.add(entry)
    return tuple(sorted(story.moments, key=lambda m: m.at))


class _Story:
    def __init__(self, job: int) -> None:
        self._job = job
        self._slots: set[str] = set()  # the job's, until their instance is gone
        self._requests: dict[str, tuple[str, ...]] = {}
        self._instances: dict[str, str] = {}  # instance -> slot
        self._submitted = self._asked = self._over = False
        self.moments: list[Moment] = []

    def add(self, entry: Entry) -> None:
        match entry.event:
            case HookCalled(kind="resume", jobs=jobs, called_at=at) if self._job in jobs:
                self._asked = True
                self.moments.append(Moment(at=at, what="asked", detail="hook"))
            case Needed(slot=slot, jobs=jobs) if self._job in jobs and not self._asked:
                self._asked = True  # seen in Slurm before any hook called, or without one
                self._say(entry.at, "asked", slot=slot)
            case JobPlaced() | JobRunning() | JobLeft() if entry.event.job == self._job:
                self._of_job(entry.at, entry.event)
            case LaunchAsked() | LaunchDone() | LaunchRefused():
                self._of_request(entry.at, entry.event)
            case Booted() | Registered() | CameUp() | BecameIdle() | InstanceGone():
                self._of_slot(entry.at, entry.event)
            case EndAsked(instances=ids, words=words):
                for i in ids:
                    if self._instances.get(i) in self._slots:
                        slot = self._instances[i]
                        self._say(entry.at, "ending", slot=slot, instance=i, detail=words)
            case _:
                pass

    def _of_job(self, at: float, event: JobPlaced | JobRunning | JobLeft) -> None:
        match event:
            case JobPlaced(slots=slots, submitted_at=submitted):
                if not self._submitted:
                    self._say(submitted or at, "submitted")
                self._submitted, self._over = True, False
                self._slots = set(slots)
                self._say(at, "placed", detail=",".join(slots))
            case JobRunning():
                self._say(at, "running")
            case JobLeft():
                self._over = True
                self._say(at, "left")

    def _of_request(self, at: float, event: LaunchAsked | LaunchDone | LaunchRefused) -> None:
        match event:
            case LaunchAsked(ask=ask):
                self._requests[ask.request] = ask.slots
                if self._slots & set(ask.slots):
                    what = f"{len(ask.slots)} x {ask.market.value} {ask.machine} in {ask.zone}"
                    self._say(at, "requested", request=ask.request, detail=what)
            case LaunchDone(request=request, instances=ids):
                for slot, instance in zip(self._requests.get(request, ()), ids, strict=False):
                    self._instances[instance] = slot
                    if slot in self._slots:
                        self._say(at, "launched", slot=slot, request=request, instance=instance)
            case LaunchRefused(request=request, words=words):
                if self._slots & set(self._requests.get(request, ())):
                    self._say(at, "refused", request=request, detail=words)

    def _of_slot(self, at: float, event: Booted | Registered | CameUp | BecameIdle | InstanceGone) -> None:
        if event.slot not in self._slots:
            return
        match event:
            case Booted(instance=instance):
                self._say(at, "booted", slot=event.slot, instance=instance)
            case Registered(instance=instance):
                self._say(at, "registered", slot=event.slot, instance=instance)
            case CameUp():
                self._say(at, "up", slot=event.slot)
            case BecameIdle():
                if self._over:
                    self._say(at, "idle", slot=event.slot)
            case InstanceGone(instance=instance):
                self._say(at, "gone", slot=event.slot, instance=instance)
                if self._over:
                    self._slots.discard(event.slot)

    def _say(self, at: float, what: str, **where: str) -> None:
        self.moments.append(Moment(at=at, what=what, **where))


if __name__ == "__main__":
    sys.exit(main())
