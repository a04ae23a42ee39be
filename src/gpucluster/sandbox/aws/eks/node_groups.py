"""The calls of EKS for managed node groups. `nodes.py` launches and ends their instances."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from gpucluster import catalog
from gpucluster.sandbox.aws.ec2 import views
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Refusal
from gpucluster.sandbox.aws.eks import access, roles, templates
from gpucluster.sandbox.aws.eks.clusters import minor, update_shape
from gpucluster.sandbox.aws.eks.nodes import Nodes
from gpucluster.sandbox.aws.eks.state import (
    Cluster,
    Eks,
    Issue,
    Life,
    NodeGroup,
    changed,
    deleted,
    in_use,
    invalid,
    wrong,
)
from gpucluster.sandbox.aws.moto_state import ACCOUNT, Moto
from gpucluster.sandbox.aws.shapes import Calls, ServiceCall

Result = dict[str, Any]
_GROUPS, _NODES, _TAINTS = 30, 450, 50  # EKS user guide, "Service quotas"; botocore's model has the last
_KNOWN = frozenset(
    {"clusterName", "nodegroupName", "scalingConfig", "subnets", "instanceTypes", "amiType", "nodeRole", "labels",
     "taints", "tags", "clientRequestToken", "launchTemplate", "updateConfig", "nodeRepairConfig", "capacityType",
     "version", "releaseVersion"}
)  # fmt: skip
_ECHOED = ("subnets", "nodeRole", "labels", "taints", "capacityType", "amiType")


def calls(model: CloudModel, moto: Moto, nodes: Nodes) -> Calls:
    """Calls of this module by operation name."""
    here = _Groups(model, moto, nodes)
    return {
        "CreateNodegroup": here.create,
        "DescribeNodegroup": here.describe,
        "ListNodegroups": here.all,
        "UpdateNodegroupConfig": here.configure,
        "UpdateNodegroupVersion": here.upgrade,
        "DeleteNodegroup": here.delete,
    }


class _Groups:
    def __init__(self, model: CloudModel, moto: Moto, nodes: Nodes) -> None:
        self._model, self._moto, self._nodes = model, moto, nodes
        self._eks: Eks = model.eks

    def create(self, call: ServiceCall) -> Result:
        asked = call.asked
        cluster, name = str(asked["clusterName"]), str(asked["nodegroupName"])
        found = self._eks.cluster(cluster, call.now)
        self._check_new(found, name, asked, call.now)
        _check_scaling(asked.get("scalingConfig") or _ONE)
        version = str(asked.get("version") or found.version)
        _check_version(version, found)
        self._check_subnets(asked["subnets"], found)
        role = roles.check_nodes(str(asked["nodeRole"]), self._moto)
        template = templates.checked(asked, self._moto)
        release = _release(version, asked.get("releaseVersion"))
        identifier = self._eks.vpcs.fresh_id("ng")
        profile = f"eks-{identifier}"
        self._moto.make_profile(profile, role.name)
        access.admit_nodes(self._eks, cluster, str(asked["nodeRole"]), call.now)
        ami = str(asked.get("amiType") or "AL2023_x86_64_STANDARD")
        options = {
            **{key: asked[key] for key in _ECHOED if key in asked},
            "amiType": ami,
            "capacityType": asked.get("capacityType") or "ON_DEMAND",
            "instanceTypes": templates.machines(asked, template),
            "scalingConfig": dict(asked.get("scalingConfig") or _ONE),
            "updateConfig": dict(asked.get("updateConfig") or {"maxUnavailable": 1}),
            "nodeRepairConfig": dict(asked.get("nodeRepairConfig") or {"enabled": False}),
            "launchTemplate": templates.shape(asked, template),
            "version": version,
            "releaseVersion": release,
        }
        made = NodeGroup(
            cluster=cluster,
            name=name,
            arn=f"arn:aws:eks:{self._model.region}:{ACCOUNT}:nodegroup/{cluster}/{name}/{identifier}",
            life=Life(created_at=call.now, settles_at=call.now + self._model.timing.nodegroup_s),
            image=self._image(ami, version, release),
            profile=profile,
            options=options,
            tags=dict(asked.get("tags") or {}),
            issues=tuple(
                Issue(code=code, message=message)
                for code, message in (*templates.faults(template), *roles.faults(role, self._moto))
            ),
        )
        return {"nodegroup": self._keep(made, call.now)}

    def describe(self, call: ServiceCall) -> Result:
        return {"nodegroup": self._shape(self._one(call), call.now)}

    def all(self, call: ServiceCall) -> Result:
        cluster = str(call.asked["clusterName"])
        self._eks.cluster(cluster, call.now)
        return {"nodegroups": [one.name for one in self._eks.groups_of(cluster)]}

    def configure(self, call: ServiceCall) -> Result:
        found, asked = self._free(call, "ConfigUpdate"), call.asked
        options = dict(found.options)
        if "scalingConfig" in asked:
            scaling = {**options["scalingConfig"], **asked["scalingConfig"]}
            _check_scaling(scaling)
            options["scalingConfig"] = scaling
        for key in ("updateConfig", "nodeRepairConfig"):
            if key in asked:
                options[key] = dict(asked[key])
        labels: Mapping[str, Any] = asked.get("labels") or {}
        before: Mapping[str, str] = options.get("labels") or {}
        kept = {k: v for k, v in before.items() if k not in {*labels.get("removeLabels", ())}}
        options["labels"] = {**kept, **labels.get("addOrUpdateLabels", {})}
        options["taints"] = _tainted(options.get("taints") or (), asked.get("taints") or {})
        if options == found.options:
            raise invalid("No changes needed for the node group config provided")
        return self._begin(replace(found, options=options), "ConfigUpdate", call)

    def upgrade(self, call: ServiceCall) -> Result:
        found, asked = self._free(call, "VersionUpdate"), call.asked
        owner = self._eks.cluster(found.cluster, call.now)
        version = str(asked.get("version") or found.options["version"])
        _check_version(version, owner)
        if minor(version) < minor(str(found.options["version"])):
            raise invalid(f"Requested Nodegroup version {version} is older than its version {found.options['version']}")  # fmt: skip
        moved = version != found.options["version"]
        release = _release(version, asked.get("releaseVersion") or (None if moved else found.options["releaseVersion"]))  # fmt: skip
        options = {**found.options, "version": version, "releaseVersion": release}
        if asked.get("launchTemplate"):
            before: Mapping[str, Any] = found.options.get("launchTemplate") or {}
            request = {"launchTemplate": {k: v for k, v in asked["launchTemplate"].items() if v}}
            template = templates.checked(
                {**request, "capacityType": found.options["capacityType"]}, self._moto
            )
            options["launchTemplate"] = templates.shape(request, template)
            if (options["launchTemplate"] or {}).get("id") != before.get("id"):
                raise invalid("You cannot specify a different launch template for the node group")
        image = self._image(str(options["amiType"]), version, release)
        after = replace(found, options=options, image=image, before=(found.image, found.options))
        return self._begin(after, "VersionUpdate", call)

    def delete(self, call: ServiceCall) -> Result:
        found = self._one(call)
        life = deleted(found.life, call.now, self._model.timing.nodegroup_s)
        return {"nodegroup": self._keep(replace(found, life=life), call.now)}

    # --- checks -----------------------------------------------------------------------------------

    def _one(self, call: ServiceCall) -> NodeGroup:
        return self._eks.group(str(call.asked["clusterName"]), str(call.asked["nodegroupName"]), call.now)

    def _free(self, call: ServiceCall, what: str) -> NodeGroup:
        """The node group, if it takes an update now."""
        found = self._one(call)
        part = f"nodegroup/{found.name}"
        busy = [u for u in self._eks.updates.values() if (u.cluster, u.part) == (found.cluster, part) and u.state(call.now) == "InProgress"]  # fmt: skip
        if busy:
            raise in_use(f"Nodegroup cannot be updated as it currently has update {busy[0].id} in progress")
        state = self._nodes.state(found, call.now)
        if state not in ("ACTIVE", "DEGRADED"):
            raise wrong(f"Cannot {what}: nodegroup {found.name} is in {state} state")
        return found

    def _check_new(self, cluster: Cluster, name: str, asked: Mapping[str, Any], now: float) -> None:
        unknown = sorted({*asked} - _KNOWN)
        if unknown:
            raise Refusal("UnsupportedOperation", f"the sandbox has no eks:CreateNodegroup with {unknown[0]}")
        if self._eks.status(cluster, now) not in ("ACTIVE", "UPDATING"):
            raise wrong(f"Cluster '{cluster.name}' is not in ACTIVE status")
        if (cluster.name, name) in self._eks.groups:
            raise in_use(f"NodeGroup already exists with name {name} and cluster name {cluster.name}")
        if len(self._eks.groups_of(cluster.name)) >= _GROUPS:
            text = f"Nodegroup limit exceeded for cluster. Current: {_GROUPS}. Limit: {_GROUPS}."
            raise Refusal("ResourceLimitExceededException", text)
        if len(asked.get("taints") or ()) > _TAINTS:
            raise invalid(f"A node group has at most {_TAINTS} taints")

    def _check_subnets(self, ids: Iterable[str], cluster: Cluster) -> None:
        for one in ids:
            try:
                place = self._moto.subnet(one)
            except Refusal as refusal:
                raise invalid(f"The subnet ID '{one}' does not exist") from refusal
            if place.vpc != cluster.vpc:
                raise invalid(f"Subnet {one} is not in the VPC {cluster.vpc} of the cluster")

    # --- making -----------------------------------------------------------------------------------

    def _image(self, ami: str, version: str, release: str) -> str:
        kind = ami.lower().replace("_", "-").replace("x86-64", "x86_64").replace("arm-64", "arm64")
        name = f"amazon-eks-node-{kind}-{version}-v{release.rpartition('-')[2]}"
        return self._moto.register_image(name, owner="amazon")

    def _begin(self, after: NodeGroup, kind: str, call: ServiceCall) -> Result:
        lasts = self._model.timing.nodegroup_s
        self._eks.groups[after.cluster, after.name] = replace(
            after, life=changed(after.life, call.now + lasts)
        )
        part = f"nodegroup/{after.name}"
        return {
            "update": update_shape(self._eks.update(after.cluster, part, kind, call.now, lasts), call.now)
        }

    def _keep(self, group: NodeGroup, now: float) -> Result:
        self._eks.groups[group.cluster, group.name] = group
        return self._shape(group, now)

    def _shape(self, one: NodeGroup, now: float) -> Result:
        at = views.when(one.life.created_at)
        issues: list[Result] = [{"code": i.code, "message": i.message, "resourceIds": []} for i in one.issues]
        return {
            **one.options,
            "nodegroupName": one.name,
            "nodegroupArn": one.arn,
            "clusterName": one.cluster,
            "createdAt": at,
            "modifiedAt": at,
            "status": self._nodes.state(one, now),
            "resources": {"autoScalingGroups": [{"name": f"{one.profile}-asg"}]},
            "health": {"issues": issues},
            "tags": dict(one.tags),
        }


_ONE = {"minSize": 1, "maxSize": 2, "desiredSize": 2}  # EKS's default


def _check_scaling(scaling: Mapping[str, Any]) -> None:
    least, most, wanted = (int(scaling[key]) for key in ("minSize", "maxSize", "desiredSize"))
    if most < 1 or most > _NODES:
        raise invalid(f"maxSize must be from 1 to {_NODES}")
    if least > wanted:
        raise invalid(f"Minimum capacity {least} can't be greater than desired size {wanted}")
    if wanted > most:
        raise invalid(f"desired capacity {wanted} can't be greater than max size {most}")


def _check_version(version: str, cluster: Cluster) -> None:
    if version not in catalog.kubernetes_facts().versions:
        raise invalid("unsupported Kubernetes version")
    if not 0 <= minor(cluster.version) - minor(version) <= 3:
        raise invalid(
            f"Nodegroup Kubernetes version {version} does not fit the cluster's version {cluster.version}"
        )


def _release(version: str, wanted: str | None) -> str:
    """The release of the image: the asked one if the catalog has it, else the newest that it has."""
    image = catalog.kubernetes_node_image(version)
    known = None if image is None else catalog.kubernetes_node_release(version, image)
    if wanted is None:
        return known or f"{version}.0-20260101"
    if known is not None and wanted != known:
        raise invalid(f"Requested release version {wanted} is not valid for kubernetes version {version}.")
    if not wanted.startswith(f"{version}."):
        raise invalid(f"Requested release version {wanted} is not valid for kubernetes version {version}.")
    return wanted


def _tainted(before: Iterable[Mapping[str, Any]], asked: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A taint is one by its key and effect."""
    rows = {(t["key"], t["effect"]): t for t in before}
    for one in cast(Sequence[Mapping[str, Any]], asked.get("removeTaints") or ()):
        if (one["key"], one["effect"]) not in rows:
            raise invalid(f"Taint {json.dumps(dict(one), sort_keys=True)} to remove was not found")
        del rows[one["key"], one["effect"]]
    rows |= {(t["key"], t["effect"]): t for t in asked.get("addOrUpdateTaints") or ()}
    if len(rows) > _TAINTS:
        raise invalid(f"A node group has at most {_TAINTS} taints")
    return [rows[key] for key in sorted(rows)]
