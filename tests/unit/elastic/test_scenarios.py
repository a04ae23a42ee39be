"""Scenarios that found a fault: each has a few steps and names the fault."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fleet import START
from support.scenarios import Scenario, Simulation, Step, simulate

FOUND = [
    (
        "more Prologs fail than the pool replaces instances in an hour: the simulated person found no cause, and the nodes stayed",
        Scenario((Step("long", 6, 200), Step("swarm", 6, 90), *(Step("prolog fails", 1, 200),) * 5)),
    ),
    (
        "slurmctld restarts and its slots are drained beside an idle node: the model of Slurm gave no reason Resources to the waiting job",
        Scenario(
            (
                Step("xid", 2, 20),
                Step("refuse a", 6, 1),
                Step("submit", 6, 90),
                Step("kill slurmctld", 1, 1),
                Step("reclaim", 3, 1),
                Step("outage", 2, 1),
                Step("reclaim", 1, 1),
                Step("submit", 1, 1),
            ),
            plan="tight",
            version="24.11",
        ),
    ),
    (
        "slurmctld forgets that a drained slot is up, and its node registers: the drain lost its reason and stayed",
        Scenario(
            (Step("swarm", 6, 45), Step("reclaim", 1, 5), Step("kill slurmctld", 6, 1)),
            plan="tight",
            version="26.05",
        ),
    ),
    (
        "a rebalance recommendation for a node that Slurm has drained: it was not replaced",
        Scenario(
            (
                Step("rebalance", 1, 200),
                Step("slurmctld away", 1, 1),
                Step("rebalance", 1, 1),
                Step("prolog fails", 1, 1),
            ),
            plan="tight",
        ),
    ),
    (
        "a person's drain to which Slurm adds its own user when the node stops responding: the simulated person did not lift it",
        Scenario(
            (
                Step("no requeue", 5, 1),
                Step("outage", 1, 1),
                Step("storm", 6, 1),
                Step("person drains", 5, 1),
                Step("keep", 1, 20),
                Step("lose end", 1, 200),
            ),
            plan="tight",
        ),
    ),
    (
        "a restarted daemon gives a silent instance its time again: the dry run did not know and reported a failed boot",
        Scenario((Step("long", 2, 5), Step("mute", 6, 1), Step("daemon away", 4, 1))),
    ),
    (
        "the leader of a het job is requeued and its component runs: the model of Slurm let the component end, so the leader never started",
        Scenario(
            (
                Step("refuse a", 4, 1),
                Step("lose reply", 2, 1),
                Step("notice", 4, 1),
                Step("het", 6, 200),
                Step("allow", 1, 1),
            )
        ),
    ),
    (
        "a partial launch whose spare instances EC2 does not know yet: they lived on, did not count, and the pool exceeded its max",
        Scenario(
            (
                Step("submit", 1, 20),
                Step("refuse spot", 5, 1),
                Step("lag", 1, 1),
                Step("submit", 1, 1),
                Step("submit", 4, 1),
            )
        ),
    ),
    (
        "a slot goes from one state with a bound to another: the removal of the old bound removed the new one",
        Scenario(
            (
                Step("submit", 1, 20),
                Step("submit", 3, 90),
                Step("notice", 1, 1),
                Step("notice", 1, 1),
                Step("submit", 1, 1),
            ),
            plan="two",
            version="24.11",
            boot_s=30.0,
        ),
    ),
    (
        "a person's drain of a node that Slurm has set DOWN is lifted, and Slurm keeps its reason: the DOWN was taken for the person's",
        Scenario(
            (
                Step("kill slurmctld", 4, 1),
                Step("long", 4, 5),
                Step("throttle", 6, 200),
                Step("kill daemon", 1, 1),
                Step("refuse b", 6, 1),
                Step("submit", 2, 90),
                Step("reclaim", 3, 200),
                Step("slow boots", 6, 45),
                Step("notice", 3, 200),
                Step("mute", 1, 1),
                Step("kill slurmctld", 6, 5),
                Step("person drains", 6, 1),
            ),
            plan="two",
            boot_s=30.0,
        ),
    ),
    (
        "a component of a het job starts long after the leader, whose signal is given before the script begins",
        Scenario(
            (
                Step("pages", 1, 1),
                Step("het", 4, 45),
                Step("bad boots", 5, 1),
                Step("het", 4, 45),
                Step("submit", 2, 1),
                Step("kill at", 1, 200),
                Step("throttle", 1, 90),
                Step("submit", 6, 90),
                Step("notice", 1, 20),
                Step("submit", 1, 1),
                Step("outage", 1, 1),
                Step("notice", 6, 1),
            ),
            plan="tight",
            version="24.11",
            boot_s=120.0,
        ),
    ),
]


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.parametrize("scenario", [scenario for _, scenario in FOUND], ids=[words for words, _ in FOUND])
def test_scenario_ends_quiet(scenario: Scenario, folder: Path) -> None:
    simulate(scenario, folder)


def test_urgent_job_takes_the_nodes_of_running_jobs_and_no_instance_is_launched_for_it(folder: Path) -> None:
    """Five instances are the most, and all are busy. Slurm first gives the job powered-down slots; the daemon holds them."""
    world = Simulation(Scenario((), plan="tight"), folder)
    try:
        for _ in range(5):
            world.happen(Step("long", 1, 1))
        jobs = list(world.slurm.jobs.values())
        world.run(300)
        assert [job.state for job in jobs] == ["RUNNING"] * 5
        machines = {instance.id for instance in world.living()}
        assert len(machines) == 5
        world.happen(Step("urgent", 3, 1))
        urgent = world.slurm.jobs[6]
        while not (urgent.ended and all(job.state == "RUNNING" for job in jobs)):
            assert world.now < START + 3600
            world.run(1)
            world.check()
            assert {instance.id for instance in world.living()} == machines
        victims = [job for job in jobs if job.restarts]
        assert (urgent.state, urgent.restarts, len(victims)) == ("COMPLETED", 0, 3)
        assert set(urgent.runs[0]) == {node for job in victims for node in job.runs[0]}
        assert [len(job.runs) for job in victims] == [2, 2, 2]
        world.settle()
        assert {job.state for job in jobs} == {"COMPLETED"}
    finally:
        world.journal.close()


class Compared(Simulation):
    """Compares each decision of the daemon with the dry run's and with `why`."""

    compare_every = 1


READERS = {
    "reports": Scenario(
        (Step("submit", 2, 90), Step("xid", 1, 20), Step("bad boots", 2, 1), Step("submit", 4, 90))
    ),
    "events": Scenario((Step("long", 3, 90), Step("notice", 1, 20), Step("storm", 1, 90))),
    "halted": Scenario((Step("stop", 1, 5), Step("submit", 3, 90), Step("unreadable", 1, 90))),
    "reservations": Scenario((Step("submit", 2, 60), Step("other pool", 2, 90)), plan="two"),
}


@pytest.mark.parametrize("scenario", READERS.values(), ids=READERS)
def test_dry_run_and_why_decide_as_the_daemon(scenario: Scenario, folder: Path) -> None:
    """Each scenario needs one field of StatusSnapshot: without it the dry run decides otherwise."""
    simulate(scenario, folder, kind=Compared)
