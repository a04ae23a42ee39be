"""Each error of a Kubernetes spec and of its workloads by an example: its place and its exact text."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import KUBE, SPEC, WORKLOADS, a_kube_plan, a_kube_spec, changed
from support.kube_rows import BOTH, CLUSTER_ROWS, WORKLOAD_ROWS

from gpucluster import catalog
from gpucluster.catalog.data_files import read_data
from gpucluster.plan.security_rules import CONTROL_PLANE, rules
from gpucluster.spec import inspect_any, inspect_text, inspect_workloads_text
from gpucluster.spec.resources import in_unit, parse_quantity
from gpucluster.spec.rules.queueing import MAX_FLAVORS

Change = tuple[str, str]
STACKS = Path(__file__).parents[3] / "stacks"


@pytest.mark.parametrize(
    ("changes", "expected"), [r[1:] for r in CLUSTER_ROWS], ids=[r[0] for r in CLUSTER_ROWS]
)
def test_kubernetes_error_has_place_and_reason(changes: list[Change], expected: str) -> None:
    report = inspect_text(changed(KUBE, *changes), "spec.yaml", catalog.load())
    found = [str(problem).splitlines()[0] for problem in report.problems]
    assert found == [f"spec.yaml:{line}" for line in expected.splitlines()]
    assert (report.spec is None) == ("error[" in expected)


@pytest.mark.parametrize(
    ("changes", "expected"), [r[1:] for r in WORKLOAD_ROWS], ids=[r[0] for r in WORKLOAD_ROWS]
)
def test_workloads_error_has_place_and_reason(changes: list[Change], expected: str) -> None:
    report = inspect_workloads_text(changed(WORKLOADS, *changes), "w.yaml", a_kube_spec(), catalog.load())
    assert [str(problem).splitlines()[0] for problem in report.problems] == [f"w.yaml:{expected}"]


def test_boot_script_that_a_pod_can_delete_is_refused() -> None:
    boots = f"nodes: 4, on_boot: [{{script: 's3://example-site/boot.sh', sha256: {'a' * 64}}}], capacity: [{{from: capacity-block"
    writes = "{nvidia.com/gpu: 32}, service_accounts: [{name: saver, write: ['s3://example-site/']}]}"
    text = changed(
        (STACKS / "hybrid.yaml").read_text(),
        ("{nvidia.com/gpu: 32}}", writes),
        ("nodes: 4, capacity: [{from: capacity-block", boots),
    )
    (problem,) = (
        one
        for one in inspect_text(text, "spec.yaml", catalog.load()).problems
        if one.id == "script-is-writable"
    )
    assert "is within 's3://example-site/' of service account 'saver'" in str(problem)


@pytest.mark.parametrize(
    "line",
    [
        "env: {HF_TOKEN: abcdefgh1234}",
        "env: {ID: AKIAABCDEFGHIJKLMNOP}",
        "args: [--token=hf_abcdefghijklmnopqrstuvwx]",
        "unknown: hf_abcdefghijklmnopqrstuvwx",
    ],
)
def test_secret_in_workloads_is_in_no_message(line: str) -> None:
    """Regression: the message did not repeat the secret, but the excerpt below it showed the line."""
    text = changed(WORKLOADS, ("gpus_per_node: 8", f"gpus_per_node: 8\n    {line}"))
    report = inspect_workloads_text(text, "w.yaml", a_kube_spec(), catalog.load())
    shown = "\n".join(map(str, report.problems))
    assert "error[" in shown
    assert not any(secret in shown for secret in ("abcdefgh", "AKIAABCD"))


# Each needs another cluster than the usual one.
CLUSTERS: list[tuple[str, list[Change], list[Change], str]] = [
    (
        "replicas of several nodes that no single pool holds",
        [
            ("{nvidia.com/gpu: 32}", "{nvidia.com/gpu: 48}"),
            (
                "  - name: serve\n",
                "  - {name: more, nodes: 2, capacity: [{from: on-demand, machines: [p4de.24xlarge]}]}\n  - name: serve\n",
            ),
        ],
        [
            ("team: serving", "team: research"),
            ("{nvidia.com/mig-1g.10gb: 1}", "{nvidia.com/gpu: 8}\n    nodes: 2"),
            ("{min: 2, max: 8}", "{min: 1, max: 3}"),
        ],
        "error[above-quota] serve[chat].resources: 3 replicas of 2 nodes must be in one pool; there is room for pods: 4 in tune, 2 in more",
    ),
    (
        "a gang whose pods are too small for an EFA interface",
        [],
        [("gpus_per_node: 8", "gpus_per_node: 1")],
        "warning[no-efa] train[tune].gpus_per_node: a pod with 1 of the 8 GPUs of a node in 'tune' gets none of its 4 EFA interfaces, so the pods speak over TCP; a pod with 2 GPUs gets one",
    ),
    (
        "replicas whose pods are too small for an EFA interface",
        [],
        [
            ("team: serving", "team: research"),
            ("{nvidia.com/mig-1g.10gb: 1}", "{nvidia.com/gpu: 1}\n    nodes: 2"),
        ],
        "warning[no-efa] serve[chat].resources: a pod with 1 of the 8 GPUs of a node in 'tune' gets none of its 4 EFA interfaces, so the pods speak over TCP; a pod with 2 GPUs gets one",
    ),
    (
        "a replica whose memory follows a thousandth of a CPU",
        [],
        [("{nvidia.com/mig-1g.10gb: 1}", "{cpu: 1m}")],
        "error[too-little-memory] serve[chat].resources: a replica has 11Mi of memory, and its /dev/shm takes up to 64Mi of it, which follows its other resources; name 'memory' too",
    ),
    (
        "a replica with the memory of its /dev/shm",
        [],
        [("{nvidia.com/mig-1g.10gb: 1}", "{nvidia.com/mig-1g.10gb: 1, memory: 64Mi}")],
        "error[too-little-memory] serve[chat].resources.memory: a replica has 64Mi of memory, and its /dev/shm takes up to 64Mi of it",
    ),
    (
        "a checkpoint that a spot notice is too short for",
        [
            (
                "    capacity: [{from: on-demand, machines: [p4de.24xlarge]}]\n  - name: serve",
                "    capacity: [{from: spot, machines: [p4de.24xlarge]}]\n  - name: serve",
            )
        ],
        [("gpus_per_node: 8", "gpus_per_node: 8\n    checkpoint: {mount: /data, takes: 121s}")],
        "warning[checkpoint-above-notice] train[tune].checkpoint.takes: the pool 'tune' has spot machines, which end 120 s after their notice; a checkpoint of 121s is not complete by then",
    ),
    (
        "a checkpoint as long as the time in which Kueue wants a gang to start",
        [],
        [("gpus_per_node: 8", "gpus_per_node: 8\n    checkpoint: {mount: /data, takes: 30m}")],
        "warning[checkpoint-above-queue] train[tune].checkpoint.takes: pods that end hold their GPUs for 30m, and Kueue gives a gang 30m to start: it evicts the gang that takes their place, and this one after a drain",
    ),
    (
        "a shell's own number, of which Kubernetes leaves a dollar",
        [],
        [("gpus_per_node: 8", "gpus_per_node: 8\n    args: [-c, 'echo $$ > /tmp/pid']")],
        "warning[doubled-dollar] train[tune].args[1]: Kubernetes makes `$$` one `$`; write `$$$$` for two",
    ),
    (
        "a gang larger than any pool",
        [
            ("{nvidia.com/gpu: 32}", "{nvidia.com/gpu: 48}"),
            (
                "  - name: serve\n",
                "  - {name: more, nodes: 2, capacity: [{from: spot, machines: [p4de.24xlarge]}]}\n  - name: serve\n",
            ),
        ],
        [("nodes: 4", "nodes: 5")],
        "error[gang-above-domain] train[tune].nodes: no pool has room for 5 pods of 8 GPUs at its max",
    ),
    (
        "a block of nodes that come and go",
        [("nodes: 4", "nodes: {min: 3, max: 4}")],
        [],
        "error[gang-above-domain] train[tune].topology: Kueue counts only always-on nodes for a place in one block: no pool of the team has 4 of them (min = max)",
    ),
    (
        "a quota in two pools, and a gang that needs all of it in one",
        [
            ("{nvidia.com/gpu: 32}", "{nvidia.com/gpu: 48}"),
            (
                "  - name: serve\n",
                "  - {name: more, nodes: {min: 0, max: 5}, capacity: [{from: spot, machines: [p4de.24xlarge]}]}\n  - name: serve\n",
            ),
        ],
        [("nodes: 4", "nodes: 5"), ("    topology: {required: block}\n", "")],
        "error[above-quota] train[tune].nodes: 5 x 8 GPUs must be in one pool and, with EFA, in one zone; the team has 32 in tune, 16 in more.2a",
    ),
    (
        "a block of machines whose place EC2 does not tell",
        [("p4de.24xlarge]}]\n  - name: serve", "g6e.48xlarge]}]\n  - name: serve")],
        [],
        "error[gang-above-domain] train[tune].topology: EC2 does not report the block of every machine of the team's pools (only of p, trn and hpc)",
    ),
    (
        "replicas that would need pools with a topology and pools without",
        [
            ("{nvidia.com/mig-1g.10gb: 28}, may_borrow: true", "{nvidia.com/gpu: 8}"),
            ("{nvidia.com/gpu: 32}", "{nvidia.com/gpu: 32, nvidia.com/mig-1g.10gb: 1}"),
            (
                "  - name: tune\n    nodes: 4\n",
                "  - {name: base, nodes: 1, capacity: [{from: spot, machines: [p4de.24xlarge]}]}\n"
                "  - name: tune\n    nodes: {min: 0, max: 4}\n",
            ),
            ("serving, quota: {nvidia.com/gpu: 8}", "serving, quota: {nvidia.com/gpu: 12}"),
            ("{nvidia.com/gpu: 32,", "{nvidia.com/gpu: 28,"),
        ],
        [
            ("{nvidia.com/mig-1g.10gb: 1}", "{nvidia.com/gpu: 1}"),
            ("max: 8", "max: 9"),
            ("nodes: 4", "nodes: 3"),
            ("    topology: {required: block}\n", ""),
        ],
        "error[above-quota] serve[chat].resources: 9 replicas must be in pools of one kind; with a topology (base) there is room for 8, without a topology (tune.2a) there is room for 4",
    ),
    (
        "a level that only EKS tells",
        [("control_plane: eks", "existing: {context: prod, eks_name: prod}")],
        [],
        "error[unknown-level] train[tune].topology.required: 'block' is not a level of the topology; there are zone",
    ),
    (
        "replicas above the quota of a team that may not borrow",
        [(", may_borrow: true", ""), ("mig-1g.10gb: 28", "mig-1g.10gb: 7")],
        [],
        "error[above-quota] serve[chat].resources.'nvidia.com/mig-1g.10gb': 8 replicas take 8 of nvidia.com/mig-1g.10gb, the team has 7",
    ),
    (
        "replicas with more memory than goes with the quota",
        [(", may_borrow: true", "")],
        [("mig-1g.10gb: 1}", "mig-1g.10gb: 1, memory: 100Gi}")],
        "error[above-quota] serve[chat].resources.memory: 8 replicas take 800Gi of memory, the team has 536740Mi",
    ),
    (
        "a gang in pools with more and with fewer EFA interfaces",
        [
            ("{nvidia.com/gpu: 32}", "{nvidia.com/gpu: 64}"),
            ("  - name: serve\n", "  - {name: more, nodes: 4, capacity: [{from: on-demand, machines: [p5.48xlarge]}]}\n  - name: serve\n"),
        ],
        [],
        "warning[unequal-efa] train[tune].gpus_per_node: a pod gets 4 EFA interfaces in each pool, because the gang may run in 'tune', too; in 'more' alone it would get 32: use a team with GPUs of one of these pools",
    ),
    (
        "a gang in pools with EFA and without it",
        [
            ("{nvidia.com/gpu: 32}", "{nvidia.com/gpu: 8}"),
            (
                "  - name: tune\n    nodes: 4\n    capacity: [{from: on-demand, machines: [p4de.24xlarge]}]\n",
                "  - {name: tune, nodes: 4, capacity: [{from: on-demand, machines: [g6e.8xlarge]}]}\n"
                "  - {name: more, nodes: 4, capacity: [{from: on-demand, machines: [g6e.4xlarge]}]}\n",
            ),
        ],
        [("gpus_per_node: 8", "gpus_per_node: 1"), ("    topology: {required: block}\n", "")],
        "warning[unequal-efa] train[tune].gpus_per_node: a pod gets 0 EFA interfaces in each pool, because the gang may run in 'more', too, so they speak over TCP; in 'tune' alone it would get 1: use a team with GPUs of one of these pools",
    ),
    (
        "services that are within the quota alone, and not together",
        [(", may_borrow: true", "")],
        [("serve:\n", "serve:\n  - {name: other, team: serving, image: 'x:1', resources: {nvidia.com/mig-1g.10gb: 1}, replicas: {min: 27, max: 27}}\n")],
        "warning[services-above-quota] serve[chat].replicas: the services of 'serving' take at least 29 of nvidia.com/mig-1g.10gb together, the team has 28: some replicas wait for ever; lower 'replicas' or 'resources' of one, or raise the quota",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("cluster", "changes", "expected"), [row[1:] for row in CLUSTERS], ids=[row[0] for row in CLUSTERS]
)
def test_workloads_are_checked_against_their_cluster(
    cluster: list[Change], changes: list[Change], expected: str
) -> None:
    spec = a_kube_spec(*cluster)
    report = inspect_workloads_text(changed(WORKLOADS, *changes), "w.yaml", spec, catalog.load())
    (said,) = [str(problem).splitlines()[0] for problem in report.problems]
    assert said.partition(" ")[2] == expected


def test_services_that_fill_the_quota_together_are_accepted() -> None:
    other = "serve:\n  - {name: other, team: serving, image: 'x:1', resources: {nvidia.com/mig-1g.10gb: 1}, replicas: {min: 26, max: 26}}\n"
    text = changed(WORKLOADS, ("serve:\n", other))
    spec = a_kube_spec((", may_borrow: true", ""))
    assert inspect_workloads_text(text, "w.yaml", spec, catalog.load()).problems == ()


def test_cpus_beside_accelerators_are_in_no_quota_of_cpus() -> None:
    """Regression: with a pool of CPUs in the cluster, a team had only the CPUs of its quota, also beside its GPUs."""
    for quota, replicas, cpus in (("", 8, 5), (", cpu: 2", 8, 5), (", cpu: 2", 28, 1)):
        spec = a_kube_spec(
            ("pools:\n", CPUS.replace("N,", "2,")),
            ("mig-1g.10gb: 28", f"mig-1g.10gb: 28{quota}"),
            (", may_borrow: true", ""),
        )
        asked = ("mig-1g.10gb: 1}", f"mig-1g.10gb: 1, cpu: {cpus}}}")
        for more, expected in (
            (asked, []),
            (("mig-1g.10gb: 1}", "mig-1g.10gb: 1, cpu: 40}"), ["above-quota"]),
        ):
            text = changed(WORKLOADS, more, ("max: 8", f"max: {replicas}"))
            found = inspect_workloads_text(text, "w.yaml", spec, catalog.load()).problems
            assert [problem.id for problem in found] == expected


def test_fixed_pools_need_no_name_in_eks() -> None:
    text = changed(KUBE, ("control_plane: eks", "existing: {context: prod}"), ("{min: 1, max: 6}", "6"))
    assert inspect_text(text, "s.yaml", catalog.load()).errors == ()


@pytest.mark.parametrize(
    "change",
    [
        ("gpus_per_node: 8", "gpus_per_node: 2"),
        ("nodes: 4\n    gpus_per_node: 8", "nodes: 1\n    gpus_per_node: 1"),
    ],
    ids=["one interface", "one pod"],
)
def test_pods_with_an_interface_or_without_peers_need_no_warning(change: Change) -> None:
    text = changed(WORKLOADS, change)
    assert inspect_workloads_text(text, "w.yaml", a_kube_spec(), catalog.load()).problems == ()


@pytest.mark.parametrize(
    "resources",
    ["{nvidia.com/mig-1g.10gb: 1, memory: 65Mi}", "{nvidia.com/mig-1g.10gb: 1, memory: 32Mi}\n    shm: 8Mi"],
)
def test_small_memory_is_accepted_where_shared_memory_leaves_some(resources: str) -> None:
    text = changed(WORKLOADS, ("{nvidia.com/mig-1g.10gb: 1}", resources))
    assert inspect_workloads_text(text, "w.yaml", a_kube_spec(), catalog.load()).problems == ()


def test_number_of_environment_variables_is_limited() -> None:
    env = "\n    env: {" + ", ".join(f"A{n}: x" for n in range(201)) + "}"
    report = inspect_workloads_text(
        changed(WORKLOADS, ("gpus_per_node: 8", f"gpus_per_node: 8{env}")),
        "w.yaml",
        a_kube_spec(),
        catalog.load(),
    )
    assert [problem.id for problem in report.problems] == ["too-many"]


def _of_cpus(count: int) -> list[Change]:
    """So many pools of four nodes without GPUs, beside the usual two."""
    rows = (
        f"  - {{name: c{n}, nodes: 4, capacity: [{{from: on-demand, machines: [m7i.2xlarge]}}]}}\n"
        for n in range(count)
    )
    return [("pools:\n", "pools:\n" + "".join(rows))]


def _warnings(*changes: Change) -> list[str]:
    problems = inspect_text(changed(KUBE, *changes), "s.yaml", catalog.load()).problems
    return [str(one).splitlines()[0] for one in problems if one.id == "eks-quota"]


CPUS = "pools:\n  - {name: c, nodes: N, capacity: [{from: on-demand, machines: [m7i.2xlarge]}]}\n"


def test_node_group_has_the_nodes_of_the_quota_of_eks() -> None:
    assert _warnings(("pools:\n", CPUS.replace("N", "450"))) == []
    assert _warnings(("pools:\n", CPUS.replace("N", "{min: 450, max: 451}"))) == []
    assert _warnings(("pools:\n", CPUS.replace("N", "451"))) == [
        "s.yaml:15:22: warning[eks-quota] pools[c].nodes: a node group of 451 nodes: EKS's quota is 450 in one group. Ask AWS for more, or divide the pool"
    ]


def test_nodes_of_the_add_ons_have_the_quota_of_a_group() -> None:
    """Regression: only the groups of pools were counted."""

    def of_system(nodes: int) -> Change:
        return "control_plane: eks", f"control_plane: eks\n  system: {{nodes: {nodes}}}"

    assert _warnings(of_system(450)) == []
    assert _warnings(of_system(451)) == [
        "s.yaml:9:19: warning[eks-quota] kubernetes.system.nodes: a node group of 451 nodes: EKS's quota is 450 in one group. Ask AWS for more, or write fewer"
    ]


def test_cluster_has_the_node_groups_of_the_quota_of_eks() -> None:
    """With the system's, and those of `tune` and `serve`."""
    assert _warnings(*_of_cpus(27)) == []
    assert _warnings(*_of_cpus(28)) == [
        "s.yaml:46:11: warning[eks-quota] pools[serve].name: the pools up to this one make 31 node groups, with that of the system: EKS's quota is 30 in a cluster. Ask AWS for more, or join pools"
    ]
    assert _warnings(*_of_cpus(29))[0].startswith("s.yaml:44:11: ")


def _ranges(form: str, many: int) -> Change:
    return (
        "control_plane: eks",
        f"control_plane: eks\n  api_from: [{', '.join(form.format(n) for n in range(many))}]",
    )


def test_public_ranges_of_the_api_server_are_those_that_eks_takes() -> None:
    """Regression: `pulumi up` failed when EKS refused the 41st."""
    assert _warnings(_ranges("198.51.{}.0/24", 40)) == []
    (found,) = _warnings(_ranges("198.51.{}.0/24", 41))
    assert found == (
        "s.yaml:9:13: error[eks-quota] kubernetes.api_from: 41 public ranges: EKS takes 40 at most, and AWS gives no more. Join ranges, or let people come through the VPC by a private range"
    )
    assert _warnings(_ranges("198.51.{}.0/24", 40), ("198.51.7.0/24,", "198.51.7.0/24, 10.0.0.0/8,")) == []


def test_private_ranges_of_the_api_server_are_rules_of_one_security_group() -> None:
    """One more rule lets the nodes in."""
    assert _warnings(_ranges("10.0.{}.0/24", 59)) == []
    assert _warnings(_ranges("10.0.{}.0/24", 60)) == [
        "s.yaml:9:13: warning[eks-quota] kubernetes.api_from: 60 private ranges, and one rule for the nodes: the quota of a security group is 60 rules. Ask AWS for more, or join ranges"
    ]


def test_private_ranges_are_the_rules_that_the_program_makes() -> None:
    made = rules(a_kube_plan(_ranges("10.0.{}.0/24", 59)))
    assert len([rule for rule in made if rule.group == CONTROL_PLANE and not rule.out]) == 60


ON_DEMAND = "    capacity: [{from: on-demand, machines: [p4de.24xlarge]}]\n"
SAME_GROUP = "its always-on nodes and those of capacity[0] are on-demand p4de.24xlarge in us-west-2a, which is one node group of EKS: join the sources, or write another zone first"


def _sources(*zones: str, most: int) -> Change:
    rows = [f"{{from: on-demand, machines: [p4de.24xlarge], zones: [{one}]" for one in zones]
    return (ON_DEMAND, f"    capacity: [{rows[0]}, max: {most}}}, {rows[1]}}}]\n")


@pytest.mark.parametrize(
    ("zones", "most", "said"),
    [
        (("us-west-2a", "us-west-2b, us-west-2a"), 2, [SAME_GROUP]),
        (("us-west-2a", "us-west-2b"), 2, []),
        (("us-west-2a", "us-west-2b, us-west-2a"), 4, []),
    ],
)
def test_two_sources_are_two_node_groups(zones: tuple[str, ...], most: int, said: list[str]) -> None:
    """Both had one name, so the program ended with a duplicate resource. The third has all nodes of its first source."""
    text = changed(
        KUBE, ("zones: [us-west-2a]", "zones: [us-west-2a, us-west-2b]"), _sources(*zones, most=most)
    )
    found = [one for one in inspect_text(text, "s.yaml", catalog.load()).problems if one.id == "repeated"]
    assert [one.message for one in found] == said
    assert all("pools[tune].capacity[1]" in str(one) for one in found)


def test_pool_has_not_the_name_of_the_nodes_of_add_ons() -> None:
    """Its nodes counted as theirs: the add-ons waited for GPUs, and the estimate had its costs under the add-ons."""
    text = changed(KUBE, ("  - name: tune\n", "  - name: system\n"))
    found = [
        one for one in inspect_text(text, "s.yaml", catalog.load()).problems if one.id == "reserved-name"
    ]
    assert [one.message for one in found] == [
        "'system' is the name of the nodes of add-ons and controllers; choose another name"
    ]


def _many_sources(count: int) -> Change:
    source = "{from: on-demand, machines: [p4de.24xlarge], max: 1}"
    return "[{from: spot, machines: [p4de.24xlarge]}]", f"[{', '.join([source] * count)}]"


def test_pool_has_a_weight_for_each_source() -> None:
    """Karpenter tries sources of one weight in the order of their names, the last one first."""
    size = ("max: 6}", "max: 200}")
    full = inspect_text(changed(KUBE, size, _many_sources(100)), "s.yaml", catalog.load()).errors
    assert "too-many-sources" not in [one.id for one in full]
    over = inspect_text(changed(KUBE, size, _many_sources(101)), "s.yaml", catalog.load()).errors
    (found,) = (one for one in over if one.id == "too-many-sources")
    assert found.path == "pools[serve].capacity"
    assert found.message == (
        "101 sources, and a pool of Kubernetes has at most 100: Karpenter's weights, which give their order, are 1 to 100; make a second pool of the others"
    )


def test_cohort_takes_64_pools() -> None:
    """63 and `serve`. No node of `tune` is without a quota."""
    assert inspect_text(changed(KUBE, *_of_cpus(63)), "s.yaml", catalog.load()).errors == ()


TOO_MANY = [
    (
        "a cohort",
        [],
        "82:11: error[too-many-pools] pools[serve].name: Kueue takes at most 64 pools in a queue, and a pool with EFA counts once in each zone; the cohort, which lends what is in no quota, has 65, and 'serve' is the first beyond",
    ),
    (
        "the queue of a team",
        [("quota: {nvidia.com/gpu: 32}", "may_borrow: true, quota: {nvidia.com/gpu: 32, cpu: 1}")],
        "79:11: error[too-many-pools] pools[tune].name: Kueue takes at most 64 pools in a queue, and a pool with EFA counts once in each zone; the queue of the team 'research' has 65, and 'tune' is the first beyond",
    ),
    (
        "the queue of a team with a pool in several zones",
        [
            ("zones: [us-west-2a]", "zones: [us-west-2a, us-west-2b]"),
            ("    nodes: 4\n    capacity", "    nodes: {min: 0, max: 4}\n    capacity"),
            ("quota: {nvidia.com/gpu: 32}", "may_borrow: true, quota: {nvidia.com/gpu: 32, cpu: 1}"),
        ],
        "79:11: error[too-many-pools] pools[tune].name: Kueue takes at most 64 pools in a queue, and a pool with EFA counts once in each zone; the queue of the team 'research' has 66, and 'tune.2a' is the first beyond",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "expected"), [row[1:] for row in TOO_MANY], ids=[row[0] for row in TOO_MANY]
)
def test_queue_has_at_most_the_pools_that_kueue_takes(changes: list[Change], expected: str) -> None:
    """Regression: `check` took 65 pools, and the API server refused the ClusterQueue and the Cohort."""
    report = inspect_text(changed(KUBE, *changes, *_of_cpus(64)), "s.yaml", catalog.load())
    assert [str(one).splitlines()[0] for one in report.errors] == [f"s.yaml:{expected}"]


def test_most_pools_are_those_of_the_schemas() -> None:
    for kind in ("clusterqueue", "cohort"):
        schema = read_data(f"crds/kueue.x-k8s.io_v1beta2_{kind}.json")
        flavors = schema["properties"]["spec"]["properties"]["resourceGroups"]["items"]["properties"][
            "flavors"
        ]
        assert flavors["maxItems"] == MAX_FLAVORS


# --- where the cluster's spec is found ----------------------------------------------------------


def _repository(root: Path, cluster: str | None) -> Path:
    (root / "workloads").mkdir()
    if cluster is not None:
        (root / "stacks").mkdir()
        (root / "stacks/kube.yaml").write_text(cluster)
    (root / "workloads/kube.yaml").write_text(WORKLOADS)
    return root / "workloads/kube.yaml"


def test_check_recognizes_workloads_and_finds_their_cluster(tmp_path: Path) -> None:
    file = _repository(tmp_path, KUBE)
    assert inspect_any(file).problems == ()
    file.write_text(changed(WORKLOADS, ("team: serving", "team: nobody")))
    assert [problem.id for problem in inspect_any(file).problems] == ["unknown-team"]
    assert [problem.id for problem in inspect_any(tmp_path / "stacks/kube.yaml").problems] == []


def test_unreadable_cluster_is_reported_as_unknown(tmp_path: Path) -> None:
    """A check that cannot run is reported, because silence would count as a pass."""
    file = _repository(tmp_path, None)
    (alone,) = inspect_any(file).problems
    assert (
        str(alone)
        .splitlines()[0]
        .endswith(
            "warning[cluster-not-read] cluster: there is no folder ../stacks beside this file, so "
            "teams, resources and topology were not checked"
        )
    )
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks/kube.yaml").write_text(changed(KUBE, ("name: kube", "name: K")))
    (wrong,) = inspect_any(file).problems
    assert (wrong.id, wrong.level.value) == ("cluster-not-read", "warning")


def test_workloads_of_a_cluster_without_spec_are_an_error(tmp_path: Path) -> None:
    file = _repository(tmp_path, KUBE)
    (tmp_path / "stacks/kube.yaml").rename(tmp_path / "stacks/cube.yaml")
    (missing,) = inspect_any(file).problems
    assert "error[unknown-cluster] cluster: there is no stacks/kube.yaml; did you mean 'cube'?" in str(
        missing
    )


def test_cluster_without_kubernetes_runs_no_workloads(tmp_path: Path) -> None:
    file = _repository(tmp_path, changed(SPEC, ("name: burst", "name: kube")))
    assert [problem.id for problem in inspect_any(file).problems] == ["no-kubernetes"]


@given(st.integers(0, 10**12), st.sampled_from(["", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"]))
def test_quantity_is_read_exactly(number: int, suffix: str) -> None:
    scale = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
    scale |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
    assert parse_quantity(f"{number}{suffix}") == number * scale[suffix] * 1000
    assert in_unit("memory", parse_quantity(f"{number}Mi")) == number
    assert in_unit("cpu", parse_quantity(f"{number}m")) == number


def test_problems_of_orchestrators_quotas_and_mig_are_reported_in_one_run() -> None:
    """Regression: a pool without a team hid the errors of all quotas."""
    text = changed(
        KUBE,
        *BOTH,
        ("    nodes: {min: 1, max: 6}\n", "    nodes: {min: 1, max: 6}\n    runs: kubernetes\n"),
        ("nvidia.com/gpu: 32", "nvidia.com/gpu: 64"),
        ("{from: spot, machines: [p4de.24xlarge]}", "{from: spot, machines: [g6e.48xlarge]}"),
    )
    report = inspect_text(text, "kube.yaml", catalog.load())
    assert [problem.id for problem in report.errors] == ["quota-above-pools", "who-runs", "no-mig"]
