"""One full reconcile of 10,000 and 50,000 running nodes with a job on every four, and one decision after each kind of event.

CPU time of `decide` and `next_look` over existing views. Memory is tracemalloc's peak: the daemon's state of these nodes,
the memory from the journal, both views, and one pass. The parsing of scontrol's JSON for as many nodes (in the form of
24.11) is a figure of its own, because it runs in the executor of scontrol.
"""

import json
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from bench.decide import NOW, some_bindings, wide_plan
from bench.figure import Figure, figure, own_cpu_ms, unit_ms
from gpucluster.cloud.port import CloudError, Fault, Instance, InstanceState, QueueNotice
from gpucluster.elastic.decide import decide, event_of_error, next_look
from gpucluster.elastic.decide.world import slots_of
from gpucluster.elastic.events import Entry, LaunchRequest, LaunchRequested
from gpucluster.elastic.memory import Incarnation, Memory, fold
from gpucluster.elastic.model import CloudView, LaunchGang, Observation, ReceivedReport
from gpucluster.elastic.registration import RegistrationSnapshot
from gpucluster.plan.messages import NodePhase, NodeReport, Notice, NoticeKind
from gpucluster.plan.model import Bindings, Market, SlurmOnAws
from gpucluster.plan.names import ROLE_NODE, TAG_CLUSTER, TAG_POOL, TAG_ROLE
from gpucluster.slurm import parse
from gpucluster.slurm.values import SlurmJob, SlurmNode, SlurmView

MEMORY_LIMIT_MIB = 200.0  # tracemalloc counts the same bytes on every machine
SMALL, LARGE, OF_NEWS = 10_000, 50_000, 1_000
CPU_LIMIT, NEWS_LIMIT, PUBLISH_LIMIT = 65.0, 22.0, 9.0  # units of this machine's speed
TIMES = 7
OF_CACHES = 1.5  # linear, except for the effect of the processor's caches
BUSY, WAKING = frozenset({"ALLOCATED", "CLOUD"}), frozenset({"ALLOCATED", "CLOUD", "POWERING_UP"})
OFF = frozenset({"IDLE", "CLOUD", "POWERED_DOWN"})
RECORDED = Path(__file__).parent.parent / "tests/recorded/scontrol/24.11/nodes-powering-up.json"


def run() -> Iterator[Figure]:
    """The small and the large cluster, and the large one as a multiple of five small ones."""
    small, mib = _reconcile(SMALL)
    yield figure(f"reconcile.{SMALL}_nodes", small, "ms CPU", CPU_LIMIT * unit_ms())
    yield figure(f"reconcile.{SMALL}_nodes.memory", mib, "MiB", MEMORY_LIMIT_MIB)
    publish = own_cpu_ms(_publish(SMALL), TIMES)
    yield figure(f"reconcile.{SMALL}_nodes.publish", publish, "ms CPU", PUBLISH_LIMIT * unit_ms())
    large, mib = _reconcile(LARGE)
    yield figure(f"reconcile.{LARGE}_nodes", large, "ms CPU", small * LARGE / SMALL * OF_CACHES)
    yield figure(f"reconcile.{LARGE}_nodes.memory", mib, "MiB", MEMORY_LIMIT_MIB * LARGE / SMALL)
    parse = own_cpu_ms(_parse(SMALL), TIMES)
    yield figure(
        f"reconcile.{SMALL}_nodes.with_scontrols_json", small + parse, "ms CPU", CPU_LIMIT * unit_ms()
    )
    yield from _news()


def _publish(nodes: int) -> Callable[[], object]:
    plan, _, seen, memory = living(nodes)
    return lambda: RegistrationSnapshot.of(plan, memory, seen.cloud, seen.slurm)


def _reconcile(nodes: int) -> tuple[float, float]:
    tracemalloc.start()
    plan, bindings, seen, memory = living(nodes)

    def work() -> None:
        assert decide(plan, bindings, seen, memory, NOW) == ()
        next_look(plan, bindings, seen, memory, NOW)

    work()
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    return own_cpu_ms(work, TIMES), peak


def _news() -> Iterator[Figure]:
    """From the event to the actions."""
    plan, bindings, seen, memory = living(OF_NEWS, spare=8)
    assert seen.slurm
    off = [n for n in slots_of(plan) if n not in memory.incarnations][:4]
    nodes = {**seen.slurm.nodes, **{n: SlurmNode(name=n, states=WAKING, address=n) for n in off}}
    new = _job(99_999, tuple(off), "CONFIGURING")
    asked = replace(seen, slurm=replace(seen.slurm, nodes=nodes, jobs=(*seen.slurm.jobs, new)))
    notice = Notice(kind=NoticeKind.SPOT, at=NOW + 120)
    with_notice = replace(seen, queue_notices=(QueueNotice(instance="i-1", notice=notice, handle="h"),))

    def request() -> LaunchRequest:
        actions = decide(plan, bindings, asked, memory, NOW)
        return next(a.request for a in actions if isinstance(a, LaunchGang))

    ask = request()
    known = fold(memory, [Entry(at=NOW, event=LaunchRequested(request=ask))])
    error = CloudError(Fault.NO_CAPACITY, "InsufficientInstanceCapacity", "")

    def refusal() -> None:
        after = fold(known, [Entry(at=NOW, event=event_of_error(plan.times, known, ask, error, NOW))])
        assert any(isinstance(a, LaunchGang) for a in decide(plan, bindings, asked, after, NOW))

    def noticed() -> None:
        assert decide(plan, bindings, with_notice, memory, NOW)

    for name, work in (("request", request), ("refusal", refusal), ("notice", noticed)):
        taken = own_cpu_ms(work, TIMES)
        yield figure(f"decision.{OF_NEWS}_nodes.after_a_{name}", taken, "ms", NEWS_LIMIT * unit_ms())


def living(nodes: int, spare: int = 0) -> tuple[SlurmOnAws, Bindings, Observation, Memory]:
    """Return so many busy nodes, four for each job, and `spare` powered-down slots in each zone."""
    plan = wide_plan(nodes + 2 * spare)
    (pool,) = plan.pools
    names = [n for span in pool.slots for n in tuple(span)[: nodes // 2]]
    shown = {n: SlurmNode(name=n, states=OFF, address=n) for n in slots_of(plan)}
    shown |= {n: SlurmNode(name=n, states=BUSY, address=f"10.0.0.{k}") for k, n in enumerate(names)}
    jobs = tuple(_job(k + 1, tuple(names[4 * k : 4 * k + 4]), "RUNNING") for k in range(nodes // 4))
    incarnations = {n: _incarnation(k, plan.pools[0].zone_of(n) or "") for k, n in enumerate(names)}
    machines = {
        incarnation.instance or "": _instance(plan, incarnation) for incarnation in incarnations.values()
    }
    placed = fold(Memory(epoch="e", requests=nodes, incarnations=incarnations), [])
    slurm = SlurmView(at=NOW, nodes=shown, jobs=jobs)
    reports = {name: _report(name) for name in machines}
    seen = Observation(slurm=slurm, cloud=CloudView(at=NOW, instances=machines), reports=reports)
    bindings = some_bindings(plan)
    known = [e for a in decide(plan, bindings, seen, placed, NOW) for e in getattr(a, "entries", ())]
    return plan, bindings, seen, fold(placed, known)


def _incarnation(number: int, zone: str) -> Incarnation:
    return Incarnation(
        number=1,
        since=NOW - 900,
        instance=f"i-{number}",
        machine="p5en.48xlarge",
        market=Market.SPOT,
        zone=zone,
        launched_at=NOW - 900,
        booted_at=NOW - 800,
        registered_at=NOW - 700,
        up_at=NOW - 600,
        price=40_000_000,
    )


def _report(instance: str) -> ReceivedReport:
    report = NodeReport(
        instance_id=instance,
        nonce="n",
        boot_id="b",
        phase=NodePhase.UP,
        incarnation=1,
        steps=(),
        watched=True,
    )
    return ReceivedReport(report=report, at=NOW - 5, since=NOW - 700)


def _instance(plan: SlurmOnAws, incarnation: Incarnation) -> Instance:
    return Instance(
        id=incarnation.instance or "",
        state=InstanceState.RUNNING,
        zone=incarnation.zone,
        machine=incarnation.machine,
        market=incarnation.market,
        address="10.0.0.1",
        launched_at=incarnation.launched_at,
        token="t",  # noqa: S106 -- a ClientToken
        tags={TAG_CLUSTER: plan.name, TAG_ROLE: ROLE_NODE, TAG_POOL: plan.pools[0].name},
    )


def _job(number: int, nodes: tuple[str, ...], state: str) -> SlurmJob:
    return SlurmJob(
        id=number,
        states=frozenset({"RUNNING", state}),
        nodes=nodes,
        node_count=len(nodes),
        partitions=("gpu",),
        requeueable=True,
        batch=True,
        priority=1,
        started_at=NOW - 500,
    )


def _parse(nodes: int) -> Callable[[], object]:
    one = json.loads(RECORDED.read_text())["nodes"][0]
    text = json.dumps({"nodes": [{**one, "name": name} for name in slots_of(wide_plan(nodes))]})
    jobs = json.dumps({"jobs": []})
    return lambda: parse.view(text, jobs, NOW, '{"reservations": []}')
