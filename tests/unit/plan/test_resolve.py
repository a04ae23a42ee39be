"""Spec to plan: names and addresses that stay, every default taken."""

import ipaddress
import itertools
from pathlib import Path

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_plan, a_spec, an_unequal_plan, on_aws

from gpucluster import catalog, spec
from gpucluster.plan import codec, defaults, plan_json
from gpucluster.plan.aws import head_address, room, subnet_of, usable
from gpucluster.plan.explain import explain
from gpucluster.plan.model import Market, OwnNetwork, SlurmOnAws
from gpucluster.plan.resolve import resolve
from gpucluster.slurm import hardware
from gpucluster.spec import ClusterSpec

STACKS = Path(__file__).parents[3] / "stacks"


def test_the_first_stack_becomes_its_plan() -> None:
    plan = on_aws(resolve(spec.load(STACKS / "burst.yaml"), catalog.load()))
    pool = plan.pools[0]
    assert [span.hostlist for span in pool.slots] == ["h200-1a-[1-16]", "h200-1b-[1-16]"]
    assert [(s.market, s.machines, s.max) for s in pool.sources] == [
        (Market.SPOT, ("p5en.48xlarge", "p5e.48xlarge"), None),
        (Market.ON_DEMAND, ("p5en.48xlarge",), 4),
    ]
    assert [t.key for t in pool.templates] == [
        "h200-spot-p5en.48xlarge",
        "h200-spot-p5e.48xlarge",
        "h200-on-demand-p5en.48xlarge",
    ]
    assert (pool.shape.cpus, pool.shape.real_memory_mib, pool.shape.gpu_model, pool.shape.gpu_count) == (
        192,
        1992294,
        "h200",
        8,
    )
    assert [(s.zone, s.cidr) for s in _network(plan).subnets] == [
        ("us-east-1a", "10.42.0.0/19"),
        ("us-east-1b", "10.42.32.0/19"),
    ]
    assert (plan.head.name, plan.head.address, plan.head.zone) == (
        "burst-head",
        "10.42.0.10",
        "us-east-1a",
    )
    assert [leaf.name for leaf in plan.leaves] == ["h200-1a", "h200-1b"]


def test_a_plan_survives_its_json() -> None:
    plan = a_plan()
    assert plan_json.load(codec.dumps(plan)) == plan


def test_a_zone_that_no_source_uses_has_a_subnet_but_no_slots_and_no_leaf() -> None:
    plan = a_plan(
        ("machines: [p5en.48xlarge], max: 4", "machines: [p5en.48xlarge], zones: [us-east-2b]"),
        ("p5e.48xlarge]", "p5e.48xlarge], zones: [us-east-2b]"),
    )
    assert [span.zone for span in plan.pools[0].slots] == ["us-east-2b"]
    assert [leaf.name for leaf in plan.leaves] == ["h200-2b"]
    assert len(plan.aws.network.subnets) == 2


def test_pools_in_one_zone_have_a_leaf_each() -> None:
    extra = "  - {name: b, nodes: 2, capacity: [{from: spot, machines: [p5.48xlarge], zones: [us-east-2b]}]}\npartitions:"
    plan = a_plan(("partitions:", extra), ("pools: [h200]", "pools: [h200, b]"))
    assert [[span.hostlist for span in leaf.slots] for leaf in plan.leaves] == [
        ["h200-2a-[1-16]"],
        ["h200-2b-[1-16]"],
        ["b-2b-[1-2]"],
    ]


def test_a_mixed_pool_takes_the_least_cores_and_memory() -> None:
    machines = catalog.load().machines
    shape = hardware.of_aws([machines["p5.48xlarge"], machines["p4d.24xlarge"]])
    assert (shape.cpus, shape.real_memory_mib) == (96, 1179648 * 95 // 100)


def test_a_pool_without_gpus_has_none() -> None:
    shape = hardware.of_aws([catalog.load().machines["m7i.xlarge"]])
    assert (shape.gpu_model, shape.gpu_count, shape.cpus) == (None, 0, 4)


def test_always_on_slots_stand_in_the_first_zone_of_the_first_source() -> None:
    plan = a_plan(("min: 0", "min: 2"), ("p5e.48xlarge]", "p5e.48xlarge], zones: [us-east-2b, us-east-2a]"))
    assert plan.pools[0].always_on() == ("h200-2b-1", "h200-2b-2")


def test_unset_fields_have_their_defaults() -> None:
    plan = a_plan(("    idle: 5m\n", ""), (", max_time: 1d", ""))
    pool = plan.pools[0]
    assert (pool.idle_s, pool.boot_timeout_s) == (defaults.IDLE_S.value, defaults.BOOT_TIMEOUT_S.value)
    assert plan.partitions[0].max_time_s is None


@pytest.mark.parametrize(
    ("written", "folder"),
    [
        ("{path: /scratch}", "/scratch/.gpucluster-tmp"),
        ("{path: /scratch/jobs}", "/scratch/jobs"),
        ("true", "/scratch/.gpucluster-tmp"),
    ],
)
def test_private_tmp_on_the_nvme_mount_is_a_folder_in_it(written: str, folder: str) -> None:
    """Regression: the agent made the mount itself root's with mode 0755, and no user could write to /scratch."""
    plan = a_plan(
        ('version: "24.11"', f'version: "24.11"\n  private_tmp: {written}'),
        ("pools:\n", "storage: [{mount: /scratch, nvme: {}}]\npools:\n"),
    )
    assert plan.slurm.private_tmp == folder


def test_a_node_outlives_the_longest_boot() -> None:
    assert a_plan().times.self_termination_s == 1800
    assert a_plan(("idle: 5m", "idle: 5m\n    boot_timeout: 2h")).times.self_termination_s == 7800
    plan = an_unequal_plan()
    assert [pool.boot_timeout_s for pool in plan.pools] == [600, 1800]
    assert plan.times.self_termination_s == 1800 + 600, "of two pools the longer boot counts"


def test_every_default_is_explained() -> None:
    """Each row of defaults stands in the explanation of a spec that wishes as little as it can."""
    read = a_spec(
        ("    idle: 5m\n", f"    on_boot: [{{script: 's3://site/boot.sh', sha256: {'a' * 64}}}]\n"), (", max_time: 1d", ""), (", max: 4", ""),
        ("region: us-east-2", "region: us-east-1"), ("[us-east-2a, us-east-2b]", "[us-east-1a]"),
        ('version: "24.11"', 'version: "24.11"\n  accounting: {database: local}'),
        ("partitions:\n", "budget: {monthly: 1000000 USD}\nhealth: {}\nlogin: {machine: m7i.xlarge}\npartitions:\n"),
        ("pools:\n", "storage: [{mount: /data, fsx_lustre: {zone: us-east-1a, size: 2400GiB}}]\npools:\n"),
    )  # fmt: skip
    notes = explain(read, catalog.load(), resolve(read, catalog.load()))
    reasons = " ".join(note.reason for note in notes)
    rows = {name: row for name, row in vars(defaults).items() if isinstance(row, defaults.Default)}
    assert len(rows) > 12
    unexplained = {name for name, row in rows.items() if row.reason not in reasons}
    # the first shows only with a long boot_timeout, the second only with a partition without GPUs, the third of hosts
    assert unexplained == {"SELF_TERMINATION_MARGIN_S", "CPU_BILLING", "SLURMD_TIMEOUT_OF_HOSTS_S"}
    assert len({note.path for note in notes}) == len(notes)


def test_a_wish_is_not_explained_as_a_default() -> None:
    read = a_spec(("idle: 5m", "idle: 5m\n    boot_timeout: 2h"))
    plan = resolve(read, catalog.load())
    paths = [note.path for note in explain(read, catalog.load(), plan)]
    assert not [path for path in paths if path.endswith((".idle", ".boot_timeout", "capacity[1].max"))]


# --- properties ------------------------------------------------------------------------------

ZONES = st.lists(
    st.sampled_from(["us-east-1a", "us-east-1b", "us-east-1c", "us-east-1f"]), min_size=1, unique=True
)
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,8}[a-z0-9]", fullmatch=True)


@st.composite
def specs(draw: st.DrawFn) -> ClusterSpec:
    zones = draw(ZONES)
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    return ClusterSpec.model_validate(
        {
            "schema": 1,
            "name": "c",
            "aws": {"region": "us-east-1", "network": {"cidr": draw(CIDRS), "zones": zones}},
            "slurm": {"version": "24.11"},
            "head": {"machine": "m7i.xlarge"},
            "pools": [_pool(draw, name, zones) for name in names],
            "partitions": [{"name": "all", "pools": names}],
        }
    )


CIDRS = st.sampled_from(["10.0.0.0/16", "192.168.4.0/22", "172.16.0.0/20"])


def _pool(draw: st.DrawFn, name: str, zones: list[str]) -> dict[str, object]:
    some = draw(st.lists(st.sampled_from(zones), min_size=1, unique=True))
    capacity = [
        {"from": "spot", "machines": ["p5.48xlarge"], "zones": some},
        {"from": "on-demand", "machines": ["p5.48xlarge"]},
    ]
    least = draw(st.integers(0, 3))
    return {
        "name": name,
        "nodes": {"min": least, "max": least + draw(st.integers(1, 9))},
        "capacity": capacity[: draw(st.integers(1, 2))],
    }


def _resolved(read: ClusterSpec) -> SlurmOnAws:
    return on_aws(resolve(read, catalog.load()))


def _network(plan: SlurmOnAws) -> OwnNetwork:
    assert isinstance(plan.aws.network, OwnNetwork)
    return plan.aws.network


def _names(plan: SlurmOnAws) -> list[str]:
    return [name for pool in plan.pools for span in pool.slots for name in span]


def _places(plan: SlurmOnAws) -> dict[str, object]:
    """Every name and address that a change elsewhere must not move."""
    slots = {f"{pool.name} {span.zone}": span for pool in plan.pools for span in pool.slots}
    templates = {t.key: t for pool in plan.pools for t in pool.templates}
    return {**slots, **templates, **{s.zone: s.cidr for s in _network(plan).subnets}}


@given(specs())
def test_names_are_unique_host_names_and_belong_to_their_pool(read: ClusterSpec) -> None:
    plan = _resolved(read)
    names = _names(plan)
    assert len(set(names)) == len(names)
    assert plan.head.name not in names
    assert all(len(name) <= 63 for name in names)
    for pool in plan.pools:
        for span in pool.slots:
            assert all(plan.pool_of(name) is pool and pool.zone_of(name) == span.zone for name in span)


@given(specs())
def test_a_range_as_slurm_writes_it_is_its_names(read: ClusterSpec) -> None:
    for pool in _resolved(read).pools:
        for span in pool.slots:
            assert list(NodeSet(span.hostlist)) == list(span)


@given(specs())
def test_subnets_stay_inside_the_network_and_apart(read: ClusterSpec) -> None:
    plan = _resolved(read)
    subnets = [ipaddress.IPv4Network(subnet.cidr) for subnet in _network(plan).subnets]
    assert all(subnet.subnet_of(ipaddress.IPv4Network(_network(plan).cidr)) for subnet in subnets)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(subnets, 2))
    assert ipaddress.IPv4Address(plan.head.address) in subnets[0]


@given(specs(), st.randoms(use_true_random=False))
def test_the_order_of_pools_moves_no_name(read: ClusterSpec, chance: object) -> None:
    pools = list(read.pools)
    chance.shuffle(pools)  # type: ignore[attr-defined]
    shuffled = _resolved(read.model_copy(update={"pools": tuple(pools)}))
    assert _places(shuffled) == _places(_resolved(read))


@given(specs(), NAMES)
def test_a_new_pool_moves_no_name(read: ClusterSpec, name: str) -> None:
    if name in {pool.name for pool in read.pools}:
        return
    more = read.model_copy(update={"pools": (read.pools[0].model_copy(update={"name": name}), *read.pools)})
    before, after = (_places(_resolved(one)) for one in (read, more))
    assert before.items() <= after.items()


@given(specs(), st.integers(0, 4))
def test_a_new_zone_moves_no_name_and_no_address(read: ClusterSpec, at: int) -> None:
    site = read.aws
    assert site is not None
    zones = list(site.network.places)
    zones.insert(at, "us-east-1d")
    network = site.network.model_copy(update={"zones": tuple(zones)})
    more = read.model_copy(update={"aws": site.model_copy(update={"network": network})})
    before, after = (_places(_resolved(one)) for one in (read, more))
    assert before.items() <= after.items()


@given(specs())
def test_a_plan_is_the_same_twice_and_survives_its_json(read: ClusterSpec) -> None:
    text = codec.dumps(_resolved(read))
    assert codec.dumps(_resolved(read)) == text
    assert codec.dumps(plan_json.load(text)) == text


@pytest.mark.parametrize(("cidr", "zone", "subnet"), [
    ("10.42.0.0/16", "us-east-1a", "10.42.0.0/19"),
    ("10.42.0.0/16", "us-east-1f", "10.42.160.0/19"),
    ("10.42.0.0/25", "us-east-1b", "10.42.0.16/28"),
])  # fmt: skip
def test_a_zones_letter_says_which_eighth_is_its(cidr: str, zone: str, subnet: str) -> None:
    assert subnet_of(cidr, zone) == subnet


def test_the_least_subnet_has_room_for_the_head_and_ten_nodes() -> None:
    assert head_address("10.42.0.16/28") == "10.42.0.26"
    assert room("10.42.0.16/28") == 11  # the head, and ten


def test_times_follow_the_longest_boot_of_unequal_pools() -> None:
    plan = an_unequal_plan()
    assert [pool.boot_timeout_s for pool in plan.pools] == [600, 1800]
    assert plan.times == defaults.times(1800)
    assert plan.times != defaults.times(600)


def test_unequal_pools_keep_their_own_shapes_and_slots() -> None:
    small, large = an_unequal_plan().pools
    assert [(p.shape.cpus, p.shape.gpu_count, p.shape.gpu_model) for p in (small, large)] == [
        (48, 4, "a10g"),
        (192, 8, "h200"),
    ]
    assert [[span.hostlist for span in p.slots] for p in (small, large)] == [
        ["small-2a-[1-4]", "small-2b-[1-4]"],
        ["large-2a-[1-8]", "large-2b-[1-8]"],
    ]


def test_addresses_that_aws_reserves_are_the_first_four_and_the_last() -> None:
    free = [n for n in range(32) if usable("10.0.0.0/27", f"10.0.0.{n}")]
    assert free == list(range(4, 31))
    assert not usable("10.0.0.0/27", "10.0.0.32")
    assert room("10.0.0.0/27") == len(free)
