"""The loop's body: look, decide, act. It owns the state and knows no thread, clock or socket of its own."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from gpucluster.cloud.port import CloudError, Control, Scaling
from gpucluster.elastic import spool
from gpucluster.elastic.act import Actor, Hands
from gpucluster.elastic.decide import decide, next_look
from gpucluster.elastic.events import Entry, HookCalled, Started
from gpucluster.elastic.model import CloudView, Heard, Observation, SlurmView
from gpucluster.elastic.registration import Snapshot
from gpucluster.errors import GpuclusterError
from gpucluster.plan.messages import NodeReport
from gpucluster.plan.model import Bindings, ClusterPlan

UNREAD_S = 60.0  # a control object that cannot be read for so long is told to those who wait
SILENT_S = 3600.0  # the last word of an instance is kept so long


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What a look came back with; None = it failed."""

    slurm: SlurmView | None = None
    cloud: CloudView | None = None
    control: Control | None = None
    error: str = ""


class Keeper:
    """One per cluster. `published` is given each new snapshot; `complain` hears what could not be observed."""

    def __init__(
        self,
        plan: ClusterPlan,
        bindings: Bindings,
        hands: Hands,
        spool_dir: Path,
        *,
        published: Callable[[Snapshot], None],
        complain: Callable[[str], None],
    ) -> None:
        self._plan, self._bindings, self._hands, self._spool = plan, bindings, hands, spool_dir
        self._published, self._complain = published, complain
        self._actor = Actor(hands)
        self._heard: dict[str, Heard] = {}
        self._absent: dict[str, float] = {}
        self._cloud: CloudView | None = None
        self._halves: list[_Seen] = []
        self._read_at = hands.clock()  # the control object, last
        self.looking = False
        self.next_look_s = 0.0
        spool.prepare(spool_dir, hands.clock())
        hands.journal.append((Entry(at=hands.clock(), event=Started()),))
        self.publish()

    def take_hooks(self) -> bool:
        """Move the spool's requests to the journal; whether there were any."""
        calls = spool.read(self._spool)
        at = self._hands.clock()
        self._hands.journal.append(
            tuple(
                Entry(
                    at=at,
                    event=HookCalled(
                        kind=call.kind, hostlist=call.hostlist, called_at=call.called_at, jobs=call.jobs
                    ),
                )
                for call in calls
            )
        )
        spool.done(calls)
        return bool(calls)

    def hear(self, report: NodeReport) -> bool:
        """Take a node's word; whether it is news."""
        now = self._hands.clock()
        old = self._heard.get(report.instance_id)
        same = old is not None and (old.report.phase, old.report.life) == (report.phase, report.life)
        since = old.since if old is not None and same else now
        self._heard[report.instance_id] = Heard(report=report, at=now, since=since)
        return not same

    def look(self) -> None:
        """Ask Slurm and the cloud; when both have answered, decide and act."""
        if self.looking:
            return
        self.looking, self._halves = True, []
        self._hands.slurms.submit(self._look_at_slurm, self._half)
        self._hands.clouds.submit(self._look_at_cloud, self._half)

    def publish(self) -> None:
        """Give the registration desk what is known now."""
        self._published(Snapshot.of(self._plan, self._hands.journal.memory, self._cloud))

    def _look_at_slurm(self) -> _Seen:
        try:
            return _Seen(slurm=self._hands.slurm.look(self._hands.clock()))
        except GpuclusterError as error:
            return _Seen(error=f"slurmctld: {error.message}")

    def _look_at_cloud(self) -> _Seen:
        at = self._hands.clock()
        try:
            listed = self._hands.cloud.instances(self._plan.name)
        except CloudError as error:
            return _Seen(error=f"the cloud: {error}")
        view = CloudView(at=at, instances={i.id: i for i in listed})
        try:
            return _Seen(cloud=view, control=self._hands.control.read())
        except CloudError as error:
            return _Seen(cloud=view, error=f"the control object: {error}")

    def _half(self, seen: _Seen) -> None:
        self._halves.append(seen)
        if len(self._halves) < 2:
            return
        for half in self._halves:
            if half.error:
                self._complain(half.error)
        slurm = next((h.slurm for h in self._halves if h.slurm), None)
        cloud = next((h.cloud for h in self._halves if h.cloud), None)
        control = next((h.control for h in self._halves if h.control), None)
        self._pass(slurm, self._remembering_absent(cloud), self._halted(control))
        self.looking = False

    def _halted(self, control: Control | None) -> str:
        """Stop is stop at once; an object that could not be read only now may be read the next time."""
        now = self._hands.clock()
        if control is not None:
            self._read_at = now
            stopped = control.scaling is Scaling.STOP
            return f"launches are stopped, by {control.by or 'nobody'}" if stopped else ""
        return "the control object cannot be read" if self._read_at + UNREAD_S <= now else ""

    def _pass(self, slurm: SlurmView | None, cloud: CloudView | None, halted: str) -> None:
        now = self._hands.clock()
        self._cloud = cloud or self._cloud
        self._heard = {k: h for k, h in self._heard.items() if h.at + SILENT_S > now}
        seen = Observation(slurm=slurm, cloud=cloud, reports=dict(self._heard), halted=halted)
        memory = self._hands.journal.memory
        actions = decide(self._plan, self._bindings, seen, memory, now)
        self._actor.act(actions)
        self.next_look_s = next_look(self._plan, self._bindings, seen, self._hands.journal.memory, now)
        if actions:
            self.next_look_s = min(self.next_look_s, self._plan.times.poll_s)
        self.publish()

    def _remembering_absent(self, cloud: CloudView | None) -> CloudView | None:
        """Since when the list misses ids that we know; only a list that was had counts (T21)."""
        if cloud is None:
            return None
        known = {life.instance for life in self._hands.journal.memory.lives.values() if life.instance}
        missing = known - cloud.instances.keys()
        self._absent = {i: self._absent.get(i, cloud.at) for i in missing}
        return replace(cloud, absent_since=dict(self._absent))
