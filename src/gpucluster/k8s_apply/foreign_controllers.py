"""Controllers of others: projects of our charts that are in the cluster under another name, in another namespace, or without helm.

Two controllers of one project work on the same objects, and `up` applies the definitions of its pinned version over those that are there,
which can be newer. So it refuses before its first change, and names what it found.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpucluster.errors import StateError
from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s.releases import Release
from gpucluster.k8s.waves import FIELD_MANAGER
from gpucluster.k8s_apply.access import Access
from gpucluster.k8s_apply.charts import Found
from gpucluster.k8s_apply.charts_removal import GROUPS
from gpucluster.k8s_apply.clock import patiently, some
from gpucluster.k8s_apply.kubectl import MANAGERS, Kind
from gpucluster.k8s_apply.objects import is_written_by, labels, ref_of, rows, section
from gpucluster.plan import names

_DEPLOYMENT: Kind = ("apps/v1", "Deployment")
_DEFINITION: Kind = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
_NAME, _MANAGED_BY = "app.kubernetes.io/name", "app.kubernetes.io/managed-by"
_RELEASE, _NAMESPACE = (
    "meta.helm.sh/release-name",
    "meta.helm.sh/release-namespace",
)  # helm, pkg/action/validate.go
_VERSION = re.compile(r"-v?\d+\.\d.*$", re.ASCII)  # at the end of a chart's full name
_TAG = re.compile(r"(:[^/:]*)?(@.*)?$")
# A group with definitions of other projects, too: cluster-autoscaler has ProvisioningRequests.
_SHARED = {"autoscaling.x-k8s.io": ("capacitybuffers",)}


@dataclass(frozen=True, slots=True)
class Project:
    """How its controller is known. `image`: the end of the path in a registry; `labels`: values of app.kubernetes.io/name."""

    title: str
    image: str
    labels: tuple[str, ...]
    without: str  # which field leaves its chart out


# By the charts and manifests of each project, read on 2026-11-30: charts/*/values.yaml and templates/_helpers.tpl, config/ and manifests/.
PROJECTS: Mapping[str, Project] = {
    "gpu-operator": Project(
        "the GPU operator", "gpu-operator", ("gpu-operator",), "no field leaves the GPU operator out"
    ),
    "jobset": Project("JobSet", "jobset/jobset", ("jobset",), "no field leaves JobSet out"),
    "karpenter": Project(
        "Karpenter",
        "karpenter/controller",
        ("karpenter",),
        "give each pool of kubernetes one number of `nodes`, so that none needs Karpenter",
    ),
    "kubeflow-trainer": Project(
        "Kubeflow Trainer",
        "trainer-controller-manager",
        ("kubeflow-trainer",),
        "leave `kubernetes.trainer` out",
    ),
    "kueue": Project("Kueue", "kueue/kueue", ("kueue",), "no field leaves Kueue out"),
    "lws": Project("LeaderWorkerSet", "lws/lws", ("lws",), "give no service more than one node"),
}


def refuse_foreign_controllers(
    access: Access, cluster: str, releases: Sequence[Release], there: Found
) -> None:
    """StateError names each controller, release and definition of a chart's project that is not of this cluster. Nothing is changed."""
    kubectl = access.kubectl
    made = patiently(
        lambda: kubectl.find([_DEPLOYMENT, _DEFINITION], "", "", "", MANAGERS), access.clock, access.report
    )
    definitions = {
        one.name: list(_definitions(one.name, cluster, there, made))
        for one in releases
        if one.name in PROJECTS
    }
    found = {
        one.name: signs
        for one in releases
        if one.name in PROJECTS and (signs := [*_programs(one, there, made), *map(_told, definitions[one.name])])
    }  # fmt: skip
    if found:
        told = (f"{PROJECTS[name].title} or a part of it is there, and is not of {cluster}: {some(signs)}" for name, signs in found.items())  # fmt: skip
        left = [one["metadata"]["name"] for name in found for one in definitions[name]]
        raise StateError("; ".join(told), next_step=_step(cluster, list(found), left))


def _programs(release: Release, there: Found, made: Sequence[Manifest]) -> Iterator[str]:
    project, place = PROJECTS[release.name], (release.namespace, release.name)
    for where, one in there.items():
        if _VERSION.sub("", one.chart) == release.name and where != place and not one.ours:
            yield f"the release {one.place} ({one.chart})"
    for one in made:
        if one["kind"] == _DEPLOYMENT[1] and not _is_of_our_release(one, there):
            image = next((image for image in _images(one) if _is_of(project, image, one)), None)
            if image is not None:
                yield f"{ref_of(one)} ({image})"


def _told(definition: Manifest) -> str:
    served = ", ".join(str(row["name"]) for row in rows(definition["spec"], "versions") if row.get("served"))
    return f"the definition {definition['metadata']['name']} ({served}), {_owner(definition) or 'without an owner'}"


def _is_of(project: Project, image: str, one: Manifest) -> bool:
    path = f"/{_TAG.sub('', image)}"
    return path.endswith(f"/{project.image}") or labels(one).get(_NAME) in project.labels


def _images(one: Manifest) -> list[str]:
    pods = section(section(section(one, "spec"), "template"), "spec")
    return [str(row.get("image", "")) for row in rows(pods, "containers")]


def _definitions(chart: str, cluster: str, there: Found, made: Sequence[Manifest]) -> Iterator[Manifest]:
    """Yield the definitions of a chart's kinds that neither `up`, nor a release of ours, nor a person's label gives to this cluster.

    helm marks no definition of the folder `crds` of a chart, so beside our release one without an owner is ours.
    """
    installed = any(one.ours and _VERSION.sub("", one.chart) == chart for one in there.values())
    for one in made:
        if (
            one["kind"] == _DEFINITION[1]
            and _has(chart, one["spec"])
            and not is_written_by(one, FIELD_MANAGER)
            and not _is_of_our_release(one, there)
            and not (installed and not _owner(one))
            and labels(one).get(names.LABEL_CLUSTER) != cluster
        ):
            yield one


def _has(chart: str, spec: Manifest) -> bool:
    group = spec["group"]
    return group in GROUPS[chart] and spec["names"]["plural"] in _SHARED.get(
        group, (spec["names"]["plural"],)
    )


def _is_of_our_release(one: Manifest, there: Found) -> bool:
    marks = section(one["metadata"], "annotations")
    release = there.get((marks.get(_NAMESPACE, ""), marks.get(_RELEASE, "")))
    return release is not None and release.ours


def _owner(one: Manifest) -> str:
    marks = section(one["metadata"], "annotations")
    if _RELEASE in marks:
        return f"of the release {marks[_RELEASE]} in {marks.get(_NAMESPACE, '')}"
    by = labels(one).get(_MANAGED_BY)
    return f"managed by {by}" if by else ""


def _step(cluster: str, charts: Sequence[str], left: Sequence[str]) -> str:
    fields = "; ".join(PROJECTS[name].without for name in charts)
    others = (
        f"{fields}. --no-charts leaves all charts to others, and uses what is there;"
        f" `gpucluster k8s up {cluster} --dry-run` prints how to install those that are missing"
    )
    if not left:
        return others
    give = f"kubectl label customresourcedefinition {' '.join(left)} {names.LABEL_CLUSTER}={cluster}"
    return f"{others}. If nobody uses the definitions, give them to {cluster}: {give}"
