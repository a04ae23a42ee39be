"""What differs between the plan's reservations and slurmctld's. Real daemons take the commands in tests/slurm."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucluster.plan.model import SiteReservation
from gpucluster.shell import Result
from gpucluster.slurm import reservations
from gpucluster.slurm.reservations import ReservationsError, difference, reconcile, slurm_name
from gpucluster.slurm.values import SlurmReservation

H, DAY = 3600, 86400
NOW = 1_800_000_000
PATCH = SiteReservation(name="patch", nodes="gpu[01-02]", starts_at=NOW + H, duration_s=4 * H, maint=True)
DAILY = SiteReservation(name="course", nodes="gpu01", starts_at=NOW - DAY - H, duration_s=2 * H, every_s=DAY, users=("ada", "bob"))  # fmt: skip


def made(one: SiteReservation, starts_at: float | None = None, **more: object) -> SlurmReservation:
    """As slurmctld lists it."""
    start = one.starts_at if starts_at is None else starts_at
    flags = ("MAINT",) * one.maint + ("DAILY",) * (one.every_s == DAY) + ("IGNORE_JOBS", "SPEC_NODES")
    found = SlurmReservation(
        name=slurm_name(one),
        starts_at=start,
        ends_at=start + one.duration_s,
        nodes=("gpu01", "gpu02") if one.nodes == "gpu[01-02]" else ("gpu01",),
        users=one.users or ("root",),
        accounts=one.accounts,
        partition=one.partition or "",
        flags=flags,
    )
    return replace(found, **more)  # type: ignore[arg-type]


def verbs(
    *found: SlurmReservation, plan: tuple[SiteReservation, ...] = (PATCH,), now: float = NOW
) -> list[str]:
    return [c[1] for change in difference(plan, found, now) for c in change.commands]


@pytest.mark.parametrize(
    ("what", "found", "now", "expected"),
    [
        ("it is missing", (), NOW, ["create"]),
        ("it is over", (), NOW + 6 * H, []),
        ("it is the same", (made(PATCH),), NOW, []),
        ("it has begun", (made(PATCH),), NOW + 2 * H, []),
        ("it was made after its start", (made(PATCH, NOW + 2 * H, ends_at=NOW + 5 * H),), NOW + 3 * H, []),
        ("it begins later", (made(PATCH, NOW + 2 * H),), NOW, ["update"]),
        ("it has begun too early", (made(PATCH, NOW - H),), NOW, ["delete", "create"]),
        ("it ends earlier", (made(PATCH, ends_at=NOW + 2 * H),), NOW + H, ["update"]),
        ("it has other nodes", (made(PATCH, nodes=("gpu03",)),), NOW, ["update"]),
        ("it is no maintenance", (made(PATCH, flags=("IGNORE_JOBS",)),), NOW, ["delete", "create"]),
        ("others may use it", (made(PATCH, users=("ada",)),), NOW, ["delete", "create"]),
        ("it has a partition", (made(PATCH, partition="gpu"),), NOW, ["delete", "create"]),
        ("one more is ours", (made(PATCH), made(replace(PATCH, name="old"))), NOW, ["delete"]),
    ],
)
def test_commands_of_a_difference(
    what: str, found: tuple[SlurmReservation, ...], now: float, expected: list[str]
) -> None:
    assert verbs(*found, now=now) == expected, what


@pytest.mark.parametrize("name", ["mine", "gpucluster", "gpucluster-cr-0123-begin", "root_3"])
def test_reservations_of_others_and_of_capacity_blocks_are_left_alone(name: str) -> None:
    assert verbs(made(PATCH), made(PATCH, name=name, nodes=("gpu09",))) == []


@given(st.integers(-400 * DAY, 400 * DAY), st.integers(0, 6))
def test_a_repeating_one_is_left_alone_at_each_repetition(now: int, ahead: int) -> None:
    """slurmctld moves its start; the clock of the head may be before or after that."""
    known = made(DAILY, DAILY.starts_at + ahead * DAY)
    assert verbs(known, plan=(DAILY,), now=NOW + now) == []


def test_a_repeating_one_begins_with_its_next_repetition() -> None:
    (change,) = difference((DAILY,), (), NOW)
    (command,) = change.commands
    assert "StartTime=2027-01-16T07:00:00" in command  # NOW is 2027-01-15 08:00
    assert "EndTime=2027-01-16T09:00:00" in command
    assert {"Users=ada,bob", "Flags=DAILY,IGNORE_JOBS", "Nodes=gpu01"} <= {*command}


def test_one_that_has_begun_is_made_for_the_rest_of_its_time() -> None:
    (change,) = difference((PATCH,), (), NOW + 2 * H)
    (command,) = change.commands
    assert {"StartTime=2027-01-15T10:00:01", "EndTime=2027-01-15T13:00:00", "Users=root"} <= {*command}


def a_result(code: int, stdout: str = "", stderr: str = "") -> Result:
    return Result(argv=(), code=code, stdout=stdout, stderr=stderr)


def test_a_refused_change_stops_no_other_one() -> None:
    asked: list[str] = []

    def run(argv: object) -> Result:
        assert isinstance(argv, tuple)
        asked.append(str(argv[1]))
        if argv == reservations.SHOW:
            return a_result(0, '{"reservations": []}')
        return a_result(1, stderr="Requested nodes are busy") if "patch" in str(argv) else a_result(0)

    other = replace(PATCH, name="other")
    assert reconcile(run, (PATCH, other), NOW) == (
        "the reservation gpucluster-patch is refused: Requested nodes are busy",
    )
    assert asked == ["show", "create", "create"]


def test_nothing_is_changed_without_an_answer() -> None:
    with pytest.raises(ReservationsError, match="does not list its reservations: Unable to contact"):
        reconcile(lambda _: a_result(1, stderr="Unable to contact slurm controller"), (PATCH,), NOW)
