"""Placement groups of strategy `cluster`, and the network nodes of DescribeInstanceTopology (T27, T28)."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpucluster.cloud.port import InstanceState
from gpucluster.sandbox.aws.ec2.state.values import Ec2Instance, InstanceLaunch, Refusal

_MOST = 500  # placement groups in a Region
_LEAVES = 4  # switches of the lowest layer, under one switch above
# The number of layers that DescribeInstanceTopology returns, by type name; it omits other types.
# Source: EC2 user guide, ec2-instance-topology-prerequisites.
_LAYERS = (("p6-b200.", 4), ("p6-b300.", 4), ("p", 3), ("trn", 3), ("hpc", 3), ("g6e.", 3))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementGroup:
    """One placement group; its zone is that of its members."""

    id: str
    name: str
    strategy: str = "cluster"
    tags: Mapping[str, str] = field(default_factory=dict[str, str])


class Placements:
    """All placement groups of the account by name."""

    def __init__(self) -> None:
        self._groups: dict[str, PlacementGroup] = {}

    def add(self, group: PlacementGroup) -> PlacementGroup:
        """Create one; a used name is refused."""
        if group.name in self._groups:
            raise Refusal(
                "InvalidPlacementGroup.Duplicate", f"The placement group '{group.name}' already exists."
            )
        if len(self._groups) >= _MOST:
            raise Refusal("PlacementGroupLimitExceeded", f"A Region has at most {_MOST} placement groups.")
        self._groups[group.name] = group
        return group

    def put(self, group: PlacementGroup) -> None:
        """Replace the group of the same name."""
        self._groups[group.name] = group

    def all(self) -> tuple[PlacementGroup, ...]:
        """All groups, sorted."""
        return tuple(self._groups[name] for name in sorted(self._groups))

    def get(self, name: str) -> PlacementGroup:
        """One group by name; a Refusal if it does not exist."""
        found = self._groups.get(name)
        if found is None:
            raise Refusal("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
        return found

    def remove(self, name: str, instances: Iterable[Ec2Instance]) -> None:
        """Delete a group without members. An instance is a member until it is terminated."""
        self.get(name)
        if _members(name, instances):
            raise Refusal(
                "InvalidPlacementGroup.InUse",
                f"The placement group '{name}' is in use and may not be deleted.",
            )
        del self._groups[name]

    def check(self, spec: InstanceLaunch, instances: Iterable[Ec2Instance]) -> None:
        """Refuse a launch that the group cannot take: another zone, or capacity that was reserved outside the group."""
        name = spec.placement_group
        if name is None:
            return
        self.get(name)
        zones = {i.zone for i in _members(name, instances)}
        if zones - {spec.subnet.zone}:  # this code is not verified
            raise Refusal(
                "InvalidParameterCombination",
                f"The placement group '{name}' spans one Availability Zone: {', '.join(sorted(zones))}.",
            )
        if spec.reservation is not None:
            raise Refusal(
                "InsufficientInstanceCapacity",
                f"The capacity of {spec.reservation} was reserved outside the placement group '{name}'.",
                status=500,
            )


def layers_of(machine: str) -> int:
    """The number of switches that EC2 returns for a machine of this type; 0: none."""
    return next((layers for prefix, layers in _LAYERS if machine.startswith(prefix)), 0)


def network_nodes(instance: Ec2Instance) -> tuple[str, ...]:
    """The switches above an instance, nearest last. Members of a group share all but the nearest, which some share."""
    layers = layers_of(instance.spec.machine)
    leaf = int(hashlib.sha256(instance.id.encode()).hexdigest(), 16) % _LEAVES
    group = f"{instance.zone}/{instance.spec.placement_group or ''}"
    keys = [instance.zone, *(f"{group}/{level}" for level in range(1, layers - 1)), f"{group}/leaf/{leaf}"]
    return tuple("nn-" + hashlib.sha256(key.encode()).hexdigest()[:17] for key in keys)


def _members(name: str, instances: Iterable[Ec2Instance]) -> list[Ec2Instance]:
    return [
        i for i in instances if i.spec.placement_group == name and i.state is not InstanceState.TERMINATED
    ]
