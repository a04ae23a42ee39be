"""The content of the metadata service as a tree of folders and texts.

A listing has only names that can be read, because cloud-init reads every entry.
"""

import datetime
import json
from collections.abc import Callable, Mapping

from gpucluster.plan.model import Market
from gpucluster.sandbox.aws.credentials import Key
from gpucluster.sandbox.aws.ec2.state.values import Ec2Instance, MaintenanceEvent
from gpucluster.sandbox.aws.moto_state import ACCOUNT, Profile
from gpucluster.text import utc

_EVENT_LASTS_S = 7200.0
VERSIONS = ("1.0", "2009-04-04", "2021-03-23", "latest")
Leaf = str | bytes | Callable[[], str]  # credentials are created when they are read
Tree = Mapping[str, "Leaf | Tree"]


def tree(
    instance: Ec2Instance, region: str, profile: Profile | None, session: Callable[[Profile], Key]
) -> dict[str, "Leaf | Tree"]:
    """The content of one version."""
    content: dict[str, Leaf | Tree] = {
        "meta-data": _meta_data(instance, region, profile, session),
        "dynamic": {"instance-identity": {"document": _identity(instance, region)}},
    }
    if instance.spec.user_data:
        content["user-data"] = instance.spec.user_data
    return content


def read(content: Tree, path: str) -> bytes | None:
    """The text at `path`, or the listing of a folder; None if it does not exist."""
    node: Leaf | Tree = content
    for part in [p for p in path.split("/") if p]:
        if isinstance(node, str | bytes) or callable(node) or part not in node:
            return None
        node = node[part]
    if callable(node):
        node = node()
    if isinstance(node, str):
        return node.encode()
    return node if isinstance(node, bytes) else _listing(node)


def _listing(folder: Tree) -> bytes:
    leaves = [name for name, node in folder.items() if isinstance(node, str | bytes) or callable(node)]
    folders = [f"{name}/" for name in folder.keys() - set(leaves)]
    return "\n".join(sorted(leaves + folders)).encode()


def _meta_data(
    instance: Ec2Instance, region: str, profile: Profile | None, session: Callable[[Profile], Key]
) -> dict[str, Leaf | Tree]:
    spec, address = instance.spec, instance.address or ""
    name = f"ip-{address.replace('.', '-')}.ec2.internal"
    content: dict[str, Leaf | Tree] = {
        "ami-id": spec.image,
        "ami-launch-index": str(instance.index),
        "hostname": name,
        "instance-action": "none",
        "instance-id": instance.id,
        "instance-life-cycle": "spot" if spec.market is Market.SPOT else "on-demand",
        "instance-type": spec.machine,
        "local-hostname": name,
        "local-ipv4": address,
        "mac": instance.mac,
        "network": {"interfaces": {"macs": {instance.mac: _interface(instance, name)}}},
        "placement": {"availability-zone": instance.zone, "region": region},
        "reservation-id": instance.reservation,
        "services": {"domain": "amazonaws.com", "partition": "aws"},
    }
    if instance.public_address is not None:
        content["public-ipv4"] = instance.public_address
    if spec.metadata.get("InstanceMetadataTags") == "enabled" and instance.tags:
        content["tags"] = {"instance": dict(instance.tags)}
    if profile is not None and profile.role is not None:
        content["iam"] = _iam(instance, profile, session)
    if instance.notice_at is not None and not instance.notice_hidden:
        content["spot"] = _spot(instance.notice_at)
    events = _events(instance)
    if events:
        content["events"] = events
    return content


def _events(instance: Ec2Instance) -> dict[str, Leaf | Tree]:
    """Rebalance recommendations and scheduled events; without one the path answers 404 (T34, T35)."""
    content: dict[str, Leaf | Tree] = {}
    if instance.rebalance_at is not None:
        content["recommendations"] = {"rebalance": json.dumps({"noticeTime": _zulu(instance.rebalance_at)})}
    if instance.events:
        content["maintenance"] = {
            "scheduled": json.dumps([_event(e) for e in instance.events if not e.completed]),
            "history": json.dumps([_event(e) for e in instance.events if e.completed]),
        }
    return content


def _event(event: MaintenanceEvent) -> dict[str, str]:
    return {
        "NotBefore": _words(event.not_before),
        "NotAfter": _words(event.not_before + _EVENT_LASTS_S),
        "Code": event.code,
        "Description": event.text,
        "EventId": event.id,
        "State": "completed" if event.completed else "active",
    }


def _interface(instance: Ec2Instance, name: str) -> dict[str, Leaf | Tree]:
    subnet = instance.spec.subnet
    return {
        "device-number": "0",
        "interface-id": instance.interface_id,
        "local-hostname": name,
        "local-ipv4s": instance.address or "",
        "mac": instance.mac,
        "owner-id": ACCOUNT,
        "security-group-ids": "\n".join(instance.spec.groups),
        "subnet-id": subnet.id,
        "subnet-ipv4-cidr-block": subnet.cidr,
        "vpc-id": subnet.vpc,
    }


def _iam(
    instance: Ec2Instance, profile: Profile, session: Callable[[Profile], Key]
) -> dict[str, Leaf | Tree]:
    info = {
        "Code": "Success",
        "LastUpdated": _zulu(instance.launched_at),
        "InstanceProfileArn": profile.arn,
        "InstanceProfileId": profile.id,
    }
    return {
        "info": json.dumps(info, indent=1),
        "security-credentials": {profile.role or "": lambda: _credentials(session(profile))},
    }


def _credentials(key: Key) -> str:
    return json.dumps(
        {
            "Code": "Success",
            "LastUpdated": _zulu(key.issued),
            "Type": "AWS-HMAC",
            "AccessKeyId": key.access_key,
            "SecretAccessKey": key.secret,
            "Token": key.token,
            "Expiration": _zulu(key.expires or 0.0),
        },
        indent=1,
    )


def _spot(notice_at: float) -> dict[str, Leaf | Tree]:
    action = {"action": "terminate", "time": _zulu(notice_at)}
    return {"instance-action": json.dumps(action), "termination-time": _zulu(notice_at)}


def _identity(instance: Ec2Instance, region: str) -> str:
    document = {
        "accountId": ACCOUNT,
        "architecture": "x86_64",
        "availabilityZone": instance.zone,
        "imageId": instance.spec.image,
        "instanceId": instance.id,
        "instanceType": instance.spec.machine,
        "pendingTime": _zulu(instance.launched_at),
        "privateIp": instance.address,
        "region": region,
        "version": "2017-09-30",
    }
    return json.dumps(document, indent=1)


def _zulu(seconds: float) -> str:
    return utc(seconds)


def _words(seconds: float) -> str:
    """The time in the form of scheduled events."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%d %b %Y %H:%M:%S GMT")
