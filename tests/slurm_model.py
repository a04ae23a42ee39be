"""A small Slurm on virtual time: the power-saving transitions of 24.11 as seen on a real slurmctld (slurm.md 3)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from gpucluster.elastic.decide.world import slots_of
from gpucluster.elastic.model import SlurmJob, SlurmNode, SlurmView, Window
from gpucluster.errors import GpuclusterError
from gpucluster.plan.model import ClusterPlan

RESUME_MARGIN_S, SILENT_S = 60, 180.0


@dataclass
class Node:
    name: str
    zone: str
    base: str = "IDLE"
    flags: set[str] = field(default_factory=lambda: {"CLOUD", "POWERED_DOWN"})
    reason: str = ""
    reason_at: float = 0.0
    reason_by: str = ""
    since: float = 0.0  # of the last power transition
    last_busy: float = 0.0
    boot_time: float = 0.0
    address: str = ""
    heard: float = 0.0

    @property
    def up(self) -> bool:
        power = {"POWERED_DOWN", "POWERING_UP", "POWERING_DOWN", "NOT_RESPONDING"}
        return self.base != "DOWN" and not power & self.flags

    def free(self) -> bool:
        off = self.flags <= {"CLOUD", "POWERED_DOWN", "NOT_RESPONDING"} and "POWERED_DOWN" in self.flags
        return self.base == "IDLE" and (off or (self.up and self.flags <= {"CLOUD"}))


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
    runs: list[tuple[str, ...]] = field(default_factory=list)


class SlurmModel:
    """slurmctld, and the SlurmPort over it. `hook` is called as Slurm calls its programs."""

    def __init__(self, plan: ClusterPlan, hook: Callable[[str, str], None]) -> None:
        self.plan, self._hook = plan, hook
        self.nodes = {s.name: Node(s.name, s.zone) for s in slots_of(plan).values()}
        self.jobs: dict[int, Job] = {}
        self.now = 0.0
        self.away = False  # slurmctld does not answer
        self.hooks: list[tuple[float, str, tuple[str, ...]]] = []
        self.updates: list[tuple[str, tuple[str, ...], str | None]] = []
        self.signals: list[tuple[float, int, str]] = []
        self.windows: dict[str, Window] = {}
        self._next = 1

    # --- users ------------------------------------------------------------------------------------
    def submit(self, count: int, lasts: float = 60.0, **changes: object) -> Job:
        job = Job(self._next, count, lasts, self.now, **changes)  # type: ignore[arg-type]
        self.jobs[job.id] = job
        self._next += 1
        return job

    def cancel(self, job: Job) -> None:
        self._free(job)
        job.state = "CANCELLED"

    def drains(self, name: str, reason: str) -> None:
        """Slurm's own drain, as of a Prolog that failed."""
        node = self.nodes[name]
        node.flags.add("DRAIN")
        node.reason, node.reason_at, node.reason_by = reason, self.now, "slurm"

    # --- the port ---------------------------------------------------------------------------------
    def look(self, at: float) -> SlurmView:
        if self.away:
            raise GpuclusterError("Unable to contact slurm controller")
        return SlurmView(
            at=at,
            nodes={n.name: self._shown(n) for n in self.nodes.values()},
            jobs=tuple(self._job(j) for j in self.jobs.values()),
            windows=tuple(self.windows.values()),
        )

    def update_nodes(self, nodes: Sequence[str], state: str, reason: str | None = None) -> None:
        if self.away:
            raise GpuclusterError("Unable to contact slurm controller")
        self.updates.append((state, tuple(nodes), reason))
        for name in nodes:
            node = self.nodes[name]
            if reason:
                node.reason, node.reason_at, node.reason_by = (
                    reason,
                    self.now,
                    "slurm",
                )  # the daemon's user too
            getattr(self, f"_{state}")(node)

    def comment(self, jobs: Sequence[int], text: str) -> None:
        for job in jobs:
            if job in self.jobs:
                self.jobs[job].comment = text

    def signal(self, jobs: Sequence[int], signal: str) -> None:
        if self.away:
            raise GpuclusterError("Unable to contact slurm controller")
        self.signals.extend((self.now, job, signal) for job in jobs if job in self.jobs)

    def requeue(self, jobs: Sequence[int], reason: str) -> None:
        if self.away:
            raise GpuclusterError("Unable to contact slurm controller")
        self.comment(jobs, reason)
        for number in jobs:
            job = self.jobs.get(number)
            if job and job.batch and job.requeue and job.state in ("CONFIGURING", "RUNNING"):
                self._free(job)
                self._again(job)

    def open_window(self, window: Window) -> None:
        self.windows[window.name] = window

    def close_window(self, name: str) -> None:
        self.windows.pop(name, None)

    def _drain(self, node: Node) -> None:
        node.flags.add("DRAIN")

    def _undrain(self, node: Node) -> None:
        node.flags.discard("DRAIN")
        if "POWERED_DOWN" in node.flags:
            node.flags.add("NOT_RESPONDING")  # so seen on 24.11; it stops no job

    def _down(self, node: Node) -> None:
        node.base = "DOWN"
        self._fail_jobs_on(node)
        node.base = "DOWN"

    def _power_down(self, node: Node) -> None:
        if "POWERED_DOWN" in node.flags or "POWERING_DOWN" in node.flags:
            return
        if node.base == "DOWN":
            node.flags.discard("POWERING_UP")
        node.flags.add("POWER_DOWN")

    def _power_up(self, node: Node) -> None:
        if "POWERED_DOWN" in node.flags and "DRAIN" not in node.flags:
            node.flags.add("POWER_UP")

    def _resume(self, node: Node) -> None:
        node.flags.discard("DRAIN")
        if node.base == "DOWN":
            node.base = "IDLE"
        if "POWERED_DOWN" in node.flags:
            node.flags -= {"POWER_DOWN"}
            node.flags.add("NOT_RESPONDING")

    # --- time -------------------------------------------------------------------------------------
    def tick(self, now: float) -> None:
        self.now = now
        if self.away:
            return
        self._run_jobs()
        self._schedule()
        self._power()

    def restart(self, *, forgetting: bool) -> None:
        """kill -9 and start; `forgetting` = less than a second after a resume: the state on disk is older."""
        for job in self.jobs.values():
            if forgetting and job.state == "CONFIGURING":
                nodes = [self.nodes[n] for n in job.nodes if "POWERING_UP" in self.nodes[n].flags]
                for name in job.nodes:
                    self.nodes[name].base = "IDLE"
                for node in nodes:
                    node.flags = {"CLOUD", "POWERED_DOWN"}
                job.state, job.nodes = "PENDING", ()

    def registers(self, name: str, boot_time: float, address: str) -> None:
        """slurmd called."""
        node = self.nodes[name]
        if self.away:
            return
        node.heard = self.now
        if "POWERING_DOWN" in node.flags or (node.base == "DOWN" and "POWERED_DOWN" in node.flags):
            return
        if "POWERING_UP" in node.flags:
            if boot_time < node.since:
                return  # "Still waiting for boot"
            node.last_busy = self.now
        elif node.up and boot_time > node.boot_time and node.base == "ALLOCATED":
            self._down(node)
            node.reason = "Node unexpectedly rebooted"
        if node.base == "DOWN" and node.reason == "Not responding":
            node.base, node.reason = "IDLE", ""
        node.flags -= {"POWERING_UP", "POWERED_DOWN", "NOT_RESPONDING"}
        node.boot_time, node.address = boot_time, address

    def _power(self) -> None:
        times = self.plan.times
        for node in self.nodes.values():
            waking = node.base == "ALLOCATED" or "POWER_UP" in node.flags
            if "POWERED_DOWN" in node.flags and waking:
                node.flags -= {"POWERED_DOWN", "POWER_UP"}
                node.flags |= {"POWERING_UP", "NOT_RESPONDING"}
                node.since, node.reason = self.now, ""
                self._call("resume", node)
            elif (
                "POWER_DOWN" in node.flags
                and node.base in ("IDLE", "DOWN")
                and "POWERING_UP" not in node.flags
            ):
                node.base, node.since = "IDLE", self.now
                node.flags = {"CLOUD", "POWERING_DOWN"}
                self._call("suspend", node)
            elif "POWERING_DOWN" in node.flags and node.since + times.suspend_timeout_s < self.now:
                node.flags = (node.flags - {"POWERING_DOWN"}) | {"POWERED_DOWN"}
                node.address = ""
            elif "POWERING_UP" in node.flags and node.since + self._resume_timeout() < self.now:
                self._down(node)
                node.flags = {"CLOUD", "POWERED_DOWN"}
                node.reason = "ResumeTimeout reached"
                self._call("resume_fail", node)
            elif node.up and node.boot_time and node.heard + SILENT_S < self.now:
                self._down(node)
                node.flags.add("NOT_RESPONDING")
                node.reason, node.reason_at = "Not responding", self.now

    def _resume_timeout(self) -> float:
        return max(p.boot_timeout_s for p in self.plan.pools) + RESUME_MARGIN_S

    def _call(self, kind: str, node: Node) -> None:
        self.hooks.append((self.now, kind, (node.name,)))
        self._hook(kind, node.name)

    def _run_jobs(self) -> None:
        for job in self.jobs.values():
            if job.state == "CONFIGURING" and all(self.nodes[n].up for n in job.nodes):
                job.state, job.started = "RUNNING", self.now
                job.runs.append(job.nodes)
            elif job.state == "RUNNING" and job.started + job.lasts <= self.now:
                job.state = "COMPLETED"
                self._free(job)

    def _schedule(self) -> None:
        for job in sorted(self.jobs.values(), key=lambda j: (-j.priority, j.id)):
            if job.state == "PENDING" and job.begins <= self.now:
                self._place(job)

    def _place(self, job: Job) -> None:
        zones = sorted({n.zone for n in self.nodes.values()})
        for zone in zones:
            free = [n for n in self.nodes.values() if n.zone == zone and n.free()]
            free.sort(key=lambda n: (not n.up,))
            if len(free) >= job.count:
                job.nodes = tuple(n.name for n in free[: job.count])
                job.state = "CONFIGURING"
                for node in free[: job.count]:
                    node.base = "ALLOCATED"
                return

    def _fail_jobs_on(self, node: Node) -> None:
        for job in self.jobs.values():
            if node.name in job.nodes and job.state in ("CONFIGURING", "RUNNING"):
                self._free(job)
                if job.batch and job.requeue:
                    self._again(job)
                else:
                    job.state = "FAILED"

    def _again(self, job: Job) -> None:
        job.state, job.restarts = "PENDING", job.restarts + 1
        job.begins = self.now + self.plan.times.cred_expire_s + 1

    def _free(self, job: Job) -> None:
        for name in job.nodes:
            node = self.nodes[name]
            if node.base == "ALLOCATED":
                node.base, node.last_busy = "IDLE", self.now
        job.nodes = ()

    def _shown(self, node: Node) -> SlurmNode:
        return SlurmNode(
            name=node.name,
            states=frozenset({node.base, *node.flags}),
            reason=node.reason,
            reason_at=node.reason_at,
            reason_by=node.reason_by,
            last_busy=node.last_busy,
            boot_time=node.boot_time,
            address=node.address or node.name,
        )

    def _job(self, job: Job) -> SlurmJob:
        states = {"CONFIGURING": {"RUNNING", "CONFIGURING"}}.get(job.state, {job.state})
        return SlurmJob(
            id=job.id,
            states=frozenset(states),
            nodes=job.nodes,
            node_count=job.count,
            partitions=(self.plan.partitions[0].name,),
            requeueable=job.requeue,
            batch=job.batch,
            het_id=job.het,
            priority=job.priority,
            reason="BeginTime" if job.begins > self.now else "",
            admin_comment=job.comment,
            submitted_at=job.submitted,
            begins_at=job.begins,
            started_at=job.started,
            restarts=job.restarts,
        )


def copy_of(node: Node) -> Node:
    return replace(node, flags=set(node.flags))
