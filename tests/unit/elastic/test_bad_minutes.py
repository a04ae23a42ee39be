"""A spot notice in the worst minute: two dependencies lost at once, the lease lost in that second, a successor midway.

Always: one signal, one requeue before the machine ends, nothing launched or terminated by a daemon that may not.
"""

from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

import pytest
from support.builders import a_plan
from support.slurm_model import Job
from support.two_daemons import TTL_S, Pair

from gpucluster.cloud.port import CloudError, Fault
from gpucluster.elastic.abilities import Dependency
from gpucluster.errors import GpuclusterError
from gpucluster.slurm.values import SlurmView

VERSIONS = ("24.11", "26.05")
NOTICE_S = 120.0
AWAY_S = 60.0  # then what an evacuation needs comes back, before the notice's end
CUT_OFF_S = TTL_S + 5


class Outages(Pair):
    """Two daemons of one head; each dependency can be away."""

    def __init__(self, folder: Path, version: str) -> None:
        super().__init__(a_plan(), folder, version=version)
        self.reads: Callable[[float], SlurmView] = self.slurm.read
        self.receives = self.queue.receive
        self.yesterday: dict[Path, bytes] = {}  # the journal before the job

    def copy_journal(self) -> None:
        """Keep the journal as it is now; a lost one is replaced by it."""
        self.yesterday = {path: path.read_bytes() for path in self.folder.glob("journal.sqlite*")}

    def lose(self, dependency: Dependency) -> None:
        if dependency is Dependency.EC2:
            self.cloud.unlisted = CloudError(Fault.LOST, "ConnectTimeout", "no answer")
        elif dependency is Dependency.CONTROL:
            self.control.readable = False
        elif dependency is Dependency.SLURMCTLD:
            self.slurm.read = self._no_answer  # type: ignore[method-assign]
        elif dependency is Dependency.JOURNAL:
            for side in self.sides:
                self.kill(side)
            for path in self.folder.glob("journal.sqlite*"):
                path.unlink()
            for path, body in self.yesterday.items():
                path.write_bytes(body)
        else:
            self.queue.receive = lambda _: ()  # type: ignore[method-assign]

    def back(self, *dependencies: Dependency) -> None:
        """End these outages."""
        if Dependency.EC2 in dependencies:
            self.cloud.unlisted = None
        if Dependency.CONTROL in dependencies:
            self.control.readable = True
        if Dependency.SLURMCTLD in dependencies:
            self.slurm.read = self.reads  # type: ignore[method-assign]
        if Dependency.QUEUE in dependencies:
            self.queue.receive = self.receives  # type: ignore[method-assign]

    def _no_answer(self, at: float) -> SlurmView:
        raise GpuclusterError("slurmctld does not answer")

    @property
    def changes(self) -> list[object]:
        """The calls that launch or terminate."""
        return [call for call in self.cloud.calls if call[0] in ("launch", "fleet", "terminate")]


@pytest.fixture(params=VERSIONS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Outages]:
    made = Outages(tmp_path, request.param)
    yield made
    made.end()


def running(pair: Pair) -> Job:
    job = pair.slurm.submit(2, lasts=5000.0)
    pair.until(lambda: job.state == "RUNNING")
    pair.run(60)
    return job


def evacuated_once(pair: Pair, job: Job) -> None:
    assert [number for _, number, _ in pair.slurm.signals] == [job.id]
    assert job.restarts == 1


LOST = (
    Dependency.EC2,
    Dependency.CONTROL,
    Dependency.SLURMCTLD,
    Dependency.QUEUE,
    Dependency.JOURNAL,
)
# A new journal knows no instance, so EC2 must name them, and its daemon needs the lease.
NEEDS = {Dependency.JOURNAL: {Dependency.EC2, Dependency.CONTROL}}


def needed(two: tuple[Dependency, ...]) -> set[Dependency]:
    """The lost dependencies without which nobody can evacuate."""
    all_of_it = {Dependency.SLURMCTLD}.union(*(NEEDS.get(dependency, ()) for dependency in two))
    return all_of_it & set(two)


@pytest.mark.parametrize("two", tuple(combinations(LOST, 2)), ids=" and ".join)
def test_notice_while_two_dependencies_are_lost(pair: Outages, two: tuple[Dependency, Dependency]) -> None:
    notice_while_lost(pair, two)


@pytest.mark.parametrize(
    "other", [one for one in LOST if one is not Dependency.JOURNAL], ids=lambda one: one.value
)
def test_notice_while_a_journal_of_yesterday_is_restored(pair: Outages, other: Dependency) -> None:
    pair.run(60)
    pair.copy_journal()
    notice_while_lost(pair, (other, Dependency.JOURNAL))


def notice_while_lost(pair: Outages, two: tuple[Dependency, Dependency]) -> None:
    """The holder of a job's node gets a notice while these are lost. They come back before its end if they are needed."""
    job = running(pair)
    before = pair.changes
    for dependency in two:
        pair.lose(dependency)
    pair.run(CUT_OFF_S)
    instance = pair.living()[0]
    alone = Dependency.JOURNAL in two and Dependency.QUEUE not in two
    pair.model.interrupt(instance.id, pair.now, NOTICE_S, silent=("metadata",) if alone else ())
    stopped = {Dependency.EC2, Dependency.CONTROL} & set(two)
    if away := needed(two):
        pair.run(AWAY_S)
        assert not pair.slurm.signals
        assert pair.changes == before or not stopped
        pair.back(*away)
    pair.until(lambda: job.state == "PENDING", NOTICE_S - AWAY_S if away else NOTICE_S)
    evacuated_once(pair, job)
    if stopped - away:
        assert pair.changes == before
    pair.back(*two)
    pair.until(lambda: job.state == "RUNNING", 900)
    evacuated_once(pair, job)


@pytest.mark.parametrize("early", [-1.0, 0.0, 1.0])
def test_notice_in_the_second_in_which_the_lease_is_lost(pair: Outages, early: float) -> None:
    """The bucket goes away so that the lease of the holder ends at the notice, a second before it, or a second after it."""
    job = running(pair)
    holder = next(side for side in pair.sides if side.lease.held())
    pair.control.readable = False
    pair.until(lambda: not holder.lease.held() or holder.lease._until - pair.now <= early, 100)
    pair.model.interrupt(pair.living()[0].id, pair.now, NOTICE_S)
    pair.until(lambda: job.state == "PENDING", NOTICE_S)
    evacuated_once(pair, job)
    pair.back(*LOST)
    pair.until(lambda: job.state == "RUNNING", 900)
    evacuated_once(pair, job)


@pytest.mark.parametrize("after", [0.0, 5.0, 30.0, 80.0, 100.0])
def test_successor_that_begins_in_mid_evacuation_does_nothing_twice(pair: Outages, after: float) -> None:
    """A cut-off daemon has signalled; the bucket comes back, and the other daemon takes the lease."""
    job = running(pair)
    holder, other = sorted(pair.sides, key=lambda side: not side.lease.held())
    pair.control.readable = False
    pair.run(CUT_OFF_S)
    pair.model.interrupt(pair.living()[0].id, pair.now, NOTICE_S)
    pair.until(lambda: bool(pair.slurm.signals), 30)
    pair.run(after)
    pair.asleep.add(holder.number)  # it hangs now, so that its successor goes on
    pair.control.readable = True
    pair.until(other.lease.held, 200)
    pair.asleep.discard(holder.number)
    pair.until(lambda: job.state == "RUNNING" and job.restarts > 0, 900)
    evacuated_once(pair, job)
