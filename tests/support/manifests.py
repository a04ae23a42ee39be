"""The valid manifests of `unit/k8s/good.yaml`, their pools, and one change at a time."""

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from gpucluster.k8s.lint import ANY, Distribution, Facts, PoolFacts, Present, Taint
from gpucluster.k8s.lint.read import read

GONE = object()
_GPU = Taint(key="nvidia.com/gpu", value="present")
_NODE = {"cpu": "95", "memory": "1100Gi", "nvidia.com/gpu": "8", "ephemeral-storage": "500Gi"}


def pool(name: str, **labels: frozenset[str]) -> PoolFacts:
    own = {"example.org/pool": frozenset({name}), **labels}
    return PoolFacts(name=name, max_nodes=4, allocatable=_NODE, labels=own, taints=(_GPU,))


FABRIC = {"topology.k8s.aws/network-node-layer-1": ANY}
FACTS = Facts(
    kubernetes="1.36",
    distribution=Distribution.EKS,
    pools=(pool("tune", **FABRIC), pool("serve")),
    present=(Present(kind="APIService", name="v1beta1.custom.metrics.k8s.io"),),
)


@cache
def _good() -> tuple[Any, ...]:
    found = read((Path(__file__).parents[1] / "unit/k8s/good.yaml").read_text(), "good.yaml")
    assert not found.findings
    return tuple(document.value for document in found.documents)


def good() -> list[Any]:
    """A copy of all valid manifests."""
    return deepcopy(list(_good()))


def pick(manifests: list[Any], what: str) -> Any:
    """`Kind/name` among them."""
    kind, _, name = what.partition("/")
    (found,) = [
        one for one in manifests if one["kind"] == kind and one.get("metadata", {}).get("name") == name
    ]
    return found


def changed(what: str, path: str, value: Any, manifests: list[Any] | None = None) -> list[Any]:
    """All valid manifests with one change: `path` has `/` between its keys, `~` stands for a slash in a key."""
    manifests = good() if manifests is None else manifests
    target = pick(manifests, what)
    *way, last = [key.replace("~", "/") for key in path.split("/")]
    for key in way:
        target = target[int(key)] if isinstance(target, list) else target[key]
    index: Any = int(last) if isinstance(target, list) else last
    if value is GONE:
        del target[index]
    else:
        target[index] = value
    return manifests
