"""The calls of EKS for clusters (docs/facts/eks.md has the sources of codes and messages)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_network
from typing import Any, cast

from gpucluster import catalog
from gpucluster.sandbox.aws.ec2 import views
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Refusal, SubnetRef
from gpucluster.sandbox.aws.eks import access, roles
from gpucluster.sandbox.aws.eks.state import Cluster, Life, Update, changed, deleted, in_use, invalid, wrong
from gpucluster.sandbox.aws.moto_state import ACCOUNT, Moto
from gpucluster.sandbox.aws.shapes import Calls, ServiceCall

Result = dict[str, Any]
_NAME = re.compile(r"[0-9A-Za-z][A-Za-z0-9_-]{0,99}")
_CLUSTERS, _GROUPS, _RANGES = 100, 5, 40  # clusters of an account, own groups and public ranges of one
_ANY = "0.0.0.0/0"
# "The block cannot include reserved addresses" (EKS user guide, "Cluster API server endpoint"); documentation ranges are taken,
# because tests name them in the place of public ones
_RESERVED = tuple(
    ip_network(one)
    for one in ("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
                "192.168.0.0/16", "224.0.0.0/3")
)  # fmt: skip
# what a caller can ask for; EKS has more, which nothing here rehearses
_KNOWN = frozenset(
    {"name", "version", "roleArn", "resourcesVpcConfig", "logging", "clientRequestToken", "tags", "encryptionConfig",
     "accessConfig", "bootstrapSelfManagedAddons"}
)  # fmt: skip
# kind of the update -> the parts of a request that are one update
_UPDATES: Mapping[str, tuple[str, ...]] = {
    "AccessConfigUpdate": ("accessConfig",),
    "LoggingUpdate": ("logging",),
    "EndpointAccessUpdate": ("endpointPublicAccess", "endpointPrivateAccess", "publicAccessCidrs"),
    "VpcConfigUpdate": ("subnetIds", "securityGroupIds"),
}


def calls(model: CloudModel, moto: Moto) -> Calls:
    """Calls of this module by operation name."""
    here = _Clusters(model, moto)
    return {
        "CreateCluster": here.create,
        "DescribeCluster": here.describe,
        "ListClusters": here.all,
        "UpdateClusterVersion": here.upgrade,
        "UpdateClusterConfig": here.configure,
        "AssociateEncryptionConfig": here.encrypt,
        "DeleteCluster": here.delete,
        "DescribeUpdate": here.progress,
        "ListUpdates": here.updates,
    }


class _Clusters:
    def __init__(self, model: CloudModel, moto: Moto) -> None:
        self._model, self._moto, self._eks = model, moto, model.eks

    def create(self, call: ServiceCall) -> Result:
        asked = call.asked
        name = str(asked["name"])
        self._eks.advance(call.now)
        self._check_new(name, asked)
        version = str(asked.get("version") or max(catalog.kubernetes_facts().versions, key=minor))
        _check_version(version)
        roles.check_cluster(str(asked["roleArn"]), self._moto)
        subnets = self._subnets(cast(Mapping[str, Any], asked["resourcesVpcConfig"]).get("subnetIds") or ())
        vpc = _vpc(asked["resourcesVpcConfig"])
        self._check_groups(vpc["securityGroupIds"], subnets[0].vpc)
        _check_endpoint(vpc)
        self._check_keys(asked.get("encryptionConfig") or ())
        made = self._made(name, version, vpc, subnets, call)
        self._eks.clusters[name] = made
        self._eks.planes.start(name, version)
        if made.options["accessConfig"]["bootstrapClusterCreatorAdminPermissions"]:
            access.admit_creator(self._eks, made, call.now)
        return {"cluster": self._shape(made, call.now)}

    def describe(self, call: ServiceCall) -> Result:
        return {"cluster": self._shape(self._eks.cluster(str(call.asked["name"]), call.now), call.now)}

    def all(self, call: ServiceCall) -> Result:
        self._eks.advance(call.now)
        return {"clusters": sorted(self._eks.clusters)}

    def upgrade(self, call: ServiceCall) -> Result:
        """One minor version up; nodes may be at most as new as the cluster, and not three versions older."""
        name, version = str(call.asked["name"]), str(call.asked["version"])
        known = self._eks.cluster(name, call.now)
        _check_version(version)
        if minor(version) != minor(known.version) + 1:
            raise invalid(f"Unsupported Kubernetes minor version update from {known.version} to {version}")
        old = [g.name for g in self._eks.groups_of(name) if minor(version) - minor(str(g.options["version"])) > 3]  # fmt: skip
        if old:
            raise wrong(f"Nodegroups {', '.join(old)} must be updated to match cluster version before updating cluster version")  # fmt: skip
        found = self._eks.active(name, call.now, "VersionUpdate")
        return self._begin(replace(found, version=version), "VersionUpdate", call)

    def configure(self, call: ServiceCall) -> Result:
        name, asked = str(call.asked["name"]), call.asked
        found = self._eks.cluster(name, call.now)
        vpc: Mapping[str, Any] = asked.get("resourcesVpcConfig") or {}
        flat = {**vpc, **{k: asked[k] for k in ("accessConfig", "logging") if k in asked}}
        unknown = sorted({*asked} - {"name", "clientRequestToken", "resourcesVpcConfig", "accessConfig", "logging"})  # fmt: skip
        if unknown:
            raise Refusal(
                "UnsupportedOperation", f"the sandbox has no eks:UpdateClusterConfig with {unknown[0]}"
            )
        kinds = [kind for kind, parts in _UPDATES.items() if any(part in flat for part in parts)]
        if not kinds:
            raise invalid("No changes needed for the cluster config provided")
        if len(kinds) > 1:
            raise invalid("Only one type of update can be allowed.")
        options = self._configured(found, kinds[0], flat)
        if options == found.options:
            raise invalid(f"Cluster is already at the desired configuration with {', '.join(sorted(flat))}")
        self._eks.active(name, call.now, kinds[0])
        return self._begin(replace(found, options=options), kinds[0], call)

    def encrypt(self, call: ServiceCall) -> Result:
        name = str(call.asked["clusterName"])
        found = self._eks.active(name, call.now, "AssociateEncryptionConfig")
        if found.options.get("encryptionConfig"):
            raise invalid(f"Cluster {name} has encryption configuration associated already")
        self._check_keys(call.asked["encryptionConfig"])
        options = {**found.options, "encryptionConfig": list(call.asked["encryptionConfig"])}
        return self._begin(replace(found, options=options), "AssociateEncryptionConfig", call)

    def delete(self, call: ServiceCall) -> Result:
        found = self._eks.cluster(str(call.asked["name"]), call.now)
        if self._eks.groups_of(found.name):
            raise in_use("Cluster has nodegroups attached")
        if found.life.ends_at is None:
            busy = [u for u in self._eks.updates.values() if u.cluster == found.name and u.ends_at > call.now]
            state = self._eks.status(found, call.now)
            if busy or state == "CREATING":
                raise in_use(f"Cannot delete because cluster {found.name} has an operation in progress")
            life = deleted(found.life, call.now, self._model.timing.cluster_s)
            found = replace(found, life=life)
            self._eks.clusters[found.name] = found
            self._eks.planes.end(found.name)
        return {"cluster": self._shape(found, call.now)}

    def progress(self, call: ServiceCall) -> Result:
        asked = call.asked
        self._eks.cluster(str(asked["name"]), call.now)
        found = self._eks.updates.get(str(asked["updateId"]))
        if found is None or (found.cluster, found.part) != (asked["name"], _part(asked)):
            raise Refusal(
                "ResourceNotFoundException", f"No update found for ID: {asked['updateId']}", status=404
            )
        return {"update": update_shape(found, call.now)}

    def updates(self, call: ServiceCall) -> Result:
        self._eks.cluster(str(call.asked["name"]), call.now)
        part = _part(call.asked)
        return {"updateIds": [u.id for u in self._eks.updates.values() if (u.cluster, u.part) == (call.asked["name"], part)]}  # fmt: skip

    # --- checks -----------------------------------------------------------------------------------

    def _check_new(self, name: str, asked: Mapping[str, Any]) -> None:
        unknown = sorted({*asked} - _KNOWN)
        if unknown:
            raise Refusal("UnsupportedOperation", f"the sandbox has no eks:CreateCluster with {unknown[0]}")
        if not _NAME.fullmatch(name):
            raise invalid("The cluster name must match pattern ^[0-9A-Za-z][A-Za-z0-9\\-_]*")
        if name in self._eks.clusters:
            raise in_use(f"Cluster already exists with name: {name}")
        if len(self._eks.clusters) >= _CLUSTERS:
            raise Refusal(
                "ResourceLimitExceededException", f"Cluster limit exceeded. The limit is {_CLUSTERS}."
            )

    def _subnets(self, ids: Sequence[str]) -> list[SubnetRef]:
        found = list[SubnetRef]()
        for one in ids:
            try:
                found.append(self._moto.subnet(one))
            except Refusal as refusal:
                raise invalid(f"The subnet ID '{one}' does not exist") from refusal
        if len({one.vpc for one in found}) > 1:
            raise invalid("Subnets specified must belong to the same VPC")
        if len({one.zone for one in found}) < 2:
            raise invalid("Subnets specified must be in at least two different AZs")
        return found

    def _check_groups(self, groups: Iterable[str], vpc: str) -> None:
        known = self._moto.groups()
        for one in groups:
            if one not in known or known[one].vpc != vpc:
                raise invalid(f"The security group '{one}' does not exist in {vpc}")

    def _check_keys(self, configs: Iterable[Mapping[str, Any]]) -> None:
        for config in configs:
            if config.get("resources") != ["secrets"]:
                raise invalid("Resources must be [secrets]")
            named = str(config["provider"]["keyArn"])
            key = self._moto.key(named)
            if key is None or key.state != "Enabled":
                raise invalid(f"The keyArn in encryptionConfig provider: {named} is invalid")

    def _configured(self, found: Cluster, kind: str, flat: Mapping[str, Any]) -> Mapping[str, Any]:
        options = dict(found.options)
        if kind == "LoggingUpdate":
            return {**options, "logging": _logging(flat["logging"], options["logging"])}
        if kind == "AccessConfigUpdate":
            mode = str(flat["accessConfig"]["authenticationMode"])
            before: Mapping[str, Any] = options["accessConfig"]
            if before["authenticationMode"] == "API" and mode != "API":
                raise invalid(f"Unsupported authentication mode update from API to {mode}")
            return {**options, "accessConfig": {**before, "authenticationMode": mode}}
        vpc = {**options["resourcesVpcConfig"], **{k: v for k, v in flat.items() if k in _PARTS_OF_VPC}}
        vpc = {
            **vpc,
            "subnetIds": sorted(vpc["subnetIds"]),
            "securityGroupIds": sorted(vpc["securityGroupIds"]),
        }
        _check_endpoint(vpc)
        subnets = self._subnets(vpc["subnetIds"])
        if {one.vpc for one in subnets} != {found.vpc}:
            raise invalid("Provided subnets must belong to the VPC of the cluster")
        zones = sorted({one.zone for one in subnets})
        if zones != sorted(found.zones):
            raise invalid(f"Provided subnets belong to the AZs '{','.join(zones)}'. But they should belong to the AZs '{','.join(found.zones)}' of the cluster's creation")  # fmt: skip
        self._check_groups(vpc["securityGroupIds"], found.vpc)
        return {**options, "resourcesVpcConfig": vpc}

    # --- making -----------------------------------------------------------------------------------

    def _made(
        self, name: str, version: str, vpc: Mapping[str, Any], subnets: Sequence[SubnetRef], call: ServiceCall
    ) -> Cluster:
        asked = call.asked
        group = self._moto.make_group(subnets[0].vpc, f"eks-cluster-sg-{name}-{self._model.draw() % 10**8}")
        owned = {"kubernetes.io/cluster/" + name: "owned", "aws:eks:cluster-name": name}
        self._moto.tag(group, {**owned, **cast(Mapping[str, str], asked.get("tags") or {})})
        first = list({one.zone: one for one in subnets}.values())[:2]
        interfaces = [
            self._model.occupy(one, f"Amazon EKS {name}", (group, *vpc["securityGroupIds"]), call.now).id
            for one in first
        ]
        given: Mapping[str, Any] = asked.get("accessConfig") or {}
        options = {
            "roleArn": asked["roleArn"],
            "resourcesVpcConfig": vpc,
            "logging": _logging(asked.get("logging") or {}, {}),
            "encryptionConfig": list(asked.get("encryptionConfig") or ()),
            "accessConfig": {
                "authenticationMode": "CONFIG_MAP",  # the default of the API
                "bootstrapClusterCreatorAdminPermissions": True,
                **given,
            },
        }
        return Cluster(
            name=name,
            arn=f"arn:aws:eks:{self._model.region}:{ACCOUNT}:cluster/{name}",
            life=Life(created_at=call.now, settles_at=call.now + self._model.timing.cluster_s),
            version=version,
            creator=call.caller,
            vpc=subnets[0].vpc,
            zones=tuple(sorted({one.zone for one in subnets})),
            group=group,
            interfaces=tuple(interfaces),
            options=options,
            tags=dict(asked.get("tags") or {}),
        )

    def _begin(self, after: Cluster, kind: str, call: ServiceCall) -> Result:
        lasts = self._model.timing.update_s
        self._eks.clusters[after.name] = replace(after, life=changed(after.life, call.now + lasts))
        return {"update": update_shape(self._eks.update(after.name, "", kind, call.now, lasts), call.now)}

    def _shape(self, one: Cluster, now: float) -> Result:
        state = self._eks.status(one, now)
        options = dict(one.options)
        there = state not in ("CREATING",) and self._eks.planes.ready(one.name)
        endpoint = self._eks.planes.endpoint(one.name) if there else None
        mode = options["accessConfig"]["authenticationMode"]
        return {
            **options,
            "name": one.name,
            "arn": one.arn,
            "createdAt": views.when(one.life.created_at),
            "version": one.version,
            "accessConfig": {"authenticationMode": mode},  # EKS does not repeat the right of the creator
            "resourcesVpcConfig": {
                **options["resourcesVpcConfig"],
                "clusterSecurityGroupId": one.group,
                "vpcId": one.vpc,
            },
            "kubernetesNetworkConfig": {"serviceIpv4Cidr": "10.100.0.0/16", "ipFamily": "ipv4"},
            "endpoint": None if endpoint is None else endpoint.url,
            "certificateAuthority": None if endpoint is None else {"data": endpoint.authority},
            "status": state,
            "platformVersion": "eks.1",
            "tags": dict(one.tags),
            "health": {"issues": []},
        }


_PARTS_OF_VPC = (*_UPDATES["EndpointAccessUpdate"], *_UPDATES["VpcConfigUpdate"])
_LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")


def minor(version: str) -> int:
    """The minor number of a version of Kubernetes."""
    return int(version.partition(".")[2])


def update_shape(one: Update, now: float) -> Result:
    """An update in the form of EKS."""
    return {
        "id": one.id,
        "status": one.state(now),
        "type": one.kind,
        "params": [],
        "createdAt": views.when(one.created_at),
        "errors": [] if one.fault is None else [{"errorCode": one.fault[0], "errorMessage": one.fault[1]}],
    }


def reached(cluster: Cluster, moto: Moto) -> bool:
    """Say whether a machine that is no node reaches the API server: by a public address, or by a range of a group's rules.

    The sandbox has no addresses of its users, so any range lets them in (EKS user guide, "Accessing a private only API server").
    """
    vpc = cluster.options["resourcesVpcConfig"]
    groups = (cluster.group, *vpc["securityGroupIds"])
    return bool(vpc["endpointPublicAccess"]) or any(moto.ranges_in(one, 443) for one in groups)


def _check_version(version: str) -> None:
    if version not in catalog.kubernetes_facts().versions:
        raise invalid("unsupported Kubernetes version")


def _vpc(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Add the defaults of the service."""
    public = bool(asked.get("endpointPublicAccess", True))
    return {
        "subnetIds": sorted(asked.get("subnetIds") or ()),
        "securityGroupIds": sorted(asked.get("securityGroupIds") or ()),
        "endpointPublicAccess": public,
        "endpointPrivateAccess": bool(asked.get("endpointPrivateAccess", False)),
        "publicAccessCidrs": list(asked.get("publicAccessCidrs") or ([_ANY] if public else [])),
    }


def _check_endpoint(vpc: Mapping[str, Any]) -> None:
    if not vpc["endpointPublicAccess"] and not vpc["endpointPrivateAccess"]:
        raise invalid("Private and public endpoint access cannot be false")
    if len(vpc["securityGroupIds"]) > _GROUPS:
        raise invalid(f"A cluster has at most {_GROUPS} security groups")
    ranges = vpc["publicAccessCidrs"]
    if len(ranges) > _RANGES:
        raise invalid(f"The number of publicAccessCidrs exceeds the limit of {_RANGES}")
    for one in ranges:
        try:
            network = ip_network(one)
        except ValueError as error:
            raise invalid(f"The CIDR {one} in publicAccessCidrs is invalid") from error
        if one != _ANY and any(
            network.overlaps(other) for other in _RESERVED if other.version == network.version
        ):
            raise invalid(f"The following CIDRs are not allowed in publicAccessCidrs: [{one}]")


def _logging(asked: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """One setup of types that are on, and one of the others."""
    on = {one for row in before.get("clusterLogging", ()) if row["enabled"] for one in row["types"]}
    for row in asked.get("clusterLogging", ()):
        named = {*row.get("types", ())}
        on = on | named if row.get("enabled") else on - named
    rows = [(sorted(on), True), (sorted({*_LOG_TYPES} - on), False)]
    return {"clusterLogging": [{"types": types, "enabled": enabled} for types, enabled in rows if types]}


def _part(asked: Mapping[str, Any]) -> str:
    if asked.get("nodegroupName"):
        return f"nodegroup/{asked['nodegroupName']}"
    return f"addon/{asked['addonName']}" if asked.get("addonName") else ""
