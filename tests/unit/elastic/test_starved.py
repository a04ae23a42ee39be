"""A job that waits for refused capacity starts soon after the capacity is back, whatever its constraints are.

Real Slurm (24.11): a plain job ran 8 s after the capacity came back; `--exclude`, `--nodelist` and a gang beside a drained
idle node still waited at 242, 165 and 129 s, and in these models for hours.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.builders import a_plan
from support.fleet import Fleet
from support.slurm_model import Job

from gpucluster.elastic.decide.node_context import EXPECTED_S
from gpucluster.slurm.values import SlurmReservation

REFUSED_S, SOON_S = 500.0, 900.0
A, B = "h200-2a", "h200-2b"


def plain(f: Fleet) -> list[Job]:
    return [f.slurm.submit(1)]


def excluded(f: Fleet) -> list[Job]:
    """The first slots of each zone are excluded: a probe of exactly these slots is not used."""
    return [f.slurm.submit(1, excludes=(f"{A}-1", f"{A}-2", f"{B}-1", f"{B}-2"))]


def required(f: Fleet) -> list[Job]:
    return [f.slurm.submit(2, requires=(f"{B}-7",))]


def reserved(f: Fleet) -> list[Job]:
    """The first slots of each zone are in a reservation of a person."""
    nodes = tuple(f"{zone}-{n}" for zone in (A, B) for n in (1, 2, 3))
    f.slurm.set_reservation(SlurmReservation(name="upgrade", starts_at=0, ends_at=f.now + 9e6, nodes=nodes))
    return [f.slurm.submit(2)]


def inside_reservation(f: Fleet) -> list[Job]:
    nodes = (f"{B}-9", f"{B}-10")
    f.slurm.set_reservation(SlurmReservation(name="course", starts_at=0, ends_at=f.now + 9e6, nodes=nodes))
    return [f.slurm.submit(2, reservation="course")]


def het(f: Fleet) -> list[Job]:
    first = f.slurm.submit(2, het=1)
    return [first, f.slurm.submit(3, het=first.id)]


def behind_a_throttled_array(f: Fleet) -> list[Job]:
    f.slurm.submit(9, priority=9, waits="JobArrayTaskLimit")
    return [f.slurm.submit(2)]


def behind_a_licence(f: Fleet) -> list[Job]:
    f.slurm.submit(9, priority=9, waits="Licenses")
    return [f.slurm.submit(2)]


def behind_a_closed_partition(f: Fleet) -> list[Job]:
    f.slurm.submit(1, priority=9, waits="PartitionDown")
    return [f.slurm.submit(2)]


def behind_a_limit_of_accounting(f: Fleet) -> list[Job]:
    f.slurm.submit(1, priority=9, waits="AssocGrpNodeLimit")
    return [f.slurm.submit(2)]


def behind_an_impossible_node_list(f: Fleet) -> list[Job]:
    """Its required node is drained by a person; only that person can let it start."""
    f.slurm.by_hand([f"{A}-16"], "drain", "broken fan")
    f.slurm.submit(1, priority=9, requires=(f"{A}-16",))
    return [f.slurm.submit(2)]


def beside_a_drained_idle_node(f: Fleet) -> list[Job]:
    """A person drained a node that is up and idle. It is no node for this gang."""
    first = f.slurm.submit(1, lasts=30)
    f.model.set_capacity(free=None)
    f.until(lambda: first.state == "COMPLETED", 300)
    (node,) = first.runs[0]
    f.slurm.by_hand([node], "drain", "look at its fan")
    f.model.set_capacity(free=0)
    return [f.slurm.submit(3)]


JOBS = (
    plain, excluded, required, reserved, inside_reservation, het, behind_a_throttled_array, behind_a_licence,
    behind_a_closed_partition, behind_a_limit_of_accounting, behind_an_impossible_node_list,
    beside_a_drained_idle_node,
)  # fmt: skip


@pytest.mark.parametrize("jobs", JOBS, ids=lambda jobs: jobs.__name__)
def test_job_starts_soon_after_capacity_is_back(jobs: Callable[[Fleet], list[Job]], tmp_path: Path) -> None:
    f = Fleet(a_plan(), tmp_path)
    f.model.set_capacity(free=0)
    found = jobs(f)
    f.run(REFUSED_S)
    assert not any(job.runs for job in found)
    f.model.set_capacity(free=None)
    assert f.until(lambda: all(job.runs for job in found), 4 * 3600) <= SOON_S


def test_idle_node_is_held_for_a_waiting_job_for_a_bounded_time(tmp_path: Path) -> None:
    """It was powered down at the pool's idle time while a gang of two waited for one more node."""
    f = Fleet(a_plan(), tmp_path)
    first = f.slurm.submit(1, lasts=30)
    f.until(lambda: first.state == "COMPLETED", 300)
    f.model.set_capacity(free=0)
    gang = f.slurm.submit(2)
    idle_s = f.plan.pools[0].idle_s
    f.run(idle_s + EXPECTED_S - 60)
    assert len(f.living()) == 1
    f.until(lambda: not f.living(), 2 * 3600)
    f.model.set_capacity(free=None)
    f.until(lambda: bool(gang.runs), 3600)


def test_idle_node_of_a_reservation_makes_room_below_max_for_another_job(tmp_path: Path) -> None:
    """`why` says that the daemon powers it down and can then launch another node."""
    plan = a_plan(("max: 4}", "max: 1}"), ("max: 16}", "max: 1}"))
    f = Fleet(plan, tmp_path)
    first = f.slurm.submit(1, lasts=30)
    f.until(lambda: first.state == "COMPLETED", 300)
    (node,) = first.runs[0]
    f.slurm.set_reservation(SlurmReservation(name="course", starts_at=0, ends_at=f.now + 9e6, nodes=(node,)))
    other = f.slurm.submit(1)
    assert f.until(lambda: bool(other.runs), 3600) <= plan.pools[0].idle_s + SOON_S
    assert other.runs[0] != (node,)
