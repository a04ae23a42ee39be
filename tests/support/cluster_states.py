"""States of a small cluster as plain values: the views of Slurm and of the cloud, and the daemon's memory."""

from collections.abc import Iterable
from dataclasses import replace

from gpucluster.cloud.port import Instance, InstanceState
from gpucluster.elastic.decide.world import World, slots_of
from gpucluster.elastic.events import (
    Entry,
    Event,
    InstanceRunning,
    JobPlaced,
    LaunchDone,
    LaunchRefused,
    LaunchRequest,
    LaunchRequested,
    NodeNeeded,
    NodeRegistered,
    NodeUp,
    source_key,
)
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.memory import Memory, SeenDrain, fold
from gpucluster.elastic.model import CloudView, Observation, ReceivedReport
from gpucluster.plan.messages import NodePhase, NodeReport, Step
from gpucluster.plan.model import Bindings, Market, SlurmOnAws
from gpucluster.plan.names import REASON_PREFIX
from gpucluster.slurm.drain_table import SLURM_USER
from gpucluster.slurm.drains import DrainOwner
from gpucluster.slurm.values import SlurmJob, SlurmNode, SlurmView
from support.builders import a_plan
from support.fleet import some_bindings
from support.launches import launch_spec, with_changes

NOW = 1_794_924_000.0  # 2026-11-17 14:00:00 UTC
OFF, UP, BUSY = "IDLE CLOUD POWERED_DOWN", "IDLE CLOUD", "ALLOCATED CLOUD"
WAKING = "ALLOCATED CLOUD NOT_RESPONDING POWERING_UP"
PRICE = 26_000_000  # micro-USD an hour: made up


def node(name: str, states: str = OFF, **changes: object) -> SlurmNode:
    """A node with these state words. A reason of ours is from SlurmUser, unless `reason_by` is given."""
    by = SLURM_USER if str(changes.get("reason", "")).startswith(REASON_PREFIX) else ""
    plain = SlurmNode(name=name, states=frozenset(states.split()), address=name, reason_by=by)
    return replace(plain, **changes)  # type: ignore[arg-type]


def job(number: int, *nodes: str, starts: bool = False, **changes: object) -> SlurmJob:
    """A job: pending without nodes; with nodes running or starting."""
    states = {"PENDING"} if not nodes else {"RUNNING", *(("CONFIGURING",) if starts else ())}
    plain = SlurmJob(
        id=number,
        states=frozenset(states),
        nodes=nodes,
        node_count=len(nodes) or 2,
        partitions=("gpu",),
        requeueable=True,
        batch=True,
        priority=100 - number,
        submitted_at=NOW - 300,
        started_at=NOW - 120 if nodes else 0.0,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def sight(
    plan: SlurmOnAws,
    *events: tuple[float, Event],
    nodes: Iterable[SlurmNode] = (),
    jobs: Iterable[SlurmJob] = (),
    instances: Iterable[Instance] = (),
    **more: object,
) -> ClusterSnapshot:
    """The state at that moment: slots that are not named are off; `events` are (seconds before NOW, event)."""
    entries = tuple(Entry(at=NOW - ago, event=event) for ago, event in events)
    shown = {name: node(name) for name in slots_of(plan)} | {n.name: n for n in nodes}
    seen = Observation(
        slurm=SlurmView(at=NOW, nodes=shown, jobs=tuple(jobs)),
        cloud=CloudView(at=NOW, instances={i.id: i for i in instances}),
    )
    memory = fold(Memory(epoch="e", drains=seen_drains(shown.values())), entries)
    found = ClusterSnapshot(
        plan=plan, bindings=some_bindings(plan), observation=seen, memory=memory, now=NOW, entries=entries
    )
    return replace(found, observation=replace(seen, **more))  # type: ignore[arg-type]


def seen_drains(nodes: Iterable[SlurmNode]) -> dict[str, SeenDrain]:
    """The drains of these nodes as the daemon's memory has them."""
    return {
        n.name: SeenDrain(drained=True, blocked=n.drain_owner is DrainOwner.CAPACITY, since=n.reason_at)
        for n in nodes
        if n.drained
    }


def world_of(
    plan: SlurmOnAws, bindings: Bindings, observation: Observation, memory: Memory, now: float
) -> World:
    """The world of an observation with views of Slurm and of the cloud."""
    world = World.of(plan, bindings, observation, memory, now)
    assert world is not None
    return world


def ask(number: int, *slots: str, source: int = 0, jobs: tuple[int, ...] = (41,)) -> LaunchRequest:
    """A request of spot (source 0) or on-demand (1) machines for these slots."""
    zone = f"us-east-2{slots[0].rpartition('-')[0][-1]}"
    return LaunchRequest(
        id=f"r{number}",
        token=f"t{number}",
        pool="h200",
        source=source,
        slots=slots,
        spec=launch_spec(
            zone=zone,
            market=(Market.SPOT, Market.ON_DEMAND)[source],
            template_id="lt-0",
            subnet_id="subnet-0",
        ),
        jobs=jobs,
        price=PRICE,
    )


def refusal(
    number: int, slots: tuple[str, ...], ago: float, words: str, **changes: object
) -> tuple[tuple[float, Event], ...]:
    """A request and the cloud's refusal, remembered for `lasts` seconds from NOW."""
    lasts = float(str(changes.pop("lasts", 40.0)))
    one = with_changes(ask(number, *slots), **changes)
    key = (
        source_key(one.pool, one.source)
        if any(w in words for w in ("CountExceeded", "LimitExceeded"))
        else one.offer_key
    )
    refused = LaunchRefused(request=one.id, key=key, words=words, until=NOW + lasts)
    return (ago + 2, LaunchRequested(request=one)), (ago, refused)


def living(*slots: str, ago: float = 600.0, number: int = 1) -> tuple[tuple[float, Event], ...]:
    """Slots with machines that started that long ago: i-0, i-1 ..."""
    one = ask(number, *slots)
    ids = tuple(f"i-{n}" for n in range(len(slots)))
    return (
        *((ago, NodeNeeded(slot=slot, incarnation=1, jobs=(41,))) for slot in slots),
        (ago, JobPlaced(job=41, slots=slots, submitted_at=NOW - ago - 1)),
        (ago - 1, LaunchRequested(request=one)),
        (ago - 3, LaunchDone(request=one.id, instances=ids)),
        *((ago - 10, InstanceRunning(slot=s, instance=i)) for s, i in zip(slots, ids, strict=True)),
        *((ago - 30, NodeRegistered(slot=s, instance=i)) for s, i in zip(slots, ids, strict=True)),
        *((ago - 60, NodeUp(slot=s, pool="h200")) for s in slots),
    )


def instance(number: int, ago: float = 600.0, **changes: object) -> Instance:
    """`i-NUMBER`, running."""
    plain = Instance(
        id=f"i-{number}",
        state=InstanceState.RUNNING,
        zone="us-east-2a",
        machine="p5en.48xlarge",
        market=Market.SPOT,
        address=f"10.42.0.{number + 10}",
        launched_at=NOW - ago,
        token=None,
        tags={"gpucluster:cluster": "burst", "gpucluster:role": "node", "gpucluster:pool": "h200"},
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def report_of(
    number: int, *steps: str, failed: str = "", phase: NodePhase = NodePhase.BOOTING
) -> ReceivedReport:
    """The last report of an agent: the finished steps, and optionally one that failed with its detail."""
    done = [Step(name=name, ok=True, seconds=1.0) for name in steps]
    bad = (
        [Step(name=failed.partition(":")[0], ok=False, seconds=9.0, detail=failed.partition(": ")[2])]
        if failed
        else []
    )
    report = NodeReport(
        instance_id=f"i-{number}",
        nonce="n",
        boot_id="b",
        phase=NodePhase.FAILED if failed else phase,
        incarnation=0,
        steps=(*done, *bad),
    )
    return ReceivedReport(report=report, at=NOW - 5, since=NOW - 20)


def burst() -> SlurmOnAws:
    """The plan of most tests."""
    return a_plan()
