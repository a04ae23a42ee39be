"""Resources of a program without an engine: ids and outputs are made up."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pulumi
from pulumi.runtime import MockCallArgs, MockResourceArgs, Mocks, set_mocks
from pulumi.runtime.proto.source_pb2 import StackTrace

from gpucluster.engine.values import read_back
from gpucluster.sandbox.provider.table import TYPES

ACCOUNT, NETWORK_OWNER = "123456789012", "210987654321"  # a site shares its VPC from another account


def _image(asked: Mapping[str, Any], _region: str) -> dict[str, Any]:
    (one,) = asked["filters"]
    found = one["values"][0] if one["name"] == "image-id" else "ami-1"
    return {"id": found, "imageId": found, "rootDeviceName": "/dev/sda1", "tags": {}}


def _vpc(asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    arn = f"arn:aws:ec2:{region}:{NETWORK_OWNER}:vpc/{asked['id']}"
    return {
        "id": asked["id"],
        "arn": arn,
        "enableDnsSupport": True,
        "enableDnsHostnames": True,
        "ownerId": NETWORK_OWNER,
    }


def _subnet(asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Subnets of a site: the last letter of the id is the zone's."""
    zone = f"{region}{asked['id'][-1]}"
    cidr = "10.42.0.0/19" if zone.endswith("a") else "10.42.32.0/19"
    return {
        "id": asked["id"],
        "arn": f"arn:aws:ec2:{region}:{NETWORK_OWNER}:subnet/{asked['id']}",
        "vpcId": "vpc-1",
        "availabilityZone": zone,
        "cidrBlock": cidr,
        "availableIpAddressCount": 8000,
    }


def _caller(_asked: Mapping[str, Any], _region: str) -> dict[str, Any]:
    return {"accountId": ACCOUNT, "id": ACCOUNT}


def _key(asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    return {
        "arn": f"arn:aws:kms:{region}:{ACCOUNT}:key/0123abcd-0123-0123-0123-0123456789ab",
        "enabled": asked["keyId"] != "alias/disabled",
        "keyManager": "CUSTOMER",
        "keySpec": "SYMMETRIC_DEFAULT",
        "keyUsage": "ENCRYPT_DECRYPT",
    }


def _file_system(asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    found = asked["fileSystemId"]
    return {"id": found, "fileSystemId": found, "dnsName": f"{found}.efs.{region}.amazonaws.com"}


ANSWERS: Mapping[str, Callable[[Mapping[str, Any], str], dict[str, Any]]] = {
    "aws:ec2/getAmi:getAmi": _image,
    "aws:ec2/getVpc:getVpc": _vpc,
    "aws:ec2/getSubnet:getSubnet": _subnet,
    "aws:efs/getFileSystem:getFileSystem": _file_system,
    "aws:index/getCallerIdentity:getCallerIdentity": _caller,
    "aws:kms/getKey:getKey": _key,
}


@dataclass(frozen=True)
class Declared:
    """One registered resource."""

    type: str
    name: str
    inputs: Mapping[str, Any]


class Recorder(Mocks):
    """Record each resource; answer with made-up outputs."""

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
        region = next(one.inputs["region"] for one in self.found if one.type == "pulumi:providers:aws")
        return ANSWERS[args.token](args.args, region), []


def declared_by(program: Callable[[], None], recorder: Recorder | None = None) -> tuple[Declared, ...]:
    """Run a program to its end; return the registered resources, sorted. Outputs are never secret or unknown.

    The SDK is not asked where in the program each resource stands: it reads the whole stack, which is deep in a test.
    A program that fails raises. The futures that nobody awaited log nothing: they would log a traceback when they are
    collected, which parses sources, and Python 3.11 fails when that happens during another parse (`AST constructor
    recursion depth mismatch`).
    """
    recorder = recorder or Recorder()
    set_mocks(recorder, project="gpucluster", stack="burst", preview=False)
    asyncio.get_event_loop().set_exception_handler(lambda _loop, _context: None)
    with patch("pulumi.runtime.resource._get_stack_trace", StackTrace):
        pulumi.runtime.test(program)()
    return tuple(sorted(recorder.found, key=lambda one: (one.type, one.name)))
