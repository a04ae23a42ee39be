"""EFS: file systems, one mount target per zone, access points. Mount targets are created and deleted over time (T44)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpucluster.sandbox.aws.ec2.state.values import Interface, Refusal, SubnetRef, stage
from gpucluster.sandbox.aws.ec2.state.vpc_context import VpcContext

_GROUPS = 5  # security groups of a mount target


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystem:
    """One file system; `options` are the settings at creation and later changes."""

    id: str
    token: str
    created_at: float
    ready_at: float
    options: Mapping[str, Any]
    tags: Mapping[str, str]
    lifecycle: tuple[Mapping[str, Any], ...] = ()
    policy: str | None = None
    backup: str = "DISABLED"
    protection: str = "ENABLED"  # protection against replication

    @property
    def zone(self) -> str | None:
        """The zone of One Zone storage; None: regional."""
        return self.options.get("AvailabilityZoneName")

    def state(self, now: float) -> str:
        """The state as EFS names it."""
        return stage(now, self.ready_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A mount target; NFS answers at its address once it is available."""

    id: str
    system: str
    subnet: SubnetRef
    interface: str
    address: str
    groups: tuple[str, ...]
    ready_at: float
    ends_at: float | None = None

    def state(self, now: float) -> str:
        """The state as EFS names it."""
        return stage(now, self.ready_at, self.ends_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessPoint:
    """An access point: a folder and the identity of its users."""

    id: str
    system: str
    token: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tags: Mapping[str, str] = field(default_factory=dict[str, str])


class Efs:
    """All resources of the account; `vpcs` gives subnets, ids and times. The caller holds its lock."""

    def __init__(self, vpcs: VpcContext) -> None:
        self._vpcs = vpcs
        self._systems: dict[str, FileSystem] = {}
        self._targets: dict[str, Target] = {}
        self._points: dict[str, AccessPoint] = {}

    # --- file systems -----------------------------------------------------------------------------

    def create(
        self, token: str, options: Mapping[str, Any], tags: Mapping[str, str], now: float
    ) -> FileSystem:
        """Create a file system; a used token is refused."""
        known = next((s for s in self._systems.values() if s.token == token), None)
        if known is not None:
            raise Refusal(
                "FileSystemAlreadyExists",
                f"File system '{known.id}' already exists with creation token '{token}'",
                status=409,
            )
        made = FileSystem(
            id=self._vpcs.fresh_id("fs"),
            token=token,
            created_at=now,
            ready_at=now + self._vpcs.timing.system_s,
            options=dict(options),
            tags=dict(tags),
        )
        return self.put(made)

    def put(self, system: FileSystem) -> FileSystem:
        """Replace one."""
        self._systems[system.id] = system
        return system

    def systems(self, system: str | None = None, token: str | None = None) -> Sequence[FileSystem]:
        """All file systems, or one; an unknown id is refused, an unknown token is not."""
        found = (
            [self.system(system)] if system is not None else [self._systems[i] for i in sorted(self._systems)]
        )
        return [s for s in found if token in (None, s.token)]

    def system(self, system: str) -> FileSystem:
        """One file system by id."""
        found = self._systems.get(system)
        if found is None:
            raise Refusal("FileSystemNotFound", f"File system '{system}' does not exist.", status=404)
        return found

    def remove(self, system: str, now: float) -> None:
        """Refuse to delete it while it has a mount target, also one that is being deleted."""
        self.system(system)
        if self.targets(now, system=system):
            raise Refusal(
                "FileSystemInUse", f"File system '{system}' has mount targets or access points", status=409
            )
        del self._systems[system]
        self._points = {i: p for i, p in self._points.items() if p.system != system}

    # --- mount targets ----------------------------------------------------------------------------

    def mount(
        self, system: str, subnet: SubnetRef, address: str | None, groups: Sequence[str], now: float
    ) -> Target:
        """Create a mount target: one per zone, all in one VPC, after the file system is available."""
        found = self.system(system)
        self._check_target(found, subnet, groups, now)
        name = self._vpcs.fresh_id("fsmt")
        interface = self._interface(name, subnet, address, groups, now)
        made = Target(
            id=name,
            system=system,
            subnet=subnet,
            interface=interface.id,
            address=interface.address or "",
            groups=tuple(groups),
            ready_at=now + self._vpcs.timing.target_s,
        )
        self._targets[name] = made
        return made

    def target(self, target: str, now: float) -> Target:
        """One mount target by id."""
        self._advance(now)
        found = self._targets.get(target)
        if found is None:
            raise Refusal("MountTargetNotFound", f"Mount target '{target}' does not exist.", status=404)
        return found

    def targets(self, now: float, *, system: str | None = None) -> Sequence[Target]:
        """All mount targets, or those of a file system."""
        self._advance(now)
        found = [self._targets[i] for i in sorted(self._targets)]
        return [t for t in found if system in (None, t.system)]

    def regroup(self, target: str, groups: Sequence[str], now: float) -> None:
        """Change the security groups of a mount target."""
        found = self.target(target, now)
        _check_groups(groups)
        self._targets[target] = replace(found, groups=tuple(groups))
        self._vpcs.regroup(found.interface, groups)

    def unmount(self, target: str, now: float) -> None:
        """Begin the deletion of a mount target and its interface."""
        found = self.target(target, now)
        if found.ends_at is None:
            self._targets[target] = replace(found, ends_at=now + self._vpcs.timing.target_s)

    # --- access points ----------------------------------------------------------------------------

    def open(
        self, system: str, token: str, options: Mapping[str, Any], tags: Mapping[str, str], now: float
    ) -> AccessPoint:
        """Create an access point; a used token returns the earlier one."""
        if self.system(system).state(now) != "available":
            raise _not_yet(system)
        known = next((p for p in self._points.values() if p.token == token), None)
        if known is not None and (known.system, known.options) == (system, options):
            return known
        if known is not None:
            raise Refusal("AccessPointAlreadyExists", f"Access point '{known.id}' already exists", status=409)
        made = AccessPoint(
            id=self._vpcs.fresh_id("fsap"),
            system=system,
            token=token,
            options=dict(options),
            tags=dict(tags),
        )
        return self.put_point(made)

    def put_point(self, point: AccessPoint) -> AccessPoint:
        """Replace one."""
        self._points[point.id] = point
        return point

    def point(self, point: str) -> AccessPoint:
        """One access point by id."""
        found = self._points.get(point)
        if found is None:
            raise Refusal("AccessPointNotFound", f"Access point '{point}' does not exist.", status=404)
        return found

    def points(self, system: str | None = None) -> Sequence[AccessPoint]:
        """All access points, or those of a file system."""
        return [self._points[i] for i in sorted(self._points) if system in (None, self._points[i].system)]

    def close(self, point: str) -> None:
        """Delete an access point."""
        self.point(point)
        del self._points[point]

    # --- inside -----------------------------------------------------------------------------------

    def _advance(self, now: float) -> None:
        for target in tuple(self._targets.values()):
            if target.ends_at is not None and now >= target.ends_at:
                self._vpcs.vacate(target.interface, now)
                del self._targets[target.id]

    def _check_target(self, system: FileSystem, subnet: SubnetRef, groups: Sequence[str], now: float) -> None:
        if system.state(now) != "available":
            raise _not_yet(system.id)
        _check_groups(groups)
        if system.zone is not None and system.zone != subnet.zone:
            raise Refusal(
                "AvailabilityZonesMismatch",
                f"The file system is of One Zone storage in {system.zone}, the subnet is in {subnet.zone}.",
            )
        others = self.targets(now, system=system.id)
        if any(t.subnet.vpc != subnet.vpc for t in others):
            raise Refusal(
                "MountTargetConflict",
                "requested subnet for new mount target is not in the same VPC",
                status=409,
            )
        if any(t.subnet.zone == subnet.zone for t in others):
            raise Refusal("MountTargetConflict", "mount target already exists in this AZ", status=409)

    def _interface(
        self, name: str, subnet: SubnetRef, address: str | None, groups: Iterable[str], now: float
    ) -> Interface:
        """Translate the refusal of a full subnet into EFS's."""
        try:
            return self._vpcs.occupy(subnet, f"EFS mount target for {name}", groups, now, wanted=address)
        except Refusal as refusal:
            code, status = _WORDS.get(refusal.code, ("BadRequest", 400))
            raise Refusal(code, refusal.message, status=status) from refusal


_WORDS = {
    "InsufficientFreeAddressesInSubnet": ("NoFreeAddressesInSubnet", 409),
    "InvalidIPAddress.InUse": ("IpAddressInUse", 409),
}


def _check_groups(groups: Sequence[str]) -> None:
    if len(groups) > _GROUPS:
        raise Refusal("SecurityGroupLimitExceeded", f"A mount target has at most {_GROUPS} security groups.")


def _not_yet(system: str) -> Refusal:
    return Refusal(
        "IncorrectFileSystemLifeCycleState",
        f"File system '{system}' is not in the state available.",
        status=409,
    )
