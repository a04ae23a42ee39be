"""The calls of EKS. Its nodes take one step before each call, and whenever the cloud's own loop says so."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, cast

from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.eks import access, addons, clusters, identities, node_groups
from gpucluster.sandbox.aws.eks.nodes import Nodes
from gpucluster.sandbox.aws.eks.state import Cluster, Eks, Tagged, missing
from gpucluster.sandbox.aws.moto_state import Moto
from gpucluster.sandbox.aws.shapes import Calls, ServiceCall

Result = dict[str, Any]


def calls(model: CloudModel, moto: Moto) -> Calls:
    """All calls by operation name."""
    nodes = Nodes(model, moto)
    eks: Eks = model.eks
    eks.on_gone.append(lambda cluster, _: _drop_group(moto, cluster))
    found = {
        **clusters.calls(model, moto),
        **node_groups.calls(model, moto, nodes),
        **addons.calls(model, moto),
        **access.calls(model, moto),
        **identities.calls(model, moto),
        **_Tags(eks).calls(),
    }
    return {name: _stepping(nodes, call) for name, call in found.items()}


def _drop_group(moto: Moto, cluster: Cluster) -> None:
    moto.drop_group(cluster.group)


def _stepping(
    nodes: Nodes, call: Callable[[ServiceCall], Mapping[str, Any]]
) -> Callable[[ServiceCall], Mapping[str, Any]]:
    def stepped(asked: ServiceCall) -> Mapping[str, Any]:
        nodes.step(asked.now)
        return call(asked)

    return stepped


class _Tags:
    """Tags of everything that has an ARN."""

    def __init__(self, eks: Eks) -> None:
        self._eks = eks

    def calls(self) -> Calls:
        return {"TagResource": self.tag, "UntagResource": self.untag, "ListTagsForResource": self.tags}

    def tag(self, call: ServiceCall) -> Result:
        return self._change(call, cast(Mapping[str, str], call.asked["tags"]), ())

    def untag(self, call: ServiceCall) -> Result:
        return self._change(call, {}, call.asked["tagKeys"])

    def tags(self, call: ServiceCall) -> Result:
        return {"tags": dict(self._named(call).tags)}

    def _change(self, call: ServiceCall, tags: Mapping[str, str], gone: Collection[str]) -> Result:
        found = self._named(call)
        left = {k: v for k, v in found.tags.items() if k not in gone}
        self._eks.put(replace(cast(Any, found), tags={**left, **tags}))
        return {}

    def _named(self, call: ServiceCall) -> Tagged:
        arn = str(call.asked["resourceArn"])
        found = self._eks.named(arn)
        if found is None:
            raise missing(f"The resource {arn} was not found")
        return found
