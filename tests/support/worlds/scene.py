"""A world in a few words: the slots of two small pools, what each of them has, and the jobs."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gpucluster.cloud.port import Instance, InstanceState
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.memory import Incarnation, Memory, Refusal
from gpucluster.plan.model import Market, SlurmOnAws
from gpucluster.slurm.values import SlurmJob, SlurmNode
from support.builders import a_plan
from support.cluster_states import NOW, PRICE, instance, seen_drains, sight

ICE = "ICE"  # a short error code, because it occurs in each reason
A, B = "us-east-2a", "us-east-2b"
P5EN, P5E = "p5en.48xlarge", "p5e.48xlarge"
SPOT_A, SPOT_B = f"spot/{P5EN}/{A}", f"spot/{P5EN}/{B}"
A1, A2, A3, A4 = (f"h200-2a-{n}" for n in range(1, 5))
B1, B2, B3, B4 = (f"h200-2b-{n}" for n in range(1, 5))

# Four slots in each zone: spot of two types, then on-demand up to three.
SMALL = a_plan(("max: 4}", "max: 3}"), ("max: 16}", "max: 4}"))
# The same with spot of one type only.
SPOT = replace(
    SMALL,
    pools=(
        replace(
            SMALL.pools[0],
            sources=(replace(SMALL.pools[0].sources[0], machines=(P5EN,)),),
            templates=SMALL.pools[0].templates[:1],
        ),
    ),
)
# A second pool of H100 nodes that is in both partitions.
TWO = a_plan(
    ("max: 4}", "max: 3}"),
    ("max: 16}", "max: 4}"),
    (
        "partitions:\n",
        "  - name: h100\n    nodes: {min: 0, max: 3}\n    idle: 10m\n    capacity:\n"
        "      - {from: on-demand, machines: [p5.48xlarge]}\npartitions:\n  - {name: all, pools: [h200, h100]}\n",
    ),
)


def pool_with(plan: SlurmOnAws, **changes: Any) -> SlurmOnAws:
    """The plan with changes of its first pool."""
    return replace(plan, pools=(replace(plan.pools[0], **changes), *plan.pools[1:]))


def refused(until: float, *keys: str, words: str = ICE, **changes: Any) -> dict[str, Refusal]:
    """Refusals of these offers until NOW + `until`."""
    one = Refusal(until=NOW + until, times=1, words=words, **changes)
    return dict.fromkeys(keys, one)


def offer_keys(zone: str) -> tuple[str, ...]:
    """The keys of all offers of SMALL in a zone."""
    return f"spot/{P5EN}/{zone}", f"spot/{P5E}/{zone}", f"on-demand/{P5EN}/{zone}"


def up(slot: str, ago: float = 600.0, **changes: Any) -> Incarnation:
    """A spot instance that is up since `ago` seconds."""
    plain = Incarnation(
        number=1,
        since=NOW - ago - 200,
        generation=1,
        instance=f"i-{slot.removeprefix('h200-')}",
        machine=P5EN,
        market=Market.SPOT,
        zone=f"us-east-{slot.split('-')[1]}",
        launched_at=NOW - ago - 150,
        booted_at=NOW - ago - 120,
        registered_at=NOW - ago - 60,
        up_at=NOW - ago,
        price=PRICE,
    )
    return replace(plain, **changes)


def boots(slot: str, ago: float = 100.0, **changes: Any) -> Incarnation:
    """An instance that was launched `ago` seconds ago and is not up yet."""
    plain = up(slot, ago - 10, launched_at=NOW - ago, since=NOW - ago - 2)
    return replace(plain, **{"booted_at": None, "registered_at": None, "up_at": None, **changes})


def needed(ago: float, *jobs: int, **changes: Any) -> Incarnation:
    """A slot that Slurm powers up, without an instance."""
    return Incarnation(number=1, since=NOW - ago, jobs=jobs, **changes)


def scene(
    plan: SlurmOnAws = SMALL,
    nodes: Iterable[SlurmNode] = (),
    jobs: Iterable[SlurmJob] = (),
    lives: Mapping[str, Incarnation] | None = None,
    *,
    states: Mapping[str, InstanceState | None] | None = None,
    instances: Iterable[Instance] = (),
    known: Mapping[str, Any] | None = None,
    **more: Any,
) -> ClusterSnapshot:
    """The world. Each instance in `lives` is listed as running, unless `states` gives its slot another state or None."""
    lives, states, nodes = lives or {}, states or {}, tuple(nodes)
    memory = Memory(epoch="e", incarnations=lives, drains=seen_drains(nodes), **(known or {}))
    listed = [
        instance(
            0,
            id=one.instance,
            zone=one.zone,
            machine=one.machine,
            market=one.market,
            launched_at=one.launched_at,
            state=states.get(slot, InstanceState.RUNNING),
            address=slot,
        )
        for slot, one in lives.items()
        if one.instance and states.get(slot, InstanceState.RUNNING) is not None
    ]
    found = sight(plan, nodes=nodes, jobs=jobs, instances=(*listed, *instances))
    return replace(found, memory=memory, observation=replace(found.observation, **more))
