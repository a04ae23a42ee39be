"""Worlds of launches: gangs, requests without an outcome, refusals of gangs, failed boots, tokens of the API."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gpucluster.cloud.port import InstanceState
from gpucluster.elastic.events import LaunchRequest, Verb
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.memory import BucketLevel, Launch, OpenBreaker, OperatorOrder
from gpucluster.plan.messages import HeldBundle
from gpucluster.slurm.values import SlurmNode
from support.builders import a_plan
from support.cluster_states import NOW, OFF, UP, WAKING, ask, instance, job, node
from support.worlds.scene import (
    A1,
    A2,
    A3,
    A4,
    B1,
    B2,
    SMALL,
    SPOT,
    SPOT_A,
    TWO,
    A,
    B,
    boots,
    needed,
    offer_keys,
    pool_with,
    refused,
    scene,
    up,
)

H1, H2 = "h100-2a-1", "h100-2b-1"
ALWAYS = a_plan(("max: 4}", "max: 3}"), ("{min: 0, max: 16}", "{min: 2, max: 4}"))


def waking(*slots: str, idle: bool = False) -> tuple[SlurmNode, ...]:
    """Nodes that Slurm powers up, for a job or by hand."""
    return tuple(node(slot, WAKING.replace("ALLOCATED", "IDLE") if idle else WAKING) for slot in slots)


def _two_jobs(**known: Any) -> Callable[[], ClusterSnapshot]:
    def build() -> ClusterSnapshot:
        jobs = (job(1, A1, A2, starts=True, account="vision"), job(2, A3, starts=True, account="audio"))
        lives = {A1: needed(60, 1), A2: needed(60, 1), A3: needed(50, 2)}
        return scene(SMALL, waking(A1, A2, A3), jobs, lives, known=known)

    return build


def _refused_gang(**changes: Any) -> Callable[[], ClusterSnapshot]:
    """All of zone a is refused for a gang that was placed 1190 s before its boot timeout of 1200 s ends."""

    def build() -> ClusterSnapshot:
        lives = {A1: needed(1150, 1), A2: needed(1140, 1)}
        one = job(1, A1, A2, starts=True, **changes)
        known = {"refusals": refused(100, *offer_keys(A))}
        return scene(SMALL, waking(A1, A2), (one, job(2, node_count=2)), lives, known=known)

    return build


def _open_request(
    ago: float, wanted: bool = True, listed: int = 0, **changes: Any
) -> Callable[[], ClusterSnapshot]:
    """A request without an outcome; `listed` of its instances are in the cloud's list."""

    def build() -> ClusterSnapshot:
        request = ask(1, A1, A2)
        lives = {slot: needed(ago + 1, 41, request="r1", generation=1) for slot in (A1, A2)}
        launch = Launch(request=request, asked_at=NOW - ago, **changes)
        nodes = waking(A1, A2) if wanted else ()
        jobs = (job(41, A1, A2, starts=True),) if wanted else ()
        found = tuple(instance(n, token=request.token) for n in range(listed))
        known = {"launches": {"r1": launch}, "requests": 1}
        return scene(SMALL, nodes, jobs, lives, instances=found, known=known)

    return build


def _failed(boots_failed: int, ago: float) -> Callable[[], ClusterSnapshot]:
    def build() -> ClusterSnapshot:
        bad = boots(A1, ago, failed="i-2a-1: step mounts: refused", failed_boots=boots_failed)
        lives = {A1: bad, A2: boots(A2, ago, registered_at=NOW - 5)}
        return scene(SMALL, waking(A1, A2), (job(1, A1, A2, starts=True),), lives)

    return build


def _het(**changes: Any) -> Callable[[], ClusterSnapshot]:
    """A het job over two pools; one pool has no capacity unless `known` says otherwise."""

    def build() -> ClusterSnapshot:
        jobs = (
            job(5, A1, A2, het_id=5, starts=True),
            job(6, H1, het_id=5, starts=True, partitions=("all",)),
            job(9, B1, starts=True),
        )
        lives = {slot: needed(30, 5) for slot in (A1, A2, H1)} | {B1: needed(30, 9)}
        return scene(TWO, waking(A1, A2, H1, B1), jobs, lives, known=changes)

    return build


def _by_hand() -> ClusterSnapshot:
    """Slots without a job: powered up by a person, always on, left by a cancelled job, and drained by a person."""
    nodes = (
        *waking(A1, A2, A3, A4, idle=True),
        node(B1, f"{WAKING.replace('ALLOCATED', 'IDLE')} DRAIN", reason="fan", reason_by="root"),
    )
    lives = {A3: needed(40, 7), A4: needed(1195), B1: needed(1195)}
    known = {"refusals": refused(1000, *offer_keys(B))}
    return scene(ALWAYS, nodes, (), lives, known=known)


def _burst() -> ClusterSnapshot:
    plan = a_plan()
    slots = tuple(f"h200-2a-{n}" for n in range(1, 13))
    jobs = tuple(job(n, slot, starts=True) for n, slot in enumerate(slots, 1))
    known = {"refusals": refused(-10, f"spot/p5e.48xlarge/{A}")}
    return scene(
        plan, waking(*slots), jobs, {slot: needed(20, n) for n, slot in enumerate(slots, 1)}, known=known
    )


def _nine() -> ClusterSnapshot:
    plan = a_plan()
    slots = tuple(f"h200-2a-{n}" for n in range(1, 10))
    jobs = tuple(job(n, slot, starts=True) for n, slot in enumerate(slots, 1))
    return scene(plan, waking(*slots), jobs, {slot: needed(20, n) for n, slot in enumerate(slots, 1)})


def _few_tokens(calls: float, instances: float) -> Callable[[], ClusterSnapshot]:
    levels = {
        "RunInstances": BucketLevel(tokens=calls, at=NOW),
        "RunInstances#instances": BucketLevel(tokens=instances, at=NOW),
    }
    return _two_jobs(levels=levels)


def _ends_without_tokens() -> ClusterSnapshot:
    """Four strays end, but one call for two is possible now."""
    levels = {
        "TerminateInstances": BucketLevel(tokens=1.0, at=NOW),
        "TerminateInstances#instances": BucketLevel(tokens=2.0, at=NOW),
    }
    strays = tuple(instance(n) for n in range(4))
    return scene(instances=strays, known={"levels": levels, "strays": {i.id: NOW - 300 for i in strays}})


def _strays() -> ClusterSnapshot:
    """Instances that no slot owns: seen long ago, seen lately, of another role or cluster, stopped, ended, of an open request, asked to end."""
    own = instance(0).tags
    found = (
        instance(1),
        instance(2, 100),
        instance(3, tags={**own, "gpucluster:role": "head"}),
        instance(4, tags={**own, "gpucluster:cluster": "other"}),
        instance(5, state=InstanceState.STOPPED),
        instance(6, state=InstanceState.SHUTTING_DOWN),
        instance(7, token="t1"),
        instance(8, tags={**own, "gpucluster:request": "r1"}),
        instance(9),
        instance(10),
    )
    known = {
        "launches": {"r1": Launch(request=ask(1, A1), asked_at=NOW - 20)},
        "endings": {"i-9": NOW - 5, "i-10": NOW - 15, "i-11": NOW - 200},
        "strays": {**{f"i-{n}": NOW - 300 for n in (1, 5, 6, 9, 10)}, "i-2": NOW - 100},
    }
    return scene(instances=found, lives={A1: needed(21, 41, request="r1")}, nodes=waking(A1), known=known)


def _half_open_breaker() -> ClusterSnapshot:
    known = {
        "breakers": {"h200": OpenBreaker(until=NOW - 1, words="6 boots failed in a row", boots=6)},
        "boots": {"h200": 6},
    }
    jobs = (job(1, A1, starts=True), job(2, A2, starts=True), job(3, H1, starts=True, partitions=("all",)))
    lives = {A1: needed(60, 1), A2: needed(60, 2), H1: needed(60, 3)}
    return scene(TWO, waking(A1, A2, H1), jobs, lives, known=known)


def _trial_boots() -> ClusterSnapshot:
    """The instance of the one test boots, so the second job waits."""
    moment = _half_open_breaker()
    lives = {**moment.memory.incarnations, A1: boots(A1, 80)}
    one = instance(0, id="i-2a-1", launched_at=NOW - 80)
    cloud = moment.observation.cloud
    assert cloud is not None
    return replace(
        moment,
        memory=replace(moment.memory, incarnations=lives),
        observation=replace(moment.observation, cloud=replace(cloud, instances={one.id: one})),
    )


def _breaker_trips(boots_failed: int) -> Callable[[], ClusterSnapshot]:
    """Boots of two pools failed; the last one of the pool names the reason."""

    def build() -> ClusterSnapshot:
        lives = {
            A1: boots(A1, 300, failed="i-2a-1: step mounts: refused"),
            A2: boots(A2, 200, failed="i-2a-2: step bundle: denied"),
            A3: boots(A3, 250, failed="i-2a-3: step guard: x"),
            H1: boots(H1, 100, failed="i-h1: step other: y"),
            "old-2a-1": boots("old-2a-1", 50, failed="i-old: step old: z"),
        }
        return scene(TWO, (), (job(1),), lives, known={"boots": {"h200": boots_failed, "h100": 1}})

    return build


def _same_offer_tested() -> ClusterSnapshot:
    """The refusal of the offer has expired. Two jobs of different sources and zones test it."""
    jobs = (job(1, A1, starts=True), job(2, A2, A3, starts=True), job(3, B1, starts=True))
    lives = {A1: needed(60, 1), A2: needed(60, 2), A3: needed(60, 2), B1: needed(60, 3)}
    return scene(SPOT, waking(A1, A2, A3, B1), jobs, lives, known={"refusals": refused(-5, SPOT_A)})


def _request(**changes: Any) -> LaunchRequest:
    return replace(ask(1, A4), **changes)


def _offer_is_tested() -> ClusterSnapshot:
    """A request in progress tests the offer, so a new job waits."""
    lives = {A1: needed(60, 1), A4: needed(62, 4, request="r1")}
    known = {
        "refusals": refused(-5, SPOT_A),
        "launches": {"r1": Launch(request=_request(), asked_at=NOW - 10)},
        "requests": 1,
    }
    return scene(SPOT, waking(A1, A4), (job(1, A1, starts=True), job(4, A4, starts=True)), lives, known=known)


def _removed() -> ClusterSnapshot:
    lives = {A1: needed(10, 1), A2: needed(10, 1), B1: needed(10, 2)}
    jobs = (job(1, A1, A2, starts=True), job(2, B1, starts=True))
    held = HeldBundle(bundle="0123456789abcdef", nodes=(A2,))
    return scene(SMALL, waking(A1, A2, B1), jobs, lives, held=held)


def _full_source() -> ClusterSnapshot:
    """On-demand, with a maximum of three, is the only open source: a gang of two, then one of two, then one of one."""
    known = {"refusals": refused(1000, *offer_keys(A)[:2], *offer_keys(B)[:2])}
    jobs = (job(1, A1, A2, starts=True), job(2, B1, B2, starts=True, batch=False), job(3, A3, starts=True))
    lives = {A1: needed(30, 1), A2: needed(30, 1), B1: needed(30, 2), B2: needed(30, 2), A3: needed(30, 3)}
    return scene(SMALL, waking(A1, A2, A3, B1, B2), jobs, lives, known=known)


def _counted() -> ClusterSnapshot:
    """Strays, open requests and living instances count against the maximum of four of the pool."""
    plan = pool_with(SMALL, max=4)
    known = {"launches": {"r1": Launch(request=ask(1, B1), asked_at=NOW - 10)}, "requests": 1}
    lives = {A1: up(A1), B1: needed(12, 3, request="r1"), A2: needed(5, 1), A3: needed(5, 2)}
    jobs = (job(1, A2, starts=True), job(2, A3, starts=True), job(3, B1, starts=True), job(4, node_count=1))
    nodes = (node(A1, UP, last_busy=NOW), *waking(A2, A3, B1))
    return scene(plan, nodes, jobs, lives, instances=(instance(7, 100),), known=known)


def _spares(spares: int, **orders: OperatorOrder) -> Callable[[], ClusterSnapshot]:
    def build() -> ClusterSnapshot:
        plan = pool_with(SMALL, spares=spares)
        nodes = (node(A1, UP, last_busy=NOW - 900), node(A2, UP, last_busy=NOW - 100), *waking(A3, idle=True))
        lives = {A1: up(A1, 1000), A2: up(A2, 1000), A3: boots(A3)}
        return scene(
            plan, (*nodes, node(A4, f"{OFF} DRAIN", reason="fan")), (), lives, known={"orders": orders}
        )

    return build


PAUSE = OperatorOrder(verb=Verb.POOL_PAUSE, at=NOW - 100, by="alice", words="new driver")
DRAIN = replace(PAUSE, verb=Verb.POOL_DRAIN, words="")


LAUNCHES: Mapping[str, Callable[[], ClusterSnapshot]] = {
    "two jobs start": _two_jobs(),
    "two jobs start, launches are paced": _two_jobs(paced_until=NOW + 45),
    "two jobs start, the pace is from a clock that was set back": _two_jobs(paced_until=NOW + 61),
    "two jobs start, spot is refused": _two_jobs(refusals=refused(50, *offer_keys(A)[:2])),
    "two jobs start, spot is refused for two": _two_jobs(refusals=refused(50, *offer_keys(A)[:2], size=2)),
    "two jobs start in a paused pool": _two_jobs(orders={"h200": PAUSE}),
    "two jobs start in a drained pool": _two_jobs(orders={"h200": DRAIN}),
    "a refused gang is requeued": _refused_gang(),
    "a refused gang may not be requeued": _refused_gang(requeueable=False),
    "a refused gang without a batch script": _refused_gang(batch=False),
    "a request without an answer is repeated": _open_request(20, retry_at=NOW + 30),
    "a throttled request of a paused pool": lambda: replace(
        m := _open_request(20, retry_at=NOW + 30, throttled=True, tries=3)(), memory=replace(m.memory, orders={"h200": PAUSE})
    ),
    "an unneeded request is dropped after a time": _open_request(20, wanted=False),
    "an unneeded request whose instances are listed": _open_request(20, wanted=False, listed=2),
    "a request with half of its instances listed": _open_request(20, listed=1),
    "the third boot failed": _failed(3, 200),
    "the second boot failed near the boot timeout": _failed(2, 1150),
    "a het job over two pools": _het(),
    "a het job, and one of its pools is refused": _het(refusals=refused(100, f"on-demand/p5.48xlarge/{A}")),
    "slots that are powered up without a job": _by_hand,
    "twelve single nodes": _burst,
    "nine single nodes": _nine,
    "no tokens for calls": _few_tokens(0.0, 100.0),
    "tokens for one call": _few_tokens(1.4, 100.0),
    "tokens for two instances": _few_tokens(2.0, 2.0),
    "terminations without tokens": _ends_without_tokens,
    "stray instances": _strays,
    "five boots failed": _breaker_trips(5),
    "six boots failed": _breaker_trips(6),
    "a half-open breaker tests one gang": _half_open_breaker,
    "a half-open breaker, and the test boots": _trial_boots,
    "an offer is tested by jobs that start": _same_offer_tested,
    "an offer is tested by an open request": _offer_is_tested,
    "a held bundle removes a slot of a gang": _removed,
    "the last source is full": _full_source,
    "instances that count against the maximum": _counted,
    "one spare of two idle nodes": _spares(1),
    "four spares of two idle nodes": _spares(4),
    "spares of a paused pool": _spares(4, h200=PAUSE),
    "spares of a drained pool": _spares(4, h200=DRAIN),
}  # fmt: skip
