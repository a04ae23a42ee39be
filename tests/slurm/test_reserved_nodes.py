"""The real slurmctld starts a job on a reserved node exactly if `reserved` allows it, and plans jobs on nodes that they may not use now."""

import time
from collections.abc import Callable, Mapping

import pytest
from real_slurm import USER, VERSIONS, RealSlurm
from support.builders import a_lab_plan, a_plan
from support.reasons import moment_of_world

from gpucluster.elastic.decide.node_context import SharedContext
from gpucluster.elastic.decide.reserved import Holds
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.inspect.why import text, why
from gpucluster.plan.model import SlurmPlan
from gpucluster.slurm import parse
from gpucluster.slurm.values import SlurmView

NODE, OTHER = "gpu01", "gpu02"
HOUR, LATER = "StartTime=now Duration=60", "StartTime=now+20minutes Duration=60"
OF_ROOT, OF_USER = "Users=root", f"Users={USER}"
UNREAD = "it takes jobs of its user"
# What it is -> the reservations, and the options of a job with --nodelist=gpu01.
CASES: Mapping[str, tuple[Mapping[str, str], str]] = {
    "of others": ({"a": f"Nodes={NODE} {HOUR} {OF_ROOT}"}, "-t 60"),
    "of its user, who does not name it": ({"a": f"Nodes={NODE} {HOUR} {OF_USER}"}, "-t 60"),
    "its own": ({"a": f"Nodes={NODE} {HOUR} {OF_USER}"}, "-t 60 --reservation=a"),
    "one of two that it names": (
        {"a": f"Nodes={NODE} {HOUR} {OF_USER}", "b": f"Nodes={OTHER} {HOUR} {OF_USER}"},
        "-t 60 --reservation=b,a",
    ),
    "its own is of another node": ({"a": f"Nodes={OTHER} {HOUR} {OF_USER}"}, "-t 60 --reservation=a"),
    "its own is flexible": ({"a": f"Nodes={OTHER} {HOUR} {OF_USER} Flags=FLEX"}, "-t 60 --reservation=a"),
    "it begins before the job could end": ({"a": f"Nodes={NODE} {LATER} {OF_ROOT}"}, "-t 60"),
    "it begins after the job": ({"a": f"Nodes={NODE} {LATER} {OF_ROOT}"}, "-t 10"),
    "maintenance, later": ({"a": f"Nodes={NODE} {LATER} {OF_ROOT} Flags=MAINT,IGNORE_JOBS"}, "-t 60"),
    "its own is over another one": (
        {"a": f"Nodes={NODE} {HOUR} {OF_ROOT}", "b": f"Nodes={NODE} {HOUR} {OF_USER} Flags=OVERLAP"},
        "-t 60 --reservation=b",
    ),
    "maintenance is over its own": (
        {"a": f"Nodes={NODE} {HOUR} {OF_USER}", "b": f"Nodes={NODE} {HOUR} {OF_ROOT} Flags=MAINT"},
        "-t 60 --reservation=a",
    ),
    "its own is the maintenance": (
        {"a": f"Nodes={NODE} {HOUR} {OF_ROOT}", "b": f"Nodes={NODE} {HOUR} {OF_USER} Flags=MAINT"},
        "-t 60 --reservation=b",
    ),
    UNREAD: ({"a": f"Nodes={NODE} {HOUR} {OF_USER} Flags=MAGNETIC"}, "-t 60"),
    "some cores": ({"a": f"Nodes={NODE} {HOUR} {OF_ROOT} CoreCnt=1"}, "-t 60"),
}  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_slurmctld_starts_a_job_exactly_where_reservations_allow_it(version: str) -> None:
    plan = a_lab_plan()
    with RealSlurm(version, plan) as slurm:
        slurm.start_controller()
        slurm.start_nodes(NODE, OTHER)
        idle = ("sinfo", "-h", "-n", f"{NODE},{OTHER}", "-o", "%t")
        slurm.wait(lambda: slurm.run(*idle).out.split() == ["idle"], "idle nodes")
        found = {name: outcome(slurm, plan, *case) for name, case in CASES.items()}
        starts = {name: started for name, (_, started) in found.items()}
        assert found.pop(UNREAD)[0]  # 24.11 starts it, 26.05 does not
        assert {name: allowed for name, (allowed, _) in found.items()} == {
            name: starts[name] for name in found
        }
        assert 4 <= sum(starts.values()) <= len(starts) - 4


def outcome(
    slurm: RealSlurm, plan: SlurmPlan, reservations: Mapping[str, str], options: str
) -> tuple[bool, bool]:
    """Return whether `reserved` allows the job's node, and whether slurmctld starts it there."""
    for name, keys in reservations.items():
        slurm.must("scontrol", "create", "reservation", f"ReservationName={name}", *keys.split())
    argv = ("sbatch", "--parsable", "--hold", "-N1", "-n1", "-w", NODE, *options.split(), "-o", "/dev/null")
    job = slurm.must(*argv, "--wrap", "sleep 600", user=USER).strip()
    world = world_of(plan, seen(slurm))
    held = next(one for one in world.slurm.jobs if one.id == int(job))
    allowed = Holds.of(world, held).allow(world.node(NODE))
    slurm.must("scontrol", "release", job)
    state = ("squeue", "-h", "-j", job, "-o", "%T %r")
    said = slurm.wait(lambda: decided(slurm.must(*state)), "it starts or waits")
    slurm.must("scancel", job)
    slurm.wait(lambda: not slurm.must("squeue", "-h"), "it is gone")
    for name in reservations:
        slurm.must("scontrol", "delete", f"ReservationName={name}")
    return allowed, said == "RUNNING"


def decided(answer: str) -> str:
    state, reason = answer.split(maxsplit=1)
    waits = state == "PENDING" and not reason.startswith(("None", "JobHeld"))
    return state if waits or state == "RUNNING" else ""


@pytest.mark.parametrize("version", VERSIONS)
def test_node_that_is_planned_for_a_job_after_a_reservation_is_not_held_for_it(version: str) -> None:
    """PLANNED does not mean that the job may use the node now. `why` names the reservation that a person made."""
    plan = a_plan(("    nodes: {min: 0, max: 16}", "    nodes: {min: 0, max: 4}"))
    slots = [slot for pool in plan.pools for span in pool.slots for slot in span]
    first, second, others = slots[0], slots[1], ",".join(slots[2:])
    with RealSlurm(version, plan) as slurm:
        slurm.start_controller()
        slurm.serve_power()
        submit: Callable[..., str] = lambda *options: slurm.must(  # noqa: E731
            "sbatch", "--parsable", "-N1", "--gpus-per-node=8", *options, "-o", "/dev/null", "--wrap", "sleep 600", user=USER
        ).strip()  # fmt: skip
        boots = [submit("-w", slot, "-t", "5") for slot in (first, second)]
        slurm.wait(
            lambda: slurm.must("squeue", "-h", "-o", "%T").split() == ["RUNNING", "RUNNING"], "both are up"
        )
        slurm.must("scancel", *boots)
        slurm.wait(lambda: not slurm.must("squeue", "-h"), "both are idle")
        drain = ("scontrol", "update", f"nodename={others}", "state=drain", "reason=gpucluster: no capacity")
        slurm.must(*drain, user="slurm")  # as the daemon
        for name, slot, keys in (("course", first, HOUR), ("later", second, LATER)):
            slurm.must("scontrol", "create", "reservation", f"ReservationName={name}", f"Nodes={slot}", OF_ROOT, *keys.split())  # fmt: skip
        job = submit("-t", "60")
        planned: Callable[[], list[str]] = lambda: [  # noqa: E731
            slot for slot in (first, second) if "PLANNED" in seen(slurm).nodes[slot].states
        ]
        slurm.wait(planned, "backfill plans the job on a reserved node")
        view = seen(slurm)
        assert SharedContext(world_of(plan, view)).expected == frozenset()
        screen = text(why(moment_of_world(plan, view), job), time.time())
        assert "waits: because of the reservation course of " in screen
        assert f"the reservation later of {second} from " in screen
        assert "--reservation=course; user root" in screen
        named = text(why(moment_of_world(plan, view), first), time.time())
        assert f"the reservation course of {first} from " in named

        short = submit("-t", "10", "-w", second)
        slurm.wait(
            lambda: slurm.must("squeue", "-h", "-j", short, "-o", "%T").strip() == "RUNNING",
            "a job that ends before the later reservation starts there",
        )


def seen(slurm: RealSlurm) -> SlurmView:
    answer: Callable[[str], str] = lambda what: slurm.must("scontrol", "show", *what.split(), "--json")  # noqa: E731
    return parse.view(answer("nodes"), answer("jobs"), time.time(), answer("reservations"))


def world_of(plan: SlurmPlan, view: SlurmView) -> World:
    world = moment_of_world(plan, view).world
    assert world is not None
    return world
