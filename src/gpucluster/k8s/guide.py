"""Files beside the manifests: Kustomize's file lists, a guide to apply the waves, and a list of missing values."""

from collections.abc import Iterator, Mapping, Sequence, Set

from gpucluster.k8s import argocd
from gpucluster.k8s.kustomization import FILE, kustomization
from gpucluster.k8s.releases import define, has_definitions, install, releases
from gpucluster.k8s.site import Site
from gpucluster.k8s.views.storage import missing
from gpucluster.k8s.waves import FIELD_MANAGER, TESTS, WAVES, apply
from gpucluster.plan import codec, names
from gpucluster.plan.model import Bindings, Efs, FileSystemBinding, FsxLustre, Lustre
from gpucluster.plan.model.eks import EksControlPlane, NodeGroup
from gpucluster.plan.model.kubernetes import ExistingControlPlane, NodePool
from gpucluster.plan.model.values import EFA, Distribution, Market
from gpucluster.plan.node_pools import always_on_zones, filled


def kustomizations(files: Mapping[str, str]) -> dict[str, str]:
    """Return one file for each wave that has files, with exactly these files, and a top one with the waves in order."""
    by_wave = {
        wave.folder: sorted(path.partition("/")[2] for path in files if path.startswith(f"{wave.folder}/"))
        for wave in WAVES
    }
    there = {folder: inside for folder, inside in by_wave.items() if inside}
    made = {f"{folder}/{FILE}": kustomization(inside) for folder, inside in there.items()}
    return {**made, FILE: kustomization(there)}


def pages(site: Site, files: Mapping[str, str]) -> dict[str, str]:
    """Return README.md, and MISSING.md if values are missing."""
    folders = {path.partition("/")[0] for path in files}
    made = {"README.md": "\n".join(_readme(site, folders)) + "\n"}
    return {**made, "MISSING.md": "\n".join(_missing(site)) + "\n"} if missing(site) else made


def _readme(site: Site, folders: Set[str]) -> Iterator[str]:
    part = site.kubernetes
    plane = part.control_plane
    where = (
        f"the context `{plane.context}`"
        if isinstance(plane, ExistingControlPlane)
        else f"an EKS cluster called `{site.plan.name}`"
    )
    yield f"# {site.plan.name}: manifests for Kubernetes {part.version}"
    yield ""
    yield f"Made by `gpucluster render`, for {where}. Change the spec, not these files."
    yield ""
    yield "## Before the first wave"
    yield ""
    if isinstance(plane, EksControlPlane):
        yield "`pulumi up` creates:"
        yield ""
        yield from (f"- {line}" for line in _created(site, plane))
        yield ""
        yield "It does not create these. They must exist before the first wave:"
    else:
        yield "These must exist before the first wave:"
    yield ""
    yield from (f"- {line}" for line in _needed(site))
    yield ""
    yield "## The waves"
    yield ""
    yield from (f"- `{wave.folder}`: {wave.holds}" for wave in WAVES if wave.folder in folders)
    yield ""
    yield f"`gpucluster k8s up {site.plan.name}` installs the charts, applies the folders in this order, and checks after each. By hand:"
    yield ""
    yield "```sh"
    yield from (" ".join(install(release, site.plan.name)) for release in releases(site))
    yield from (apply(wave) for wave in WAVES if wave.folder in folders)
    yield "```"
    yield ""
    defined = ", ".join(release.name for release in releases(site) if has_definitions(release))
    yield f"helm does not upgrade the definitions in the folder `crds` of a chart ({defined}). By hand, before a newer version of such a chart:"
    yield f"`{define('helm show crds CHART --version VERSION')}`."
    if site.workloads.nccl_tests:
        yield ""
        yield f"`{TESTS.folder}` has a test of NCCL for each pool, and no wave starts it: `kubectl create -f {TESTS.folder}/NAME.yaml`, and `kubectl delete` afterwards."
    yield ""
    yield from _gitops(site.plan.name)
    if missing(site):
        yield ""
        yield "`MISSING.md` lists file systems without an id; pods that need them wait."


def _gitops(cluster: str) -> Iterator[str]:
    """Yield how Flux or Argo CD begins."""
    yield f"With Flux 2.7 or later: commit the output of `gpucluster render {cluster} --to {cluster}` at the root of the repository of the GitRepository"
    yield f"`flux-system`, and apply `flux/kustomizations.yaml` once. Then use `gpucluster k8s status {cluster} --no-charts`: helm's releases are Flux's."
    yield ""
    yield "With Argo CD 3.6 or later: commit the same output to a repository that Argo CD reads, add to its settings the health checks that the waves need, and"
    yield "make one Application:"
    yield ""
    yield "```sh"
    yield f"kubectl apply --server-side --field-manager={FIELD_MANAGER} --filename {argocd.FOLDER}/settings/argocd-cm.yaml"
    yield argocd.create(cluster)
    yield "```"
    yield "It installs the charts as Applications of their own, then the waves. It deletes nothing that leaves the spec."


def _needed(site: Site) -> Iterator[str]:
    """Return what our objects expect in the cluster, with its names."""
    part = site.kubernetes
    plane = part.control_plane
    ours = part.distribution is Distribution.EKS
    if not ours:
        yield "a CNI that enforces NetworkPolicies: without one they have no effect"
    if not ours and any(EFA in pool.allocatable for pool in part.pools):
        yield f"AWS's EFA device plugin, which tolerates the taint `{names.TAINT_GPU}` and counts `{EFA}`"
    if isinstance(plane, ExistingControlPlane):
        yield from _nodes(site, plane)
    if not ours and any(isinstance(mount.source, Lustre) for mount in site.mounts()):
        yield "the FSx for Lustre CSI driver"
    yield from _people(site)
    if part.monitoring is not None:
        yield "the Prometheus operator, with a Prometheus that takes ServiceMonitors and rules of all namespaces, and Grafana's sidecar for the dashboard"
    if any(one.queue_depth is not None for one in site.workloads.services):
        yield "an adapter that serves the pods' metric `queue_depth` to the autoscaler (`custom.metrics.k8s.io`)"


def _people(site: Site) -> Iterator[str]:
    """Return the groups without a person. On EKS the spec's `members` are in theirs."""
    plane = site.kubernetes.control_plane
    entries = plane.entries if isinstance(plane, EksControlPlane) else ()
    filled = {group for entry in entries for group in entry.groups}
    empty = [team.group for team in site.kubernetes.teams if team.group not in filled]
    if empty:
        groups = ", ".join(f"`{group}`" for group in empty)
        how = " (none are in `teams[].members` of the spec)" if isinstance(plane, EksControlPlane) else ""
        yield f"people in the groups {groups}{how}"


def _created(site: Site, plane: EksControlPlane) -> Iterator[str]:
    """Return what the program declares. `tests/unit/k8s/test_guide.py` finds each line among its resources."""
    part, cluster = site.kubernetes, site.plan.name
    addons = ", ".join(f"`{one.name}`" for one in plane.addons)
    yield f"the EKS cluster `{cluster}` of Kubernetes {part.version} with the add-ons {addons}; `vpc-cni` enforces NetworkPolicies"
    for group in plane.groups:
        yield f"the node group `{group.key}`: {_nodes_of(group)} in {', '.join(group.zones)}"
    for entry in plane.entries:
        groups = ", ".join(f"`{one}`" for one in entry.groups)
        rights = ["all rights in the cluster"] * entry.admin + [f"the groups {groups}"] * bool(groups)
        yield f"an access entry of `{entry.principal}` with {' and '.join(rights)}"
    if any(pool.elastic for pool in part.pools):
        role, queue = names.kubernetes_node_role(cluster), names.interruption_queue(cluster)
        yield f"for Karpenter: the role of its controller, the role and instance profile `{role}` of its nodes with an access entry, the SQS queue `{queue}`"
    for one in part.pod_identities:
        rights = [f"reads {_places(one.read)}"] * bool(one.read)
        rights += [f"writes {_places(one.write)}"] * bool(one.write)
        yield f"a pod identity association of the service account `{one.namespace}/{one.service_account}` with a role that {' and '.join(rights)}"
    for mount in site.plan.storage:
        if isinstance(mount.source, FsxLustre | Efs):
            kind = "FSx for Lustre" if isinstance(mount.source, FsxLustre) else "EFS"
            yield f"the file system of `{mount.path}`: {kind}"


def _nodes_of(group: NodeGroup) -> str:
    return f"{group.nodes} node{'s' * (group.nodes > 1)}, {' or '.join(group.machines)}"


def _places(places: Sequence[str]) -> str:
    return ", ".join(f"`{place}`" for place in places)


def _nodes(site: Site, plane: ExistingControlPlane) -> Iterator[str]:
    """Return the always-on nodes, and what Karpenter needs for the others."""
    part, cluster = site.kubernetes, site.plan.name
    for pool in part.pools:
        if pool.min:
            labels = ", ".join(f"`{key}={value}`" for key, value in sorted(pool.labels.items()))
            taints = ", ".join(f"`{t.key}={t.value}:{t.effect}`" for t in pool.taints) or "none"
            yield f"pool {pool.name}: {pool.min} node{'s' * (pool.min > 1)} {_where(pool)} ({_bought(pool)}) with the labels {labels}; taints: {taints}"
    if any(pool.elastic for pool in part.pools):
        yield f"an IAM role for Karpenter's controller, with the policies of Karpenter's guide for the cluster `{plane.eks_name}`, and an association of EKS Pod Identity with the service account `{names.KARPENTER}/{names.KARPENTER}`"
        yield f"the IAM role `{names.kubernetes_node_role(cluster)}` for nodes that Karpenter makes, with an access entry of the type EC2_LINUX; the controller's role may pass it"
        group = f"`{names.TAG_CLUSTER}={cluster}` and `{names.TAG_ROLE}={names.ROLE_KUBERNETES}`"
        yield f"subnets tagged `{names.TAG_CLUSTER}={cluster}`, security groups tagged {group}"
    if any(launch.reservations for pool in part.pools for launch in pool.launches):
        yield "the right `ec2:DescribeCapacityReservations` of Karpenter's controller"
    if any(s.market is Market.SPOT for pool in part.pools if pool.elastic for s in pool.sources):
        yield f"the SQS queue `{names.interruption_queue(cluster)}`, which gets EC2's spot notices"


def _where(pool: NodePool) -> str:
    """Return the zones of the always-on nodes."""
    zones = always_on_zones(pool.min, pool.sources)
    if len(zones) == 1:
        return f"in {pool.zone}"
    return "with " + " and ".join(f"{nodes} in {zone}" for zone, nodes in zones.items())


def _bought(pool: NodePool) -> str:
    """Return where the always-on nodes come from."""
    found = list[str]()
    for source, count, _ in filled(pool.min, pool.sources):
        which = f" `{source.reservation}`" if source.reservation else ""
        found.append(f"{count} {source.market}{which}, {' or '.join(source.machines)}")
    return "; ".join(found)


def _missing(site: Site) -> Iterator[str]:
    yield f"# {site.plan.name}: not known yet"
    yield ""
    yield "Only the cloud knows the ids of these file systems. Their volumes are left out; claims and pods that need them stay pending."
    yield ""
    for mount in missing(site):
        yield f"- `{mount.path}`: `id`, `dns_name` and `mount_name` of its FSx for Lustre"
    yield ""
    yield "Pass them with `gpucluster render FILE --bindings bindings.json`. Without a Pulumi deployment, write the file yourself:"
    yield ""
    yield "```json"
    yield codec.dumps(_to_fill(site)).rstrip()
    yield "```"


def _to_fill(site: Site) -> Bindings:
    """Return bindings with placeholder values. `render` refuses them."""
    nothing = FileSystemBinding(id="", dns_name="", mount_name="")
    return Bindings(
        schema=1,
        region=site.plan.aws.region,
        bucket="",
        secret="",
        subnets={},
        templates={},
        file_systems={mount.path: nothing for mount in missing(site)},
    )
