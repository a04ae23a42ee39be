"""Scenarios: random steps in the daemon, the cloud and Slurm, simulated in virtual time, with checks after each event.

A `Scenario` is a plain value: a plan, a version of Slurm, the seconds of a boot, and steps. A failing scenario that
hypothesis has shrunk can become a test.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

from hypothesis import strategies as st

from gpucluster.cloud.faults import Fault
from gpucluster.cloud.port import (
    CloudError,
    CloudPort,
    Control,
    FleetAnswer,
    FleetCall,
    Instance,
    LaunchCall,
    Reservation,
    Scaling,
)
from gpucluster.elastic import spool, status_endpoint
from gpucluster.elastic.act import Failpoint
from gpucluster.elastic.decide import decide
from gpucluster.elastic.decide.evacuation import EVACUATION_TABLE
from gpucluster.elastic.events import InterruptionKind, Verb
from gpucluster.elastic.inspect import head
from gpucluster.elastic.inspect.snapshot import after_facts, would_do
from gpucluster.elastic.inspect.why import Part, why
from gpucluster.elastic.log_lines import action_name
from gpucluster.elastic.memory import Interruption, fold
from gpucluster.elastic.model import Action, CloudView, LaunchGang, Observation, RecordEvents
from gpucluster.elastic.reconciler import Reconciler
from gpucluster.plan import codec, names
from gpucluster.plan.messages import GpuFault
from gpucluster.plan.model import AwsPool, Breaker, LaunchTemplate, Market, SlurmOnAws, Source
from gpucluster.sandbox.aws.ec2.state.values import Lag, MaintenanceEvent
from gpucluster.slurm.values import SlurmReservation
from support.builders import a_plan
from support.fleet import NO_TRIP, START, Agent, Fleet
from support.launches import launch_call
from support.slurm_model import Job

A, B = "us-east-2a", "us-east-2b"
QUIET_S = 9000.0  # after the end of the faults the cluster is quiet within this time: two refusal memories and a boot
FAN = "broken fan"  # an operator's reason; Slurm may extend it and then becomes its owner
LONG_S = 4000.0  # run time of a job that outlives most of a scenario
LIMITS = ("JobArrayTaskLimit", "Licenses", "PartitionDown")  # reasons of Slurm that more nodes do not end
# the batch scripts get the signal as soon as such an interruption is known
AT_ONCE = (InterruptionKind.SPOT, InterruptionKind.BLOCK_END, InterruptionKind.FAULT)
_LEASE = ("lease", "renewal")  # a Fleet holds no lease: test_lease.py kills there
POINTS = tuple(p for p in Failpoint if not p.value.endswith(_LEASE))


@dataclass(frozen=True)
class Step:
    """One event, and the seconds until the next."""

    what: str
    number: int = 1
    wait: int = 10


@dataclass(frozen=True)
class Scenario:
    """All inputs of one simulation."""

    steps: tuple[Step, ...]
    plan: str = "plain"
    version: str = "24.11"
    boot_s: float = 30.0


class KilledError(Exception):
    """The daemon's process was killed."""


# --- plans --------------------------------------------------------------------------------------------
@cache
def plan_of(name: str) -> SlurmOnAws:
    """Return one of the plans that scenarios use."""
    return _PLANS[name]()


SMALL, SOON = ("{min: 0, max: 16}", "{min: 0, max: 8}"), ("idle: 5m", "idle: 1m")


def _plain() -> SlurmOnAws:
    return a_plan(SMALL, SOON)


def _tight() -> SlurmOnAws:
    """A plan with few slots, a breaker that trips soon, and spares."""
    plan = a_plan(("{min: 0, max: 16}", "{min: 1, max: 5}"), SOON)
    pool = replace(plan.pools[0], breaker=Breaker(boots=2, cooldown_s=300), spares=1)
    return replace(plan, pools=(pool,))


def _two() -> SlurmOnAws:
    """A plan with two pools: a reservation with spot and on-demand behind it, and spot alone."""
    plan = a_plan(
        SMALL,
        SOON,
        ("{from: spot, machines: [p5en.48xlarge, p5e.48xlarge]}", "{from: spot, machines: [p5en.48xlarge]}"),
    )
    first = plan.pools[0]
    kept = Source(
        position=0,
        market=Market.RESERVATION,
        machines=("p5en.48xlarge",),
        zones=(A,),
        max=None,
        reservation="cr-1",
    )
    moved = tuple(replace(s, position=s.position + 1) for s in first.sources)
    key = first.templates[0].key
    new = LaunchTemplate(key=f"{key}-r", source=0, machine="p5en.48xlarge", market=Market.RESERVATION)
    templates = (new, *(replace(t, source=t.source + 1) for t in first.templates))
    reserved = replace(first, sources=(kept, *moved), templates=templates)
    partitions = tuple(replace(p, pools=("h200", "more")) for p in plan.partitions)
    return replace(plan, pools=(reserved, _other(first)), partitions=partitions)


def _other(first: AwsPool) -> AwsPool:
    spans = tuple(replace(span, prefix=span.prefix.replace("h200", "more"), last=4) for span in first.slots)
    templates = tuple(replace(t, key=f"more-{t.key}") for t in first.templates)
    return replace(first, name="more", max=4, slots=spans, templates=templates)


_PLANS: dict[str, Callable[[], SlurmOnAws]] = {"plain": _plain, "tight": _tight, "two": _two}


# --- checks of what the daemon does ----------------------------------------------------------------
@dataclass
class Totals:
    """Counts that `make soak` prints."""

    scenarios: int = 0
    faults: Counter[str] = field(default_factory=Counter[str])
    nodes: int = 0
    launches: int = 0
    jobs: int = 0
    seconds: float = 0.0
    compared: int = 0  # decisions of the daemon, of the dry run and of `why`
    told: int = (
        0  # runs of jobs that lost a machine, or were requeued, after a notice that the daemon had heard
    )


TOTALS = Totals()


class ComparedReconciler(Reconciler):
    """A Reconciler that gives each of its decisions to `compare`, before it acts on them."""

    compare: Callable[[tuple[Action, ...]], None] = staticmethod(lambda _: None)

    def decide(self) -> tuple[Action, ...]:
        actions = super().decide()
        self.compare(actions)
        return actions


def changed_by(action: Action, owners: Mapping[str, str]) -> set[str]:
    """Return the slots of an action, named directly or by their instances."""
    found = set(getattr(action, "slots", ()))
    if isinstance(action, LaunchGang):
        found |= set(action.request.slots)
    ids = {*getattr(action, "instances", ()), getattr(action, "instance", "")}
    return found | {owners[i] for i in ids if i in owners}


class ListedCloud:
    """A CloudPort for a reader: it repeats the daemon's answers of this pass."""

    def __init__(self, observation: Observation) -> None:
        self._observation = observation

    def instances(self, cluster: str, also: Sequence[str] = ()) -> Sequence[Instance]:
        return tuple(self._answer.instances.values())

    def reservations(self, ids: Sequence[str]) -> Sequence[Reservation]:
        assert self._answer
        return tuple(self._observation.reservations[i] for i in ids if i in self._observation.reservations)

    @property
    def _answer(self) -> CloudView:
        if self._observation.cloud is None:
            raise CloudError(Fault.LOST, "InternalError", "no list")
        return self._observation.cloud


class CheckedCloud:
    """A CloudPort that lets the simulation check each change before it is made."""

    def __init__(self, port: CloudPort, simulation: "Simulation") -> None:
        self._port, self._simulation = port, simulation

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def launch(self, request: LaunchCall) -> tuple[str, ...]:
        self._simulation.may_launch(request)
        found = self._port.launch(request)
        self._simulation.launched(request.count, found)
        return found

    def fleet(self, request: FleetCall) -> FleetAnswer:
        self._simulation.may_launch(request)
        found = self._port.fleet(request)
        self._simulation.launched(request.count, [i for i, _ in found.instances])
        return found

    def terminate(self, ids: Sequence[str]) -> tuple[str, ...]:
        self._simulation.may_end(ids)
        return self._port.terminate(ids)


class Simulation(Fleet):
    """A fleet in which any step of a scenario can happen."""

    reconciler_class = ComparedReconciler
    compare_every = 12  # passes with actions; of the others only each 48th is compared. Each comparison reads all state anew

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.muted: set[str] = set()
        self.passes = {True: 0, False: 0}  # passes with actions, and without
        self.bad = 0  # number of further boots that fail
        self.failed: set[str] = set()
        self.tokens: set[str] = set()
        self.lost_jobs: set[int] = set()
        self.read_at = 0.0  # the read of Slurm of the last whole pass
        self.sent_back: set[tuple[int, str]] = set()  # jobs and the interrupted instances that they left
        super().__init__(plan_of(scenario.plan), folder, boot_s=scenario.boot_s, version=scenario.version)
        self.mute = lambda i: i.id in self.muted
        self.broken = self._breaks
        if scenario.plan == "two":
            self.model.reserve("p5en.48xlarge", A, 3, id="cr-1")
        (folder / names.PLAN_FILE).write_text(codec.dumps(self.plan))
        (folder / names.BINDINGS_FILE).write_text(codec.dumps(self.bindings))
        self.foreign = self._strange()
        self.slurm.watch = self.may_set
        self.slurm.watch_requeue = self.may_requeue

    def start(self) -> None:
        port, self.cloud = self.cloud, CheckedCloud(self.cloud, self)  # type: ignore[assignment]
        try:
            super().start()
        finally:
            self.cloud = port
        assert isinstance(self.reconciler, ComparedReconciler)
        self.reconciler.compare = self._compare

    def _strange(self) -> str:
        """An instance of another owner: without our tags."""
        zone = next(iter(self.bindings.subnets))
        template = self.plan.pools[0].templates[-1]
        request = launch_call(
            token="theirs", template_id="lt-0", subnet_id=self.bindings.subnets[zone],
            zone=zone, machine=template.machine, market=Market.ON_DEMAND, tags={"team": "other"},
        )  # fmt: skip
        return self.cloud.launch(request)[0]

    def living(self) -> list[Instance]:
        return [i for i in super().living() if i.id != self.foreign]

    def _pass(self, end: float) -> None:
        try:
            super()._pass(end)
        except KilledError:
            self.hit = NO_TRIP
            self.restart()

    def look(self) -> None:
        super().look()
        seen = self.reconciler.observation.slurm
        self.read_at = self.read_at if seen is None else seen.at

    def happen(self, step: Step) -> None:
        TOTALS.faults[step.what] += 1
        getattr(self, "_" + step.what.replace(" ", "_"))(step.number)

    # --- safety -------------------------------------------------------------------------------------
    def check(self) -> None:
        truth = self.living()
        self._check_counts(truth)
        slots: dict[tuple[str, int], str] = {}
        for instance in truth:
            agent = self.agents.get(instance.id)
            if agent and agent.slot:
                other = slots.setdefault((agent.slot, agent.incarnation), instance.id)
                assert other == instance.id, f"two living instances for one incarnation of {agent.slot}"
        for job in self.slurm.jobs.values():
            assert len({self.slurm.nodes[n].zone for n in job.nodes}) <= 1, "a gang over two zones"
            if job.state == "RUNNING" and job.started == self.now:
                assert len(job.nodes) == job.count, "a gang that is not whole"
        assert self.foreign in {i.id for i in super().living()}, "an instance of somebody else was ended"

    def _check_counts(self, truth: Sequence[Instance]) -> None:
        owners: dict[str, str] = {}
        for slot, incarnation in self.journal.memory.incarnations.items():
            if incarnation.instance:
                assert owners.setdefault(incarnation.instance, slot) == slot, "one instance, two slots"
        for pool in self.plan.pools:
            ours = [i for i in truth if i.tags.get("gpucluster:pool") == pool.name]
            assert len(ours) <= pool.max, f"{len(ours)} live in {pool.name}, max {pool.max}"
            for source in pool.sources:
                count = sum(i.market is source.market for i in ours)
                assert source.max is None or count <= source.max, f"{count} {source.market}, max {source.max}"

    def may_launch(self, request: LaunchCall | FleetCall) -> None:
        """Repeating an earlier request is always allowed."""
        if request.token in self.tokens:
            return
        self.tokens.add(request.token)
        assert self.control.readable, "launched though the control object cannot be read"
        assert self.control.control.scaling is Scaling.RUN, "launched though it is stopped"
        pool = request.tags["gpucluster:pool"]
        order = self.journal.memory.orders.get(pool)
        paused = order is not None and order.verb in (Verb.POOL_PAUSE, Verb.POOL_DRAIN)
        assert not paused, f"launched though {pool} is paused"

    def launched(self, asked: int, found: Sequence[str]) -> None:
        TOTALS.launches += 1
        TOTALS.nodes += len(found)
        assert len(found) <= asked, f"{len(found)} came, {asked} were asked for"

    def may_end(self, ids: Sequence[str]) -> None:
        """Assert that no machine with a running job is terminated."""
        for name in ids:
            assert name != self.foreign, "somebody else's instance is to be ended"
            agent = self.agents.get(name)
            if agent is None or not agent.up or name not in {i.id for i in self.living()}:
                continue
            node = self.slurm.nodes.get(agent.slot)
            running = [j for j in self.slurm.jobs.values() if j.state == "RUNNING" and agent.slot in j.nodes]
            real = node is not None and node.slurmd == agent.boot_time
            assert not (running and real), f"{name} is ended under job {running[0].id} on {agent.slot}"

    def may_set(self, state: str, nodes: Sequence[str]) -> None:
        """Assert that no node with a running job is set down, except if its machine is gone, silent, or interrupted."""
        for name in nodes if state == "down" else ():
            running = [j.id for j in self.slurm.jobs.values() if j.state == "RUNNING" and name in j.nodes]
            incarnation = self.journal.memory.incarnations.get(name)
            agent = (
                self.agents.get(incarnation.instance)
                if incarnation is not None and incarnation.instance
                else None
            )
            if agent is None or incarnation is None or not agent.up or incarnation.interruption is not None:
                continue
            real = self.slurm.nodes[name].slurmd == agent.boot_time
            assert not (running and real), f"{name} is set down under job {running}"

    def may_requeue(self, job: Job) -> None:
        """Assert that a run was told of the end before it is ended, and that one notice ends one run of a job."""
        for slot in job.nodes:
            incarnation = self.journal.memory.incarnations.get(slot)
            found = None if incarnation is None else incarnation.interruption
            if incarnation is None or found is None or not EVACUATION_TABLE[found.kind].drains:
                continue
            left = job.id, incarnation.instance or ""
            assert left not in self.sent_back, f"job {job.id} is requeued twice for {found.words!r}"
            self.sent_back.add(left)
            if self.slurm.script_runs(job):
                TOTALS.told += 1
                assert self._was_told(job, found), (
                    f"job {job.id} is requeued without a signal for {found.words!r}"
                )

    def machine_ended(self, instance: str, agent: Agent) -> None:
        """Assert that each run on the machine was told, if the daemon had heard the notice and then read Slurm."""
        incarnation = self.journal.memory.incarnations.get(agent.slot)
        if incarnation is None or incarnation.instance != instance:
            return
        found = incarnation.interruption
        if found is None or found.kind not in AT_ONCE:
            return
        for job in self.slurm.jobs.values():
            real = self.slurm.nodes[agent.slot].slurmd == agent.boot_time
            if not self.slurm.script_runs(job) or agent.slot not in job.nodes or not real:
                continue
            if self.read_at > max(found.since, self.slurm.script_began(job)):
                TOTALS.told += 1
                assert self._was_told(job, found), (
                    f"job {job.id} lost {instance} without a signal for {found.words!r}"
                )

    def _was_told(self, job: Job, found: Interruption) -> bool:
        """Return whether the run was signalled, within the grace before the notice at the earliest."""
        since = self.slurm.script_began(job)
        if found.kind in AT_ONCE:
            since = max(since, found.since - self.plan.pools[0].termination.grace_s)
        return any(at >= since and told in (job.id, job.het) for at, told, _ in self.slurm.signals)

    def check_decide(self) -> None:
        """Assert that decide is deterministic, and records no more facts when the first ones are in memory."""
        if self.slurm.away:
            return
        listed = {view.id: view for view in self.living()}
        seen = Observation(slurm=self.slurm.read(self.now), cloud=CloudView(at=self.now, instances=listed))
        memory = self.journal.memory
        first = decide(self.plan, self.bindings, seen, memory, self.now)
        assert first == decide(self.plan, self.bindings, seen, memory, self.now)
        facts = [e for a in first if isinstance(a, RecordEvents) for e in a.entries]
        after = decide(self.plan, self.bindings, seen, fold(memory, facts), self.now)
        again = [e for a in after if isinstance(a, RecordEvents) for e in a.entries]
        assert not again, again

    def _compare(self, actions: tuple[Action, ...]) -> None:
        """Assert that the dry run and `why`, with the status read back from JSON, decide as the daemon does."""
        self.passes[bool(actions)] += 1
        observation = self.reconciler.observation
        if observation.slurm is None:
            assert not actions
            return
        if self.passes[bool(actions)] % (self.compare_every if actions else 4 * self.compare_every):
            return
        body = status_endpoint.to_json(self.reconciler.status)
        clients = head.ReaderClients(
            slurm=self.slurm,
            cloud=cast(CloudPort, ListedCloud(observation)),
            control=self.control,
            status=lambda: status_endpoint.from_json(body),
        )
        files = head.HeadFiles(bundle=self.folder, journal=self.folder / "journal.sqlite")
        snapshot = head.read_snapshot(files, clients, lambda: self.now)
        assert would_do(snapshot) == actions
        TOTALS.compared += 1
        incarnations = after_facts(snapshot, actions).memory.incarnations
        owners = {
            incarnation.instance: slot for slot, incarnation in incarnations.items() if incarnation.instance
        }
        by_slot = {
            slot: [a for a in actions if slot in changed_by(a, owners)] for slot in sorted(incarnations)
        }
        acted = [slot for slot, mine in by_slot.items() if mine]
        for slot in (*acted[:2], *sorted(incarnations)[:1]):
            names_of_actions = tuple(action_name(action) for action in by_slot[slot])
            shown = why(snapshot, slot)
            assert shown.actions == names_of_actions, (slot, shown, by_slot[slot])
            due = [
                x
                for x in shown.lines
                if x.part is Part.NEXT and x.words.startswith("the daemon ") and x.at == snapshot.now
            ]
            assert bool(due) == bool(names_of_actions), (slot, shown)

    # --- liveness -----------------------------------------------------------------------------------
    def settle(self) -> None:
        """End all faults. Every job must end, no instance may remain, and no node may stay in an unexpected state."""
        self.slurm.away = False
        self.hit = NO_TRIP
        self.bad, self.boot_s = 0, 30.0
        self.model.clear()
        self.model.set_capacity(free=None)
        self.control.readable, self.control.control = True, Control()
        self.faults.clear()
        for pool in self.plan.pools:
            self.order(Verb.POOL_RESUME, pool.name)
        for slot in self.slurm.nodes:
            if slot in self.journal.memory.orders:
                self.order(Verb.NODE_RELEASE, slot)
        drained = [n for n in self.slurm.nodes.values() if "DRAIN" in n.flags]
        theirs = [n.name for n in drained if n.reason_by == "root" or n.reason.startswith(FAN)]
        theirs += self._kept_by_limit()
        if theirs:
            self.slurm.by_hand(theirs, "undrain")
        self.slurm.allow_again()
        for job in self.slurm.jobs.values():
            if job.lasts >= LONG_S:
                job.lasts = 20.0
        self.until(self.quiet, QUIET_S)
        TOTALS.jobs += len(self.slurm.jobs)
        TOTALS.seconds += self.now - START

    def _kept_by_limit(self) -> list[str]:
        """The unhealthy nodes beyond the replacements of this hour. They stay drained until a person has found the cause."""
        found: list[str] = []
        lives, began = self.journal.memory.incarnations, self.journal.memory.replaced
        for pool in self.plan.pools:
            recent = [at for at in began.get(pool.name, ()) if self.now - 3600 < at]
            unhealthy = [
                n.name
                for span in pool.slots
                for n in map(self.slurm.nodes.__getitem__, span)
                if n.reason == "Prolog error" and n.name in lives and lives[n.name].replaced_at is None
            ]
            found += unhealthy[max(0, pool.replacements_per_hour - len(recent)) :]
        return found

    def report(self) -> str:
        """Return the states that are not as expected."""
        plain = ("IDLE", {"CLOUD", "POWERED_DOWN"})
        nodes = [
            f"{n.name} {n.base} {sorted(n.flags)} {n.reason!r} since {self.now - n.since:.0f}"
            for n in self.slurm.nodes.values()
            if (n.base, n.flags) != plain
        ]
        jobs = [
            f"job {j.id} {j.state} {j.count} {j.nodes} {j.comment!r}"
            for j in self.slurm.jobs.values()
            if not j.ended
        ]
        incarnations = [
            f"{s} {incarnation.instance} request {incarnation.request}"
            for s, incarnation in self.journal.memory.incarnations.items()
            if incarnation.open or incarnation.instance
        ]
        there = [
            f"{i.id} {i.state} {self.agents[i.id].slot if i.id in self.agents else None}"
            for i in self.living()
        ]
        rest = self.journal.memory
        more = [
            f"launches {list(rest.launches)}",
            f"endings {list(rest.endings)}",
            f"refusals {rest.refusals}",
            f"orders {rest.orders}",
            f"breakers {rest.breakers}",
        ]
        return "\n".join(
            [f"at {self.now - START:.0f}", *nodes, *jobs, *incarnations, *there, *more, *self.complaints[-2:]]
        )

    def quiet(self) -> bool:
        if not all(j.ended for j in self.slurm.jobs.values()):
            return False
        stay = sum(p.min + p.spares for p in self.plan.pools)
        flags = {"CLOUD", "POWERED_DOWN", "NOT_RESPONDING"}
        off = [
            n
            for n in self.slurm.nodes.values()
            if n.base == "IDLE" and n.flags <= flags and "POWERED_DOWN" in n.flags
        ]
        up = [n for n in self.slurm.nodes.values() if n.base == "IDLE" and n.flags <= {"CLOUD"}]
        return len(off) + len(up) == len(self.slurm.nodes) and len(up) == len(self.living()) <= stay

    # --- what can happen: jobs ----------------------------------------------------------------------
    def _job(self, count: int, **changes: Any) -> Job:
        most = max(p.max for p in self.plan.pools)
        return self.slurm.submit(min(count, most), **{"lasts": 20.0, **changes})

    def _submit(self, number: int) -> None:
        self._job(number)

    def _long(self, number: int) -> None:
        self._job(number, lasts=LONG_S)

    def _srun(self, number: int) -> None:
        self._job(number, batch=False)

    def _no_requeue(self, number: int) -> None:
        self._job(number, requeue=False, lasts=200.0)

    def _het(self, number: int) -> None:
        """Both components run at once, so together they fit into a pool's `max`: otherwise the job waits for ever."""
        first = self._job(1, lasts=60.0)
        first.het = first.id
        most = max(p.max for p in self.plan.pools)
        self._job(min(number, most - 1), lasts=60.0).het = first.id

    def _swarm(self, number: int) -> None:
        for _ in range(number):
            self._job(1, lasts=40.0)

    def _other_pool(self, number: int) -> None:
        self._job(min(number, self.plan.pools[-1].max), pool=self.plan.pools[-1].name)

    def _urgent(self, number: int) -> None:
        """A job of a higher QOS: if no slot is free it preempts running jobs, which are requeued."""
        self._job(number, urgent=True, priority=1000, lasts=60.0)

    def _avoids(self, number: int) -> None:
        """A job with --exclude: half of the slots at most, so that it can run."""
        slots = sorted(self.slurm.nodes)
        self._job(1, excludes=tuple(slots[: min(number, len(slots) // 2)]))

    def _named_node(self, number: int) -> None:
        """A job with --nodelist."""
        slot = sorted(self.slurm.nodes)[-number]
        self._job(1, requires=(slot,), pool=self.slurm.nodes[slot].pool)

    def _limited(self, number: int) -> None:
        """Jobs that wait for something else than nodes, ahead of all others: an array's throttle, a licence, a partition."""
        for _ in range(number):
            self._job(2, waits=LIMITS[number % len(LIMITS)], priority=500)

    def _unlimited(self, number: int) -> None:
        self.slurm.allow_again()

    def _maintained(self, number: int) -> None:
        """A maintenance window that a person sets on some slots, with IGNORE_JOBS."""
        some = sorted(self.slurm.nodes)[:number]
        if not self.slurm.away and not any(self.slurm.nodes[n].reservation for n in some):
            until = self.now + 300.0 * number
            name = f"window{self.now:.0f}"
            self.slurm.set_reservation(
                SlurmReservation(name=name, nodes=tuple(some), starts_at=self.now, ends_at=until)
            )

    def _cancel(self, number: int) -> None:
        waiting = [j for j in self.slurm.jobs.values() if not j.ended]
        for job in waiting[:number]:
            self.slurm.cancel(job)

    # --- the cloud ----------------------------------------------------------------------------------
    def _refuse_a(self, number: int) -> None:
        self.model.set_capacity(zone=A, free=0)

    def _refuse_b(self, number: int) -> None:
        self.model.set_capacity(zone=B, free=number - 1)

    def _refuse_all(self, number: int) -> None:
        self.model.set_capacity(free=0)

    def _refuse_spot(self, number: int) -> None:
        self.model.set_capacity(market="spot", free=number - 1)

    def _allow(self, number: int) -> None:
        self.model.set_capacity(free=None)

    def _throttle(self, number: int) -> None:
        for action in ("RunInstances", "CreateFleet", "TerminateInstances"):
            self.model.faults.next_error(action, "RequestLimitExceeded", times=number)

    def _fails(self, number: int) -> None:
        self.model.faults.next_error("*", "InternalError", times=number)

    def _lose_reply(self, number: int) -> None:
        for action in ("RunInstances", "CreateFleet"):
            self.model.faults.lose_reply(action, number)

    def _lose_end(self, number: int) -> None:
        self.model.faults.lose_reply("TerminateInstances", number)

    def _quota(self, number: int) -> None:
        code = "MaxSpotInstanceCountExceeded" if number % 2 else "VcpuLimitExceeded"
        self.model.faults.next_error("RunInstances", code, times=1)

    def _lag(self, number: int) -> None:
        lag = 10.0 * number
        self.model.switches.lag = Lag(id_s=lag, address_s=lag * (number % 2), tags_s=lag * (number % 3))

    def _failing_zone(self, number: int) -> None:
        self.model.switches.failing_zones = {A} if number % 2 else set()

    def _pages(self, number: int) -> None:
        self.model.switches.page_size = number

    def _dead_token(self, number: int) -> None:
        self.model.switches.dead_token = "refuse" if number % 2 else "replay"

    def _reclaim(self, number: int) -> None:
        for instance in self._oldest(number // 3 + 1):
            self.interrupt(instance.id)

    # --- notices ------------------------------------------------------------------------------------
    def _notice(self, number: int) -> None:
        """Interrupt an instance. The notice arrives from the node, from the queue, from both, or not at all."""
        silent = ((), ("metadata",), ("queue",), ("metadata", "queue"))[number % 4]
        for instance in self._oldest(number // 4 + 1, Market.SPOT):
            self.model.interrupt(instance.id, self.now, silent=silent)

    def _storm(self, number: int) -> None:
        for instance in self._oldest(99, Market.SPOT):
            self.model.interrupt(instance.id, self.now, 120.0 if number % 2 else 30.0)

    def _rebalance(self, number: int) -> None:
        for instance in self._oldest(number, Market.SPOT):
            self.model.recommend(instance.id, self.now)

    def _maintenance(self, number: int) -> None:
        for instance in self._oldest(1):
            event = MaintenanceEvent(
                id="",
                code="instance-retirement",
                not_before=self.now + 600.0 * number,
                description="retirement",
            )
            self.model.maintain(instance.id, event, self.now)

    def _news_fail(self, number: int) -> None:
        switches = self.model.events.switches
        switches.twice_every, switches.lose = number % 3, number // 3
        switches.shuffle, switches.late_s = number % 2 == 0, 10.0 * number

    def _xid(self, number: int) -> None:
        kinds = (79, 48, 94, 13, 31, 95)
        for instance in self._oldest(1):
            xid = kinds[number % len(kinds)]
            fault = GpuFault(xid=xid, device="0000:53:00", count=1, last_at=self.now, text=f"NVRM: Xid {xid}")
            self.faults[instance.id] = (fault,)

    # --- machines -----------------------------------------------------------------------------------
    def _mute(self, number: int) -> None:
        self.muted.update(i.id for i in self._oldest(number // 3 + 1))

    def _bad_boots(self, number: int) -> None:
        self.bad = number

    def _slow_boots(self, number: int) -> None:
        self.boot_s = 30.0 if number % 2 else self.plan.pools[0].boot_timeout_s - 60.0 + 60.0 * number

    def _breaks(self, instance: Instance) -> str | None:
        if instance.id not in self.failed and self.bad and instance.id not in self.agents_up():
            self.bad -= 1
            self.failed.add(instance.id)
        return "AccessDenied" if instance.id in self.failed else None

    def agents_up(self) -> set[str]:
        return {i for i, a in self.agents.items() if a.incarnation}

    # --- Slurm --------------------------------------------------------------------------------------
    def _slurmctld_away(self, number: int) -> None:
        self.slurm.away = not self.slurm.away

    def _kill_slurmctld(self, number: int) -> None:
        self.slurm.restart(forgetting=number % 2 == 0)

    def _outage(self, number: int) -> None:
        """slurmctld is down for longer than a node may be silent."""
        self.slurm.away = True
        self.run(60.0 * number)
        self.slurm.away = False
        self.slurm.restart(forgetting=False, after=60.0 * number)

    def _prolog_fails(self, number: int) -> None:
        up = [n.name for n in self.slurm.nodes.values() if n.up and "DRAIN" not in n.flags]
        for name in up[:1]:
            self.slurm.drains(name, "Prolog error")

    def _person_drains(self, number: int) -> None:
        if not self.slurm.away:
            some = sorted(self.slurm.nodes)[number - 1]
            self.slurm.by_hand([some], "drain", FAN)

    # --- the daemon and its operators ---------------------------------------------------------------
    def _kill_daemon(self, number: int) -> None:
        self.restart()

    def _daemon_away(self, number: int) -> None:
        """Stop the daemon for longer than a new instance may be silent, and start it again."""
        self.stopped = True
        self.run(150.0 * number)
        self.stopped = False
        self.restart()

    def _kill_at(self, number: int) -> None:
        """Kill the daemon at its next failpoint of this kind."""
        point = POINTS[number % len(POINTS)]

        def hit(at: Failpoint) -> None:
            if at is point:
                raise KilledError

        self.hit = hit

    def _stop(self, number: int) -> None:
        scaling = Scaling.RUN if number % 3 == 0 else Scaling.STOP
        self.control.control = replace(self.control.control, scaling=scaling, by="somebody")

    def _unreadable(self, number: int) -> None:
        self.control.readable = number % 3 == 0

    def _pause(self, number: int) -> None:
        self.order((Verb.POOL_PAUSE, Verb.POOL_DRAIN)[number % 2], self.plan.pools[0].name)

    def _resume(self, number: int) -> None:
        self.order(Verb.POOL_RESUME, self.plan.pools[0].name)

    def _keep(self, number: int) -> None:
        for slot in self._busy_slots()[:1]:
            self.order(Verb.NODE_KEEP, slot, until=self.now + 300.0 * number)

    def _replace(self, number: int) -> None:
        for slot in self._busy_slots()[:1]:
            self.order(Verb.NODE_REPLACE, slot, now=number % 2 == 0)

    def order(self, verb: Verb, target: str, **more: Any) -> None:
        """Write a command into the spool, as the command line does."""
        self._orders = getattr(self, "_orders", 0) + 1
        given = spool.SpooledOrder(
            kind=spool.ORDER, verb=verb, target=target, by="operator", words="", until=more.get("until"),
            now=more.get("now", False), time=self.now,
        )  # fmt: skip
        spool.put(self.folder / "spool", given, f"{int(self.now * 1000)}.{self._orders}.order")
        self._ring()

    # --- the targets of a step ------------------------------------------------------------------------------
    def _oldest(self, count: int, market: Market | None = None) -> list[Instance]:
        found = [i for i in self.living() if market in (None, i.market)]
        return sorted(found, key=lambda i: (i.launched_at, i.address or ""))[:count]

    def _busy_slots(self) -> list[str]:
        return sorted(a.slot for i, a in self.agents.items() if a.up and a.slot)


# --- scenarios --------------------------------------------------------------------------------------------
WEIGHTS = {
    "submit": 6, "long": 3, "srun": 2, "no requeue": 2, "het": 1, "swarm": 2, "other pool": 1, "urgent": 2, "cancel": 2,
    "avoids": 1, "named node": 1, "limited": 2, "unlimited": 1, "maintained": 1,
    "refuse a": 2, "refuse b": 2, "refuse all": 1, "refuse spot": 2, "allow": 2,
    "throttle": 2, "fails": 2, "lose reply": 2, "lose end": 1, "quota": 1, "lag": 2, "failing zone": 1, "pages": 1, "dead token": 1,
    "reclaim": 3, "notice": 3, "storm": 2, "rebalance": 1, "maintenance": 1, "news fail": 1, "xid": 2,
    "mute": 2, "bad boots": 2, "slow boots": 1,
    "slurmctld away": 2, "kill slurmctld": 3, "outage": 1, "prolog fails": 1, "person drains": 1,
    "kill daemon": 3, "daemon away": 1, "kill at": 6, "stop": 1, "unreadable": 1, "pause": 1, "resume": 1, "keep": 1, "replace": 2,
}  # fmt: skip
_WHATS = [what for what, weight in WEIGHTS.items() for _ in range(weight)]
_NOTICES = [
    what for what in _WHATS if what in ("notice", "storm", "xid", "replace", "maintenance", "news fail")
]
_STEPS = st.lists(
    st.builds(Step, st.sampled_from(_WHATS), st.integers(1, 6), st.sampled_from((1, 5, 20, 45, 90, 200))),
    min_size=5,
    max_size=12,
).map(tuple)
# a job runs when the notices come: few of the steps above meet a run that lasts
_BAD_MINUTES = st.tuples(
    st.builds(Step, st.just("long"), st.integers(1, 4), st.sampled_from((90, 200))),
    st.lists(
        st.builds(
            Step,
            st.sampled_from([*_NOTICES * 4, *_WHATS]),
            st.integers(1, 6),
            st.sampled_from((1, 5, 20, 45, 90)),
        ),
        min_size=3,
        max_size=8,
    ),
).map(lambda parts: (parts[0], *parts[1]))
SCENARIOS = st.builds(
    Scenario,
    st.one_of(_STEPS, _STEPS, _BAD_MINUTES),
    plan=st.sampled_from(("plain", "plain", "tight", "two")),
    version=st.sampled_from(("24.11", "22.05", "26.05")),
    boot_s=st.sampled_from((30.0, 5.0, 120.0)),
)


def simulate(scenario: Scenario, folder: Path, *, kind: "type[Simulation] | None" = None) -> Simulation:
    """Run all steps, then let the faults end, and check that the cluster becomes quiet."""
    simulation = (kind or Simulation)(scenario, folder)
    TOTALS.scenarios += 1
    try:
        for step in scenario.steps:
            simulation.happen(step)
            simulation.run(step.wait)
            simulation.check_decide()
        simulation.settle()
    finally:
        simulation.journal.close()
    return simulation
