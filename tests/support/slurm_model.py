"""A small Slurm in virtual time. It replays records of real daemons (tests/recorded/transitions, test_slurm_model.py).

The model is coarser than Slurm. It starts a job at the first tick at which the job fits, in the order of priority and
number. The caller chooses among the free nodes (`prefers`); by default these are the first ones that are up, in one
zone. No state lasts less than a tick.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from gpucluster.elastic.decide.world import slots_of
from gpucluster.errors import GpuclusterError
from gpucluster.plan.model import SlurmPlan
from gpucluster.slurm.values import SlurmJob, SlurmNode, SlurmReservation, SlurmView

RESUME_MARGIN_S, SILENT_S = 60, 180.0
CPUS = 2  # of a node; a node with fewer CPUs in use is MIXED
SAVE_S = 5.0  # interval at which slurmctld writes its state (SAVE_MAX_WAIT)
TOLD_S = 10.0  # delay of the next ping of a living node while another node is dead
POWER = frozenset({"POWERED_DOWN", "POWERING_UP", "POWERING_DOWN"})
ASLEEP = frozenset({"CLOUD", "POWERED_DOWN", "DRAIN", "NOT_RESPONDING"})
RESERVED = frozenset({"MAINTENANCE", "RESERVED"})
UNUSABLE = frozenset({"DRAIN", "POWER_DOWN", "POWERING_DOWN"})
NEVER = float("inf")


@dataclass(frozen=True)
class Dialect:
    """Differences between the versions; each was observed on the real daemons."""

    version: str
    reason_goes: bool = True  # the reason is removed with its drain or DOWN
    silent_after_undrain: bool = True  # an undrained node that is off is NOT_RESPONDING
    off_while_asked: bool = True  # power_down on idle~ keeps POWERED_DOWN
    force_word: bool = False  # ... and adds POWER_DOWN_FORCE
    wakes_down: bool = True  # power_up on DOWN+POWERING_UP calls ResumeProgram again
    late_is_silent: bool = False  # a node that missed ResumeTimeout stays NOT_RESPONDING
    outage_is_silence: bool = (
        True  # slurmctld was down for longer than SlurmdTimeout: every node is DOWN at its start
    )


DIALECTS = {
    d.version: d
    for d in (
        Dialect("22.05", off_while_asked=False, late_is_silent=True, outage_is_silence=False),
        Dialect("24.11", reason_goes=False, wakes_down=False),
        Dialect("26.05", silent_after_undrain=False, force_word=True),
    )
}


class SlurmRefusalError(GpuclusterError):
    """scontrol ended with 1."""


@dataclass
class Node:
    name: str
    zone: str
    base: str = "IDLE"  # IDLE ALLOCATED DOWN; MIXED is only in the output
    flags: set[str] = field(default_factory=lambda: {"CLOUD", "POWERED_DOWN"})
    reason: str = ""
    reason_at: float = 0.0
    reason_by: str = ""
    since: float = 0.0  # of the last power transition
    last_busy: float = 0.0
    boot_time: float = 0.0
    address: str = ""
    answered_at: float = 0.0
    slurmd: float | None = None  # the boot time of the slurmd that runs there
    pinged: float = 0.0
    used: int = 0  # CPUs
    pool: str = ""
    closing: dict[int, float] = field(
        default_factory=dict
    )  # jobs that end here, and the time at which slurmd reports the end
    shut: bool = False  # drained or down during power-up: unusable until it registers
    reservation: str = ""  # the active reservation that holds the node

    @property
    def asleep(self) -> bool:
        """Whether it is powered down and no rule of time applies to it."""
        return "POWERED_DOWN" in self.flags <= ASLEEP and not (self.used or self.closing)

    @property
    def up(self) -> bool:
        return self.base != "DOWN" and not (POWER | {"NOT_RESPONDING"}) & self.flags

    def free(self, reservation: str = "") -> bool:
        """Return whether a job can be placed on the node, by a job without a reservation or with this one."""
        if (
            self.used
            or self.shut
            or self.closing
            or self.base == "DOWN"
            or not UNUSABLE.isdisjoint(self.flags)
        ):
            return False
        held = not RESERVED.isdisjoint(self.flags)
        if held != bool(reservation) or (held and reservation != self.reservation):
            return False
        return "NOT_RESPONDING" not in self.flags or not POWER.isdisjoint(self.flags)


@dataclass
class Job:
    id: int
    count: int
    lasts: float
    submitted: float
    batch: bool = True
    requeue: bool = True
    priority: int = 1
    het: int = 0
    state: str = "PENDING"  # PENDING CONFIGURING RUNNING COMPLETED FAILED CANCELLED
    nodes: tuple[str, ...] = ()
    begins: float = 0.0
    started: float = 0.0
    restarts: int = 0
    comment: str = ""
    held: bool = False  # until it is released
    cpus: int = CPUS  # of each node; a job uses the whole memory of its nodes
    pool: str = ""  # its partition is that of this pool; "": the first
    requires: tuple[str, ...] = ()  # --nodelist
    excludes: tuple[str, ...] = ()  # --exclude
    reservation: str = ""
    urgent: bool = False  # it preempts jobs that are not: its QOS or its partition's tier is higher
    waits: str = ""  # a reason of Slurm that keeps it pending: JobArrayTaskLimit, Licenses, PartitionDown
    runs: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def placed(self) -> bool:
        return self.state in ("CONFIGURING", "RUNNING")

    @property
    def ended(self) -> bool:
        return self.state not in ("PENDING", "CONFIGURING", "RUNNING")


_Save = tuple[float, dict[str, Node], dict[int, Job]]


@dataclass(frozen=True)
class Clocks:
    """The times of slurm.conf that the model uses."""

    resume_s: float
    suspend_s: float
    silent_s: float
    expire_s: float
    ping_s: float = SILENT_S / 3
    idle_s: float = NEVER  # SuspendTime


class SlurmModel:
    """slurmctld as a SlurmPort. `hook` is called when Slurm would call a program."""

    def __init__(self, plan: SlurmPlan, hook: Callable[[str, str], None], version: str = "24.11") -> None:
        times = plan.times
        self._start(
            {s.name: Node(s.name, s.zone, pool=s.pool.name) for s in slots_of(plan).values()},
            Clocks(
                resume_s=max(p.boot_timeout_s for p in plan.pools) + RESUME_MARGIN_S,
                suspend_s=times.suspend_timeout_s,
                silent_s=SILENT_S,
                expire_s=times.cred_expire_s,
            ),
            hook,
            version,
        )
        self.partition = plan.partitions[0].name
        self._partitions = {pool: p.name for p in reversed(plan.partitions) for pool in p.pools}

    @classmethod
    def of(cls, nodes: dict[str, Node], clocks: Clocks, version: str) -> "SlurmModel":
        """Return a model without a plan."""
        model = cls.__new__(cls)
        model._start(nodes, clocks, lambda kind, hosts: None, version)
        return model

    def _start(
        self, nodes: dict[str, Node], clocks: Clocks, hook: Callable[[str, str], None], version: str
    ) -> None:
        self.nodes, self.clocks, self._hook = nodes, clocks, hook
        self._views: dict[str, tuple[tuple[object, ...], frozenset[str], SlurmNode]] = {}
        self.dialect = DIALECTS[version]
        self.partition = "gpu"
        self._partitions: dict[str, str] = {}
        self.jobs: dict[int, Job] = {}
        self.now = 0.0
        self.away = False  # slurmctld does not answer
        self.hooks: list[tuple[float, str, tuple[str, ...]]] = []
        self.updates: list[tuple[str, tuple[str, ...], str | None]] = []
        self.signals: list[tuple[float, int, str]] = []
        self.reservations: dict[str, SlurmReservation] = {}
        self.prefers: dict[int, tuple[str, ...]] = {}
        self._next = 1
        self._saves: tuple[_Save, _Save] = (self._state(), self._state())
        self.watch: Callable[[str, Sequence[str]], None] = lambda state, nodes: (
            None
        )  # before the daemon's updates
        self.watch_requeue: Callable[[Job], None] = lambda job: None  # before a requeue by the daemon
        self._waits = False  # the next tick may change something

    # --- users ------------------------------------------------------------------------------------
    def submit(self, count: int, lasts: float = 60.0, **changes: object) -> Job:
        job = Job(self._next, count, lasts, self.now, **changes)  # type: ignore[arg-type]
        self.jobs[job.id] = job
        self._next += 1
        self._waits = True
        return job

    def allow_again(self) -> None:
        """End the limits, the lack of licences and the closed partitions that jobs wait for."""
        for job in self.jobs.values():
            job.waits = ""
        self._waits = True

    def cancel(self, job: Job) -> None:
        for part in self._parts(job):
            self._free(part)
            if not part.ended:
                part.state = "CANCELLED"

    def drains(self, name: str, reason: str) -> None:
        """Drain a node as Slurm does after a failed Prolog."""
        node = self.nodes[name]
        node.flags.add("DRAIN")
        self._says(node, reason)

    def by_hand(self, names: Sequence[str], state: str, reason: str | None = None) -> None:
        """Change nodes as an operator does with scontrol."""
        self._set(names, state, reason)
        for name in names if reason else ():
            self.nodes[name].reason_by = "root"

    # --- the port ---------------------------------------------------------------------------------
    def read(self, at: float) -> SlurmView:
        self._reached()
        first = self._first_in_line()
        return SlurmView(
            at=at,
            nodes={n.name: self._shown(n) for n in self.nodes.values()},
            jobs=tuple(self._job(j, first) for j in self.jobs.values()),
            reservations=tuple(self.reservations.values()),
        )

    def update_nodes(self, nodes: Sequence[str], state: str, reason: str | None = None) -> None:
        """Do what `scontrol update` does: try each node, then raise SlurmRefusalError if one refused."""
        self._reached()
        self.watch(state, nodes)
        self._set(nodes, state, reason)

    def _set(self, nodes: Sequence[str], state: str, reason: str | None) -> None:
        self.updates.append((state, tuple(nodes), reason))
        refused = [name for name in nodes if not self._update(self.nodes[name], state, reason)]
        self._waits = True
        if refused:
            raise SlurmRefusalError("slurm_update error: Invalid node state specified")

    def set_admin_comment(self, jobs: Sequence[int], text: str) -> None:
        for job in jobs:
            if job in self.jobs:
                self.jobs[job].comment = text

    def signal(self, jobs: Sequence[int], signal: str) -> None:
        self._reached()
        self.signals.extend((self.now, job, signal) for job in jobs if job in self.jobs)

    def requeue(self, jobs: Sequence[int], reason: str, *, held: bool = False) -> None:
        self._reached()
        self.set_admin_comment(jobs, reason)
        for job in [p for n in jobs if n in self.jobs for p in self._parts(self.jobs[n])]:
            if job.batch and job.requeue and job.placed:
                self.watch_requeue(job)
                self._free(job)
                self._again(job)
                job.held = held

    def set_reservation(self, reservation: SlurmReservation) -> None:
        self.reservations[reservation.name] = reservation
        self._waits = True

    def delete_reservation(self, name: str) -> None:
        self.reservations.pop(name, None)
        self._waits = True

    def _reached(self) -> None:
        if self.away:
            raise GpuclusterError("Unable to contact slurm controller")

    # --- what `scontrol update state=` does -------------------------------------------------------
    def _update(self, node: Node, state: str, reason: str | None) -> bool:
        if getattr(self, f"_{state}")(node) is False:
            return False
        if reason:
            self._says(node, reason)
        return True

    def _drain(self, node: Node) -> None:
        if "POWERING_UP" in node.flags and node.used:
            self._fail_jobs_on(node)  # a job that waits for it is requeued
        node.shut = "POWERING_UP" in node.flags
        node.flags.add("DRAIN")

    def _undrain(self, node: Node) -> None:
        node.flags.discard("DRAIN")
        node.shut = node.shut and "POWERED_DOWN" not in node.flags
        self._explained(node)
        if self.dialect.silent_after_undrain or not POWER & node.flags:
            node.flags.add("NOT_RESPONDING")  # until the next ping; permanently while it is off

    def _down(self, node: Node) -> None:
        self._fail_jobs_on(node)
        node.base, node.shut = "DOWN", "POWERING_UP" in node.flags

    def _idle(self, node: Node) -> bool:
        if node.used:
            return False
        if node.base == "DOWN" or "DRAIN" in node.flags:
            node.base = "IDLE"
            node.flags.discard("DRAIN")
            self._explained(node)
        return True

    def _explained(self, node: Node) -> None:
        """Remove the reason, because its state has ended."""
        if self.dialect.reason_goes and node.base != "DOWN" and "DRAIN" not in node.flags:
            node.reason = ""

    def _resume(self, node: Node) -> bool:
        fits = not node.used and (node.base == "DOWN" or {"DRAIN", "POWERING_DOWN"} & node.flags)
        if "DRAIN" in node.flags:
            self._undrain(node)
        if not fits:
            return False
        node.base, node.answered_at = "IDLE", self.now
        self._explained(node)
        if "POWERING_DOWN" in node.flags:
            self._off(node)
        elif self.dialect.silent_after_undrain or not POWER & node.flags:
            node.flags.add("NOT_RESPONDING")
        return True

    def _power_down(self, node: Node) -> None:
        if "POWERING_DOWN" in node.flags:
            return
        if node.base == "DOWN":
            node.flags.discard("POWERING_UP")
        self._ask_off(node)

    def _ask_off(self, node: Node) -> None:
        node.flags.add("POWER_DOWN")
        if "POWERED_DOWN" in node.flags and self.dialect.force_word:
            node.flags.add("POWER_DOWN_FORCE")
        if not self.dialect.off_while_asked:
            node.flags.discard("POWERED_DOWN")

    def _power_down_asap(self, node: Node) -> None:
        if "POWERING_DOWN" in node.flags:
            return
        if not node.reason or (self.dialect.reason_goes and node.reason == "Not responding"):
            self._says(node, "POWER_DOWN_ASAP")
        node.flags.add("DRAIN")
        self._power_down(node)

    def _power_down_force(self, node: Node) -> None:
        if "POWERING_DOWN" in node.flags:
            return
        self._fail_jobs_on(node, lost=False)
        node.flags.discard("POWERING_UP")
        self._ask_off(node)

    def _power_up(self, node: Node) -> None:
        if "POWERED_DOWN" in node.flags or (
            "POWERING_UP" in node.flags and (node.base != "DOWN" or self.dialect.wakes_down)
        ):
            node.flags |= {"POWERED_DOWN", "POWER_UP"}  # already in power-up: ResumeProgram is called again

    # --- time -------------------------------------------------------------------------------------
    def tick(self, now: float) -> None:
        """Set the time to `now` and apply every rule once."""
        self.now = now
        if self.away:
            return
        self._waits = False
        ready = [
            n for n in self.nodes.values() if n.free(n.reservation)
        ]  # the scheduler sees a newly free node only at the next tick
        self._save()
        self._reserve()
        for node in self.nodes.values():
            if node.asleep:
                continue
            self._close(node)
            base = node.base
            self._ping(node)
            if node.base == base:  # otherwise at the next tick, which sees the change
                self._power(node)
        self._run_jobs()
        self._schedule([n for n in ready if n.free(n.reservation)])

    def next_event(self) -> float:
        """Return the earliest time at which a tick can change something."""
        if self.away:
            return NEVER
        if self._waits:
            return self.now + 1.0
        times = [t for w in self.reservations.values() for t in (w.starts_at, w.ends_at) if t > self.now]
        nodes = [self._node_event(n) for n in self.nodes.values()]
        return min([NEVER, *times, *nodes, *(self._job_event(j) for j in self.jobs.values())])

    def _node_event(self, node: Node) -> float:
        if node.asleep:
            return NEVER
        clocks = self.clocks
        if node.closing:
            told = min(node.closing.values())
            return told if told != NEVER else self._silent_at(node)
        if {"POWER_DOWN", "POWER_UP"} & node.flags and not node.used and "POWERING_UP" not in node.flags:
            return self.now + 1.0
        power = POWER & node.flags
        if power:
            lasts = {"POWERING_DOWN": clocks.suspend_s, "POWERING_UP": clocks.resume_s}
            return min((node.since + lasts[word] + 1.0 for word in power if word in lasts), default=NEVER)
        return self._silent_at(node) if node.slurmd is None else self._answer_at(node)

    def _answer_at(self, node: Node) -> float:
        odd = node.base == "DOWN" or "NOT_RESPONDING" in node.flags
        idle = NEVER if node.used else node.last_busy + self.clocks.idle_s + 1.0
        return min(idle, node.pinged + self.clocks.ping_s if odd else NEVER)

    def _silent_at(self, node: Node) -> float:
        seen = "NOT_RESPONDING" in node.flags
        return (
            NEVER
            if node.base == "DOWN"
            else node.answered_at + self.clocks.silent_s / (1 if seen else 2) + 1.0
        )

    def _job_event(self, job: Job) -> float:
        if job.state == "RUNNING":
            return job.started + job.lasts
        return job.begins if job.state == "PENDING" and job.begins > self.now else NEVER

    def restart(self, *, forgetting: bool, after: float = 0.0) -> None:
        """kill -9, and a start `after` that many seconds; `forgetting`: the last changes are not on disk.

        Slurm saves its state each few seconds. A node that was silent for too long in the meantime is DOWN at once.
        """
        self._waits = True
        if forgetting:
            self._restore()
        self.reconfigure()
        for node in self.nodes.values():
            if not self.dialect.outage_is_silence:
                node.since = self.now  # all timers start again
            elif after > self.clocks.silent_s and node.up:
                self._fail_jobs_on(node)
                node.base = "DOWN"
                self._adds(node, "Not responding")

    def reconfigure(self) -> None:
        """Do what a restart does: a powered-down node with NOT_RESPONDING gets no job until it is drained, set down or powered down.

        Observed with 22.05.8 and 24.11.5; ParallelCluster #7577.
        """
        for node in self.nodes.values():
            node.shut = node.shut or {"POWERED_DOWN", "NOT_RESPONDING"} <= node.flags

    def _save(self) -> None:
        if self._saves[1][0] + SAVE_S > self.now:
            return
        self._saves = (self._saves[1], self._state())

    def _state(self) -> "_Save":
        nodes = {n.name: _copied(n) for n in self.nodes.values()}
        return self.now, nodes, {j.id: replace(j, runs=list(j.runs)) for j in self.jobs.values()}

    def _restore(self) -> None:
        """Restore the state before the last save: up to 2 * SAVE_S ago. The states of slurmds are not part of it."""
        _, nodes, jobs = self._saves[0]
        for name, old in nodes.items():
            node = self.nodes[name]
            saved = replace(old, flags=set(old.flags), closing=dict(old.closing))
            kept = {"slurmd": node.slurmd, "answered_at": node.answered_at, "pinged": node.pinged}
            node.__dict__.update(saved.__dict__, **kept)
        for job in self.jobs.values():
            fresh = Job(job.id, job.count, job.lasts, job.submitted)
            old_job = jobs.get(job.id, fresh)
            told = {k: getattr(old_job, k) for k in ("state", "nodes", "begins", "started", "restarts")}
            job.__dict__.update(told)

    def registers(self, name: str, boot_time: float, address: str) -> None:
        """Register the slurmd of the node. It runs until `lost`."""
        node = self.nodes[name]
        node.slurmd = boot_time
        if not self.away:
            self._registers(node, address)

    def lost(self, name: str) -> None:
        """End the slurmd of the node."""
        node = self.nodes[name]
        if node.slurmd is not None:
            node.answered_at = max(node.answered_at, self.now)
        node.slurmd, self._waits = None, True

    def _registers(self, node: Node, address: str = "") -> None:
        boot_time = node.slurmd or 0.0
        if "POWERING_DOWN" in node.flags:
            return
        if "POWERING_UP" in node.flags:
            if boot_time < node.since:
                return  # "Still waiting for boot"
            node.last_busy = self.now
        elif node.up and boot_time > node.boot_time and node.used:
            self._down(node)
            self._says(node, "Node unexpectedly rebooted")
        node.answered_at = self.now
        if node.base == "DOWN":
            node.base = "IDLE"  # ReturnToService=2
            self._explained(node)
        if "POWERED_DOWN" in node.flags and self.dialect.reason_goes:
            node.reason = ""
        node.flags -= {
            "POWERING_UP",
            "POWERED_DOWN",
            "NOT_RESPONDING",
        }  # POWER_UP stays if no scan of the power thread has seen it
        node.boot_time, node.address, node.shut = boot_time, address or node.address, False
        self._waits = True

    def _ping(self, node: Node) -> None:
        if "POWER_DOWN" in node.flags and node.slurmd is None and not node.used and not node.closing:
            return  # a pending power-down continues
        if POWER & node.flags:
            if node.slurmd is not None and node.slurmd >= node.since and "POWERING_UP" in node.flags:
                self._registers(node)
            return
        if node.slurmd is not None:
            odd = node.base == "DOWN" or "NOT_RESPONDING" in node.flags
            if node.slurmd > node.boot_time or (odd and node.pinged + self.clocks.ping_s <= self.now):
                self._registers(node)
            if node.pinged + self.clocks.ping_s <= self.now:
                node.pinged = self.now
            node.answered_at = self.now
        elif node.answered_at + self.clocks.silent_s / 2 < self.now:
            node.flags.add("NOT_RESPONDING")
            if node.base == "DOWN" or node.answered_at + self.clocks.silent_s >= self.now:
                return
            self._fail_jobs_on(node)
            node.base, self._waits = "DOWN", True
            self._adds(node, "Not responding")

    def _power(self, node: Node) -> None:
        flags = node.flags
        if "POWER_DOWN" in flags:
            if not node.used and not node.closing and "POWERING_UP" not in flags:
                node.base, node.since = "IDLE", self.now
                node.flags = {"CLOUD", "POWERING_DOWN"} | (node.flags & {"POWER_UP"})
                self._call("suspend", node)
        elif "POWERED_DOWN" in flags and (node.used or "POWER_UP" in flags):
            flags -= {"POWERED_DOWN", "POWER_UP"}
            flags |= {"POWERING_UP", "NOT_RESPONDING"}
            if self.dialect.version == "22.05":
                node.reason = ""
            node.since = self.now
            self._call("resume", node)
        elif "POWERING_DOWN" in flags and node.since + self.clocks.suspend_s < self.now:
            self._off(node)
        elif "POWERING_UP" in flags and node.since + self.clocks.resume_s < self.now:
            self._fail_jobs_on(node)
            node.base = "DOWN"
            node.flags = {"CLOUD", "POWERED_DOWN"}  # a drain is removed, too
            if self.dialect.late_is_silent:
                node.reason = ""
                node.flags.add("NOT_RESPONDING")
            self._adds(node, "ResumeTimeout reached")
            self._call("resume_fail", node)
        elif node.up and not node.used and node.last_busy + self.clocks.idle_s < self.now:
            node.flags.add("POWER_DOWN")

    def _reserve(self) -> None:
        active = (w for w in self.reservations.values() if w.starts_at <= self.now < w.ends_at)
        held = {n: w.name for w in active for n in w.nodes}
        for node in self.nodes.values():
            node.reservation = held.get(node.name, "")
            if node.reservation:
                node.flags |= RESERVED
            else:
                node.flags -= RESERVED

    def _off(self, node: Node) -> None:
        self._waits = True
        node.flags.discard("POWERING_DOWN")
        node.flags.add("POWERED_DOWN")
        node.address, node.slurmd, node.shut = "", None, False
        node.closing.clear()

    def _call(self, kind: str, node: Node) -> None:
        self._waits = True
        self.hooks.append((self.now, kind, (node.name,)))
        self._hook(kind, node.name)

    def _adds(self, node: Node, words: str) -> None:
        self._says(node, f"{node.reason} : {words}" if node.reason else words)

    def _says(self, node: Node, reason: str) -> None:
        node.reason, node.reason_at, node.reason_by = (
            reason,
            self.now,
            "slurm",
        )  # SlurmUser, also for the daemon

    # --- jobs -------------------------------------------------------------------------------------
    def _run_jobs(self) -> None:
        for job in self.jobs.values():
            if job.state == "CONFIGURING" and all(self.nodes[n].up for n in job.nodes):
                job.state, job.started, self._waits = "RUNNING", self.now, True
                job.runs.append(job.nodes)
            elif job.state == "RUNNING" and self._is_over(job):
                for part in self._parts(job):
                    self._free(part)
                    part.state = "COMPLETED"

    def _is_over(self, job: Job) -> bool:
        """Return whether the script has ended. Of a het job it begins when all components run, and ends them all."""
        parts = self._parts(job)
        return all(p.state == "RUNNING" and p.started + p.lasts <= self.now for p in parts)

    def script_runs(self, job: Job) -> bool:
        """Return whether the batch script runs: that of a het job begins when all components are ready (S41)."""
        return all(part.state == "RUNNING" for part in self._parts(job))

    def script_began(self, job: Job) -> float:
        """Return when the script began."""
        return max(part.started for part in self._parts(job))

    def _parts(self, job: Job) -> list[Job]:
        """Return the job, or all components of a het job."""
        return [j for j in self.jobs.values() if j.het == job.het] if job.het else [job]

    def _schedule(self, ready: Sequence[Node]) -> None:
        due = (j for j in self.jobs.values() if self._is_due(j))
        waiting = [j for j in due if not self.completing(j)]
        for job in sorted(waiting, key=lambda j: (-j.priority, j.id)):
            self._place(job, ready)

    def _is_due(self, job: Job) -> bool:
        return job.state == "PENDING" and job.begins <= self.now and not job.held and not job.waits

    def _place(self, job: Job, ready: Sequence[Node]) -> None:
        """Start the job, or all components of a het job at once. A leader that was requeued alone starts alone (S20)."""
        chosen: list[tuple[Job, list[Node]]] = []
        for part in self._parts(job):
            if part.placed:
                continue
            nodes = self._nodes_for(part, ready, {n.name for _, taken in chosen for n in taken})
            if not nodes and part.urgent:
                self._preempt(part, ready)
            if not nodes or not self._is_due(part):
                return
            chosen.append((part, nodes))
        for part, nodes in chosen:
            self._starts(part, nodes)

    def _nodes_for(self, job: Job, ready: Sequence[Node], taken: set[str]) -> list[Node]:
        """Return the nodes of one (zone, pool) that the job gets; none if no zone has enough."""
        wanted = self.prefers.get(job.id, ())
        free_now = [n for n in ready if n.free(job.reservation) and (not job.pool or n.pool == job.pool)]
        fits = [n for n in free_now if n.name not in job.excludes and n.name not in taken]
        for group in sorted({(n.zone, n.pool) for n in fits}):
            free = [n for n in fits if (n.zone, n.pool) == group]
            if set(job.requires) - {n.name for n in free}:
                continue
            free.sort(key=lambda n: (n.name not in job.requires, n.name not in wanted, not n.up))
            if len(free) >= job.count:
                return free[: job.count]
        return []

    def _preempt(self, job: Job, ready: Sequence[Node]) -> None:
        """Requeue running jobs on nodes of one (zone, pool), the last started first, until the job fits there at the next tick.

        No job is preempted if that is not enough, or while the nodes of earlier victims become free. Slurm looks for free
        nodes first, also for those that are powered down (24.11 and 26.05, tests/slurm/test_preemption.py).
        """
        usable = [n for n in self.nodes.values() if not job.pool or n.pool == job.pool]
        usable = [n for n in usable if not UNUSABLE & n.flags and not n.closing and n.base != "DOWN"]
        for group in sorted({(n.zone, n.pool) for n in usable}):
            here = {n.name for n in usable if (n.zone, n.pool) == group} - set(job.excludes)
            free = {n.name for n in ready if n.free(job.reservation)} & here
            victims = list[Job]()
            for victim in sorted(self._preemptable(here), key=lambda j: (-j.started, -j.id)):
                if len(free) < job.count:
                    victims.append(victim)
                    free |= set(victim.nodes)
            if len(free) >= job.count and not set(job.requires) - free:
                for victim in victims:
                    self._free(victim)
                    self._again(victim)
                return

    def _preemptable(self, nodes: set[str]) -> list[Job]:
        """Whole batch jobs on these nodes that may run again. A het job is not preempted."""
        return [
            j
            for j in self.jobs.values()
            if j.state == "RUNNING"
            and not j.urgent
            and not j.het
            and j.batch
            and j.requeue
            and set(j.nodes) <= nodes
        ]

    def _starts(self, job: Job, nodes: Sequence[Node]) -> None:
        chosen = {n.name for n in nodes}
        job.nodes, job.state = tuple(n for n in self.nodes if n in chosen), "CONFIGURING"
        for node in nodes:
            node.base, node.used, node.reason = "ALLOCATED", node.used + job.cpus, ""
        self._waits = True

    def _fail_jobs_on(self, node: Node, *, lost: bool = True) -> None:
        """Requeue or fail the jobs of the node. `lost`: the node itself no longer reports.

        A het job fails with the node of a component. With the node of the leader, only the leader fails (S20).
        """
        on = [job for job in self.jobs.values() if node.name in job.nodes and job.placed]
        for first in on:
            for job in self._parts(first) if first.het != first.id else [first]:
                if not job.placed:
                    continue
                self._free(job, node if lost else None)
                if job.batch and job.requeue:
                    self._again(job)
                else:
                    job.state = "FAILED"

    def _again(self, job: Job) -> None:
        job.state, job.restarts = "PENDING", job.restarts + 1
        job.begins = self.now + self.clocks.expire_s + 1

    def _free(self, job: Job, lost: Node | None = None) -> None:
        nodes = [self.nodes[n] for n in job.nodes if job.placed]
        dead = [n for n in nodes if n.slurmd is None]
        for node in nodes:
            node.used = max(0, node.used - job.cpus)
            if node.base == "ALLOCATED" and not node.used:
                node.base, node.last_busy = "IDLE", self.now
            if job.state == "RUNNING" and dead and node is not lost:
                node.closing[job.id] = NEVER if node in dead else self.now + TOLD_S
        job.nodes = ()
        self._waits = True

    def completing(self, job: Job) -> tuple[str, ...]:
        """Return the nodes that must still report the end of the job. The job does not start again before that."""
        return tuple(n.name for n in self.nodes.values() if job.id in n.closing)

    def _close(self, node: Node) -> None:
        back = node.slurmd is not None
        told = [
            j
            for j, at in node.closing.items()
            if node.base == "DOWN" or at <= self.now or (back and at == NEVER)
        ]
        for number in told:
            del node.closing[number]
            self._waits = True
            job = self.jobs.get(number)
            if job and job.state == "PENDING" and not self.completing(job):
                job.begins = max(job.begins, self.now + self.clocks.expire_s + 1)

    # --- output -----------------------------------------------------------------------------------
    def states(self, node: Node) -> frozenset[str]:
        """Return its states, in the spelling of this version."""
        base = "MIXED" if node.base == "ALLOCATED" and node.used < CPUS else node.base
        return frozenset({base, *node.flags, *(("COMPLETING",) if node.closing else ())})

    def _shown(self, node: Node) -> SlurmNode:
        """Return the node as scontrol shows it: the last value if the node is the same, because most nodes sleep."""
        now = (
            node.base,
            node.used,
            bool(node.closing),
            node.reason,
            node.reason_at,
            node.reason_by,
            node.last_busy,
            node.boot_time,
            node.address,
            node.reservation,
        )
        old = self._views.get(node.name)
        if old is not None and old[0] == now and old[1] == node.flags:
            return old[2]
        view = self._view(node)
        self._views[node.name] = now, frozenset(node.flags), view
        return view

    def _view(self, node: Node) -> SlurmNode:
        return SlurmNode(
            name=node.name,
            states=self.states(node),
            reason=node.reason,
            reason_at=node.reason_at,
            reason_by=node.reason_by,
            last_busy=node.last_busy,
            boot_time=node.boot_time,
            address=node.address or node.name,
            reservation=node.reservation,
        )

    def _job(self, job: Job, first: frozenset[int]) -> SlurmJob:
        states = {"CONFIGURING": {"RUNNING", "CONFIGURING"}}.get(job.state, {job.state})
        closing = self.completing(job)
        return SlurmJob(
            id=job.id,
            states=frozenset({*states, *(("COMPLETING",) if closing else ())}),
            nodes=job.nodes or closing,
            node_count=job.count,
            partitions=(self._partitions.get(job.pool, self.partition),),
            requeueable=job.requeue,
            batch=job.batch,
            het_id=job.het,
            priority=0 if job.held else job.priority,
            reason=self._waits_for(job, first),
            admin_comment=job.comment,
            submitted_at=job.submitted,
            begins_at=job.begins,
            started_at=job.started,
            restarts=job.restarts,
            required_nodes=job.requires,
            excluded_nodes=job.excludes,
            reservation=job.reservation,
        )

    def _first_in_line(self) -> frozenset[int]:
        """Return the first due job of each partition. Only this one waits for Resources, the others for their Priority."""
        first: dict[str, Job] = {}
        for job in sorted(
            (j for j in self.jobs.values() if self._is_due(j)), key=lambda j: (-j.priority, j.id)
        ):
            first.setdefault(self._partitions.get(job.pool, self.partition), job)
        return frozenset(job.id for job in first.values())

    def _waits_for(self, job: Job, first: frozenset[int]) -> str:
        if job.waits:
            return job.waits
        if job.held:
            return "JobHeldAdmin"
        if job.begins > self.now:
            return "BeginTime"
        if job.state != "PENDING":
            return ""
        if any(self.nodes[n].base == "DOWN" or "DRAIN" in self.nodes[n].flags for n in job.requires):
            return "ReqNodeNotAvail"
        return "Resources" if job.id in first else "Priority"


def _copied(node: Node) -> Node:
    """A copy for a save. It does not use `replace`, which is much slower: an hour of a fleet copies thousands of nodes."""
    fresh = object.__new__(Node)
    fresh.__dict__.update(node.__dict__, flags=set(node.flags), closing=dict(node.closing))
    return fresh
