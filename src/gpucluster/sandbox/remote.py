"""Network file systems of a rehearsal: who asks to mount what, whether the cloud would let it, and the words of its refusal.

The stand-ins in the machines (playbooks/stand-ins/mount.remote) ask here. A caller is known by its address. What is there,
in which state, behind which group, is read from the sandbox's own API, as anybody could.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from gpucluster.cloud.model import Ec2Instance
from gpucluster.plan.names import LUSTRE_PORTS, NFS_PORT

_EFS = re.compile(r"(fs-[0-9a-f]+)\.efs\.[a-z0-9-]+\.amazonaws\.com")
_OUTSIDE = "outside"  # the folder of what no cloud of ours has


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A mount that somebody asks for."""

    type: str  # nfs4, lustre, remote
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the file system's data is: a folder of the capsule's (`machine` is None), or of a machine."""

    path: str
    machine: str | None = None


class RefusedError(Exception):
    """The mount fails; the message is what mount says."""


class Cloud(Protocol):
    """What is asked of the cloud; `ApiCloud` asks by API."""

    def at(self, address: str) -> Ec2Instance | None: ...
    def efs_targets(self, file_system: str) -> list[Mapping[str, Any]]: ...
    def efs_groups(self, target: str) -> list[str]: ...
    def lustre(self, dns_name: str) -> Mapping[str, Any] | None: ...
    def lustre_groups(self, system: Mapping[str, Any]) -> list[str]: ...
    def rules(self, groups: Iterable[str]) -> list[Mapping[str, Any]]: ...
    def exports(self, machine: str) -> list[tuple[str, str]] | None:
        """What its NFS server exports, to whom; None: none runs."""
        ...


def judge(cloud: Cloud, wish: Wish, client: Ec2Instance) -> Place:
    """Where the client's mount leads; RefusedError with the words of the real program."""
    return _JUDGES.get(wish.type, _outside)(cloud, wish, client)


def allows(rules: Iterable[Mapping[str, Any]], port: int, client: Ec2Instance) -> bool:
    """Whether some rule takes TCP on the port from the client: by its group or its address."""
    return any(_matches(rule, port) and _is_peer(rule, client) for rule in rules)


def _nfs(cloud: Cloud, wish: Wish, client: Ec2Instance) -> Place:
    host, _, path = wish.source.partition(":")
    if found := _EFS.fullmatch(host):
        return _efs(cloud, found[1], path, host, client)
    server = cloud.at(host)
    if server is None:
        return _outside(cloud, wish, client)
    if not allows(cloud.rules(server.spec.groups), NFS_PORT, client):
        raise RefusedError(
            f"mount.nfs4: Connection timed out for {wish.source}: no security group lets {NFS_PORT} in"
        )
    table = cloud.exports(server.id)
    if table is None:
        raise RefusedError(f"mount.nfs4: Connection refused for {wish.source}")
    if not any(path == export and _is_in(client.address, to) for export, to in table):
        raise RefusedError(f"mount.nfs4: access denied by server while mounting {wish.source}")
    return Place(path=path, machine=server.id)


def _efs(cloud: Cloud, file_system: str, path: str, host: str, client: Ec2Instance) -> Place:
    """Its name resolves in zones with a mount target that is ready, and nowhere else (T44)."""
    targets = [t for t in cloud.efs_targets(file_system) if t.get("LifeCycleState") == "available"]
    here = [t for t in targets if t.get("AvailabilityZoneName") == client.zone]
    if not here:
        raise RefusedError(f"mount.nfs4: Failed to resolve server {host}: Name or service not known")
    if not allows(cloud.rules(cloud.efs_groups(str(here[0]["MountTargetId"]))), NFS_PORT, client):
        raise RefusedError(
            f"mount.nfs4: Connection timed out for {host}: no security group lets {NFS_PORT} in"
        )
    return Place(path=f"{file_system}{path.rstrip('/')}")


def _lustre(cloud: Cloud, wish: Wish, client: Ec2Instance) -> Place:
    host, _, name = wish.source.partition("@tcp:/")
    system = cloud.lustre(host)
    failed = f"mount.lustre: mount {wish.source} failed"
    if system is None:
        raise RefusedError(f"mount.lustre: Can't parse NID '{host}@tcp': the name does not resolve")
    if system.get("Lifecycle") not in ("AVAILABLE", "UPDATING"):
        raise RefusedError(f"{failed}: Input/output error\nIs the MGS running?")
    groups = cloud.lustre_groups(system)
    ports = [LUSTRE_PORTS[0][0], LUSTRE_PORTS[1][0], LUSTRE_PORTS[1][1]]
    if not all(allows(cloud.rules(groups), port, client) for port in ports):
        raise RefusedError(f"{failed}: Connection timed out: no security group lets 988 and 1018-1023 in")
    if system.get("LustreConfiguration", {}).get("MountName") != name:
        raise RefusedError(f"{failed}: No such file or directory\nIs the MGS specification correct?")
    return Place(path=str(system["FileSystemId"]))


def _outside(cloud: Cloud, wish: Wish, client: Ec2Instance) -> Place:
    """What stands outside the cloud is a folder that everybody may mount."""
    return Place(path=f"{_OUTSIDE}/{re.sub('[^A-Za-z0-9.]+', '-', wish.source).strip('-.')}")


_JUDGES: Mapping[str, Callable[[Cloud, Wish, Ec2Instance], Place]] = {
    "nfs": _nfs,
    "nfs4": _nfs,
    "lustre": _lustre,
}


def _matches(rule: Mapping[str, Any], port: int) -> bool:
    if str(rule.get("IpProtocol")) == "-1":
        return True
    return str(rule.get("IpProtocol")) in ("tcp", "6") and int(rule.get("FromPort", -1)) <= port <= int(
        rule.get("ToPort", -1)
    )


def _is_peer(rule: Mapping[str, Any], client: Ec2Instance) -> bool:
    groups = {pair.get("GroupId") for pair in rule.get("UserIdGroupPairs", ())}
    ranges = [str(one.get("CidrIp")) for one in rule.get("IpRanges", ())]
    return bool(groups & set(client.spec.groups)) or any(_is_in(client.address, one) for one in ranges)


def _is_in(address: str | None, where: str) -> bool:
    """Whether the address is one that exports or a rule name: `*`, an address, a range."""
    try:
        return where == "*" or ipaddress.ip_address(address or "") in ipaddress.ip_network(
            where, strict=False
        )
    except ValueError:
        return False
