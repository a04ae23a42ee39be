"""A small Slurm on virtual time. It replays what real daemons did (tests/recorded/transitions, test_slurm_model.py).

What it is coarser in: it starts a job at the first tick at which one fits, in the order of priority and number; which
of the free nodes are taken is the caller's wish (`prefers`), else the first ones that are up, in one zone; and no state
lasts less than a tick.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from gpucluster.elastic.decide.world import slots_of
from gpucluster.elastic.model import SlurmJob, SlurmNode, SlurmView, Window
from gpucluster.errors import GpuclusterError
from gpucluster.plan.model import ClusterPlan

RESUME_MARGIN_S, SILENT_S = 60, 180.0
CPUS = 2  # of a node; one with less in use is MIXED
SAVE_S = 5.0  # slurmctld writes its state so often (SAVE_MAX_WAIT)
TOLD_S = 10.0  # a living node beside a dead one is asked again so late
POWER = frozenset({"POWERED_DOWN", "POWERING_UP", "POWERING_DOWN"})
NEVER = float("inf")


@dataclass(frozen=True)
class Dialect:
    """What the versions do differently; each was seen on the real daemons."""

    version: str
    reason_goes: bool = True  # with the drain or DOWN that it explained
    silent_after_undrain: bool = True  # an undrained node that is off is NOT_RESPONDING
    off_while_asked: bool = True  # power_down on idle~ keeps POWERED_DOWN
    force_word: bool = False  # ... and adds POWER_DOWN_FORCE
    wakes_down: bool = True  # power_up on DOWN+POWERING_UP asks again
    late_is_silent: bool = False  # a node that missed ResumeTimeout stays NOT_RESPONDING
    outage_is_silence: bool = (
        True  # slurmctld away for longer than SlurmdTimeout: every node is DOWN at its start
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
    base: str = "IDLE"  # IDLE ALLOCATED DOWN; MIXED is only shown
    flags: set[str] = field(default_factory=lambda: {"CLOUD", "POWERED_DOWN"})
    reason: str = ""
    reason_at: float = 0.0
    reason_by: str = ""
    since: float = 0.0  # of the last power transition
    last_busy: float = 0.0
    boot_time: float = 0.0
    address: str = ""
    heard: float = 0.0
    slurmd: float | None = None  # the boot time of the slurmd that lives there
    pinged: float = 0.0
    used: int = 0  # CPUs
    pool: str = ""
    closing: dict[int, float] = field(default_factory=dict)  # jobs that end here, and when it will have told
    shut: bool = False  # drained or down while it powered up: of no use until it registers

    @property
    def up(self) -> bool:
        return self.base != "DOWN" and not (POWER | {"NOT_RESPONDING"}) & self.flags

    def free(self) -> bool:
        """Whether a job can be placed here."""
        hindrance = {"DRAIN", "POWER_DOWN", "POWERING_DOWN", "MAINTENANCE", "RESERVED"} & self.flags
        silent = self.shut or self.closing or ("NOT_RESPONDING" in self.flags and not POWER & self.flags)
        return self.base != "DOWN" and not self.used and not hindrance and not silent


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
    cpus: int = CPUS  # of each node, all of whose memory it takes
    pool: str = ""  # its partition is the one of this pool; "": the first
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
    """The times of slurm.conf that matter here."""

    resume_s: float
    suspend_s: float
    silent_s: float
    expire_s: float
    ping_s: float = SILENT_S / 3
    idle_s: float = NEVER  # SuspendTime


class SlurmModel:
    """slurmctld, and the SlurmPort over it. `hook` is called as Slurm calls its programs."""

    def __init__(self, plan: ClusterPlan, hook: Callable[[str, str], None], version: str = "24.11") -> None:
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
        """One without a plan."""
        model = cls.__new__(cls)
        model._start(nodes, clocks, lambda kind, hosts: None, version)
        return model

    def _start(
        self, nodes: dict[str, Node], clocks: Clocks, hook: Callable[[str, str], None], version: str
    ) -> None:
        self.nodes, self.clocks, self._hook = nodes, clocks, hook
        self.dialect = DIALECTS[version]
        self.partition = "gpu"
        self._partitions: dict[str, str] = {}
        self.jobs: dict[int, Job] = {}
        self.now = 0.0
        self.away = False  # slurmctld does not answer
        self.hooks: list[tuple[float, str, tuple[str, ...]]] = []
        self.updates: list[tuple[str, tuple[str, ...], str | None]] = []
        self.signals: list[tuple[float, int, str]] = []
        self.windows: dict[str, Window] = {}
        self.prefers: dict[int, tuple[str, ...]] = {}
        self._next = 1
        self._saves: tuple[_Save, _Save] = (self._state(), self._state())
        self.watch: Callable[[str, Sequence[str]], None] = lambda state, nodes: (
            None
        )  # before the daemon's updates
        self._waits = False  # something may change at the next tick

    # --- users ------------------------------------------------------------------------------------
    def submit(self, count: int, lasts: float = 60.0, **changes: object) -> Job:
        job = Job(self._next, count, lasts, self.now, **changes)  # type: ignore[arg-type]
        self.jobs[job.id] = job
        self._next += 1
        self._waits = True
        return job

    def cancel(self, job: Job) -> None:
        self._free(job)
        if not job.ended:
            job.state = "CANCELLED"

    def drains(self, name: str, reason: str) -> None:
        """Slurm's own drain, as of a Prolog that failed."""
        node = self.nodes[name]
        node.flags.add("DRAIN")
        self._says(node, reason)

    def by_hand(self, names: Sequence[str], state: str, reason: str | None = None) -> None:
        """A person's scontrol."""
        self._set(names, state, reason)
        for name in names if reason else ():
            self.nodes[name].reason_by = "root"

    # --- the port ---------------------------------------------------------------------------------
    def look(self, at: float, *, windows: bool = False) -> SlurmView:
        self._reached()
        return SlurmView(
            at=at,
            nodes={n.name: self._shown(n) for n in self.nodes.values()},
            jobs=tuple(self._job(j) for j in self.jobs.values()),
            windows=tuple(self.windows.values()),
        )

    def update_nodes(self, nodes: Sequence[str], state: str, reason: str | None = None) -> None:
        """As `scontrol update`: each node is tried; SlurmRefusalError if one would not."""
        self._reached()
        self.watch(state, nodes)
        self._set(nodes, state, reason)

    def _set(self, nodes: Sequence[str], state: str, reason: str | None) -> None:
        self.updates.append((state, tuple(nodes), reason))
        refused = [name for name in nodes if not self._update(self.nodes[name], state, reason)]
        self._waits = True
        if refused:
            raise SlurmRefusalError("slurm_update error: Invalid node state specified")

    def comment(self, jobs: Sequence[int], text: str) -> None:
        for job in jobs:
            if job in self.jobs:
                self.jobs[job].comment = text

    def signal(self, jobs: Sequence[int], signal: str) -> None:
        self._reached()
        self.signals.extend((self.now, job, signal) for job in jobs if job in self.jobs)

    def requeue(self, jobs: Sequence[int], reason: str, *, held: bool = False) -> None:
        self._reached()
        self.comment(jobs, reason)
        hets = {self.jobs[n].het for n in jobs if n in self.jobs} - {0}
        for number in [*jobs, *(j.id for j in self.jobs.values() if j.het in hets)]:
            job = self.jobs.get(number)
            if job and job.batch and job.requeue and job.placed:
                self._free(job)
                self._again(job)
                job.held = held

    def open_window(self, window: Window) -> None:
        self.windows[window.name] = window
        self._waits = True

    def close_window(self, name: str) -> None:
        self.windows.pop(name, None)
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
            self._fail_jobs_on(node)  # a job that waits for it is sent back
        node.shut = "POWERING_UP" in node.flags
        node.flags.add("DRAIN")

    def _undrain(self, node: Node) -> None:
        node.flags.discard("DRAIN")
        node.shut = node.shut and "POWERED_DOWN" not in node.flags
        self._explained(node)
        if self.dialect.silent_after_undrain or not POWER & node.flags:
            node.flags.add("NOT_RESPONDING")  # until the next ping; for good while it is off

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
        """What the reason was for is over."""
        if self.dialect.reason_goes and node.base != "DOWN" and "DRAIN" not in node.flags:
            node.reason = ""

    def _resume(self, node: Node) -> bool:
        fits = not node.used and (node.base == "DOWN" or {"DRAIN", "POWERING_DOWN"} & node.flags)
        if "DRAIN" in node.flags:
            self._undrain(node)
        if not fits:
            return False
        node.base, node.heard = "IDLE", self.now
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
            node.flags |= {"POWERED_DOWN", "POWER_UP"}  # on its way already: ResumeProgram is called again

    # --- time -------------------------------------------------------------------------------------
    def tick(self, now: float) -> None:
        """Let it be `now`; every rule looks once."""
        self.now = now
        if self.away:
            return
        self._waits = False
        ready = [n for n in self.nodes.values() if n.free()]  # what is free only now is seen the next time
        self._save()
        self._reserve()
        for node in self.nodes.values():
            self._close(node)
            base = node.base
            self._ping(node)
            if node.base == base:  # else at the next tick: the change is seen
                self._power(node)
        self._run_jobs()
        self._schedule([n for n in ready if n.free()])

    def next_event(self) -> float:
        """When a tick can change something; never too late."""
        if self.away:
            return NEVER
        if self._waits:
            return self.now + 1.0
        windows = [t for w in self.windows.values() for t in (w.starts_at, w.ends_at) if t > self.now]
        nodes = [self._node_event(n) for n in self.nodes.values()]
        return min([NEVER, *windows, *nodes, *(self._job_event(j) for j in self.jobs.values())])

    def _node_event(self, node: Node) -> float:
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
        return NEVER if node.base == "DOWN" else node.heard + self.clocks.silent_s / (1 if seen else 2) + 1.0

    def _job_event(self, job: Job) -> float:
        if job.state == "RUNNING":
            return job.started + job.lasts
        return job.begins if job.state == "PENDING" and job.begins > self.now else NEVER

    def restart(self, *, forgetting: bool, after: float = 0.0) -> None:
        """kill -9 and start again `after` so many seconds; `forgetting`: what was done last is not on disk.

        Slurm saves its state each few seconds. Who is silent for too long meanwhile is DOWN at once.
        """
        self._waits = True
        if forgetting:
            self._restore()
        self.reconfigure()
        for node in self.nodes.values():
            if not self.dialect.outage_is_silence:
                node.since = self.now  # all waits begin anew
            elif after > self.clocks.silent_s and node.up:
                self._fail_jobs_on(node)
                node.base = "DOWN"
                self._adds(node, "Not responding")

    def reconfigure(self) -> None:
        """As after a restart: what is off and marked is of no use until it is drained, down or powered down (22.05.8,
        24.11.5, seen; ParallelCluster #7577).
        """
        for node in self.nodes.values():
            node.shut = node.shut or {"POWERED_DOWN", "NOT_RESPONDING"} <= node.flags

    def _save(self) -> None:
        if self._saves[1][0] + SAVE_S > self.now:
            return
        self._saves = (self._saves[1], self._state())

    def _state(self) -> "_Save":
        nodes = {n.name: replace(n, flags=set(n.flags), closing=dict(n.closing)) for n in self.nodes.values()}
        return self.now, nodes, {j.id: replace(j, runs=list(j.runs)) for j in self.jobs.values()}

    def _restore(self) -> None:
        """Go back to what was saved before last: up to twice SAVE_S ago. What slurmds do is no part of it."""
        _, nodes, jobs = self._saves[0]
        for name, old in nodes.items():
            node = self.nodes[name]
            saved = replace(old, flags=set(old.flags), closing=dict(old.closing))
            kept = {"slurmd": node.slurmd, "heard": node.heard, "pinged": node.pinged}
            node.__dict__.update(saved.__dict__, **kept)
        for job in self.jobs.values():
            fresh = Job(job.id, job.count, job.lasts, job.submitted)
            old_job = jobs.get(job.id, fresh)
            told = {k: getattr(old_job, k) for k in ("state", "nodes", "begins", "started", "restarts")}
            job.__dict__.update(told)

    def registers(self, name: str, boot_time: float, address: str) -> None:
        """slurmd called, and lives from now on until it is `lost`."""
        node = self.nodes[name]
        node.slurmd = boot_time
        if not self.away:
            self._registers(node, address)

    def lost(self, name: str) -> None:
        """Its slurmd is no more."""
        node = self.nodes[name]
        if node.slurmd is not None:
            node.heard = max(node.heard, self.now)
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
        node.heard = self.now
        if node.base == "DOWN":
            node.base = "IDLE"  # ReturnToService=2
            self._explained(node)
        if "POWERED_DOWN" in node.flags and self.dialect.reason_goes:
            node.reason = ""
        node.flags -= {"POWERING_UP", "POWERED_DOWN", "NOT_RESPONDING"}  # a POWER_UP that no scan met stays
        node.boot_time, node.address, node.shut = boot_time, address or node.address, False
        self._waits = True

    def _ping(self, node: Node) -> None:
        if "POWER_DOWN" in node.flags and node.slurmd is None and not node.used and not node.closing:
            return  # it goes anyway
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
            node.heard = self.now
        elif node.heard + self.clocks.silent_s / 2 < self.now:
            node.flags.add("NOT_RESPONDING")
            if node.base == "DOWN" or node.heard + self.clocks.silent_s >= self.now:
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
            node.flags = {"CLOUD", "POWERED_DOWN"}  # a drain goes too
            if self.dialect.late_is_silent:
                node.reason = ""
                node.flags.add("NOT_RESPONDING")
            self._adds(node, "ResumeTimeout reached")
            self._call("resume_fail", node)
        elif node.up and not node.used and node.last_busy + self.clocks.idle_s < self.now:
            node.flags.add("POWER_DOWN")

    def _reserve(self) -> None:
        held = {n for w in self.windows.values() if w.starts_at <= self.now < w.ends_at for n in w.nodes}
        for node in self.nodes.values():
            if node.name in held:
                node.flags |= {"MAINTENANCE", "RESERVED"}
            else:
                node.flags -= {"MAINTENANCE", "RESERVED"}

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
        node.reason, node.reason_at, node.reason_by = reason, self.now, "slurm"  # the daemon's user too

    # --- jobs -------------------------------------------------------------------------------------
    def _run_jobs(self) -> None:
        for job in self.jobs.values():
            if job.state == "CONFIGURING" and all(self.nodes[n].up for n in job.nodes):
                job.state, job.started, self._waits = "RUNNING", self.now, True
                job.runs.append(job.nodes)
            elif job.state == "RUNNING" and job.started + job.lasts <= self.now:
                self._free(job)
                job.state = "COMPLETED"

    def _schedule(self, ready: Sequence[Node]) -> None:
        due = (j for j in self.jobs.values() if j.state == "PENDING" and j.begins <= self.now and not j.held)
        waiting = [j for j in due if not self.completing(j)]
        for job in sorted(waiting, key=lambda j: (-j.priority, j.id)):
            self._place(job, ready)

    def _place(self, job: Job, ready: Sequence[Node]) -> None:
        wanted = self.prefers.get(job.id, ())
        fits = [n for n in ready if n.free() and (not job.pool or n.pool == job.pool)]
        for group in sorted({(n.zone, n.pool) for n in fits}):
            free = [n for n in fits if (n.zone, n.pool) == group]
            free.sort(key=lambda n: (n.name not in wanted, not n.up))
            if len(free) >= job.count:
                self._starts(job, free[: job.count])
                return

    def _starts(self, job: Job, nodes: Sequence[Node]) -> None:
        chosen = {n.name for n in nodes}
        job.nodes, job.state = tuple(n for n in self.nodes if n in chosen), "CONFIGURING"
        for node in nodes:
            node.base, node.used, node.reason = "ALLOCATED", node.used + job.cpus, ""
        self._waits = True

    def _fail_jobs_on(self, node: Node, *, lost: bool = True) -> None:
        """`lost`: nothing more is awaited from the node itself."""
        for job in self.jobs.values():
            if node.name in job.nodes and job.placed:
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
        """The nodes from which its end is awaited: it does not start again before."""
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

    # --- what it shows ----------------------------------------------------------------------------
    def states(self, node: Node) -> frozenset[str]:
        """Its words, as this version spells them."""
        base = "MIXED" if node.base == "ALLOCATED" and node.used < CPUS else node.base
        return frozenset({base, *node.flags, *(("COMPLETING",) if node.closing else ())})

    def _shown(self, node: Node) -> SlurmNode:
        return SlurmNode(
            name=node.name,
            states=self.states(node),
            reason=node.reason,
            reason_at=node.reason_at,
            reason_by=node.reason_by,
            last_busy=node.last_busy,
            boot_time=node.boot_time,
            address=node.address or node.name,
        )

    def _job(self, job: Job) -> SlurmJob:
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
            reason=self._waits_for(job),
            admin_comment=job.comment,
            submitted_at=job.submitted,
            begins_at=job.begins,
            started_at=job.started,
            restarts=job.restarts,
        )

    def _waits_for(self, job: Job) -> str:
        if job.held:
            return "JobHeldAdmin"
        if job.begins > self.now:
            return "BeginTime"
        return "Resources" if job.state == "PENDING" else ""


def copy_of(node: Node) -> Node:
    return replace(node, flags=set(node.flags))
