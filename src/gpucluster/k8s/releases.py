"""The Helm releases that our manifests need, and the line that installs one. `guide` and `gpucluster k8s up` print the same line."""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gpucluster import catalog
from gpucluster.k8s.manifest import Manifest, documents
from gpucluster.k8s.site import Site
from gpucluster.k8s.views.charts import needs_efa_plugin
from gpucluster.k8s.waves import CHARTS, FIELD_MANAGER
from gpucluster.plan import names

# Not strict: the definitions are those of other projects, and a server may be older than their fields.
DEFINE = (
    "kubectl",
    "apply",
    "--server-side",
    f"--field-manager={FIELD_MANAGER}",
    "--force-conflicts",
    "--filename",
    "-",
)
# `helm show crds` prints the files of the folder as they are (helm, pkg/action/show.go). Those of lws 0.9.0 begin without `---`, and of
# a document with repeated keys kubectl takes the last ones.
_DIVIDE = ("awk", '/^apiVersion:/ {print "---"} {print}')
WITHOUT_VALUES = ("jobset", "lws")  # their defaults are right
# The charts with a folder `crds` of their own. `helm show crds` also prints those of the charts inside a chart, whether or not the values
# turn them off (helm, pkg/action/show.go): kubeflow-trainer 2.3.0 has lws 0.8.0 inside, older than the pinned one.
WITH_DEFINITIONS = ("gpu-operator", "jobset", "karpenter", "lws")


@dataclass(frozen=True, slots=True)
class Release:
    """A chart at its pinned version. The release has the chart's name."""

    name: str
    version: str
    namespace: str
    repository: str
    values: str | None  # file of the tree

    @property
    def full_name(self) -> str:
        """Return the name that helm lists for the chart."""
        return f"{self.name}-{self.version}"

    @property
    def chart(self) -> tuple[str, ...]:
        """Return the words of helm that name the chart."""
        if self.repository.startswith("oci://"):
            return (f"{self.repository}/{self.name}",)
        return (self.name, "--repo", self.repository)


def releases(site: Site) -> tuple[Release, ...]:
    """Return the releases in the order in which they are installed. They do not need each other."""
    return tuple(
        Release(name, row.version, row.namespace, row.repository, _values(name))
        for name, row in catalog.kubernetes_charts().items()
        if _NEEDED[name](site)
    )


def values_of(release: Release, files: Mapping[str, str]) -> Manifest:
    """Return the values of a release, from the files of the tree."""
    return documents(files[release.values])[0] if release.values else {}


def install(release: Release, cluster: str) -> Iterator[str]:
    """Yield the words of the command, to be run in the folder of the tree. The label says whose release it is."""
    yield from ("helm", "upgrade", "--install", release.name, *release.chart, "--version", release.version)
    yield from ("--namespace", release.namespace, "--create-namespace")
    if release.values is not None:
        yield from ("--values", release.values)
    yield from ("--labels", f"{names.LABEL_CLUSTER}={cluster}", "--wait")


def has_definitions(release: Release) -> bool:
    """Return whether the chart has definitions in a folder `crds`. The others have none, or have them as templates, which helm upgrades."""
    return release.name in WITH_DEFINITIONS


def definitions(release: Release) -> Iterator[str]:
    """Yield the words of the command that prints the definitions of the chart's folder `crds`.

    helm installs these, and neither upgrades nor deletes them (helm.sh, "Custom Resource Definitions"). So they are applied before each
    install and upgrade: an uninstall leaves old ones behind.
    """
    yield from ("helm", "show", "crds", *release.chart, "--version", release.version)


def divided(definitions: str) -> str:
    """Return what `helm show crds` prints with each definition as a document of its own."""
    return re.sub(r"^(?=apiVersion:)", "---\n", definitions, flags=re.MULTILINE)


def define(shown: str) -> str:
    """Return the line that applies the definitions that a command of helm shows, for people."""
    return f"{shown} | {shlex.join(_DIVIDE)} | {shlex.join(DEFINE)}"


def _values(name: str) -> str | None:
    return None if name in WITHOUT_VALUES else f"{CHARTS.folder}/{name}.yaml"


def _always(_: Site) -> bool:
    return True


_NEEDED: Mapping[str, Callable[[Site], bool]] = {
    "aws-efa-k8s-device-plugin": needs_efa_plugin,
    "gpu-operator": lambda site: any(pool.gpu_count for pool in site.kubernetes.pools),
    "jobset": _always,
    "karpenter": lambda site: any(pool.elastic for pool in site.kubernetes.pools),
    "kubeflow-trainer": lambda site: site.kubernetes.trainer is not None,
    "kueue": _always,
    "lws": lambda site: any(one.nodes > 1 for one in site.workloads.services),
}
