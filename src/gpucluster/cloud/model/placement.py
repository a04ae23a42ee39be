"""Placement groups of strategy `cluster`, and what DescribeInstanceTopology tells of the network (T27, T28)."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpucluster.cloud.model.values import Ec2Instance, LaunchSpec, Refusal
from gpucluster.cloud.port import InstanceState

_MOST = 500  # groups of a Region
_LEAVES = 4  # switches of the lowest layer, under one above
# Layers that DescribeInstanceTopology tells, by the type's name; others it leaves out.
# Source: EC2 user guide, ec2-instance-topology-prerequisites.
_LAYERS = (("p6-b200.", 4), ("p6-b300.", 4), ("p", 3), ("trn", 3), ("hpc", 3), ("g6e.", 3))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementGroup:
    """One group; its zone is that of its members."""

    id: str
    name: str
    strategy: str = "cluster"
    tags: Mapping[str, str] = field(default_factory=dict[str, str])


class Placements:
    """All groups of the account, by name."""

    def __init__(self) -> None:
        self._groups: dict[str, PlacementGroup] = {}

    def add(self, group: PlacementGroup) -> PlacementGroup:
        """Make one; a name is taken once."""
        if group.name in self._groups:
            raise Refusal(
                "InvalidPlacementGroup.Duplicate", f"The placement group '{group.name}' already exists."
            )
        if len(self._groups) >= _MOST:
            raise Refusal("PlacementGroupLimitExceeded", f"A Region has at most {_MOST} placement groups.")
        self._groups[group.name] = group
        return group

    def put(self, group: PlacementGroup) -> None:
        """Put one in the place of its name's."""
        self._groups[group.name] = group

    def all(self) -> tuple[PlacementGroup, ...]:
        """Every one, sorted."""
        return tuple(self._groups[name] for name in sorted(self._groups))

    def get(self, name: str) -> PlacementGroup:
        """One by name, or EC2's refusal."""
        found = self._groups.get(name)
        if found is None:
            raise Refusal("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
        return found

    def remove(self, name: str, instances: Iterable[Ec2Instance]) -> None:
        """Delete one without members; what is not terminated is one."""
        self.get(name)
        if _members(name, instances):
            raise Refusal(
                "InvalidPlacementGroup.InUse",
                f"The placement group '{name}' is in use and may not be deleted.",
            )
        del self._groups[name]

    def check(self, spec: LaunchSpec, instances: Iterable[Ec2Instance]) -> None:
        """Refuse a launch that the group cannot take; one zone, and no capacity that was reserved outside it."""
        name = spec.placement_group
        if name is None:
            return
        self.get(name)
        zones = {i.zone for i in _members(name, instances)}
        if zones - {spec.subnet.zone}:  # the code is not verified
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
    """How many switches EC2 tells above a machine of this type; 0: it tells none."""
    return next((layers for prefix, layers in _LAYERS if machine.startswith(prefix)), 0)


def network_nodes(instance: Ec2Instance) -> tuple[str, ...]:
    """Switches above an instance, the nearest last; members of a group share all but the nearest, which some share."""
    layers = layers_of(instance.spec.machine)
    leaf = int(hashlib.sha256(instance.id.encode()).hexdigest(), 16) % _LEAVES
    group = f"{instance.zone}/{instance.spec.placement_group or ''}"
    keys = [instance.zone, *(f"{group}/{level}" for level in range(1, layers - 1)), f"{group}/leaf/{leaf}"]
    return tuple("nn-" + hashlib.sha256(key.encode()).hexdigest()[:17] for key in keys)


def _members(name: str, instances: Iterable[Ec2Instance]) -> list[Ec2Instance]:
    return [
        i for i in instances if i.spec.placement_group == name and i.state is not InstanceState.TERMINATED
    ]
