"""Any world: bursts, refusals, kills, lost replies; safe at every moment, and quiet in the end."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import a_plan
from support.fleet import Fleet

from gpucluster.elastic.decide import decide
from gpucluster.elastic.memory import fold
from gpucluster.elastic.model import CloudView, Observation, RecordEvents
from gpucluster.plan.model import SlurmOnAws

A, B = "us-east-2a", "us-east-2b"
PLAN = a_plan(("idle: 5m", "idle: 1m"))
QUIET_S = 9000


@dataclass(frozen=True)
class Step:
    """One thing that happens, and how long until the next."""

    what: str
    number: int
    wait: int


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(
            ["submit", "submit", "srun", "refuse a", "refuse b", "refuse all", "allow", "kill daemon",
             "kill slurmctld", "lose reply", "throttle", "reclaim", "cancel", "mute", "slurmctld away"]
        ),
        st.integers(1, 6),
        st.integers(1, 90),
    ),
    min_size=1,
    max_size=12,
)  # fmt: skip


@given(steps=STEPS)
@settings(
    max_examples=settings().max_examples // 4
)  # each lives through an hour; tests/simulated has 500 more
def test_any_events_are_safe_and_the_cluster_becomes_idle(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step]
) -> None:
    f = World(PLAN, tmp_path_factory.mktemp("w"))
    for step in steps:
        f.happen(step)
        f.run(step.wait)
        f.same_world_same_actions()
    f.settle()


class World(Fleet):
    """A fleet to which anything can happen."""

    def __init__(self, plan: SlurmOnAws, folder: Path) -> None:
        super().__init__(plan, folder)
        self.muted: set[str] = set()
        self.mute = lambda i: i.id in self.muted

    def happen(self, step: Step) -> None:
        getattr(self, "_" + step.what.replace(" ", "_"))(step.number)

    def check(self) -> None:
        super().check()
        slots: dict[str, list[str]] = {}
        for instance in self.living():
            agent = self.agents.get(instance.id)
            if agent and agent.slot:
                slots.setdefault(agent.slot, []).append(instance.id)
        doubled = {s: ids for s, ids in slots.items() if len(ids) > 1}
        assert not doubled, "two living instances for one slot"
        for job in self.slurm.jobs.values():
            zones = {self.slurm.nodes[n].zone for n in job.nodes}
            assert len(zones) <= 1
        for request in self.cloud.launches:
            assert (request.at_least or request.count) <= 6, "a launch larger than any gang"
            assert len(request.token) <= 64

    def same_world_same_actions(self) -> None:
        """Decided twice the same; and once its facts are remembered there are no more of them."""
        if self.slurm.away:
            return
        listed = {i.id: i for i in self.cloud.instances(self.plan.name)}
        seen = Observation(slurm=self.slurm.read(self.now), cloud=CloudView(at=self.now, instances=listed))
        memory = self.journal.memory
        first = decide(self.plan, self.bindings, seen, memory, self.now)
        assert first == decide(self.plan, self.bindings, seen, memory, self.now)
        facts = [e for a in first if isinstance(a, RecordEvents) for e in a.entries]
        after = decide(self.plan, self.bindings, seen, fold(memory, facts), self.now)
        assert not [a for a in after if isinstance(a, RecordEvents)]

    def settle(self) -> None:
        """With capacity back and time enough every job has ended and nothing is left over."""
        self.slurm.away = False
        self.model.set_capacity(free=None)
        self.model.set_capacity(zone=A, free=None)
        self.model.set_capacity(zone=B, free=None)
        self.muted.clear()
        self.until(self.quiet, QUIET_S)

    def quiet(self) -> bool:
        ended = all(j.state in ("COMPLETED", "FAILED", "CANCELLED") for j in self.slurm.jobs.values())
        flags = {"CLOUD", "POWERED_DOWN", "NOT_RESPONDING"}
        plain = all(n.base == "IDLE" and n.flags <= flags for n in self.slurm.nodes.values())
        return ended and plain and not self.living()

    # --- what can happen --------------------------------------------------------------------------
    def _submit(self, number: int) -> None:
        self.slurm.submit(number, lasts=20.0)

    def _srun(self, number: int) -> None:
        self.slurm.submit(number, lasts=20.0, batch=False)

    def _refuse_a(self, number: int) -> None:
        self.model.set_capacity(zone=A, free=0)

    def _refuse_b(self, number: int) -> None:
        self.model.set_capacity(zone=B, free=number - 1)

    def _refuse_all(self, number: int) -> None:
        self.model.set_capacity(free=0)

    def _allow(self, number: int) -> None:
        self.model.set_capacity(free=None)

    def _kill_daemon(self, number: int) -> None:
        self.restart()

    def _kill_slurmctld(self, number: int) -> None:
        self.slurm.restart(forgetting=number % 2 == 0)

    def _lose_reply(self, number: int) -> None:
        self.model.faults.lose_reply("RunInstances", number)

    def _throttle(self, number: int) -> None:
        self.model.faults.next_error("RunInstances", "RequestLimitExceeded", times=number)

    def _reclaim(self, number: int) -> None:
        for instance in sorted(self.living(), key=lambda i: i.id)[:1]:
            self.interrupt(instance.id)

    def _cancel(self, number: int) -> None:
        for job in self.slurm.jobs.values():
            if job.state in ("CONFIGURING", "PENDING"):
                self.slurm.cancel(job)
                return

    def _mute(self, number: int) -> None:
        self.muted.update(i.id for i in sorted(self.living(), key=lambda i: i.id)[:1])

    def _slurmctld_away(self, number: int) -> None:
        self.slurm.away = not self.slurm.away
