"""The calls of EKS for add-ons. Those whose pods run on nodes stay degraded while the cluster has none."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from gpucluster import catalog
from gpucluster.sandbox.aws.ec2 import views
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.eks import identities, roles
from gpucluster.sandbox.aws.eks.clusters import update_shape
from gpucluster.sandbox.aws.eks.state import Addon, Cluster, Eks, Life, changed, deleted, in_use, invalid
from gpucluster.sandbox.aws.moto_state import ACCOUNT, Moto
from gpucluster.sandbox.aws.shapes import Calls, ServiceCall

Result = dict[str, Any]
KUBE_SYSTEM = "kube-system"
# name of a value -> its JSON type, where a public report shows that EKS refuses another
_TYPES: Mapping[str, Mapping[str, type]] = {
    "vpc-cni": {"enableNetworkPolicy": str, "env": dict},
    "eks-node-monitoring-agent": {"dcgmAgent": dict},
}
_WORDS: Mapping[type, str] = {str: "string", bool: "boolean", int: "integer", dict: "object", list: "array"}
DEGRADED = (
    "InsufficientNumberOfReplicas",
    "The add-on is unhealthy because it doesn't have the desired number of replicas.",
)


def calls(model: CloudModel, moto: Moto) -> Calls:
    """Calls of this module by operation name."""
    here = _Addons(model, moto)
    return {
        "CreateAddon": here.create,
        "DescribeAddon": here.describe,
        "ListAddons": here.all,
        "UpdateAddon": here.update,
        "DeleteAddon": here.delete,
        "DescribeAddonVersions": here.versions,
    }


def _has_deployment(name: str) -> bool:
    """Return whether it needs a node. DaemonSets are whole without one (docs/facts/eks.md)."""
    return any(kind == "Deployment" for kind, _ in catalog.eks_addon_controllers(name))


class _Addons:
    def __init__(self, model: CloudModel, moto: Moto) -> None:
        self._model, self._moto = model, moto
        self._eks: Eks = model.eks

    def create(self, call: ServiceCall) -> Result:
        asked = call.asked
        cluster, name = str(asked["clusterName"]), str(asked["addonName"])
        found = self._eks.active(cluster, call.now, "CreateAddon")
        version = _version(found, name, asked.get("addonVersion"))
        _check_values(name, asked.get("configurationValues"))
        if (cluster, name) in self._eks.addons:
            raise in_use("Addon already exists.")
        identifier = self._eks.vpcs.fresh_id("addon")
        arn = f"arn:aws:eks:{self._model.region}:{ACCOUNT}:addon/{cluster}/{name}/{identifier}"
        made = Addon(
            cluster=cluster,
            name=name,
            arn=arn,
            life=Life(created_at=call.now, settles_at=call.now + self._model.timing.addon_s),
            version=version,
            configuration=asked.get("configurationValues"),
            identities=self._identities(cluster, arn, asked.get("podIdentityAssociations") or (), call.now),
            tags=dict(asked.get("tags") or {}),
        )
        return {"addon": self._keep(made, call.now)}

    def describe(self, call: ServiceCall) -> Result:
        return {"addon": self._shape(self._one(call), call.now)}

    def all(self, call: ServiceCall) -> Result:
        cluster = str(call.asked["clusterName"])
        self._eks.cluster(cluster, call.now)
        return {"addons": sorted(name for owner, name in self._eks.addons if owner == cluster)}

    def update(self, call: ServiceCall) -> Result:
        found, asked = self._one(call), call.asked
        owner = self._eks.active(found.cluster, call.now, "AddonUpdate")
        if call.now < found.life.settles_at or found.life.ends_at is not None:
            state = found.life.state(call.now)
            raise in_use(f"Addon {found.name} cannot be updated as it is currently in {state} state")
        changes: dict[str, Any] = {}
        if "addonVersion" in asked:
            changes["version"] = _version(owner, found.name, asked["addonVersion"])
        if "configurationValues" in asked:
            _check_values(found.name, asked["configurationValues"])
            changes["configuration"] = asked["configurationValues"]
        if "podIdentityAssociations" in asked:
            for one in found.identities:
                self._eks.identities.pop((found.cluster, one), None)
            given = asked["podIdentityAssociations"]
            changes["identities"] = self._identities(found.cluster, found.arn, given, call.now)
        lasts = self._model.timing.addon_s
        self._keep(replace(found, **changes, life=changed(found.life, call.now + lasts)), call.now)
        part = f"addon/{found.name}"
        made = self._eks.update(found.cluster, part, "AddonUpdate", call.now, lasts)
        return {"update": update_shape(made, call.now)}

    def delete(self, call: ServiceCall) -> Result:
        found = self._one(call)
        life = deleted(found.life, call.now, self._model.timing.addon_s)
        return {"addon": self._keep(replace(found, life=life), call.now)}

    def versions(self, call: ServiceCall) -> Result:
        """What the catalog has, which is less than EKS's list."""
        wanted, name = call.asked.get("kubernetesVersion"), call.asked.get("addonName")
        rows: dict[str, dict[str, list[str]]] = {}
        for version in catalog.kubernetes_facts().versions:
            for addon, pin in catalog.eks_addon_versions(version).items():
                if wanted in (None, version) and name in (None, addon):
                    rows.setdefault(addon, {}).setdefault(pin, []).append(version)
        return {"addons": [{"addonName": addon, "addonVersions": _compatible(pins)} for addon, pins in sorted(rows.items())]}  # fmt: skip

    def _one(self, call: ServiceCall) -> Addon:
        return self._eks.addon(str(call.asked["clusterName"]), str(call.asked["addonName"]), call.now)

    def _identities(
        self, cluster: str, arn: str, given: Iterable[Mapping[str, str]], now: float
    ) -> tuple[str, ...]:
        rows = list(given)
        for row in rows:
            roles.check_pods(row["roleArn"], self._moto)
        made = [
            identities.put(
                self._eks,
                cluster,
                now,
                namespace=KUBE_SYSTEM,
                account=row["serviceAccount"],
                role=row["roleArn"],
                owner=arn,
            )
            for row in rows
        ]
        return tuple(one.id for one in made)

    def _keep(self, addon: Addon, now: float) -> Result:
        self._eks.addons[addon.cluster, addon.name] = addon
        return self._shape(addon, now)

    def _shape(self, one: Addon, now: float) -> Result:
        state, issues = one.life.state(now), list[Result]()
        if state == "ACTIVE" and _has_deployment(one.name) and not self._has_nodes(one.cluster):
            state = "DEGRADED"
            issues.append({"code": DEGRADED[0], "message": DEGRADED[1], "resourceIds": []})
        known = [self._eks.identities[one.cluster, i].arn for i in one.identities]
        return {
            "addonName": one.name,
            "clusterName": one.cluster,
            "status": state,
            "addonVersion": one.version,
            "health": {"issues": issues},
            "addonArn": one.arn,
            "createdAt": views.when(one.life.created_at),
            "modifiedAt": views.when(one.life.created_at),
            "tags": dict(one.tags),
            "configurationValues": one.configuration,
            "podIdentityAssociations": known,
        }

    def _has_nodes(self, cluster: str) -> bool:
        return any(g.wanted and not g.failed and g.life.ends_at is None for g in self._eks.groups_of(cluster))


def _compatible(pins: Mapping[str, list[str]]) -> list[Result]:
    return [
        {
            "addonVersion": pin,
            "compatibilities": [{"clusterVersion": v, "platformVersions": ["*"]} for v in versions],
        }
        for pin, versions in sorted(pins.items())
    ]


def _version(cluster: Cluster, name: str, wanted: str | None) -> str:
    """The version that is installed. Without facts about the cluster's version, every version that the catalog has fits."""
    facts = [catalog.eks_addon_versions(v) for v in catalog.kubernetes_facts().versions]
    pins = {row[name] for row in facts if name in row}
    if not pins:
        raise invalid(f"Addon {name} specified is not supported in {cluster.version} kubernetes version")
    own = catalog.eks_addon_versions(cluster.version).get(name)
    if wanted is None:
        return own or max(pins)
    if wanted not in ({own} if own else pins):
        raise invalid("Addon version specified is not supported")
    return wanted


def _check_values(name: str, text: str | None) -> None:
    """Refuse values that the schema of the add-on does not have; the sandbox knows few of them."""
    if text is None:
        return
    try:
        found: object = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise invalid("ConfigurationValue provided in request is not supported: it is no JSON object")
    known = _TYPES.get(name, {})
    for key, value in cast(Mapping[str, object], found).items():
        if key not in known:
            raise invalid(f"ConfigurationValue provided in request is not supported: the sandbox does not know '{key}' of {name}")  # fmt: skip
        if type(value) is not known[key]:
            had, has = _WORDS.get(type(value), "null"), _WORDS[known[key]]
            raise invalid(
                "ConfigurationValue provided in request is not supported: Json schema validation failed with error: "
                f"[$.{key}: {had} found, {has} expected]"
            )
