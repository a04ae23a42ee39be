"""The nodes of a Kubernetes pool over its sources and zones: never more than `max`, and a gang in one zone."""

import pytest
from hypothesis import given, settings
from support.builders import (
    WORKLOADS,
    a_kube_plan,
    a_kube_spec,
    changed,
    kubernetes_of,
    some_workloads,
)
from support.kube import objects, tree
from support.kube_specs import kube_specs

from gpucluster import catalog, k8s
from gpucluster.k8s.lint import check, facts
from gpucluster.k8s.lint.read import read
from gpucluster.plan.explain import explain
from gpucluster.plan.model.capacity import Source
from gpucluster.plan.model.eks import EksControlPlane
from gpucluster.plan.model.values import Market
from gpucluster.plan.node_pools import launches, parts, unused
from gpucluster.plan.resolve import resolve
from gpucluster.plan.resolve.workloads import workloads
from gpucluster.spec import ClusterSpec, inspect_workloads_text

TWO_ZONES = ("zones: [us-west-2a]", "zones: [us-west-2a, us-west-2b]")
ELASTIC = ("    nodes: 4\n", "    nodes: {min: 0, max: 8}\n")
IN_ZONES = (
    TWO_ZONES,
    ELASTIC,
    ("{nvidia.com/gpu: 32}", "{nvidia.com/gpu: 64}"),
)
ZONE = "topology.kubernetes.io/zone"


def _source(position: int, market: str = "on-demand", **fields: object) -> Source:
    usual = {"machines": ("p5.48xlarge",), "zones": ("a", "b"), "max": None}
    return Source(position=position, market=Market(market), **(usual | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("least", "most", "sources", "expected"),
    [
        (2, 8, [_source(0)], [((0,), 6)]),
        (2, 8, [_source(0, "spot"), _source(1)], [((0, 1), 6)]),
        (2, 8, [_source(0), _source(1, "spot")], [((0,), 6)]),
        (2, 8, [_source(0, "spot", max=4), _source(1)], [((0,), 2), ((1,), 4)]),
        (2, 8, [_source(0, "spot", max=2), _source(1)], [((1,), 6)]),
        (4, 8, [_source(0, "spot", max=2), _source(1, max=6)], [((1,), 4)]),
        (4, 8, [_source(0, "spot", max=2), _source(1, max=5), _source(2)], [((1,), 3), ((2,), 1)]),
        (0, 8, [_source(0, "spot", max=6, zones=("a",)), _source(1, max=4)], [((0,), 6), ((1,), 2)]),
        (4, 4, [_source(0)], []),
    ],
)
def test_sources_share_the_nodes_that_are_not_always_on(
    least: int, most: int, sources: list[Source], expected: list[tuple[tuple[int, ...], int]]
) -> None:
    assert [(one.positions, one.nodes) for one in launches(least, most, sources)] == expected


def test_source_without_nodes_is_known() -> None:
    assert unused(0, 8, [_source(0), _source(1, machines=("p4d.24xlarge",))]) == (1,)
    assert unused(2, 8, [_source(0, max=2), _source(1)]) == ()
    assert unused(4, 4, [_source(0), _source(1, machines=("p4d.24xlarge",))]) == ()


def test_pool_with_a_fabric_is_divided_by_zone() -> None:
    found = parts(1, 8, [_source(0)], fabric=True)
    assert [(part.zone, part.min, part.max) for part in found] == [("a", 1, 5), ("b", 0, 3)]
    (whole,) = parts(1, 8, [_source(0)], fabric=False)
    assert (whole.zone, whole.max, whole.launches[0].zones) == (None, 8, ("a", "b"))


def test_always_on_nodes_fill_the_sources_and_are_in_their_zones() -> None:
    """Regression: all were of the first source, so a node group had 4 nodes of a source for 2."""
    sources = [_source(0, "spot", max=2, zones=("a",)), _source(1, zones=("b",))]
    elastic = parts(4, 8, sources, fabric=True)
    assert [(one.zone, one.min, one.max, one.always_on) for one in elastic] == [
        ("a", 2, 2, {0: 2}),
        ("b", 2, 6, {1: 2}),
    ]
    fixed = parts(4, 4, sources, fabric=True)
    assert [(one.zone, one.min, one.max) for one in fixed] == [("a", 2, 2), ("b", 2, 2)]
    (same,) = parts(4, 4, [_source(0, max=2), _source(1)], fabric=True)
    assert (same.zone, same.min) == (None, 4)


IN_TWO_SOURCES: tuple[tuple[str, str], ...] = (
    TWO_ZONES,
    (
        "    capacity: [{from: on-demand, machines: [p4de.24xlarge]}]\n",
        "    capacity: [{from: reservation, id: cr-0123456789abcdef0, max: 2, machines: [MACHINE], zones: [us-west-2a]}, {from: on-demand, machines: [MACHINE], zones: [us-west-2b]}]\n",
    ),
)


def _of_machine(machine: str) -> tuple[tuple[str, str], ...]:
    return tuple((old, new.replace("MACHINE", machine)) for old, new in IN_TWO_SOURCES)


def _refused(spec: ClusterSpec, topology: str, gpus: int = 8) -> list[tuple[str, str]]:
    each = ("gpus_per_node: 8", f"gpus_per_node: {gpus}")
    text = changed(WORKLOADS, ("    topology: {required: block}\n", topology), each)
    return [
        (one.id, one.message)
        for one in inspect_workloads_text(text, "w.yaml", spec, catalog.load()).problems
        if "train" in str(one)
    ]


@pytest.mark.parametrize("nodes", ["4", "{min: 4, max: 8}"])
def test_no_node_group_has_more_nodes_than_its_source(nodes: str) -> None:
    spec = a_kube_spec(*_of_machine("p4de.24xlarge"), ("    nodes: 4\n", f"    nodes: {nodes}\n"))
    plane = kubernetes_of(resolve(spec, catalog.load())).control_plane
    assert isinstance(plane, EksControlPlane)
    groups = [(one.zones, one.reservation, one.nodes) for one in plane.groups if one.pool == "tune"]
    assert groups == [(("us-west-2a",), "cr-0123456789abcdef0", 2), (("us-west-2b",), None, 2)]


def test_readme_asks_the_site_for_nodes_in_the_zones_of_their_sources() -> None:
    """Regression: it asked for all of them in the first zone."""
    existing = ("control_plane: eks", "existing: {context: prod, eks_name: prod}")
    few = ("{nvidia.com/gpu: 32}", "{nvidia.com/gpu: 4}")
    spec = a_kube_spec(*_of_machine("g6e.2xlarge"), existing, few)
    text = tree(spec, resolve(spec, catalog.load()), running=None)["README.md"]
    assert "- pool tune: 4 nodes with 2 in us-west-2a and 2 in us-west-2b (2 reservation `cr-" in text


def test_gang_with_efa_is_not_on_always_on_nodes_of_two_zones() -> None:
    """EFA does not cross zones. Regression: `check` took it, and Kueue would place it in both zones."""
    spec = a_kube_spec(*_of_machine("p4de.24xlarge"))
    message = (
        "4 x 8 GPUs must be in one pool and, with EFA, in one zone; the team has 16 in tune.2a, 16 in tune.2b"
    )
    assert _refused(spec, "") == [("above-quota", message)]


def test_required_level_needs_its_nodes_in_one_zone() -> None:
    """Regression: `check` took it, and Kueue would wait for ever. A preferred level may be in two zones."""
    spec = a_kube_spec(*_of_machine("g6e.2xlarge"), ("{nvidia.com/gpu: 32}", "{nvidia.com/gpu: 4}"))
    message = "the always-on nodes of no pool of the team have room for 4 pods in one zone; they fill the sources in their order"
    assert _refused(spec, "    topology: {required: zone}\n", 1) == [("gang-above-domain", message)]
    assert _refused(spec, "    topology: {preferred: zone}\n", 1) == []
    assert _refused(spec, "", 1) == []
    plan = resolve(spec, catalog.load())
    notes = {one.path: one for one in explain(spec, catalog.load(), plan)}
    assert notes["pools[tune].zones"].value == "2 in us-west-2a, 2 in us-west-2b"
    assert "pools[tune].zone" not in notes


@pytest.mark.parametrize(("second", "said"), [("m6i.2xlarge", None), ("m7i.4xlarge", "up to 4 nodes")])
def test_nodes_beyond_max_for_a_time_are_explained(second: str, said: str | None) -> None:
    """Karpenter counts CPUs in a round, so two machines of half the CPUs can come for one."""
    pool = f"  - {{name: small, nodes: {{min: 0, max: 2}}, capacity: [{{from: spot, machines: [m7i.2xlarge, {second}]}}]}}\n"
    spec = a_kube_spec(
        ("pools:\n", f"pools:\n{pool}"),
        ("{nvidia.com/mig-1g.10gb: 28}", "{nvidia.com/mig-1g.10gb: 28, cpu: 4}"),
    )
    notes = {one.path: one.value for one in explain(spec, catalog.load(), resolve(spec, catalog.load()))}
    assert notes.get("pools[small].launches[0].at_once") == said


@settings(max_examples=40)
@given(kube_specs())
def test_nodepools_and_always_on_nodes_together_are_never_more_than_max(spec: ClusterSpec) -> None:
    """Karpenter counts each NodePool alone. Regression: 6 and 4 nodes beside 2 always-on ones of a pool with max 8."""
    part, machines = kubernetes_of(resolve(spec, catalog.load())), catalog.load().machines
    found = objects(tree(spec, resolve(spec, catalog.load()), running=None))
    for requested in spec.pools:
        mine = [pool for pool in part.pools if pool.of == requested.name]
        limits = 0
        for pool in mine:
            for launch in pool.launches:
                spec_ = found[f"NodePool/{spec.name}-{pool.name}-{launch.positions[0]}"]["spec"]
                given = {resource: int(amount) for resource, amount in spec_["limits"].items()}
                nodes, cpus = given.pop("nodes"), given.pop("cpu")
                assert cpus == nodes * max(machines[name].vcpus for name in launch.machines)
                assert given == {r: nodes * pool.allocatable[r] for r in pool.shared_by if r != "cpu"}
                limits += nodes
        assert requested.nodes is not None
        assert limits + sum(pool.min for pool in mine) == requested.nodes.max
        assert sum(pool.max for pool in mine) == requested.nodes.max
    nodepools = [key for key in found if key.startswith("NodePool/")]
    assert len(nodepools) == sum(len(pool.launches) for pool in part.pools)


def test_elastic_pool_with_efa_has_a_nodepool_and_a_flavor_for_each_zone() -> None:
    """EFA does not cross zones. Regression: one NodePool listed both zones, so a gang could be divided."""
    spec = a_kube_spec(*IN_ZONES)
    found = objects(tree(spec, resolve(spec, catalog.load()), running=None))
    for suffix, zone in (("2a", "us-west-2a"), ("2b", "us-west-2b")):
        pool = found[f"NodePool/kube-tune.{suffix}-0"]["spec"]
        needed = {one["key"]: one["values"] for one in pool["template"]["spec"]["requirements"]}
        assert needed[ZONE] == [zone]
        assert pool["limits"] == {"cpu": str(4 * 96), "nodes": "4", "nvidia.com/gpu": "32"}
        labels = {"gpucluster/cluster": "kube", "gpucluster/pool": f"tune.{suffix}"}
        assert pool["template"]["metadata"]["labels"] == labels
        flavor = found[f"ResourceFlavor/kube-tune.{suffix}"]["spec"]
        assert flavor["nodeLabels"] == {**labels, ZONE: zone}


def test_second_zone_of_a_pool_with_efa_adds_a_part_and_renames_none() -> None:
    """Regression: `tune` became `tune.2a`, and the NodePools of both names launched more nodes than `max`."""
    one, two = (kubernetes_of(a_kube_plan(ELASTIC, *zones)).pools for zones in ((), (TWO_ZONES,)))
    names = [
        [(pool.name, pool.labels["gpucluster/pool"]) for pool in pools if pool.of == "tune"]
        for pools in (one, two)
    ]
    assert names == [[("tune.2a", "tune.2a")], [("tune.2a", "tune.2a"), ("tune.2b", "tune.2b")]]
    assert [pool.max for pool in one if pool.of == "tune"] == [8]
    assert "tune" in {pool.name for pool in kubernetes_of(a_kube_plan()).pools}, (
        "always-on nodes have no part"
    )


@pytest.mark.parametrize("topology", ["{required: zone}", "{preferred: zone}"])
def test_elastic_gang_is_in_one_zone(topology: str) -> None:
    """Kueue assigns one flavor to all pods of a gang, and its node labels name the zone. A topology would need always-on nodes."""
    spec = a_kube_spec(*IN_ZONES)
    plan = resolve(spec, catalog.load())
    (gang,) = some_workloads(plan, spec, ("{required: block}", topology)).gangs
    assert gang.pools == ("tune.2a", "tune.2b")
    assert (gang.required_level, gang.preferred_level, gang.anywhere) == (None, None, False)
    texts = tree(spec, plan, running=(("{required: block}", topology),))
    documents = [
        document
        for path, text in texts.items()
        if path.endswith(".yaml") and not path.startswith("helm/")
        for document in read(text, path).documents
    ]
    assert [str(finding) for finding in check(documents, facts(plan))] == []


def test_always_on_nodes_of_one_zone_have_a_topology_and_no_part() -> None:
    tune = kubernetes_of(a_kube_plan(TWO_ZONES)).pool("tune")
    assert (tune.name, tune.of, tune.launches) == ("tune", "tune", ())
    assert next(level.word for level in tune.levels) == "zone"


def test_gang_above_the_nodes_of_a_zone_is_refused() -> None:
    spec = a_kube_spec(*IN_ZONES)
    text = changed(WORKLOADS, ("    nodes: 4\n", "    nodes: 5\n"), ("    topology: {required: block}\n", ""))
    (problem,) = inspect_workloads_text(text, "w.yaml", spec, catalog.load()).errors
    assert (problem.id, problem.message) == (
        "above-quota",
        "5 x 8 GPUs must be in one pool and, with EFA, in one zone; the team has 32 in tune.2a, 32 in tune.2b",
    )


@pytest.mark.parametrize(
    "service",
    [
        "{resources: {nvidia.com/gpu: 8}, replicas: {min: 4, max: 4}}",
        "{resources: {nvidia.com/gpu: 8}, nodes: 2, replicas: {min: 1, max: 1}}",
    ],
)
def test_lint_takes_replicas_in_several_parts(service: str) -> None:
    """Regression: lint compared all replicas with one flavor, and counted a leader as often as the pods of its replica."""
    spec = a_kube_spec(*_of_machine("p4de.24xlarge"))
    more = f"  - {{name: model, team: research, image: registry.example.org/x:1, {service[1:]}\n"
    text = changed(WORKLOADS, ("serve:\n", f"serve:\n{more}"), ("    nodes: 4\n", "    nodes: 2\n"))
    plan = resolve(spec, catalog.load())
    asked = inspect_workloads_text(text, "w.yaml", spec, catalog.load()).result()
    texts = {
        one.path: one.content.decode()
        for one in k8s.render(plan, workloads(asked, kubernetes_of(plan)))
        if one.path.endswith(".yaml") and "/helm/" not in one.path
    }
    documents = [document for path, text in texts.items() for document in read(text, path).documents]
    assert [str(finding) for finding in check(documents, facts(plan))] == []
