"""A program's resources without an engine: what the program registers, with ids and outputs made up."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi.runtime import MockCallArgs, MockResourceArgs, Mocks, set_mocks

from gpucluster.engine.provider.table import TYPES
from gpucluster.engine.provider.values import read_back

ACCOUNT = "123456789012"


def _image(asked: Mapping[str, Any]) -> dict[str, Any]:
    (one,) = asked["filters"]
    found = one["values"][0] if one["name"] == "image-id" else "ami-1"
    return {"id": found, "imageId": found, "rootDeviceName": "/dev/sda1", "tags": {}}


def _vpc(asked: Mapping[str, Any]) -> dict[str, Any]:
    arn = f"arn:aws:ec2:us-east-2:{ACCOUNT}:vpc/{asked['id']}"
    return {"id": asked["id"], "arn": arn, "enableDnsSupport": True, "enableDnsHostnames": True}


def _subnet(asked: Mapping[str, Any]) -> dict[str, Any]:
    """A site's own subnets: the last letter of the id is the zone's."""
    zone = f"us-east-2{asked['id'][-1]}"
    cidr = "10.42.0.0/19" if zone == "us-east-2a" else "10.42.32.0/19"
    return {
        "id": asked["id"],
        "arn": f"arn:aws:ec2:us-east-2:{ACCOUNT}:subnet/{asked['id']}",
        "vpcId": "vpc-1",
        "availabilityZone": zone,
        "cidrBlock": cidr,
        "availableIpAddressCount": 8000,
    }


def _file_system(asked: Mapping[str, Any]) -> dict[str, Any]:
    found = asked["fileSystemId"]
    return {"id": found, "fileSystemId": found, "dnsName": f"{found}.efs.us-east-2.amazonaws.com"}


ANSWERS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "aws:ec2/getAmi:getAmi": _image,
    "aws:ec2/getVpc:getVpc": _vpc,
    "aws:ec2/getSubnet:getSubnet": _subnet,
    "aws:efs/getFileSystem:getFileSystem": _file_system,
}


@dataclass(frozen=True)
class Declared:
    """One registered resource."""

    type: str
    name: str
    inputs: Mapping[str, Any]


class _Recorder(Mocks):
    def __init__(self) -> None:
        self.found: list[Declared] = []

    def new_resource(self, args: MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        inputs = read_back(dict(args.inputs))
        self.found.append(Declared(args.typ, args.name, inputs))
        kind = TYPES.get(args.typ)
        if kind is None:  # a component or a provider
            return args.name, inputs
        made: dict[str, Any] = {
            name: f"{name}-of-{args.name}" for name in kind.properties if name not in inputs
        }
        service, word = args.typ.split(":")[1].split("/")
        made["arn"] = f"arn:aws:{service}:us-east-2:{ACCOUNT}:{word}/{args.name}"
        return f"{word}-{args.name}", {**made, "latestVersion": 1, "tagsAll": {}, **inputs}

    def call(self, args: MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]] | None]:
        self.found.append(Declared(args.token, "", read_back(dict(args.args))))
        return ANSWERS[args.token](args.args), []


def declared_by(program: Callable[[], None]) -> tuple[Declared, ...]:
    """Run a program to its end; what it registered, sorted. Outputs that are secret or unknown do not arise."""
    recorder = _Recorder()
    set_mocks(recorder, project="gpucluster", stack="burst", preview=False)
    pulumi.runtime.test(program)()
    return tuple(sorted(recorder.found, key=lambda one: (one.type, one.name)))
