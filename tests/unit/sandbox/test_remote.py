"""A mount in the sandbox is allowed or refused as the real service would: by zone, state, group, name and export."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from gpucluster.sandbox.remote import Place, RefusedError, Wish, allows, judge

NODES = {"IpProtocol": "tcp", "FromPort": 2049, "ToPort": 2049, "UserIdGroupPairs": [{"GroupId": "sg-node"}]}
LUSTRE = [{**NODES, "FromPort": low, "ToPort": high} for low, high in ((988, 988), (1018, 1023))]
EFS = "fs-0a1.efs.us-east-1.amazonaws.com:/home"
FSX = "fs-0b2.fsx.us-east-1.amazonaws.com@tcp:/abcd"
APPS = "10.42.0.10:/apps"


def an_instance(name, address, group, zone="us-east-1a"):
    return SimpleNamespace(id=name, address=address, zone=zone, spec=SimpleNamespace(groups=(group,)))


CLIENT: Any = an_instance("i-node", "10.42.0.21", "sg-node")


@dataclass
class World:
    """A cloud in which all is well, until a test changes it."""

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
        ("nfs4", EFS, Place(path="fs-0a1/home")),
        ("nfs4", EFS.removesuffix("home"), Place(path="fs-0a1")),
        ("lustre", FSX, Place(path="fs-0b2")),
        ("nfs4", APPS, Place(path="/apps", machine="i-head")),
        ("nfs4", "192.0.2.5:/srv/apps", Place(path="outside/192.0.2.5-srv-apps")),
        ("remote", "192.0.2.9:/../../etc", Place(path="outside/192.0.2.9-..-..-etc")),
    ],
)
def test_where_all_is_well_it_leads_to_the_data(kind, source, place):
    world: Any = World()
    assert judge(world, Wish(type=kind, source=source), CLIENT) == place


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
def test_else_it_is_refused_in_the_words_of_the_real_program(kind, source, world, said):
    with pytest.raises(RefusedError, match=said):
        judge(world, Wish(type=kind, source=source), CLIENT)


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
def test_a_rule_lets_in_by_group_or_address_and_by_its_ports(rule, allowed):
    assert allows([rule], 2049, CLIENT) is allowed
