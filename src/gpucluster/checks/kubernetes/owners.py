"""Who made an object of the cluster, by the marks that helm and controllers of others leave on it."""

from gpucluster.checks.kubernetes import objects
from gpucluster.text import short

RELEASE = "meta.helm.sh/release-name"  # helm, pkg/action/validate.go
RELEASE_NAMESPACE = "meta.helm.sh/release-namespace"
_OURS = "gpucluster"  # of our manifests, and of their copies
# In this order: OLM's and the GitOps tools' own marks (their sources), then the common labels of Kubernetes' documentation.
_LABELS = (
    "olm.owner",
    "argocd.argoproj.io/instance",
    "kustomize.toolkit.fluxcd.io/name",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/name",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
    "k8s-app",
    "app",
)


def release_of(item: objects.Object) -> str:
    """`NAMESPACE/NAME` of the helm release; empty if no release is named."""
    marks = objects.words(objects.section(item, "metadata"), "annotations")
    return f"{marks.get(RELEASE_NAMESPACE, '')}/{marks[RELEASE]}" if RELEASE in marks else ""


def owner_of(item: objects.Object) -> str:
    """The words for who made it; empty if nothing says so. Copies of our own manifests name nobody."""
    if release := release_of(item):
        namespace, _, name = release.partition("/")
        return short(f"the release {name} in {namespace}", 80)
    labels = objects.words(objects.section(item, "metadata"), "labels")
    if labels.get("app.kubernetes.io/managed-by") == _OURS:
        return ""
    return next((short(labels[key], 60) for key in _LABELS if labels.get(key)), "")
