"""A plan on hosts that exist: names and addresses as written, nothing of a cloud."""

import pytest
from support.builders import LAB, a_lab_plan

from gpucluster import catalog
from gpucluster.plan import codec, plan_json
from gpucluster.plan.explain import explain
from gpucluster.plan.model import Hosts, NfsFromHead, NfsFromServer, SlotRange, SlurmOnHosts
from gpucluster.spec import inspect_text

ODD = 'hosts: "r1-n[08-09],hercules,r2-n[1-2]-b"'
ODD_ADDRESSES = '"192.0.2.[11-15]"'
ODD_TREE = '{leaf1: "r1-n[08-09],hercules", leaf2: "r2-n[1-2]-b"}'


def an_odd_plan() -> SlurmOnHosts:
    return a_lab_plan(
        ('hosts: "gpu[01-04]"', ODD),
        ('"192.0.2.[11-14]"', ODD_ADDRESSES),
        ('{leaf1: "gpu[01-02]", leaf2: "gpu[03-04]"}', ODD_TREE),
    )


def test_every_host_is_a_node_that_is_always_on() -> None:
    (pool,) = a_lab_plan().pools
    assert (pool.min, pool.max, pool.sources, pool.templates) == (4, 4, (), ())
    assert pool.always_on() == ("gpu01", "gpu02", "gpu03", "gpu04")
    assert pool.hosts()[0] == ("gpu01", "192.0.2.11")
    assert pool.shape.real_memory_mib == 2000 * 1024 * 95 // 100


def test_machine_without_gpus_has_no_gpus_and_no_model() -> None:
    plain = a_lab_plan((", gpus: {model: h100, count: 8}", "")).pools[0].shape
    assert (plain.gpu_count, plain.gpu_model) == (0, None)
    shape = a_lab_plan().pools[0].shape
    assert (shape.gpu_count, shape.gpu_model) == (8, "h100")


def test_the_head_and_the_way_to_the_hosts() -> None:
    plan = a_lab_plan()
    assert (plan.head.name, plan.head.address) == ("ctl0", "192.0.2.10")
    assert plan.hosts == Hosts(ssh_user="admin", ssh_port=22)


def test_names_of_any_form_stay_in_their_order_beside_their_addresses() -> None:
    plan = an_odd_plan()
    names = ("r1-n08", "r1-n09", "hercules", "r2-n1-b", "r2-n2-b")
    assert plan.pools[0].hosts() == tuple((n, f"192.0.2.{11 + i}") for i, n in enumerate(names))
    assert all(plan.pool_of(name) is plan.pools[0] for name in names)
    for strange in ("r1-n8", "r1-n10", "r1-n", "hercules1", "r2-n1", "", "r1-n\u06608"):
        assert plan.pool_of(strange) is None, strange


def test_a_plan_survives_its_json() -> None:
    for plan in (a_lab_plan(), an_odd_plan()):
        assert plan_json.load(codec.dumps(plan)) == plan


def test_leaves_and_spines_are_the_specs_and_absent_if_it_says_nothing() -> None:
    plan = a_lab_plan()
    assert [(leaf.name, [s.hostlist for s in leaf.slots]) for leaf in plan.leaves] == [
        ("leaf1", ["gpu[01-02]"]),
        ("leaf2", ["gpu[03-04]"]),
    ]
    assert [(spine.name, spine.switches) for spine in plan.spines] == [("spine", ("leaf1", "leaf2"))]
    flat = a_lab_plan(('  topology: {tree: {spine: {leaf1: "gpu[01-02]", leaf2: "gpu[03-04]"}}}\n', ""))
    assert (flat.leaves, flat.spines) == ((), ())


def test_the_head_is_who_exports() -> None:
    (mount,) = a_lab_plan().storage
    assert mount.source == NfsFromHead(server="192.0.2.10", export="/srv/home")
    (given,) = a_lab_plan(("from: head", "server: 192.0.2.5")).storage
    assert given.source == NfsFromServer(server="192.0.2.5", export="/srv/home")


@pytest.mark.parametrize(
    ("span", "hostlist"),
    [
        (SlotRange(zone="", prefix="gpu", first=1, last=2, width=2), "gpu[01-02]"),
        (SlotRange(zone="", prefix="gpu", first=7, last=7, width=2), "gpu07"),
        (SlotRange(zone="", prefix="hercules", first=0, last=0, width=None), "hercules"),
        (SlotRange(zone="z", prefix="h-1a-", first=1, last=16), "h-1a-[1-16]"),
    ],
)
def test_a_range_writes_itself(span: SlotRange, hostlist: str) -> None:
    assert span.hostlist == hostlist
    assert len(tuple(span)) == len(span)
    assert all(name in span for name in span)


def test_explanation_has_values_that_the_spec_does_not_contain() -> None:
    spec = inspect_text(LAB, "lab.yaml", catalog.load()).result()
    notes = {note.path: note for note in explain(spec, catalog.load(), a_lab_plan())}
    assert notes["pools[h100].memory"].value == "1945600 MiB"
    assert notes["storage[/home].server"].value == "192.0.2.10"
    assert notes["topology"].value == "2 leaves below 1 switch at the top"
    assert "any nodes" in notes["topology"].reason
    assert not [path for path in notes if "zone" in path or "idle" in path]


def test_people_come_in_the_order_of_their_uids() -> None:
    plan = a_lab_plan(
        ("{name: vision, uid: 5001}", "{name: vision, uid: 5002}\n  - {name: speech, uid: 5001}")
    )
    assert [user.name for user in plan.users] == ["speech", "vision"]
