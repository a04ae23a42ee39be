"""The Kubernetes part of a plan: what nodes give, how teams share, what pods get; rows, then properties."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from support.builders import SPEC, a_kube_plan, a_kube_spec, changed, kubernetes_of, some_workloads
from support.kube import MONITORED
from support.kube_specs import kube_specs

from gpucluster import catalog
from gpucluster.plan import codec, names, plan_json
from gpucluster.plan import kubernetes as kube
from gpucluster.plan.defaults import Default
from gpucluster.plan.explain import explain
from gpucluster.plan.kubernetes import allocatable
from gpucluster.plan.model import InterfaceKind
from gpucluster.plan.model.kubernetes import Kubernetes, PodSecurity
from gpucluster.plan.model.values import CPU, EFA, GPU, HUGE_PAGES, MEMORY, quantity, weight
from gpucluster.plan.model.workloads import Gang, Service
from gpucluster.plan.resolve import resolve
from gpucluster.plan.resolve.gpu_prices import gpu_prices
from gpucluster.spec import ClusterSpec, inspect_text

Change = tuple[str, str]
SLICES = "nvidia.com/mig-1g.10gb"


def _part(*changes: Change) -> Kubernetes:
    return a_kube_plan(*changes).kubernetes


def _held(part: Kubernetes, team: str) -> dict[str, dict[str, int]]:
    return {share.pool: share.nominal for share in part.team(team).shares}


@pytest.mark.parametrize(
    ("machine", "mig", "expected"),
    [
        ("p4de.24xlarge", {}, {CPU: 92160, MEMORY: 1063224, GPU: 8, EFA: 4, HUGE_PAGES: 5120}),
        ("p4de.24xlarge", {"1g.10gb": 7}, {CPU: 92160, MEMORY: 1073480, SLICES: 56}),
        ("m7i.xlarge", {}, {CPU: 3500, MEMORY: 13025}),
    ],
)
def test_a_node_gives_its_nameplate_less_the_headroom(
    machine: str, mig: dict[str, int], expected: dict[str, int]
) -> None:
    assert allocatable([catalog.load().machines[machine]], mig) == expected


def test_a_pool_of_two_machines_gives_the_least_of_each() -> None:
    machines = [catalog.load().machines[name] for name in ("p5e.48xlarge", "p5en.48xlarge")]
    assert allocatable(machines, {})[EFA] == 16


def test_a_slice_weighs_its_sevenths() -> None:
    assert [weight(r) for r in (SLICES, "nvidia.com/mig-3g.40gb", GPU, CPU)] == [1, 3, 1, 1]


def test_pools_are_filled_in_their_order_and_teams_in_theirs() -> None:
    more = (
        "  - {name: more, nodes: 2, capacity: [{from: spot, machines: [p4de.24xlarge]}]}\n  - name: serve\n"
    )
    part = _part(
        ("  - name: serve\n", more),
        ("{nvidia.com/mig-1g.10gb: 28}", "{nvidia.com/mig-1g.10gb: 28, nvidia.com/gpu: 12}"),
    )
    assert {pool: held.get(GPU, 0) for pool, held in _held(part, "serving").items()} == {
        "tune": 12,
        "more": 0,
        "serve": 0,
    }
    assert {pool: held[GPU] for pool, held in _held(part, "research").items()} == {"tune": 20, "more": 12}
    assert {share.pool: share.nominal.get(GPU, 0) for share in part.spare} == {
        "tune": 0,
        "more": 4,
        "serve": 0,
    }


def test_the_rest_of_a_node_follows_the_gpus() -> None:
    held = _held(_part(("{nvidia.com/gpu: 32}", "{nvidia.com/gpu: 9}")), "research")["tune"]
    whole = {CPU: 92160 * 4, MEMORY: 1063224 * 4, EFA: 16, HUGE_PAGES: 20480}
    assert {r: held[r] for r in (CPU, MEMORY, EFA)} == {r: whole[r] * 9 // 32 for r in (CPU, MEMORY, EFA)}
    assert held[HUGE_PAGES] == 5760


def test_mixed_slices_share_by_their_size() -> None:
    part = _part(
        ("{1g.10gb: 7}", "{1g.10gb: 1, 3g.40gb: 1}"),
        ("{nvidia.com/mig-1g.10gb: 28}", "{nvidia.com/mig-3g.40gb: 24}"),
    )
    held = _held(part, "serving")["serve"]
    assert held[SLICES] == 0
    assert held[CPU] == 92160 * 6 * 24 * 3 // (48 * 3 + 48)


def test_a_team_that_may_not_borrow_never_does() -> None:
    (share,) = _part().team("research").shares
    assert set(share.borrow.values()) == {0}


def test_ipc_lock_is_only_where_a_fabric_is() -> None:
    part = _part()
    assert part.team("research").pod_security is PodSecurity.PRIVILEGED
    assert part.team("serving").pod_security is PodSecurity.BASELINE


def test_a_topology_is_only_where_all_nodes_stand() -> None:
    words = [level.word for level in _part().pool("tune").levels]
    assert words == ["zone", "spine", "block", "leaf", "host"]
    assert _part(("nodes: 4", "nodes: {min: 3, max: 4}")).pool("tune.2a").levels == ()
    existing = _part(("control_plane: eks", "existing: {context: prod, eks_name: prod}"))
    assert [level.word for level in existing.pool("tune").levels] == ["zone", "host"]


def test_the_pools_of_slurm_and_of_kubernetes_are_apart() -> None:
    text = changed(
        SPEC,
        (
            "slurm:\n",
            'kubernetes: {version: "1.36", control_plane: eks, teams: [{name: a, quota: {nvidia.com/gpu: 8}}]}\nslurm:\n',
        ),
        ("    idle: 5m\n", "    idle: 5m\n    runs: slurm\n"),
        (
            "partitions:",
            "  - {name: k, runs: kubernetes, nodes: 1, capacity: [{from: spot, machines: [p5.48xlarge]}]}\npartitions:",
        ),
    )
    plan = resolve(inspect_text(text, "both.yaml", catalog.load()).result(), catalog.load())
    assert [pool.name for pool in plan.pools] == ["h200"]
    assert [pool.name for pool in kubernetes_of(plan).pools] == ["k"]
    assert plan.slurm
    assert plan.head


@pytest.mark.parametrize(
    ("resource", "amount", "written"),
    [
        (CPU, 1500, "1500m"),
        (CPU, 96000, "96"),
        (MEMORY, 5, "5Mi"),
        (GPU, 8, "8"),
        (HUGE_PAGES, 5120, "5Gi"),
        (MEMORY, 1025, "1025Mi"),
        (MEMORY, 2 * 1024 * 1024, "2Ti"),
        (MEMORY, 0, "0"),
    ],
)
def test_a_quantity_is_written_as_kubernetes_stores_it(resource: str, amount: int, written: str) -> None:
    """Regression: Kueue's webhook rewrote `5120Mi` to `5Gi`, so that a second apply changed queues and gangs."""
    assert quantity(resource, amount) == written


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/data", "data"),
        ("/a-b", "a-b"),
        ("/srv/data", "srv-data-"),
        ("/Data", "data-"),
        ("/_", "x-"),
        ("/" + "y" * 60, "y" * 40 + "-"),
    ],
)
def test_a_volume_is_called_like_its_path_and_no_two_alike(path: str, name: str) -> None:
    found = names.volume_name(path)
    assert found.startswith(name)
    assert len(found) <= 47
    assert (found == name) == (not name.endswith("-"))


def test_paths_that_look_alike_have_volumes_of_their_own() -> None:
    paths = ["/a-b", "/a/b", "/A/b", "/a.b", "/a_b", "/a--b"]
    assert len({names.volume_name(path) for path in paths}) == len(paths)


def test_every_default_of_kubernetes_is_explained() -> None:
    spec = a_kube_spec()
    plan = resolve(spec, catalog.load())
    notes = explain(spec, catalog.load(), plan)
    reasons = " ".join(note.reason for note in notes)
    rows = {name: row for name, row in vars(kube).items() if isinstance(row, Default)}
    assert len(rows) > 12
    assert {name for name, row in rows.items() if row.reason not in reasons} == set()
    assert len({note.path for note in notes}) == len(notes)


# --- what runs ----------------------------------------------------------------------------------


def _running(*changes: Change, cluster: tuple[Change, ...] = ()) -> tuple[Service, Gang]:
    spec = a_kube_spec(*cluster)
    found = some_workloads(resolve(spec, catalog.load()), spec, *changes)
    return found.services[0], found.gangs[0]


def test_a_gang_that_may_land_in_two_pools_asks_for_what_both_have() -> None:
    more = "  - {name: more, nodes: 4, capacity: [{from: spot, machines: [p5.48xlarge]}]}\n  - name: serve\n"
    spec = a_kube_spec(("  - name: serve\n", more), ("{nvidia.com/gpu: 32}", "{nvidia.com/gpu: 64}"))
    (gang,) = some_workloads(resolve(spec, catalog.load()), spec).gangs
    assert gang.resources[CPU] == 92160  # the p4de's, not the p5's 184 CPUs
    assert gang.resources[EFA] == 4


@pytest.mark.parametrize(
    ("topology", "required", "preferred", "anywhere"),
    [
        ("    topology: {required: block}\n", "block", None, False),
        ("    topology: {preferred: spine}\n", None, "spine", False),
        ("", None, None, True),
    ],
)
def test_level_of_a_gang_is_required_or_preferred(
    topology: str, required: str | None, preferred: str | None, anywhere: bool
) -> None:
    labels = {level.word: level.label for level in _part().pool("tune").levels}
    _, gang = _running(("    topology: {required: block}\n", topology))
    found = (gang.required_level, gang.preferred_level, gang.anywhere)
    assert found == (required and labels[required], preferred and labels[preferred], anywhere)


def test_gang_in_a_pool_without_levels_is_not_placed() -> None:
    _, gang = _running(
        ("    topology: {required: block}\n", ""), cluster=(("nodes: 4", "nodes: {min: 3, max: 4}"),)
    )
    assert (gang.required_level, gang.preferred_level, gang.anywhere) == (None, None, False)


@pytest.mark.parametrize(
    ("memory", "shm_mib"),
    [("511Mi", 64), ("520Mi", 65), ("524280Mi", 65535), ("524288Mi", 65536), ("600000Mi", 65536)],
)
def test_shared_memory_of_a_pod_is_an_eighth_within_limits(memory: str, shm_mib: int) -> None:
    resources = ("{nvidia.com/mig-1g.10gb: 1}", f"{{cpu: 1, memory: {memory}}}")
    one = ("{min: 2, max: 8}", "{min: 1, max: 1}"), ("    scale_on: {queue_depth: 10}\n", "")
    service, _ = _running(resources, *one)
    assert service.shm_mib == shm_mib


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ((), (8000, 10, 3)),
        ((("    replicas:", "    port: 9000\n    replicas:"),), (9000, 10, 3)),
        ((("    scale_on: {queue_depth: 10}\n", ""), ("{min: 2, max: 8}", "{min: 2, max: 2}")), (8000, None, 3)),
        ((("    gpus_per_node: 8\n", "    gpus_per_node: 8\n    restarts: 0\n"),), (8000, 10, 0)),
    ],
    ids=["defaults", "a port", "a fixed number", "no restarts"],
)  # fmt: skip
def test_fields_of_workloads_and_their_defaults(
    changes: tuple[Change, ...], expected: tuple[int, int | None, int]
) -> None:
    service, gang = _running(*changes)
    assert (service.port, service.queue_depth, gang.restarts) == expected


def test_each_card_has_an_efa_and_card_0_the_address() -> None:
    found = [(one.card, one.device, one.kind) for one in _part().pool("tune").interfaces]
    efa = InterfaceKind.EFA_ONLY
    assert found == [(0, 0, InterfaceKind.ENA), (0, 1, efa), (1, 0, efa), (2, 0, efa), (3, 0, efa)]


def test_card_without_efa_has_none_on_nodes_of_karpenter() -> None:
    """Card 0 of a p6-b300 takes no EFA (T29): EC2 refused each launch of the NodeClass, which had one there and none on card 16."""
    found = [
        (one.card, one.device) for one in _part(_another_pool("p6-b300.48xlarge")).pool("more").interfaces
    ]
    assert found == [(0, 0), *((card, 0) for card in range(1, 17))]


def _another_pool(*machines: str) -> Change:
    more = f"  - {{name: more, nodes: 2, capacity: [{{from: spot, machines: [{', '.join(machines)}]}}]}}\n"
    return ("  - name: serve\n", f"{more}  - name: serve\n")


@pytest.mark.parametrize(
    ("machines", "count"),
    [
        (("p5en.48xlarge",), 17),
        (("p5e.48xlarge", "p5en.48xlarge"), 0),
        (("g5.8xlarge", "g5.16xlarge"), 2),
        (("g5.xlarge",), 0),
    ],
    ids=str,
)  # fmt: skip
def test_interfaces_of_a_pool_whose_machines_have_the_same_cards(
    machines: tuple[str, ...], count: int
) -> None:
    assert len(_part(_another_pool(*machines)).pool("more").interfaces) == count


@pytest.mark.parametrize(
    ("machines", "vcpus"), [(("g5.16xlarge", "g5.8xlarge"), 32), (("g5.8xlarge", "g5.16xlarge"), 32)]
)
def test_pool_of_two_machines_has_the_fewest_cpus(machines: tuple[str, ...], vcpus: int) -> None:
    assert _part(_another_pool(*machines)).pool("more").vcpus == vcpus


def test_a_service_that_asks_for_cpu_only_has_memory_with_it() -> None:
    spec = a_kube_spec()
    (service,) = some_workloads(
        resolve(spec, catalog.load()), spec, ("{nvidia.com/mig-1g.10gb: 1}", "{cpu: 2}")
    ).services
    assert service.resources == {CPU: 2000, MEMORY: 1073480 * 2000 // 92160}


# --- properties ---------------------------------------------------------------------------------


@settings(max_examples=25)
@given(kube_specs())
def test_what_teams_and_cohort_hold_is_what_the_pools_have_at_their_max(spec: ClusterSpec) -> None:
    part = kubernetes_of(resolve(spec, catalog.load()))
    for pool in part.pools:
        shares = [share for team in part.teams for share in team.shares if share.pool == pool.name]
        (spare,) = [share for share in part.spare if share.pool == pool.name]
        for resource, most in pool.offers().items():
            held = sum(share.nominal[resource] for share in shares)
            assert held + spare.nominal[resource] == most
            assert spare.nominal[resource] >= 0
            assert all(share.nominal[resource] >= 0 for share in shares)
            assert all(share.nominal[resource] + share.borrow[resource] <= most for share in shares)


@settings(max_examples=25)
@given(kube_specs())
def test_a_team_holds_its_whole_quota(spec: ClusterSpec) -> None:
    part = kubernetes_of(resolve(spec, catalog.load()))
    for team in part.teams:
        for resource, requested in team.quota.items():
            by_it = [share for share in team.shares if resource in part.pool(share.pool).shared_by]
            assert sum(share.nominal[resource] for share in by_it) == requested


@settings(max_examples=15)
@given(kube_specs())
def test_a_gpu_never_waits_for_its_cpus(spec: ClusterSpec) -> None:
    """As many pods as the quota has GPUs fit what follows them, each with its part of a node."""
    for team in kubernetes_of(resolve(spec, catalog.load())).teams:
        for share in team.shares:
            pool = kubernetes_of(resolve(spec, catalog.load())).pool(share.pool)
            if pool.shared_by != (GPU,):
                continue
            for resource in (CPU, MEMORY):
                each = Fraction(pool.allocatable[resource], pool.gpu_count)
                assert int(each) * share.nominal[GPU] <= share.nominal[resource]


@settings(max_examples=15)
@given(kube_specs())
def test_a_plan_is_the_same_twice_and_survives_its_json(spec: ClusterSpec) -> None:
    plan = resolve(spec, catalog.load())
    text = codec.dumps(plan)
    assert codec.dumps(resolve(spec, catalog.load())) == text
    assert plan_json.load(text) == plan
    assert explain(spec, catalog.load(), plan)


def test_prices_are_in_the_plan_of_a_monitored_cluster_alone() -> None:
    """The prices are those of us-east-1, so the cluster is there."""
    there = (
        ("region: us-west-2", "region: us-east-1"),
        ("zones: [us-west-2a]", "zones: [us-east-1a]"),
        ("zone: us-west-2a", "zone: us-east-1a"),
    )
    monitored = _part(*there, MONITORED).monitoring
    assert _part(*there).monitoring is None
    assert monitored is not None
    assert {price.pool for price in monitored.prices} == {"tune", "serve"}


def test_price_of_a_gpu_is_that_of_the_dearest_machine_and_missing_if_one_has_no_price() -> None:
    pool = _part().pools[0]
    two = replace(pool, sources=(replace(pool.sources[0], machines=("cheap", "dear")),))
    listed = replace(catalog.load().prices, rows={"cheap": Decimal(8), "dear": Decimal(16)})
    partly = replace(catalog.load().prices, rows={"cheap": Decimal(8)})
    region = listed.region
    assert [price.hour for price in gpu_prices([two], region, listed)] == [2_000_000]
    assert list(gpu_prices([two], region, partly)) == []
