"""Network file systems of a rehearsal: the mount request, whether AWS would allow it, and the text of a refusal.

The stand-ins in the machines (playbooks/stand-ins/mount.remote) call this service. The address identifies the caller. File systems,
their states and groups are read through the sandbox's own API.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from gpucluster.catalog import mount_options
from gpucluster.plan.names import LUSTRE_PORTS, NFS_PORT
from gpucluster.sandbox.aws.ec2.state.values import Ec2Instance
from gpucluster.sandbox.aws.iam import policies
from gpucluster.sandbox.aws.iam.policies import Need

_EFS = re.compile(r"(fs-[0-9a-f]+)\.efs\.[a-z0-9-]+\.amazonaws\.com")
_DENIED = "mount.nfs4: access denied by server while mounting {source}"
_CLIENT = tuple(f"elasticfilesystem:Client{right}" for right in ("Mount", "Write", "RootAccess"))
_OUTSIDE = "outside"  # the folder for file systems outside the sandbox's cloud


@dataclass(frozen=True, slots=True, kw_only=True)
class MountRequest:
    """A mount request."""

    type: str  # nfs4, efs, lustre, remote
    source: str
    target: str = ""
    options: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountSource:
    """The place of the data: a folder of the capsule (`machine` is None), or of a machine."""

    path: str
    machine: str | None = None
    makes: bool = False  # an access point creates its folder


class RefusedError(Exception):
    """The mount fails; the message is the text of mount."""


class CloudQueries(Protocol):
    """The used part of the cloud; `ApiCloud` calls the API."""

    def at(self, address: str) -> Ec2Instance | None: ...
    def efs_targets(self, file_system: str) -> list[Mapping[str, Any]]: ...
    def efs_groups(self, target: str) -> list[str]: ...
    def efs_policy(self, file_system: str) -> tuple[str, Mapping[str, Any] | None]:
        """Its ARN and its policy; without a policy every client is admitted."""
        ...

    def efs_root(self, access_point: str) -> tuple[str, str] | None:
        """The file system and the folder of an access point."""
        ...

    def role_policies(self, client: Ec2Instance) -> list[Mapping[str, Any]]:
        """The policies of the machine's role."""
        ...

    def lustre(self, dns_name: str) -> Mapping[str, Any] | None: ...
    def lustre_groups(self, system: Mapping[str, Any]) -> list[str]: ...
    def rules(self, groups: Iterable[str]) -> list[Mapping[str, Any]]: ...
    def exports(self, machine: str) -> list[tuple[str, str]] | None:
        """The exports of its NFS server and their clients; None: no server runs."""
        ...


def resolve(cloud: CloudQueries, request: MountRequest, client: Ec2Instance) -> MountSource:
    """The place behind the client's mount; RefusedError with the text of the real program."""
    if mount_options.refused(request.type, filter(None, request.options.split(","))):
        known = mount_options.helper(request.type)
        raise RefusedError("" if known is None else known.refusal(request.source, request.target))
    return _RESOLVERS.get(request.type, _outside)(cloud, request, client)


def allows(rules: Iterable[Mapping[str, Any]], port: int, client: Ec2Instance) -> bool:
    """Whether a rule allows TCP on the port from the client's group or address."""
    return any(_matches(rule, port) and _is_peer(rule, client) for rule in rules)


def _nfs(cloud: CloudQueries, request: MountRequest, client: Ec2Instance) -> MountSource:
    host, _, path = request.source.partition(":")
    if found := _EFS.fullmatch(host):
        return _efs(cloud, found[1], path, host, client)
    server = cloud.at(host)
    if server is None:
        return _outside(cloud, request, client)
    if not allows(cloud.rules(server.spec.groups), NFS_PORT, client):
        raise RefusedError(
            f"mount.nfs4: Connection timed out for {request.source}: no security group lets {NFS_PORT} in"
        )
    table = cloud.exports(server.id)
    if table is None:
        raise RefusedError(f"mount.nfs4: Connection refused for {request.source}")
    if not any(path == export and _is_in(client.address, to) for export, to in table):
        raise RefusedError(f"mount.nfs4: access denied by server while mounting {request.source}")
    return MountSource(path=path, machine=server.id)


def _efs_by_helper(cloud: CloudQueries, request: MountRequest, client: Ec2Instance) -> MountSource:
    """mount.efs: its checks of options, then the mount target, then the rights of the machine's role (T47)."""
    file_system, _, path = request.source.partition(":")
    parts = (option.partition("=") for option in request.options.split(","))
    options = {name: value for name, _, value in parts}
    for needs_tls in ("accesspoint", "iam"):
        if needs_tls in options and "tls" not in options:
            raise RefusedError(f'The "tls" option is required when mounting via "{needs_tls}"')
    _reach_target(cloud, file_system, f"{file_system}.efs", client)
    if point := options.get("accesspoint"):
        found = cloud.efs_root(point)
        if found is None or found[0] != file_system:
            raise RefusedError(_DENIED.format(source="127.0.0.1:/"))
        path = found[1]
    documents = cloud.role_policies(client) if "iam" in options else []
    _admit(cloud, file_system, documents, tls="tls" in options, source="127.0.0.1:/")
    return MountSource(path=f"{file_system}{path.rstrip('/')}", makes=bool(point))


def _efs(cloud: CloudQueries, file_system: str, path: str, host: str, client: Ec2Instance) -> MountSource:
    """A mount without AWS's helper: no TLS and no role."""
    _reach_target(cloud, file_system, host, client)
    _admit(cloud, file_system, [], tls=False, source=f"{host}:{path}")
    return MountSource(path=f"{file_system}{path.rstrip('/')}")


def _admit(
    cloud: CloudQueries, file_system: str, role: list[Mapping[str, Any]], *, tls: bool, source: str
) -> None:
    """Evaluate the policy of the file system and of the role. A mount that may only read is refused: nothing here shows it."""
    arn, policy = cloud.efs_policy(file_system)
    if policy is None:
        return
    context = {
        "aws:securetransport": (str(tls).lower(),),
        "elasticfilesystem:accessedviamounttarget": ("true",),
    }
    documents = [policies.for_everyone(policy), *role]
    for action in _CLIENT:
        if not policies.allows(documents, Need(action=action, resource=arn, context=context)):
            raise RefusedError(_DENIED.format(source=source))


def _reach_target(cloud: CloudQueries, file_system: str, host: str, client: Ec2Instance) -> None:
    """The name resolves only in zones with an available mount target (T44)."""
    targets = [t for t in cloud.efs_targets(file_system) if t.get("LifeCycleState") == "available"]
    here = [t for t in targets if t.get("AvailabilityZoneName") == client.zone]
    if not here:
        raise RefusedError(f"mount.nfs4: Failed to resolve server {host}: Name or service not known")
    if not allows(cloud.rules(cloud.efs_groups(str(here[0]["MountTargetId"]))), NFS_PORT, client):
        raise RefusedError(
            f"mount.nfs4: Connection timed out for {host}: no security group lets {NFS_PORT} in"
        )


def _lustre(cloud: CloudQueries, request: MountRequest, client: Ec2Instance) -> MountSource:
    host, _, name = request.source.partition("@tcp:/")
    system = cloud.lustre(host)
    failed = f"mount.lustre: mount {request.source} failed"
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
    return MountSource(path=str(system["FileSystemId"]))


def _outside(cloud: CloudQueries, request: MountRequest, client: Ec2Instance) -> MountSource:
    """A file system outside the cloud is a folder that every machine may mount."""
    return MountSource(path=f"{_OUTSIDE}/{re.sub('[^A-Za-z0-9.]+', '-', request.source).strip('-.')}")


_RESOLVERS: Mapping[str, Callable[[CloudQueries, MountRequest, Ec2Instance], MountSource]] = {
    "nfs": _nfs,
    "nfs4": _nfs,
    "efs": _efs_by_helper,
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
    """Whether an export or a rule names the address: `*`, an address, a range."""
    try:
        return where == "*" or ipaddress.ip_address(address or "") in ipaddress.ip_network(
            where, strict=False
        )
    except ValueError:
        return False
