"""The interfaces in a cluster's network and their instances: what prevents the deletion of subnets, groups and VPC (T42, T43).

`gpucluster down` looks for it by network, not by tag: an instance without its tag is in the way, too. Nothing is changed here.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from gpucluster.cloud.aws import boto3_client, client_config, translated, view
from gpucluster.cloud.limits import in_filters
from gpucluster.cloud.port import Instance, InstanceState
from gpucluster.cloud.tags import node_tags, tag_step
from gpucluster.plan import names
from gpucluster.text import short

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client
    from types_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef, NetworkInterfaceTypeDef

EKS_CLUSTER_TAG, EKS_GROUP_TAG = "eks:cluster-name", "eks:nodegroup-name"  # on instances of node groups
KARPENTER_TAG = "karpenter.sh/nodepool"  # on instances that Karpenter launched
_ENDING = (InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED)
_ID = re.compile(r"\b(?:eni|fs|fsmt|nat|vpce)-[0-9a-f]{8,32}\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The parts of a network that will be deleted, by id."""

    vpcs: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.vpcs or self.subnets or self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupant:
    """An interface in the network. `instance` is None if none holds it, or if EC2 does not list the instance."""

    interface: str
    kind: str = "interface"  # EC2's InterfaceType
    description: str = ""
    holder: str = ""  # id of the instance that the interface is attached to
    attached: bool = True
    tags: Mapping[str, str]
    instance: Instance | None = None


class OccupantsPort(Protocol):
    """The list of what is in a network."""

    def occupants(self, network: Network) -> tuple[Occupant, ...]:
        """Return every interface in these VPCs and subnets, or with one of these groups. It may raise CloudError."""
        ...

    def instances(self, ids: Sequence[str]) -> tuple[Instance, ...]:
        """Return the instances of these ids that EC2 still lists. It may raise CloudError."""
        ...


class AwsOccupants:
    """The OccupantsPort over EC2."""

    def __init__(self, region: str, client: "Callable[[], EC2Client] | None" = None) -> None:
        self._region = region
        self._client = client or self._boto3_client
        self._made: EC2Client | None = None

    def occupants(self, network: Network) -> tuple[Occupant, ...]:
        """See OccupantsPort."""
        with translated():
            found = {one.get("NetworkInterfaceId", ""): one for one in self._interfaces(network)}
            holders = {_holder(one) for one in found.values()} - {""}
            instances = {one.get("InstanceId", ""): view(one) for one in self._instances(sorted(holders))}
        return tuple(_occupant(found[name], instances.get(_holder(found[name]))) for name in sorted(found))

    def instances(self, ids: Sequence[str]) -> tuple[Instance, ...]:
        """See OccupantsPort."""
        with translated():
            return tuple(view(one) for one in self._instances(ids))

    def _interfaces(self, network: Network) -> "Iterable[NetworkInterfaceTypeDef]":
        places = (("vpc-id", network.vpcs), ("subnet-id", network.subnets), ("group-id", network.groups))
        for name, values in places:
            for part in in_filters(values):
                filters: list[FilterTypeDef] = [{"Name": name, "Values": part}]
                pages = self._ec2().get_paginator("describe_network_interfaces").paginate(Filters=filters)
                for page in pages:
                    yield from page.get("NetworkInterfaces", [])

    def _instances(self, ids: Sequence[str]) -> "Iterable[InstanceTypeDef]":
        """By filter: an id that is not listed any more would fail the call (T21)."""
        for part in in_filters(ids):
            filters: list[FilterTypeDef] = [{"Name": "instance-id", "Values": part}]
            for page in self._ec2().get_paginator("describe_instances").paginate(Filters=filters):
                for reservation in page["Reservations"]:
                    yield from reservation.get("Instances", [])

    def _ec2(self) -> "EC2Client":
        if self._made is None:
            self._made = self._client()
        return self._made

    def _boto3_client(self) -> "EC2Client":
        return boto3_client("ec2", self._region, client_config(attempts=5, read_timeout_s=20))


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """Something in the network that `down` does not end. `ends` is set if it goes away by itself."""

    id: str
    words: str
    step: str  # what to type; empty if it ends by itself
    ends: bool = False
    karpenter: bool = False  # a machine that the cluster's Karpenter launched

    def __str__(self) -> str:
        return f"{self.id} ({self.words})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What the cluster's own resources are: `ids` of the state, the ids of its launch templates, the journal's instances.

    `eks`: the names of its EKS clusters. The id of a node group is `CLUSTER:GROUP`.
    """

    cluster: str
    region: str
    ids: frozenset[str]
    eks: frozenset[str] = frozenset()
    templates: frozenset[str] = frozenset()
    launched: frozenset[str] = frozenset()


def ids_in(values: Iterable[object]) -> frozenset[str]:
    """Return the ids of interfaces, and of services with interfaces, in the outputs of deployed resources."""
    return frozenset(found for value in values for found in _ID.findall(str(value)))


def blockers(
    occupants: Iterable[Occupant], declared: Declared, launched: Iterable[Instance] = ()
) -> tuple[Blocker, ...]:
    """Return what is neither deleted with its resource nor terminated as a node of the cluster, once for each instance.

    `launched`: the instances of the journal. One of them without its tags is found also in a network that is not deleted.
    """
    found: dict[str, Blocker] = {}
    for one in occupants:
        if not _goes_with_the_cluster(one, declared):
            blocker = _blocker(one, declared)
            found.setdefault(blocker.id, blocker)
    for one in launched:
        if one.state is not InstanceState.TERMINATED and not _is_node(one.tags, declared):
            found.setdefault(one.id, _by_instance(one, declared))
    return tuple(found.values())


def _goes_with_the_cluster(one: Occupant, declared: Declared) -> bool:
    if {one.interface, one.holder, *_ID.findall(one.description)} & declared.ids:
        return True
    if one.description in {f"Amazon EKS {name}" for name in declared.eks}:
        return True  # of the control plane
    tags = one.tags if one.instance is None else one.instance.tags
    if f"{tags.get(EKS_CLUSTER_TAG)}:{tags.get(EKS_GROUP_TAG)}" in declared.ids:
        return True
    return _is_node(tags, declared) and (one.instance is not None or not one.attached)


def _is_node(tags: Mapping[str, str], declared: Declared) -> bool:
    return all(tags.get(key) == value for key, value in node_tags(declared.cluster).items())


def _blocker(one: Occupant, declared: Declared) -> Blocker:
    if one.instance is not None:
        return _by_instance(one.instance, declared)
    aws = f"aws ec2 %s --region {declared.region}"
    if one.holder:
        look = f"{aws % 'describe-instances'} --instance-ids {one.holder}"
        return Blocker(id=one.holder, words=f"EC2 does not list it; it holds {one.interface}", step=look)
    about = short(one.description, 80) or f"an interface of type {one.kind}"
    if one.attached or one.kind not in ("interface", "efa", "efa-only"):
        return Blocker(id=one.interface, words=about, step=f"delete the resource that holds {one.interface}")
    delete = f"{aws % 'delete-network-interface'} --network-interface-id {one.interface}"
    return Blocker(id=one.interface, words=f"{about}, attached to nothing", step=delete, ends=True)


def _by_instance(one: Instance, declared: Declared) -> Blocker:
    state = f"{one.machine}, {one.state.value}"
    if one.state in _ENDING:
        return Blocker(id=one.id, words=state, step="", ends=True)
    if one.tags.get(names.TAG_CLUSTER) == declared.cluster and KARPENTER_TAG in one.tags:
        step = f"gpucluster k8s down {declared.cluster}"
        return Blocker(id=one.id, words=f"{state}, launched by Karpenter", step=step, karpenter=True)
    aws = f"aws ec2 %s --region {declared.region}"
    end = f"{aws % 'terminate-instances'} --instance-ids {one.id}"
    owner, role = one.tags.get(names.TAG_CLUSTER), one.tags.get(names.TAG_ROLE)
    if owner not in (None, declared.cluster):
        return Blocker(id=one.id, words=f"{state}, of the cluster {short(owner, 40)}", step=end)
    if owner is not None:
        text = (
            f"{state}, tagged {names.TAG_ROLE}={short(role, 20)}"
            if role
            else f"{state}, without the tag {names.TAG_ROLE}"
        )
    else:
        text = f"{state}, without the tag {names.TAG_CLUSTER}"
    give = tag_step(one.id, node_tags(declared.cluster), declared.region)
    if one.tags.get(names.TAG_TEMPLATE) in declared.templates:
        return Blocker(id=one.id, words=f"{text}, launched from this cluster's template", step=give)
    if one.id in declared.launched:
        return Blocker(id=one.id, words=f"{text}, launched by this cluster's daemon", step=give)
    return Blocker(id=one.id, words=text, step=end)


def _holder(one: "NetworkInterfaceTypeDef") -> str:
    return one.get("Attachment", {}).get("InstanceId", "")


def _occupant(one: "NetworkInterfaceTypeDef", instance: Instance | None) -> Occupant:
    raw: Any = one
    return Occupant(
        interface=one.get("NetworkInterfaceId", ""),
        kind=one.get("InterfaceType", "interface"),
        description=one.get("Description", ""),
        holder=_holder(one),
        attached="Attachment" in raw or bool(raw.get("RequesterManaged")),
        tags={t.get("Key", ""): t.get("Value", "") for t in one.get("TagSet", [])},
        instance=instance,
    )
