"""Who may act: two daemons never both, whatever sleeps, races or is lost; and none waits for ever."""

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Never

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import a_plan
from support.two_daemons import Bucket, Nap, Pair

from gpucluster.cloud.aws import CONNECT_S
from gpucluster.cloud.bucket_object import ADDRESSES, ONE_ATTEMPT_S
from gpucluster.cloud.port import CloudError, Control, Fault, Scaling
from gpucluster.elastic.journal import FencedError
from gpucluster.elastic.lease import MARGIN, Lease, LeaseLostError, LocalHolders
from gpucluster.elastic.model import Terminate
from gpucluster.sandbox.aws.ec2.state.client import ModelControl

TTL_S = 30.0
SAFE_S = TTL_S * (1 - MARGIN)
TAKES_S = TTL_S * (1 + MARGIN)


@dataclass
class Desk:
    """One object and as many daemons as asked, on one clock."""

    control: ModelControl = field(default_factory=ModelControl)
    now: float = 0.0
    gone: set[str] = field(default_factory=set[str])
    ended: list[str] = field(default_factory=list[str])
    fence: int = 0

    def lease(self, me: str, *, on_standby: bool = False, two_heads: bool = False) -> Lease:
        return Lease(
            self.control,
            me,
            TTL_S,
            clock=lambda: self.now,
            wall=lambda: 1e9,
            local_holders=LocalHolders(has_ended=lambda holder: holder in self.gone, kill=self.ended.append),
            known_epoch=lambda: self.fence,
            on_standby=on_standby,
            two_heads=two_heads,
        )

    def both(self) -> tuple[Lease, Lease]:
        """A holder, and a standby that has seen it."""
        first, second = self.lease("first"), self.lease("second")
        assert first.watch() == ""
        assert second.watch() == "first"
        return first, second


def test_first_daemon_of_a_new_cluster_does_not_wait() -> None:
    desk = Desk()
    one = desk.lease("one")
    assert not one.held()
    assert one.watch() == ""
    assert one.held()
    assert one.mine(desk.control.read())
    assert (desk.control.control.holder, desk.control.control.epoch) == ("one", 1)


def test_a_daemon_is_the_first_until_one_has_renewed() -> None:
    """Daemons that ended before they opened a journal, of a full disk, must not look like one whose journal is lost."""
    desk = Desk()
    leases = [desk.lease(name) for name in ("one", "two", "three", "four")]
    for one in leases:
        assert one.watch() == ""
        if one is leases[2]:
            one.renew()
        desk.gone.add(one.me)
    assert [one.first for one in leases] == [True, True, True, False]
    renewed = Desk()
    four, five = renewed.lease("four"), renewed.lease("five")
    assert four.watch() == ""
    four.renew()
    renewed.gone.add("four")
    assert five.watch() == ""
    assert not five.first


def test_last_epoch_is_that_of_the_last_daemon_that_certainly_opened_the_journal() -> None:
    desk = Desk()
    found = list[int]()
    for number, renews in enumerate((False, True, False, False, True)):
        one = desk.lease(f"{number}")
        assert one.watch() == ""
        if renews:
            one.renew()
        desk.gone.add(one.me)
        found.append(one.last_epoch)
    desk.control.delete()
    desk.now = TAKES_S
    last = desk.lease("last")
    last.watch()
    desk.now += TAKES_S
    assert last.watch() == ""
    assert [*found, last.last_epoch] == [0, 0, 2, 2, 2, 5]


def test_holder_may_act_until_its_time_is_over() -> None:
    desk = Desk()
    one, _ = desk.both()
    desk.now = SAFE_S - 0.1
    assert one.held()
    desk.now = SAFE_S
    assert not one.held()


def test_standby_takes_a_lease_that_it_saw_unchanged_for_long_enough() -> None:
    desk = Desk()
    _, two = desk.both()
    desk.now = TAKES_S - 0.1
    assert two.watch() == "first"
    desk.now = TAKES_S
    assert two.watch() == ""
    assert desk.control.control.epoch == 2
    assert desk.ended == ["", "first"], "a frozen one on this machine is ended first"


def test_each_renewal_restarts_the_wait_of_a_standby() -> None:
    desk = Desk()
    one, two = desk.both()
    for _ in range(8):
        desk.now += TTL_S / 3
        one.renew()
        assert two.watch() == "first"
    assert one.held()


def test_lease_of_an_ended_process_is_taken_at_once() -> None:
    desk = Desk(gone={"first"})
    first, two = desk.lease("first"), desk.lease("second")
    assert first.watch() == ""
    assert two.watch() == ""


def test_released_lease_is_free_at_once() -> None:
    desk = Desk()
    one, two = desk.both()
    one.release()
    assert not one.held()
    assert two.watch() == ""
    one.release()  # no harm: it is another's now
    assert two.mine(desk.control.read())


def test_second_head_leaves_a_released_lease_to_the_first_head() -> None:
    """The first's daemon restarts with each bundle: it took 3 s to come back, and found the lease taken."""
    desk = Desk()
    first, second = desk.lease("first"), desk.lease("second", on_standby=True)
    first.watch()
    assert second.watch() == "first"
    first.release()
    assert second.watch() != ""
    desk.now = TAKES_S - 1
    assert second.watch() != ""
    again = desk.lease("again")
    assert again.watch() == ""
    again.release()
    assert second.watch() != "", "it has stood for no time"
    desk.now += TAKES_S
    assert second.watch() == ""
    assert second.epoch == 3


def test_daemon_that_lost_its_lease_gets_an_error_and_may_not_act() -> None:
    desk = Desk()
    one, two = desk.both()
    desk.now = TAKES_S
    assert two.watch() == ""
    with pytest.raises(LeaseLostError, match="held by second"):
        one.renew()
    desk.now = 0.0
    assert not one.held()


def test_suspended_holder_that_still_has_the_lease_continues() -> None:
    desk = Desk()
    one, _ = desk.both()
    desk.now = 1000.0
    assert not one.held()
    one.renew()
    assert one.held()


def test_holder_may_not_act_while_the_bucket_does_not_answer() -> None:
    desk = Desk()
    one, two = desk.both()
    desk.control.readable = False
    desk.now = SAFE_S
    with pytest.raises(CloudError):
        one.renew()
    assert not one.held()
    desk.control.readable = True
    one.renew()
    assert one.held()
    assert two.watch() == "first"


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "PreconditionFailed"])
def test_conflict_is_repeated_on_the_present_version(code: str) -> None:
    desk = Desk()
    one, _ = desk.both()
    desk.control.faults.next_error("PutObject", code, times=2)
    desk.now = 10.0
    one.renew()
    desk.now = 10.0 + SAFE_S - 0.1
    assert one.held()


def test_renewal_with_a_lost_answer_counts_from_its_request() -> None:
    desk = Desk()
    one, _ = desk.both()
    desk.control.faults.lose_reply("PutObject")
    desk.now = 10.0
    one.renew()
    assert desk.control.control.beat == 1
    desk.now = 10.0 + SAFE_S - 0.1
    assert one.held()


def test_takeover_with_a_lost_answer_is_found_at_the_next_read() -> None:
    desk = Desk()
    one = desk.lease("one")
    write = desk.control.write

    def lose(control: Control, etag: str | None) -> str | None:
        write(control, etag)
        desk.control.readable = False
        raise CloudError(Fault.LOST, "ConnectionClosed", "no answer")

    desk.control.write = lose  # type: ignore[method-assign]
    with pytest.raises(CloudError):
        one.watch()
    assert not one.held()
    desk.control.write, desk.control.readable = write, True  # type: ignore[method-assign]
    assert one.watch() == ""
    assert one.held()


def test_stop_survives_renewals_and_a_change_of_holder() -> None:
    desk = Desk()
    one, two = desk.both()
    desk.control.scale(Scaling.STOP, "gpucluster down")
    one.renew()
    assert desk.control.control.scaling is Scaling.STOP
    desk.now = TAKES_S + 1
    two.watch()  # has not seen this version yet
    desk.now += TAKES_S
    assert two.watch() == ""
    assert (desk.control.control.scaling, desk.control.control.by) == (Scaling.STOP, "gpucluster down")


@pytest.mark.parametrize("fence", [0, 1])
def test_deleted_object_is_observed_before_the_lease_is_taken_and_keeps_a_stop(fence: int) -> None:
    """The next daemon launched, in the name of nobody: `gpucluster down` had stopped it. `fence` 0: the journal is lost."""
    desk = Desk()
    one, two = desk.both()
    desk.fence = fence
    desk.control.scale(Scaling.STOP, "gpucluster down")
    one.renew()
    desk.control.delete()
    assert one.held()
    assert two.watch() == "the holder of a deleted object"
    with pytest.raises(LeaseLostError):
        one.renew()
    desk.now = TAKES_S
    assert two.watch() == ""
    assert not two.first
    found = desk.control.read()
    assert (found.scaling, found.by, found.epoch) == (Scaling.STOP, "gpucluster down", 2)


def test_object_that_only_gpucluster_wrote_and_a_person_deleted_is_taken_at_once() -> None:
    desk = Desk(control=ModelControl(Control(by="up")))
    desk.control.delete()
    one = desk.lease("one")
    assert one.watch() == ""
    assert (one.first, desk.control.read().by) == (True, "up")


def test_epoch_exceeds_that_of_the_journal_for_a_new_object() -> None:
    desk = Desk(fence=7)
    one = desk.lease("one")
    one.watch()
    desk.now = TAKES_S
    assert one.watch() == ""
    assert one.epoch == 8


def test_lease_object_of_an_older_version_is_free() -> None:
    desk = Desk(control=ModelControl(Control(epoch=3, by="up")))
    one = desk.lease("one")
    assert one.watch() == ""
    assert desk.control.control == replace(desk.control.control, epoch=4, by="up", holder="one")


# --- both at once, on clocks that differ ---------------------------------------------------------------
SECONDS = st.sampled_from([1.0, 12.0, 28.0, 40.0, 90.0])
NAPS = st.lists(st.builds(Nap, daemon=st.integers(0, 1), at=st.integers(1, 60), seconds=SECONDS), max_size=6)
CODES = {"409": "ConditionalRequestConflict", "412": "PreconditionFailed"}
FAULTS = st.lists(st.tuples(st.sampled_from([*CODES, "lost", "down"]), st.integers(1, 3)), max_size=4)
OFFSETS = st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
RATES = st.tuples(st.floats(0.98, 1.02), st.floats(0.98, 1.02))
KILLS = st.lists(st.integers(5, 250), max_size=2)


class Two:
    """Two leases alone: as a Pair, without anything to do."""

    def __init__(self, naps: list[Nap], offsets: tuple[float, float], rates: tuple[float, float]) -> None:
        self.control, self.now, self.fence = ModelControl(), 0.0, 0
        self.naps = {(nap.daemon, nap.at): nap.seconds for nap in naps}
        self.points, self.busy, self.incarnations = [0, 0], [False, False], [0, 0]
        self.offsets, self.rates = offsets, rates
        self.dead: set[str] = set()
        self.leases = [self.new_lease(0), self.new_lease(1)]

    def new_lease(self, n: int) -> Lease:
        self.incarnations[n] += 1
        return Lease(
            Bucket(self.control, lambda: self.rest(n)),
            f"{n}/{self.incarnations[n]}",
            TTL_S,
            clock=lambda: self.offsets[n] + self.now * self.rates[n],
            wall=lambda: self.now + self.offsets[n],
            local_holders=LocalHolders(has_ended=lambda holder: holder in self.dead, kill=lambda _: None),
            known_epoch=lambda: self.fence,
        )

    def kill(self, n: int) -> None:
        if not self.busy[n]:
            self.dead.add(f"{n}/{self.incarnations[n]}")
            self.leases[n] = self.new_lease(n)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 2.0
            for n in (0, 1):
                if not self.busy[n]:
                    self.turn(n)
            assert not all(lease.held() for lease in self.leases), f"both may act at {self.now}"

    def turn(self, n: int) -> None:
        self.busy[n], lease = True, self.leases[n]
        try:
            if not lease.epoch:
                if not lease.watch():
                    self.fence = max(self.fence, lease.epoch)
            elif int(self.now) % 10 < 2:
                lease.renew()
        except LeaseLostError:
            self.leases[n] = self.new_lease(n)
        except CloudError:
            pass
        finally:
            self.busy[n] = False

    def rest(self, n: int) -> None:
        self.points[n] += 1
        self.run(self.naps.pop((n, self.points[n]), 0.0))


@given(naps=NAPS, faults=FAULTS, offsets=OFFSETS, rates=RATES, kills=KILLS)
@settings(max_examples=150, deadline=None)
def test_two_daemons_never_hold_the_lease_together_and_one_gets_it(
    naps: list[Nap],
    faults: list[tuple[str, int]],
    offsets: tuple[float, float],
    rates: tuple[float, float],
    kills: list[int],
) -> None:
    two, faults = Two(naps, offsets, rates), list(faults)
    for second in range(0, 280, 4):
        disturb(two, second, faults)
        if any(second <= kill < second + 4 for kill in kills):
            two.kill(int(two.leases[1].held()))
        two.run(4)
        two.control.readable = True
    two.naps.clear()
    two.control.faults.clear()
    two.run(120)
    assert any(lease.held() for lease in two.leases)


@given(naps=NAPS, faults=FAULTS, offsets=OFFSETS, rates=RATES, kills=KILLS)
@settings(max_examples=8, deadline=None)
def test_two_daemons_never_both_act_and_launch_no_slot_twice(
    naps: list[Nap],
    faults: list[tuple[str, int]],
    offsets: tuple[float, float],
    rates: tuple[float, float],
    kills: list[int],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(a_plan(("idle: 5m", "idle: 1m")), Path(folder), naps=naps, offsets=offsets, rates=rates)
        faults, jobs = list(faults), [pair.slurm.submit(2, lasts=30), pair.slurm.submit(1, lasts=20)]
        for second in range(0, 280, 4):
            disturb(pair, second, faults)
            if any(second <= kill < second + 4 for kill in kills):
                pair.kill(max(pair.sides, key=lambda side: side.lease.held()))
            pair.run(4)
            pair.control.readable = True
        pair.naps.clear()
        pair.control.faults.clear()
        pair.until(lambda: all(job.state == "COMPLETED" for job in jobs) and not pair.living(), 1500)
        pair.end()


def disturb(world: Two | Pair, second: int, faults: list[tuple[str, int]]) -> None:
    """One fault a minute."""
    if second // 4 % 15 == 7 and faults:
        order(world, *faults.pop())


def order(pair: Two | Pair, kind: str, times: int) -> None:
    if kind in CODES:
        pair.control.faults.next_error("PutObject", CODES[kind], times=times)
    elif kind == "lost":
        pair.control.faults.lose_reply("PutObject", times=times)
    else:
        pair.control.readable = False


def test_frozen_holder_is_replaced_and_does_nothing_afterwards(tmp_path: Path) -> None:
    pair = Pair(a_plan(("idle: 5m", "idle: 1m")), tmp_path)
    pair.run(5)
    assert pair.sides[0].lease.held()
    job = pair.slurm.submit(2, lasts=30)
    pair.naps[(0, pair.sides[0].points + 4)] = 200.0  # in the middle of its next pass
    pair.until(lambda: job.state == "COMPLETED")
    pair.run(20)
    assert pair.slept == 1
    assert pair.stolen == 1, "the first one woke, and was told"
    assert pair.sides[1].lease.held()


def test_without_a_holder_nothing_is_launched_and_the_next_holder_continues(tmp_path: Path) -> None:
    """Both live and look on, but the bucket does not answer for longer than the lease lasts."""
    pair = Pair(a_plan(("idle: 5m", "idle: 1m")), tmp_path)
    first = pair.slurm.submit(1, lasts=20)
    pair.until(lambda: first.state == "COMPLETED")
    launched, living = len(pair.cloud.launches), {i.id for i in pair.living()}
    pair.control.readable = False
    pair.run(TAKES_S)
    assert not any(side.lease.held() for side in pair.sides)
    second = pair.slurm.submit(2, lasts=20)
    pair.run(300)  # far above the idle time; whoever changed something without the lease would fail here
    assert (len(pair.cloud.launches), {i.id for i in pair.living()}) == (launched, living)
    pair.control.readable = True
    pair.until(lambda: second.state == "COMPLETED" and not pair.living(), 1500)
    pair.end()


@pytest.mark.parametrize("scaling", Scaling)
def test_holder_replaces_a_damaged_object_after_the_leases_time_and_keeps_its_scaling(
    scaling: Scaling,
) -> None:
    """Nobody could act until a person had deleted it. Then a stop was called one by nobody."""
    desk = Desk()
    one, two = desk.both()
    desk.control.control = replace(desk.control.control, scaling=scaling, by="an operator")
    desk.now = 5.0
    desk.control.damage("no JSON")
    for now in (10.0, SAFE_S, 10.0 + TAKES_S - 0.1):
        desk.now = now
        with pytest.raises(CloudError, match="MalformedControl"):
            one.renew()
    assert one.cut_off()
    desk.now = 10.0 + TAKES_S
    one.renew()
    assert one.held()
    found = desk.control.read()
    assert (found.holder, found.epoch, found.scaling, found.by) == ("first", 1, scaling, "an operator")
    assert two.watch() == "first"


def test_standby_replaces_a_damaged_object_of_a_dead_holder() -> None:
    desk = Desk()
    _, two = desk.both()
    desk.fence = 7
    desk.control.scale(Scaling.STOP, "an operator")
    desk.control.damage("no JSON")
    assert two.watch() == "the holder of a damaged object"
    desk.now = TAKES_S - 0.1
    assert two.watch()
    desk.now = TAKES_S
    assert two.watch() == ""
    found = desk.control.read()
    assert (found.holder, found.epoch, found.scaling, found.by) == ("second", 8, Scaling.STOP, "an operator")


def test_only_one_daemon_replaces_a_damaged_object() -> None:
    desk = Desk()
    one, two = desk.both()
    desk.control.damage("no JSON")
    with pytest.raises(CloudError):
        one.renew()
    two.watch()
    desk.now = TAKES_S
    assert two.watch() == ""
    with pytest.raises(LeaseLostError):
        one.renew()
    assert not one.cut_off()


@pytest.mark.parametrize("holder", ["second", ""])
def test_old_holder_takes_no_damaged_object_of_its_successor(holder: str) -> None:
    """It wrote itself back. The bucket had not answered it; the damage was the first that it saw."""
    desk = Desk()
    one, two = desk.both()
    desk.now = TAKES_S
    assert two.watch() == ""
    if not holder:
        two.release()
    desk.control.damage("no JSON")
    assert one.cut_off()
    with pytest.raises(LeaseLostError, match=f"held by {holder or 'nobody'}"):
        one.renew()
    assert not one.cut_off()


def test_object_that_is_mended_by_hand_is_read_again() -> None:
    desk = Desk()
    one, _ = desk.both()
    good = desk.control.control
    desk.control.damage("no JSON")
    desk.now = 3.0
    with pytest.raises(CloudError):
        one.renew()
    desk.control.write(good, '"2"')
    desk.now = 6.0
    one.renew()
    assert one.held()


def test_last_holder_that_cannot_read_the_object_is_cut_off_until_it_reads_it_again() -> None:
    desk = Desk()
    one, two = desk.both()
    desk.control.readable = False
    desk.now = SAFE_S - 0.1
    with pytest.raises(CloudError):
        one.renew()
    assert (one.held(), one.cut_off()) == (True, False)
    desk.now = SAFE_S
    assert (one.held(), one.cut_off()) == (False, True)
    assert not two.cut_off(), "it never held the lease"
    desk.control.readable = True
    one.renew()
    assert (one.held(), one.cut_off()) == (True, False)


@pytest.mark.parametrize("hang_s", [5.0, ADDRESSES * CONNECT_S, ONE_ATTEMPT_S])
def test_last_holder_is_cut_off_without_a_gap_while_the_bucket_hangs(hang_s: float) -> None:
    """With calls of 83 s it was neither the holder nor cut off for up to 149 s: longer than a spot notice."""
    desk = Desk()
    one, _ = desk.both()
    gaps: list[float] = []

    def turns(seconds: float) -> None:
        end = desk.now + seconds
        while desk.now < end:
            desk.now += 0.5
            one.tick()
            if one.held() == one.cut_off():
                gaps.append(desk.now)

    def hang(*_: object) -> Never:
        turns(hang_s)
        raise CloudError(Fault.LOST, "ConnectTimeout", "no answer")

    desk.control.write = desk.control.stamped = hang  # type: ignore[method-assign]
    turns(one.renew_every_s)
    while desk.now < 600.0:
        with pytest.raises(CloudError):
            one.renew()
        turns(1.0)
    assert not gaps


def test_holder_that_slept_is_not_cut_off_before_a_later_look_at_the_object_failed() -> None:
    """Another daemon may have taken the lease while it slept."""
    desk = Desk()
    one, _ = desk.both()
    desk.control.readable = False
    for desk.now in range(int(SAFE_S) + 1):
        one.tick()
    assert one.cut_off()
    desk.now += one.renew_every_s + 1.0
    assert not one.cut_off(), "in another thread, before the first turn"
    one.tick()
    assert not one.cut_off()
    with pytest.raises(CloudError):
        one.renew()
    assert one.cut_off()


def test_look_at_the_object_that_began_before_the_sleep_does_not_count() -> None:
    desk = Desk()
    one, _ = desk.both()
    one.tick()
    write = desk.control.write

    def sleep(control: Control, etag: str | None) -> str | None:
        desk.now += 10 * TTL_S
        one.tick()
        return write(control, etag)

    desk.control.readable, desk.control.write = False, sleep  # type: ignore[method-assign]
    with pytest.raises(CloudError):
        one.renew()
    assert not one.cut_off()


def test_holder_whose_journal_another_daemon_opened_is_not_cut_off() -> None:
    desk = Desk()
    one, _ = desk.both()
    desk.now = SAFE_S
    assert one.cut_off()
    desk.fence = 2
    assert not one.cut_off()


def test_holder_that_lost_the_lease_or_has_a_second_head_is_never_cut_off() -> None:
    desk = Desk()
    one, two = desk.both()
    desk.now = TAKES_S
    assert two.watch() == ""
    with pytest.raises(LeaseLostError):
        one.renew()
    desk.control.readable = False
    assert not one.cut_off()
    other = Desk()
    head = other.lease("head", two_heads=True)
    assert head.watch() == ""
    other.control.readable = False
    other.now = SAFE_S
    with pytest.raises(CloudError):
        head.renew()
    assert not head.cut_off()


def test_notice_is_heard_while_the_bucket_is_away(tmp_path: Path) -> None:
    """While the control object could not be read, the daemon did nothing: the checkpoint was lost."""
    pair = Pair(a_plan(), tmp_path)
    job = pair.slurm.submit(2, lasts=5000)
    pair.until(lambda: job.state == "RUNNING")
    pair.run(60)
    pair.control.readable = False
    pair.run(TAKES_S)
    instance = pair.living()[0]
    changes = [call for call in pair.cloud.calls if call[0] in ("launch", "terminate")]
    pair.model.interrupt(instance.id, pair.now, 120.0, silent=("queue",))
    pair.until(lambda: job.state == "PENDING", 118)
    assert [number for _, number, _ in pair.slurm.signals] == [job.id]
    assert job.restarts == 1
    assert [call for call in pair.cloud.calls if call[0] in ("launch", "terminate")] == changes
    pair.control.readable = True
    pair.until(lambda: job.state == "RUNNING", 900)
    assert (len(pair.slurm.signals), job.restarts) == (1, 1)
    pair.end()


def test_holder_with_a_stopped_clock_terminates_no_instance_of_its_successor(tmp_path: Path) -> None:
    """A paused machine: it thinks that it holds the lease, and what was launched meanwhile are strays to it."""
    pair = Pair(a_plan(("idle: 5m", "idle: 1m")), tmp_path)
    pair.run(5)
    first, other = pair.sides
    pair.asleep.add(0)
    pair.run(TAKES_S + 5)
    job = pair.slurm.submit(2, lasts=5000)
    pair.until(lambda: job.state == "RUNNING")
    living = {i.id for i in pair.living()}
    assert other.lease.held()
    first.lease._until = float("inf")  # by its own clock
    assert first.reconciler is not None
    with pytest.raises(FencedError):
        first.reconciler._actor.act((Terminate(instances=tuple(living), reason="no slot owns it"),))
    assert {i.id for i in pair.living()} == living
    pair.end()
