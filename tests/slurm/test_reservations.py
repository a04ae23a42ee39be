"""Site reservations on the real slurmctld: made, changed, kept while a job uses them, deleted; and no node is powered up."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from real_slurm import USER, VERSIONS, RealSlurm
from support.builders import a_lab_plan, a_plan
from support.reasons import moment_of_world
from support.waiting import lasting

from gpucluster.elastic.inspect.why import text, why
from gpucluster.gitops.effects import UNAFFECTED
from gpucluster.plan.model import SiteReservation, SlurmPlan
from gpucluster.shell import Result
from gpucluster.slurm import parse, reservations
from gpucluster.slurm.values import SlurmReservation
from gpucluster.text import utc_minute

H = 3600


def a_minute(ahead_s: float) -> int:
    """A whole minute this far ahead: a spec has no seconds."""
    return int((time.time() + ahead_s) // 60 * 60)


class Site:
    """The head's step on a RealSlurm."""

    def __init__(self, slurm: RealSlurm) -> None:
        self.slurm, self.asked = slurm, list[Sequence[str]]()

    def reconcile(self, *plan: SiteReservation) -> tuple[str, ...]:
        self.asked = []
        return reservations.reconcile(self._run, plan, time.time())

    def changes(self) -> list[str]:
        return [argv[1] for argv in self.asked if argv != reservations.SHOW]

    def found(self) -> dict[str, SlurmReservation]:
        shown = self.slurm.must(*reservations.SHOW)
        return {one.name: one for one in parse.parse_reservations(shown)}

    def _run(self, argv: Sequence[str]) -> Result:
        self.asked.append(argv)
        done = self.slurm.run(*argv)
        return Result(argv=tuple(argv), code=done.code, stdout=done.out, stderr=done.err)


def wait_until_idle(slurm: RealSlurm, *nodes: str) -> None:
    def idle() -> bool:
        return slurm.must("sinfo", "-h", "-n", ",".join(nodes), "-o", "%t").split() == ["idle"]

    slurm.wait(idle, "idle nodes")


@pytest.mark.parametrize("version", VERSIONS)
def test_reservations_follow_the_plan(version: str) -> None:
    with RealSlurm(version, a_lab_plan()) as slurm:
        slurm.start_controller()
        slurm.start_nodes("gpu01", "gpu02")
        wait_until_idle(slurm, "gpu01", "gpu02")
        site = Site(slurm)
        slurm.must("scontrol", "create", "reservation", "ReservationName=mine", "StartTime=now+1hour",
                   "Duration=60", "Nodes=gpu02", "Users=root")  # fmt: skip
        running = slurm.must("sbatch", "--parsable", "-N1", "-w", "gpu01", "-t", "1-0", "-o", "/dev/null",
                             "--wrap", "sleep 600", user=USER).strip()  # fmt: skip
        state = ("squeue", "-h", "-j", running, "-o", "%T")
        slurm.wait(lambda: slurm.must(*state).strip() == "RUNNING", "the job runs")
        busy = slurm.run("scontrol", "create", "reservation", "ReservationName=strict", "StartTime=now+1hour",
                         "Duration=60", "Nodes=gpu01", "Users=root")  # fmt: skip
        assert "Requested nodes are busy" in busy.err  # hence IGNORE_JOBS
        start = a_minute(2 * H)
        patch = SiteReservation(
            name="patch", nodes="gpu[01-02]", starts_at=start, duration_s=4 * H, maint=True
        )
        daily = SiteReservation(name="daily", nodes="gpu[03-04]", starts_at=a_minute(-25 * H), duration_s=H,
                                every_s=86400, users=(USER,))  # fmt: skip
        assert site.reconcile(patch, daily) == ()
        found = site.found()
        assert found.keys() == {"mine", "gpucluster-patch", "gpucluster-daily"}
        made = found["gpucluster-patch"]
        assert (made.starts_at, made.ends_at, made.users) == (start, start + 4 * H, ("root",))
        assert {"MAINT", "IGNORE_JOBS"} <= {*made.flags}
        assert found["gpucluster-daily"].starts_at == daily.starts_at + 2 * 86400
        assert "DAILY" in found["gpucluster-daily"].flags

        assert site.reconcile(patch, daily) == ()
        assert site.changes() == []  # nothing differs
        later = replace(patch, starts_at=start + H, nodes="gpu01")
        weekly = replace(daily, every_s=7 * 86400, users=("root", USER))
        assert site.reconcile(later, weekly) == ()
        assert site.changes() == ["update", "delete", "create"]
        found = site.found()
        assert (found["gpucluster-patch"].starts_at, found["gpucluster-patch"].nodes) == (
            start + H,
            ("gpu01",),
        )
        assert found["gpucluster-patch"].ends_at == start + 5 * H
        assert "WEEKLY" in found["gpucluster-daily"].flags
        assert site.reconcile(later, weekly) == ()
        assert site.changes() == []
        assert UNAFFECTED.running == "go on"  # `diff` says it of these changes
        assert slurm.must(*state).strip() == "RUNNING"

        assert site.reconcile() == ()
        assert site.found().keys() == {"mine"}
        assert slurm.must(*state).strip() == "RUNNING"
        assert slurm.errors() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_reservation_that_a_job_uses_is_not_deleted(version: str) -> None:
    with RealSlurm(version, a_lab_plan()) as slurm:
        slurm.start_controller()
        slurm.start_nodes("gpu01")
        wait_until_idle(slurm, "gpu01")
        site = Site(slurm)
        course = SiteReservation(
            name="course", nodes="gpu01", starts_at=a_minute(-60), duration_s=H, users=(USER,)
        )
        assert site.reconcile(course) == ()
        slurm.must("sbatch", "-N1", "-t", "10", "--reservation=gpucluster-course", "-o", "/dev/null",
                   "--wrap", "sleep 600", user=USER)  # fmt: skip
        slurm.wait(lambda: slurm.run("squeue", "-h", "-o", "%T").out.strip() == "RUNNING", "the job runs")
        assert site.reconcile(course) == ()
        assert site.changes() == []  # it is shorter than in the plan, because it was made after its start
        assert site.reconcile() == ("the reservation gpucluster-course changes when no job uses it",)
        assert site.reconcile(replace(course, maint=True)) == (
            "the reservation gpucluster-course changes when no job uses it",
        )
        assert slurm.must("squeue", "-h", "-o", "%T").strip() == "RUNNING"
        slurm.must("scancel", "--user", USER)
        slurm.wait(lambda: slurm.run("squeue", "-h").out == "", "the job has ended")
        assert site.reconcile() == ()
        assert site.found() == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_no_reservation_powers_up_a_node_and_why_tells_what_a_job_waits_for(version: str) -> None:
    """Neither at its creation nor at its start, with and without `maint` (S37)."""
    plan = a_plan(("    nodes: {min: 0, max: 16}", "    nodes: {min: 0, max: 4}"))
    slots = ",".join(span.hostlist for pool in plan.pools for span in pool.slots)
    with RealSlurm(version, plan) as slurm:
        slurm.start_controller()
        site = Site(slurm)
        now = a_minute(0)
        for maint in (True, False):
            one = SiteReservation(
                name="x", nodes=slots, starts_at=now, duration_s=H, users=("root",), maint=maint
            )
            assert site.reconcile(one) == ()
            slurm.wait(
                lambda: "RESERVED" in slurm.must("scontrol", "show", "node", "h200-2a-1"), "it is active"
            )
            lasting(12)  # Slurm's power thread looks each 10 s
            assert slurm.calls() == []
        later = replace(one, name="maint-x", starts_at=a_minute(20 * 60), maint=True)
        assert site.reconcile(later) == ()
        job = slurm.must("sbatch", "--parsable", "-N1", "--gpus-per-node=8", "-t", "60", "-o", "/dev/null",
                         "--wrap", "sleep 600", user=USER).strip()  # fmt: skip
        slurm.wait(lambda: "ReqNodeNotAvail" in slurm.run("squeue", "-h", "-o", "%r").out, "it waits")
        lasting(4)
        assert slurm.calls() == []
        screen = told(slurm, plan, job)
        window = f"from {utc_minute(later.starts_at)} to {utc_minute(later.starts_at + H)}"
        assert f"waits: because of the reservation gpucluster-maint-x of {slots} {window}" in screen
        command = f"scontrol update jobid={job} timelimit="
        assert command in screen
        slurm.must(*f"{command}10".split())  # the remedy
        slurm.wait(slurm.calls, "the job that ends before the maintenance powers up its node")
        assert slurm.errors() == []


def told(slurm: RealSlurm, plan: SlurmPlan, job: str) -> str:
    answers: Callable[[str], str] = lambda what: slurm.must("scontrol", "show", *what.split(), "--json")  # noqa: E731
    view = parse.view(answers("nodes"), answers("jobs"), time.time(), answers("reservations"))
    return text(why(moment_of_world(plan, view), job), time.time())
