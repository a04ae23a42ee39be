"""What a Kubernetes cluster must be, from its plan and the steps of `gpucluster k8s up`. Pure."""

from collections.abc import Iterator

from gpucluster.catalog import eks_addon_controllers, eks_addon_gpu_daemon_sets
from gpucluster.checks.kubernetes import added, api, applied, controllers, eks, instances, nodes, pods, rights
from gpucluster.checks.kubernetes.table import CLUSTER
from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s_apply.steps import SERVICE_KINDS, Steps
from gpucluster.k8s_apply.workload_states import GANG_KINDS
from gpucluster.plan import names
from gpucluster.plan.eks import RIGHTS
from gpucluster.plan.model import AwsPlan, Bindings
from gpucluster.plan.model.eks import EksControlPlane, NodeGroup
from gpucluster.plan.model.kubernetes import Kubernetes, NodePool, PodSecurity
from gpucluster.validate import cloud_expectations
from gpucluster.validate.expectation import CLOUD, Expectation, expect
from gpucluster.validate.pod_manifests import PodSet, pod_sets

SYSTEM_NAMESPACE = "kube-system"


def kubernetes_expectations(
    plan: AwsPlan, steps: Steps, *, charts: bool, containers: bool, bindings: Bindings | None = None
) -> tuple[Expectation, ...]:
    """Return every expectation, in the order of the run. Without `charts`, somebody else installs them.

    `bindings` say where a cluster without Slurm has its network. Without `containers`, pods of the cluster run no program, as in a rehearsal: no check needs one.
    """
    part = plan.kubernetes
    if part is None:
        raise ValueError(f"{plan.name} has no Kubernetes")
    of_pods = [row for one in pod_sets(part, steps) for row in _pods(one)] if containers else ()
    of_aws = _of_aws(plan, part, bindings)
    return (*_expected(plan, part, steps, charts=charts), *of_aws, *of_pods)


def _expected(plan: AwsPlan, part: Kubernetes, steps: Steps, *, charts: bool) -> Iterator[Expectation]:
    yield expect("kube.api", CLUSTER, api.ApiServer(version=part.version))
    if isinstance(part.control_plane, EksControlPlane):
        yield from _system_nodes(part.control_plane)
    for pool in part.pools:
        want = _pool(pool)
        yield expect("kube.nodes", pool.name, want)
        yield expect("kube.offer", pool.name, want)
    yield expect("kube.controllers", CLUSTER, _controllers(part, steps, charts=charts))
    if charts and steps.releases:
        wanted = tuple(one.name for one in steps.releases)
        yield expect("kube.charts", CLUSTER, applied.Charts(names=wanted))
    folders = tuple(step.wave.folder for step in steps.waves)
    yield expect("kube.objects", CLUSTER, applied.Objects(folders=folders))
    launchers = sum(one["kind"] == "NodePool" for one in steps.objects)
    if launchers:
        yield expect("kube.launchers", CLUSTER, applied.Launchers(count=launchers))
    yield expect("kube.queues", CLUSTER, applied.Queues(names=tuple(team.queue for team in part.teams)))
    running = tuple(_workloads(steps))
    if running:
        yield expect("kube.workloads", CLUSTER, applied.Workloads(names=running))
    yield expect("kube.instances", CLUSTER, instances.KubernetesInstances(cluster=plan.name))
    yield expect("kube.rights", CLUSTER, _rights(part, steps))
    yield expect("kube.added", CLUSTER, _added(part, steps))


def _of_aws(plan: AwsPlan, part: Kubernetes, bindings: Bindings | None) -> Iterator[Expectation]:
    """What AWS must show of a control plane of ours, and of its network where Slurm's part does not look at it."""
    plane = part.control_plane
    if not isinstance(plane, EksControlPlane):
        return
    yield expect("cloud.eks", CLUSTER, _eks(plan, part, plane))
    if plan.slurm is None:
        for check, want in cloud_expectations.of_kubernetes(plan, bindings):
            yield expect(check, CLOUD, want)


def _eks(plan: AwsPlan, part: Kubernetes, plane: EksControlPlane) -> eks.EksWant:
    """As `aws/eks` declares it."""
    addons = {one.name for one in plane.addons}
    pods = [(SYSTEM_NAMESPACE, account, name) for name, (_, account) in RIGHTS.items() if name in addons]
    if any(pool.elastic for pool in part.pools):
        pods.append((names.KARPENTER, names.KARPENTER, names.KARPENTER))
    for one in part.pod_identities:
        word = names.pods_role(one.namespace, one.service_account)
        pods.append((one.namespace, one.service_account, word))
    return eks.EksWant(
        cluster=plan.name,
        entries=tuple(
            eks.EntryWant(principal=one.principal, groups=one.groups, admin=one.admin)
            for one in plane.entries
        ),
        public_from=plane.public_from,
        teams=tuple(team.namespace for team in part.teams),
        groups=tuple(team.group for team in part.teams),
        pods=tuple(
            eks.PodRoleWant(namespace=namespace, account=account, role=f"{plan.name}-{word}")
            for namespace, account, word in pods
        ),
    )


def _pods(of: PodSet) -> Iterator[Expectation]:
    """What validation's own pods must reach and mount."""
    network = pods.PodNetwork(pool=of.pool, namespace=of.namespace)
    for check in (
        "kube.reach",
        "kube.dns",
        "kube.metadata",
        "kube.isolation",
        *(["kube.gpus"] if of.gpus else []),
    ):
        yield expect(check, of.pool, network)
    if of.claims:
        want = pods.PodVolumes(pool=of.pool, namespace=of.namespace, claims=of.claims)
        yield expect("kube.volumes", of.pool, want)


def _controllers(part: Kubernetes, steps: Steps, *, charts: bool) -> controllers.Controllers:
    """What EKS's add-ons run must be there; of charts, what is there must have its pods."""
    plane = part.control_plane
    addons = plane.addons if isinstance(plane, EksControlPlane) else ()
    needed = [name for addon in addons for _, name in eks_addon_controllers(addon.name)]
    if any(pool.gpu_count and pool.min and pool.arch == "amd64" for pool in part.pools):
        needed += [name for addon in addons for name in eks_addon_gpu_daemon_sets(addon.name)]
    namespaces = {SYSTEM_NAMESPACE, *(one.namespace for one in steps.releases if charts)}
    return controllers.Controllers(
        namespaces=tuple(sorted(namespaces)), needed=tuple(f"{SYSTEM_NAMESPACE}/{name}" for name in needed)
    )


def _rights(part: Kubernetes, steps: Steps) -> rights.RightsWant:
    """The namespaces of charts are ours also if somebody else installs the charts."""
    teams = tuple(team.namespace for team in part.teams)
    whole = isinstance(part.control_plane, EksControlPlane)
    charts = {one.namespace for one in steps.releases}
    return rights.RightsWant(
        whole=whole,
        teams=teams,
        groups=tuple(team.group for team in part.teams),
        namespaces=tuple(sorted({*teams, *charts, *((SYSTEM_NAMESPACE,) if whole else ())})),
        tree=tuple(_ref(one) for one in steps.objects if one["kind"].endswith("RoleBinding")),
        releases=tuple(f"{one.namespace}/{one.name}" for one in steps.releases),
    )


def _added(part: Kubernetes, steps: Steps) -> added.AddedWant:
    return added.AddedWant(
        whole=isinstance(part.control_plane, EksControlPlane),
        teams={team.namespace: team.queue for team in part.teams},
        guarded=tuple(team.namespace for team in part.teams if team.pod_security is PodSecurity.BASELINE),
        tree=tuple(_ref(one) for one in steps.objects if one["kind"] in ("LocalQueue", "NetworkPolicy")),
    )


def _ref(one: Manifest) -> str:
    metadata = one["metadata"]
    return "/".join(filter(None, (one["kind"], metadata.get("namespace", ""), metadata["name"])))


def _pool(pool: NodePool) -> nodes.PoolNodes:
    return nodes.PoolNodes(
        selector=f"{names.LABEL_POOL}={pool.name}",
        min=pool.min,
        max=pool.max,
        labels=pool.labels,
        taints=tuple((one.key, one.value, one.effect) for one in pool.taints),
        offer=pool.allocatable,
    )


def _system_nodes(plane: EksControlPlane) -> Iterator[Expectation]:
    """The nodes of add-ons and controllers."""
    groups = [one for one in plane.groups if one.pool == names.SYSTEM_NODES]
    if groups:
        yield expect("kube.nodes", names.SYSTEM_NODES, _system(groups))


def _system(groups: list[NodeGroup]) -> nodes.PoolNodes:
    count = sum(one.nodes for one in groups)
    return nodes.PoolNodes(
        selector=f"{names.LABEL_SYSTEM}={names.SYSTEM_NODES}",
        min=count,
        max=2 * count,  # a new version of the group launches before it ends
        labels=groups[0].labels,
        taints=tuple((one.key, one.value, one.effect) for one in groups[0].taints),
        offer={},
    )


def _workloads(steps: Steps) -> Iterator[str]:
    for one in steps.objects:
        if one["kind"] in (*SERVICE_KINDS, *GANG_KINDS):
            yield f"{one['metadata']['namespace']}/{one['metadata']['name']}"
