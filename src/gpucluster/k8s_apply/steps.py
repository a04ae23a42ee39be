"""A rendered tree as ordered steps: the charts, then the waves, and what is checked after each."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpucluster.artifacts import Artifact, digest, pack
from gpucluster.errors import StateError
from gpucluster.k8s.manifest import Manifest, documents
from gpucluster.k8s.releases import Release, define, definitions, has_definitions, install, releases
from gpucluster.k8s.render import render
from gpucluster.k8s.site import site
from gpucluster.k8s.waves import SERVICES, TESTS, WAVES, Wave, apply
from gpucluster.k8s_apply.conditions import CHECKED
from gpucluster.k8s_apply.objects import Ref, labels, ref_of, rows, section
from gpucluster.plan import names
from gpucluster.plan.model import Bindings, ClusterPlan
from gpucluster.plan.model.workloads import Workloads

CHART_S = 600.0  # images of a chart are pulled, its webhooks get certificates
SERVED_S = 120.0
ENDING_S = 600.0  # a deletion that goes on: pods end, Karpenter ends machines
_LIMITS = {SERVICES: 1800.0}  # a node is launched, an image pulled, a model loaded
_LIMIT_S = 300.0
AWAITED_LAST = (SERVICES,)  # a service may wait for a Secret or for quota, and no later wave needs it


@dataclass(frozen=True, slots=True)
class File:
    """A file of a wave and its objects."""

    path: str
    objects: tuple[Manifest, ...]


@dataclass(frozen=True, slots=True)
class WaveStep:
    """A folder with its objects."""

    wave: Wave
    files: tuple[File, ...]

    @property
    def objects(self) -> tuple[Manifest, ...]:
        return tuple(one for file in self.files for one in file.objects)

    @property
    def limit_s(self) -> float:
        return _LIMITS.get(self.wave, _LIMIT_S)

    def file_of(self, ref: Ref) -> str | None:
        """Return the path of the file that has the object."""
        return next((f.path for f in self.files if any(ref_of(one) == ref for one in f.objects)), None)


@dataclass(frozen=True, slots=True)
class Steps:
    """All that `up` does, in order."""

    cluster: str
    tree: tuple[Artifact, ...]
    releases: tuple[Release, ...]
    waves: tuple[WaveStep, ...]

    @property
    def digest(self) -> str:
        """Return the name of the tree: the same files have the same one."""
        return digest(pack(self.tree))

    @property
    def objects(self) -> tuple[Manifest, ...]:
        return tuple(one for wave in self.waves for one in wave.objects)

    @property
    def tests(self) -> tuple[Manifest, ...]:
        """Return the objects that no wave has, and that people create and delete by hand."""
        return tuple(one for file in _files(self.tree, TESTS) for one in file.objects)

    def awaited(self, wave: WaveStep) -> tuple[Manifest, ...]:
        """Return the objects of a wave whose status is awaited after the apply."""
        return tuple(
            one for one in wave.objects if one["kind"] in CHECKED and ref_of(one) not in self.unbound
        )

    @property
    def unbound(self) -> frozenset[Ref]:
        """Return the claims whose volume the tree leaves out, because its file system has no id yet, and the services that mount them."""
        made = {one["metadata"]["name"] for one in self.objects if one["kind"] == "PersistentVolume"}
        claims = [
            ref_of(one) for one in self.objects if one["kind"] == _CLAIM and _volume(one) not in (*made, None)
        ]
        names_of = {(ref.namespace, ref.name) for ref in claims}
        services = (one for one in self.objects if one["kind"] in SERVICE_KINDS)
        return frozenset([*claims, *(ref_of(one) for one in services if names_of & set(_mounts(one)))])


def steps(plan: ClusterPlan, workloads: Workloads | None, bindings: Bindings | None) -> Steps:
    """Return the steps for a plan. ValueError for a plan without Kubernetes."""
    tree = tuple(
        Artifact(artifact.path.removeprefix(f"{names.K8S_DIR}/"), artifact.content)
        for artifact in render(plan, workloads, bindings)
    )
    charts = releases(site(plan, workloads, bindings))
    return Steps(plan.name, tree, charts, tuple(_waves(tree)))


def waves_through(of: Steps, last: str | None) -> tuple[WaveStep, ...]:
    """Return the waves up to the one of the folder `last`; all for None. StateError names the folders."""
    folders = [wave.wave.folder for wave in of.waves]
    if last is not None and last not in folders:
        raise StateError(
            f"--through says {last}, and the tree of {of.cluster} has no such wave",
            next_step=f"name one of {', '.join(folders)}",
        )
    return of.waves if last is None else of.waves[: folders.index(last) + 1]


def lines(of: Steps, *, charts: bool = True, through: str | None = None) -> Iterator[str]:
    """Yield what `up` does, in order, for people."""
    number = 0
    for release in of.releases if charts else ():
        number += 1
        yield f"{number}. {' '.join(install(release, of.cluster))}"
        if has_definitions(release):
            yield f"   {define(' '.join(definitions(release)))}, first"
    for wave in waves_through(of, through):
        number += 1
        yield f"{number}. {apply(wave.wave)}"
        yield f"   {_counts(wave.objects)}"
        if awaited := of.awaited(wave):
            when = "after the last wave it" if wave.wave in AWAITED_LAST else "then"
            yield f"   {when} waits, at most {wave.limit_s:g} s, until these are ready: {_counts(awaited)}"


def spec_field(one: Manifest) -> str:
    """Return where the spec or the workloads say what the object is made from; an empty text if no field is its source."""
    marks = labels(one)
    team, workload = marks.get(names.LABEL_TEAM), marks.get(names.LABEL_WORKLOAD)
    if workload:
        return f"the workload {workload} of the team {team} in workloads/"
    if one["kind"] in _OF_POOLS:
        return "pools"
    if one["kind"] in ("PersistentVolume", "PersistentVolumeClaim"):
        return "storage"
    return f"the team {team} in kubernetes.teams" if team else ""


_OF_POOLS = ("EC2NodeClass", "NodeOverlay", "NodePool", "ResourceFlavor", "Topology")


def _waves(tree: Sequence[Artifact]) -> Iterator[WaveStep]:
    for wave in WAVES:
        files = tuple(_files(tree, wave))
        if files:
            yield WaveStep(wave, files)


def _files(tree: Sequence[Artifact], wave: Wave) -> Iterator[File]:
    for artifact in tree:
        within = artifact.path.startswith(f"{wave.folder}/")
        if within and not artifact.path.endswith("/kustomization.yaml"):
            yield File(artifact.path, tuple(documents(artifact.content.decode())))


def _counts(objects: Sequence[Manifest]) -> str:
    found = Counter(one["kind"] for one in objects)
    return ", ".join(f"{count} {kind}" for kind, count in sorted(found.items()))


SERVICE_KINDS = ("Deployment", "LeaderWorkerSet")
_CLAIM = "PersistentVolumeClaim"


def _volume(claim: Manifest) -> str | None:
    return section(claim, "spec").get("volumeName")


def _mounts(service: Manifest) -> Iterator[tuple[str, str]]:
    """Yield namespace and name of the claims that its pods mount."""
    spec = section(service, "spec")
    group = section(spec, "leaderWorkerTemplate")
    templates = (
        section(spec, "template"),
        section(group, "leaderTemplate"),
        section(group, "workerTemplate"),
    )
    for volume in (one for template in templates for one in rows(section(template, "spec"), "volumes")):
        if name := section(volume, "persistentVolumeClaim").get("claimName"):
            yield service["metadata"]["namespace"], name
