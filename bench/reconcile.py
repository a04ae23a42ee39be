"""One full reconcile: 10,000 and 50,000 nodes that all live, a job on every four; and a decision after each kind of news.

CPU time of `decide` and `next_look` over views that are there; memory is all that the daemon holds of these nodes, the
journal's fold, both views, and what a pass takes (tracemalloc's peak). Reading scontrol's JSON for as many nodes (each as
24.11 printed one) is stated beside it: it runs in the lane of scontrol.
"""

import json
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from bench.decide import NOW, some_bindings, wide_plan
from bench.figure import Figure, figure
from gpucluster.cloud.port import CloudError, Fault, Instance, InstanceState, Told
from gpucluster.elastic import observe
from gpucluster.elastic.decide import decide, next_look, outcome
from gpucluster.elastic.decide.world import slots_of
from gpucluster.elastic.events import Ask, Entry, LaunchAsked
from gpucluster.elastic.memory import Life, Memory, fold
from gpucluster.elastic.model import CloudView, LaunchGang, Observation, SlurmJob, SlurmNode, SlurmView
from gpucluster.plan.messages import Notice, NoticeKind
from gpucluster.plan.model import Bindings, ClusterPlan, Market
from gpucluster.plan.names import ROLE_NODE, TAG_CLUSTER, TAG_POOL, TAG_ROLE

CPU_LIMIT_MS, MEMORY_LIMIT_MIB, NEWS_LIMIT_MS = 300.0, 200.0, 100.0
SMALL, LARGE, OF_NEWS = 10_000, 50_000, 1_000
TIMES = 7
OF_CACHES = 1.5  # linear, but for what no longer fits the processor's caches
BUSY, WAKING = frozenset({"ALLOCATED", "CLOUD"}), frozenset({"ALLOCATED", "CLOUD", "POWERING_UP"})
OFF = frozenset({"IDLE", "CLOUD", "POWERED_DOWN"})
RECORDED = Path(__file__).parent.parent / "tests/recorded/scontrol/24.11/nodes-powering-up.json"


def run() -> Iterator[Figure]:
    """Small, large, and what the large one costs beside five times the small one."""
    small, mib = _reconcile(SMALL)
    yield figure(f"reconcile.{SMALL}_nodes", small, "ms CPU", CPU_LIMIT_MS)
    yield figure(f"reconcile.{SMALL}_nodes.memory", mib, "MiB", MEMORY_LIMIT_MIB)
    large, mib = _reconcile(LARGE)
    yield figure(f"reconcile.{LARGE}_nodes", large, "ms CPU", small * LARGE / SMALL * OF_CACHES)
    yield figure(f"reconcile.{LARGE}_nodes.memory", mib, "MiB", MEMORY_LIMIT_MIB * LARGE / SMALL)
    parse = _cpu_ms(_parse(SMALL))
    yield figure(f"reconcile.{SMALL}_nodes.with_scontrols_json", small + parse, "ms CPU", CPU_LIMIT_MS)
    yield from _news()


def _reconcile(nodes: int) -> tuple[float, float]:
    tracemalloc.start()
    plan, bindings, seen, memory = living(nodes)

    def work() -> None:
        assert decide(plan, bindings, seen, memory, NOW) == ()
        next_look(plan, bindings, seen, memory, NOW)

    work()
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    return _cpu_ms(work), peak


def _news() -> Iterator[Figure]:
    """From the news in hand to the actions."""
    plan, bindings, seen, memory = living(OF_NEWS, spare=8)
    assert seen.slurm
    off = [n for n in slots_of(plan) if n not in memory.lives][:4]
    nodes = {**seen.slurm.nodes, **{n: SlurmNode(name=n, states=WAKING, address=n) for n in off}}
    new = _job(99_999, tuple(off), "CONFIGURING")
    asked = replace(seen, slurm=replace(seen.slurm, nodes=nodes, jobs=(*seen.slurm.jobs, new)))
    notice = Notice(kind=NoticeKind.SPOT, at=NOW + 120)
    told = replace(seen, told=(Told(instance="i-1", notice=notice, handle="h"),))

    def request() -> Ask:
        actions = decide(plan, bindings, asked, memory, NOW)
        return next(a.ask for a in actions if isinstance(a, LaunchGang))

    ask = request()
    known = fold(memory, [Entry(at=NOW, event=LaunchAsked(ask=ask))])
    error = CloudError(Fault.NO_CAPACITY, "InsufficientInstanceCapacity", "")

    def refusal() -> None:
        after = fold(known, [Entry(at=NOW, event=outcome(plan.times, known, ask, error, NOW))])
        assert any(isinstance(a, LaunchGang) for a in decide(plan, bindings, asked, after, NOW))

    def noticed() -> None:
        assert decide(plan, bindings, told, memory, NOW)

    for name, work in (("request", request), ("refusal", refusal), ("notice", noticed)):
        yield figure(f"decision.{OF_NEWS}_nodes.after_a_{name}", _cpu_ms(work), "ms", NEWS_LIMIT_MS)


def living(nodes: int, spare: int = 0) -> tuple[ClusterPlan, Bindings, Observation, Memory]:
    """So many nodes up and busy, four to a job, and `spare` slots a zone that are off."""
    plan = wide_plan(nodes + 2 * spare)
    (pool,) = plan.pools
    names = [n for span in pool.slots for n in tuple(span)[: nodes // 2]]
    shown = {n: SlurmNode(name=n, states=OFF, address=n) for n in slots_of(plan)}
    shown |= {n: SlurmNode(name=n, states=BUSY, address=f"10.0.0.{k}") for k, n in enumerate(names)}
    jobs = tuple(_job(k + 1, tuple(names[4 * k : 4 * k + 4]), "RUNNING") for k in range(nodes // 4))
    lives = {n: _life(k, plan.pools[0].zone_of(n) or "") for k, n in enumerate(names)}
    machines = {life.instance or "": _instance(plan, life) for life in lives.values()}
    placed = fold(Memory(epoch="e", requests=nodes, lives=lives), [])
    slurm = SlurmView(at=NOW, nodes=shown, jobs=jobs)
    seen = Observation(slurm=slurm, cloud=CloudView(at=NOW, instances=machines))
    bindings = some_bindings(plan)
    known = [e for a in decide(plan, bindings, seen, placed, NOW) for e in getattr(a, "entries", ())]
    return plan, bindings, seen, fold(placed, known)


def _life(number: int, zone: str) -> Life:
    return Life(
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


def _instance(plan: ClusterPlan, life: Life) -> Instance:
    return Instance(
        id=life.instance or "",
        state=InstanceState.RUNNING,
        zone=life.zone,
        machine=life.machine,
        market=life.market,
        address="10.0.0.1",
        launched_at=life.launched_at,
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
    return lambda: observe.view(text, jobs, NOW)


def _cpu_ms(work: Callable[[], object]) -> float:
    work()
    taken: list[float] = []
    for _ in range(TIMES):
        began = time.process_time()
        work()
        taken.append((time.process_time() - began) * 1000)
    return statistics.median(taken)
