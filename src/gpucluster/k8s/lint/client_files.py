"""Kinds that clients and daemons read from a file. An API server never gets them, so it has no schema of them."""

_GROUPS = frozenset(
    {"eksctl.io", "kustomize.config.k8s.io", "kind.x-k8s.io", "kubeadm.k8s.io", "audit.k8s.io", "client.authentication.k8s.io", "cli.kyverno.io", "node.eks.aws"}
)  # fmt: skip
# the groups of configuration files: kubelet.config.k8s.io, config.kueue.x-k8s.io, controller-runtime.sigs.k8s.io
_SUFFIXES = (".config.k8s.io", "controller-runtime.sigs.k8s.io")
_PREFIXES = (
    "config.",
    "kubeadm.",
    "holodeck.",
    "skaffold",
    "minikube.",
    "release-notes",
)  # the last: of Istio
_TRANSFORMERS = "builtin"  # the apiVersion of Kustomize's own transformers and generators
_FILES = frozenset(
    {("v1", "Config"), ("argoproj.io/v1alpha1", "ConfigManagementPlugin")}
)  # the first: a kubeconfig


def is_client_file(api_version: str, kind: str) -> bool:
    """Return whether only a client or a daemon reads the kind."""
    group = api_version.rpartition("/")[0]
    named = group in _GROUPS or group.endswith(_SUFFIXES) or group.startswith(_PREFIXES)
    return named or api_version == _TRANSFORMERS or (api_version, kind) in _FILES
