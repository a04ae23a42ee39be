"""A mount in the sandbox is allowed or refused as the real service does: by zone, state, group, name and export."""

import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from gpucluster.plan.store_policies import only_machines
from gpucluster.sandbox.machines.network_mounts import (
    MountRequest,
    MountSource,
    RefusedError,
    allows,
    resolve,
)

NODES = {"IpProtocol": "tcp", "FromPort": 2049, "ToPort": 2049, "UserIdGroupPairs": [{"GroupId": "sg-node"}]}
LUSTRE = [{**NODES, "FromPort": low, "ToPort": high} for low, high in ((988, 988), (1018, 1023))]
ARN = "arn:aws:elasticfilesystem:us-east-1:123456789012:file-system/"
EFS = "fs-0a1.efs.us-east-1.amazonaws.com:/home"
FSX = "fs-0b2.fsx.us-east-1.amazonaws.com@tcp:/abcd"
APPS = "10.42.0.10:/apps"


def an_instance(name, address, group, zone="us-east-1a"):
    return SimpleNamespace(id=name, address=address, zone=zone, spec=SimpleNamespace(groups=(group,)))


CLIENT: Any = an_instance("i-node", "10.42.0.21", "sg-node")


@dataclass
class World:
    """A stand-in cloud in which every mount works, until a test changes it."""

    targets: list = field(
        default_factory=lambda: [
            {"MountTargetId": "t", "LifeCycleState": "available", "AvailabilityZoneName": "us-east-1a"}
        ]
    )
    system: dict | None = field(
        default_factory=lambda: {
            "FileSystemId": "fs-0b2", "Lifecycle": "AVAILABLE", "LustreConfiguration": {"MountName": "abcd"}
        }
    )  # fmt: skip
    table: list | None = field(default_factory=lambda: [("/apps", "10.42.0.0/20")])
    groups: dict = field(default_factory=lambda: {"sg-efs": [NODES], "sg-fsx": LUSTRE, "sg-head": [NODES]})

    def at(self, address):
        return an_instance("i-head", address, "sg-head") if address == "10.42.0.10" else None

    def efs_targets(self, file_system):
        return self.targets if file_system == "fs-0a1" else []

    policy: dict | None = None
    role: list = field(default_factory=list)

    def efs_policy(self, file_system):
        return f"{ARN}{file_system}", self.policy

    def efs_root(self, access_point):
        return {"fsap-1": ("fs-0a1", "/home"), "fsap-2": ("fs-0ff", "/")}.get(access_point)

    def role_policies(self, client):
        return self.role

    def efs_groups(self, target):
        return ["sg-efs"]

    def lustre(self, dns_name):
        return self.system if dns_name.startswith("fs-0b2.") else None

    def lustre_groups(self, system):
        return ["sg-fsx"]

    def rules(self, groups):
        return [rule for group in groups for rule in self.groups.get(group, [])]

    def exports(self, machine):
        return self.table


@pytest.mark.parametrize(
    ("kind", "source", "place"),
    [
        ("nfs4", EFS, MountSource(path="fs-0a1/home")),
        ("nfs4", EFS.removesuffix("home"), MountSource(path="fs-0a1")),
        ("lustre", FSX, MountSource(path="fs-0b2")),
        ("nfs4", APPS, MountSource(path="/apps", machine="i-head")),
        ("nfs4", "192.0.2.5:/srv/apps", MountSource(path="outside/192.0.2.5-srv-apps")),
        ("remote", "192.0.2.9:/../../etc", MountSource(path="outside/192.0.2.9-..-..-etc")),
    ],
)
def test_valid_mount_resolves_to_its_data(kind, source, place):
    world: Any = World()
    assert resolve(world, MountRequest(type=kind, source=source), CLIENT) == place


SHUT = {
    "sg-efs": [{**NODES, "UserIdGroupPairs": [{"GroupId": "sg-other"}]}],
    "sg-head": [],
    "sg-fsx": LUSTRE[:1],
}


@pytest.mark.parametrize(
    ("kind", "source", "world", "said"),
    [
        ("nfs4", EFS.replace("0a1", "0ff"), World(), "Failed to resolve server"),
        ("nfs4", EFS, World(targets=[{**World().targets[0], "LifeCycleState": "creating"}]), "Failed to resolve"),
        ("nfs4", EFS, World(targets=[{**World().targets[0], "AvailabilityZoneName": "us-east-1b"}]), "Failed to resolve"),
        ("nfs4", EFS, World(groups=SHUT), "Connection timed out"),
        ("nfs4", APPS, World(groups=SHUT), "Connection timed out"),
        ("nfs4", APPS, World(table=None), "Connection refused"),
        ("nfs4", APPS, World(table=[("/apps", "10.42.64.0/20")]), "access denied by server"),
        ("nfs4", APPS + "x", World(), "access denied by server"),
        ("lustre", FSX, World(system=None), "does not resolve"),
        ("lustre", FSX, World(groups=SHUT), "Connection timed out"),
        ("lustre", FSX + "e", World(), "Is the MGS specification correct"),
        ("lustre", FSX, World(system={**(World().system or {}), "Lifecycle": "CREATING"}), "Is the MGS running"),
    ],
)  # fmt: skip
def test_invalid_mount_has_the_error_text_of_the_real_program(kind, source, world, said):
    with pytest.raises(RefusedError, match=said):
        resolve(world, MountRequest(type=kind, source=source), CLIENT)


POLICY = json.loads(only_machines(f"{ARN}fs-0a1"))
SIGNED = "tls,iam,accesspoint=fsap-1"


def a_role(*rights: str, of: str = "fs-0a1") -> list[dict[str, Any]]:
    actions = [f"elasticfilesystem:Client{right}" for right in rights]
    return [{"Statement": [{"Effect": "Allow", "Action": actions, "Resource": f"{ARN}{of}"}]}]


ROLE = a_role("Mount", "Write", "RootAccess")


def test_efs_with_our_policy_admits_tls_and_a_role_with_the_rights() -> None:
    world: Any = World(policy=POLICY, role=ROLE)
    wish = MountRequest(type="efs", source="fs-0a1:/", options=SIGNED)
    assert resolve(world, wish, CLIENT) == MountSource(path="fs-0a1/home", makes=True)


@pytest.mark.parametrize(
    ("kind", "source", "options", "role", "said"),
    [
        ("nfs4", EFS, "hard", ROLE, "access denied by server while mounting fs-0a1"),
        ("efs", "fs-0a1:/", "tls", ROLE, "access denied by server while mounting 127.0.0.1:/"),
        ("efs", "fs-0a1:/", "iam", ROLE, 'The "tls" option is required when mounting via "iam"'),
        ("efs", "fs-0a1:/", "accesspoint=fsap-1", ROLE, 'The "tls" option is required when mounting via "accesspoint"'),
        ("efs", "fs-0a1:/", "tls,iam,accesspoint=fsap-2", ROLE, "access denied by server"),
        ("efs", "fs-0a1:/", SIGNED, [], "access denied by server"),
        ("efs", "fs-0a1:/", SIGNED, a_role("Mount", "Write"), "access denied by server"),
        ("efs", "fs-0a1:/", SIGNED, a_role("Mount", "Write", "RootAccess", of="fs-0b1"), "access denied by server"),
        ("efs", "fs-0ff:/", "tls,iam", ROLE, "Failed to resolve server"),
    ],
)  # fmt: skip
def test_efs_with_our_policy_refuses_other_clients(kind, source, options, role, said):
    """Such a client is for example a job's NFS client: it has no TLS and no role."""
    world: Any = World(policy=POLICY, role=role)
    with pytest.raises(RefusedError, match=said):
        resolve(world, MountRequest(type=kind, source=source, target="/home", options=options), CLIENT)


@pytest.mark.parametrize(
    ("kind", "source", "options", "said"),
    [
        ("lustre", FSX, "flock,_netdev,nofail", "mount.lustre: mount .* at /data failed: Invalid argument"),
        ("nfs4", EFS, "hard,tls", "mount.nfs4: an incorrect mount option was specified for /data"),
        ("nfs4", APPS, "hard,flock", "mount.nfs4: an incorrect mount option was specified for /data"),
    ],
)
def test_option_that_the_helper_does_not_take_is_refused(kind, source, options, said):
    """Regression: the stand-ins took every option, so a rehearsal mounted file systems that AWS refuses."""
    world: Any = World()
    with pytest.raises(RefusedError, match=said):
        resolve(world, MountRequest(type=kind, source=source, target="/data", options=options), CLIENT)


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        ({"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": "sg-node"}]}, True),
        ({"IpProtocol": "tcp", "FromPort": 2000, "ToPort": 2100, "IpRanges": [{"CidrIp": "10.42.0.0/16"}]}, True),
        ({"IpProtocol": "tcp", "FromPort": 2000, "ToPort": 2100, "IpRanges": [{"CidrIp": "10.43.0.0/16"}]}, False),
        ({"IpProtocol": "udp", "FromPort": 2049, "ToPort": 2049, "UserIdGroupPairs": [{"GroupId": "sg-node"}]}, False),
        ({"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "UserIdGroupPairs": [{"GroupId": "sg-node"}]}, False),
    ],
)  # fmt: skip
def test_rule_allows_by_group_or_address_and_port(rule, allowed):
    assert allows([rule], 2049, CLIENT) is allowed
