"""A small stack that passes every rule of `policies/`, and mistakes planted into it, one at a time."""

import base64
import gzip
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from gpucluster.engine.offline.model import SECRET, UNKNOWN, Resource

TAG = {"gpucluster:cluster": "burst"}
SELF = {"securityGroupId": ("nodes",), "referencedSecurityGroupId": ("nodes",)}
Stack = Mapping[str, Resource]


def a_resource(
    urn: str, kind: str, /, *, links: Mapping[str, Iterable[str]] | None = None, **given: Any
) -> Resource:
    """Resources by a short URN, which is also their name."""
    protect = given.pop("protect", False)
    return Resource(
        urn=urn,
        type=kind,
        name=urn,
        custom=True,
        provider="provider",
        protect=protect,
        property_dependencies={name: tuple(urns) for name, urns in (links or {}).items()},
        properties=given,
    )


def a_policy(*statements: Mapping[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


READ = {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": ["arn:aws:s3:::burst/bundle.tar.gz"]}
SEE = {"Effect": "Allow", "Action": ["ec2:DescribeInstances"], "Resource": ["*"]}
ONLY_TLS = {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": "*"}
EVENTS = {"Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}, "Action": "sqs:SendMessage", "Resource": "arn:aws:sqs:r:1:q"}  # fmt: skip
TRUST = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
META = {"httpEndpoint": "enabled", "httpTokens": "required", "httpPutResponseHopLimit": 1}
ROOT = [{"deviceName": UNKNOWN, "ebs": {"encrypted": "true", "volumeType": "gp3"}}]
CARDS = [{"deviceIndex": 0, "interfaceType": "interface"}, {"deviceIndex": 1, "interfaceType": "efa-only"}]
CONFIG = '#cloud-config\n{"write_files": [{"content": "{\\"bucket\\": \\"burst-9f8e7d6\\", \\"key\\": \\"bundle.tar.gz\\"}"}]}\n'


def in_base64(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def good() -> dict[str, Resource]:
    """Resources by URN."""
    made = (
        replace(
            a_resource("provider", "pulumi:providers:aws", defaultTags=json.dumps({"tags": TAG})),
            provider=None,
        ),
        a_resource("nodes", "aws:ec2/securityGroup:SecurityGroup", id="sg-nodes"),
        a_resource(
            "in", "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", links=SELF, ipProtocol="-1"
        ),
        a_resource(
            "out", "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", links=SELF, ipProtocol="-1"
        ),
        a_resource(
            "anywhere",
            "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
            links={"securityGroupId": ("nodes",)},
            ipProtocol="-1",
            cidrIpv4="0.0.0.0/0",
        ),
        a_resource(
            "ssh",
            "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
            ipProtocol="tcp",
            cidrIpv4="203.0.113.0/24",
        ),
        a_resource(
            "template",
            "aws:ec2/launchTemplate:LaunchTemplate",
            links={"networkInterfaces": ("nodes",)},
            metadataOptions=META,
            blockDeviceMappings=ROOT,
            networkInterfaces=CARDS,
            placement={"groupName": "g"},
            tagSpecifications=[
                {"resourceType": kind, "tags": TAG} for kind in ("instance", "network-interface", "volume")
            ],
            userData=in_base64(CONFIG),
        ),
        a_resource(
            "head",
            "aws:ec2/instance:Instance",
            metadataOptions=META,
            rootBlockDevice={"encrypted": True, "tags": TAG},
            userDataBase64=in_base64(CONFIG),
        ),
        a_resource("state", "aws:ebs/volume:Volume", encrypted=True, protect=True),
        a_resource("home", "aws:efs/fileSystem:FileSystem", encrypted=True, protect=True),
        a_resource("scratch", "aws:fsx/lustreFileSystem:LustreFileSystem", protect=True),
        a_resource("bucket", "aws:s3/bucket:Bucket"),
        a_resource(
            "sse",
            "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
            links={"bucket": ("bucket",)},
        ),
        a_resource("tls", "aws:s3/bucketPolicy:BucketPolicy", policy=a_policy(ONLY_TLS)),
        a_resource("events", "aws:sqs/queuePolicy:QueuePolicy", policy=a_policy(EVENTS)),
        a_resource("role", "aws:iam/role:Role", assumeRolePolicy=a_policy(TRUST)),
        a_resource("rights", "aws:iam/rolePolicy:RolePolicy", policy=a_policy(READ, SEE)),
    )
    return {one.urn: one for one in made}


def put(urn: str, **given: Any) -> Callable[[Stack], Iterable[Resource]]:
    """Change properties; None removes a property."""

    def change(stack: Stack) -> Iterable[Resource]:
        properties = {k: v for k, v in {**stack[urn].properties, **given}.items() if v is not None}
        return {**stack, urn: replace(stack[urn], properties=properties)}.values()

    return change


def elsewhere(urn: str, **given: Any) -> Callable[[Stack], Iterable[Resource]]:
    """Change properties, and take a provider without default tags."""

    def change(stack: Stack) -> Iterable[Resource]:
        changed = {one.urn: one for one in put(urn, **given)(stack)}
        return {**changed, urn: replace(changed[urn], provider="elsewhere")}.values()

    return change


def without(urn: str) -> Callable[[Stack], Iterable[Resource]]:
    return lambda stack: [one for one in stack.values() if one.urn != urn]


def bare(urn: str) -> Callable[[Stack], Iterable[Resource]]:
    return lambda stack: {**stack, urn: replace(stack[urn], protect=False)}.values()


def also(urn: str, kind: str, **given: Any) -> Callable[[Stack], Iterable[Resource]]:
    return lambda stack: [*stack.values(), a_resource(urn, kind, **given)]


def may(**statement: Any) -> Callable[[Stack], Iterable[Resource]]:
    return put("rights", policy=a_policy({**READ, **statement}))


def booted(text: str) -> Callable[[Stack], Iterable[Resource]]:
    return put("template", userData=in_base64(text))


KEY = bytes((i * 181 + i * i * 7 + 43) % 256 for i in range(1024))  # as random as a munge key
SPEC = [{"resourceType": kind, "tags": TAG} for kind in ("instance", "network-interface")]
HELD = {"capacityReservationTarget": {"capacityReservationId": "cr-1"}}
PEM = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\n"


def in_slices(stack: Stack) -> Iterable[Resource]:
    """Each range is narrow, but together they are the whole internet."""
    links = {"securityGroupId": ("nodes",)}
    kind = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
    every = (a_resource(f"slice-{n}", kind, links=links, cidrIpv4=f"{n}.0.0.0/8") for n in range(1, 224))
    return [*stack.values(), *every]


def in_two_groups(stack: Stack) -> Iterable[Resource]:
    """The primary interface is in the group that allows itself, the EFA interface in another."""
    cards = [
        {**card, "securityGroups": [one]} for card, one in zip(CARDS, ("sg-nodes", "sg-bare"), strict=True)
    ]
    template = replace(
        stack["template"],
        properties={**stack["template"].properties, "networkInterfaces": cards},
        property_dependencies={"networkInterfaces": ("bare", "nodes")},
    )
    bare = a_resource("bare", "aws:ec2/securityGroup:SecurityGroup", id="sg-bare")
    return {**stack, "template": template, "bare": bare}.values()


def a_group_for_a_held_pool(stack: Stack) -> Iterable[Resource]:
    """The template names no placement group; the launch would name it."""
    pool = {**TAG, "gpucluster:pool": "h100"}
    given = {k: v for k, v in stack["template"].properties.items() if k != "placement"}
    held = replace(
        stack["template"], properties={**given, "tags": pool, "capacityReservationSpecification": HELD}
    )
    group = a_resource("group", "aws:ec2/placementGroup:PlacementGroup", strategy="cluster", tags=pool)
    return {**stack, "template": held, "group": group}.values()


def attached(policy: str, whom: str = "Role") -> Callable[[Stack], Iterable[Resource]]:
    kind = f"aws:iam/{whom.lower()}PolicyAttachment:{whom}PolicyAttachment"
    return also("attached", kind, policyArn=f"arn:aws:iam::{policy}")


def anybody(**condition: Any) -> Callable[[Stack], Iterable[Resource]]:
    return put("role", assumeRolePolicy=a_policy({**TRUST, "Principal": "*", "Condition": condition}))


SPOT = {"rootBlockDevice": {"encrypted": True}, "volumeTags": TAG}
PARTED = {"tags": TAG, "rootBlockDevice": {"encrypted": True, "tags": TAG}, "ebsBlockDevices": [{"encrypted": True}]}  # fmt: skip
BARE = {"tags": TAG, "rootBlockDevice": {"encrypted": True}}
LOWER = json.dumps({"Statement": [{"effect": "Allow", "action": "*", "resource": "*"}]})

# a sentence -> (the mistake, the only rule that finds it, the property that it names)
PLANTED: Mapping[str, tuple[Callable[[Stack], Iterable[Resource]], str, str]] = {
    "ssh from everywhere": (put("ssh", cidrIpv4="0.0.0.0/0"), "open-group", "cidrIpv4"),
    "ssh from everywhere by IPv6": (put("ssh", cidrIpv4=None, cidrIpv6="::/0"), "open-group", "cidrIpv6"),
    "half of the world": (put("ssh", cidrIpv4="128.0.0.0/1"), "open-group", "cidrIpv4"),
    "no range at all": (put("ssh", cidrIpv4="all"), "open-group", "cidrIpv4"),
    "a rule inside a group": (
        put("nodes", ingress=[{"protocol": "tcp", "cidrBlocks": ["10.0.0.0/8", "0.0.0.0/0"]}]), "open-group", "ingress[0].cidrBlocks"),
    "an older kind of rule": (
        also("old", "aws:ec2/securityGroupRule:SecurityGroupRule", type="ingress", cidrBlocks=["0.0.0.0/0"]), "open-group", "cidrBlocks"),
    "the world in slices": (in_slices, "open-group", "cidrIpv4"),
    "a fabric's card in another group than the ordinary one": (in_two_groups, "efa-group", "networkInterfaces.securityGroups"),
    "a fabric whose nodes do not hear each other": (without("in"), "efa-group", "networkInterfaces.securityGroups"),
    "a fabric whose nodes only send to a range": (without("out"), "efa-group", "networkInterfaces.securityGroups"),
    "a fabric of one port": (put("in", ipProtocol="tcp"), "efa-group", "networkInterfaces.securityGroups"),
    "a metadata service without tokens": (put("template", metadataOptions={**META, "httpTokens": "optional"}), "imdsv2", "metadataOptions.httpTokens"),
    "a head whose options are the account's": (put("head", metadataOptions=None), "imdsv2", "metadataOptions.httpTokens"),
    "a metadata service for containers": (
        put("head", metadataOptions={**META, "httpPutResponseHopLimit": 2}), "imdsv2", "metadataOptions.httpPutResponseHopLimit"),
    "a spot request whose options are the account's": (
        also("spot", "aws:ec2/spotInstanceRequest:SpotInstanceRequest", **SPOT), "imdsv2", "metadataOptions.httpTokens"),
    "a group forced on a reservation": (put("template", capacityReservationSpecification=HELD), "placement-on-reservation", "placement.groupName"),
    "a group forced on a block": (
        put("template", instanceMarketOptions={"marketType": "capacity-block"}), "placement-on-reservation", "placement.groupName"),
    "a head in a group on a reservation": (
        put("head", placementGroup="g", capacityReservationSpecification=HELD), "placement-on-reservation", "placementGroup"),
    "a group for a pool that was bought ahead": (a_group_for_a_held_pool, "placement-on-reservation", "tags"),
    "a plain volume": (put("state", encrypted=False), "unencrypted-storage", "encrypted"),
    "a plain EFS": (put("home", encrypted=None), "unencrypted-storage", "encrypted"),
    "a plain disk of nodes": (
        put("template", blockDeviceMappings=[{"ebs": {"encrypted": "false"}}]), "unencrypted-storage", "blockDeviceMappings[0].ebs.encrypted"),
    "a second plain disk of nodes": (
        put("template", blockDeviceMappings=[*ROOT, {"ebs": {}}]), "unencrypted-storage", "blockDeviceMappings[1].ebs.encrypted"),
    "nodes with the image's root device": (put("template", blockDeviceMappings=None), "unencrypted-storage", "blockDeviceMappings"),
    "nodes whose mapping says nothing of a disk": (
        put("template", blockDeviceMappings=[{"deviceName": "/dev/sda1"}]), "unencrypted-storage", "blockDeviceMappings"),
    "a head with a plain root device": (put("head", rootBlockDevice=None), "unencrypted-storage", "rootBlockDevice.encrypted"),
    "a bucket that says nothing": (without("sse"), "unencrypted-storage", "serverSideEncryptionConfiguration"),
    "an EFS that any destroy takes": (bare("home"), "unprotected-data", "protect"),
    "a Lustre that any destroy takes": (bare("scratch"), "unprotected-data", "protect"),
    "a state volume that any destroy takes": (bare("state"), "unprotected-data", "protect"),
    "all of a service": (may(Action="s3:*"), "wide-policy", "policy.Statement[0].Action"),
    "all that begins alike": (may(Action=["s3:GetObject", "s3:Get?bject*"]), "wide-policy", "policy.Statement[0].Action"),
    "an action on everything": (may(Resource="*"), "wide-policy", "policy.Statement[0].Resource"),
    "an action on every bucket": (may(Resource=["arn:aws:s3:::*"]), "wide-policy", "policy.Statement[0].Resource"),
    "all but one action": (may(Action=[], NotAction=["iam:PassRole"]), "wide-policy", "policy.Statement[0].NotAction"),
    "a listing and more on everything": (
        may(Action=["ec2:DescribeInstances", "ec2:StartInstances"], Resource="*"), "wide-policy", "policy.Statement[0].Resource"),
    "a queue for anybody": (put("events", policy=a_policy({**EVENTS, "Principal": {"AWS": "*"}})), "wide-policy", "policy.Statement[0].Principal"),
    "a role for anybody": (put("role", assumeRolePolicy=a_policy({**TRUST, "Principal": "*"})), "wide-policy", "assumeRolePolicy.Statement[0].Principal"),
    "an administrator": (
        also("admin", "aws:iam/rolePolicyAttachment:RolePolicyAttachment", policyArn="arn:aws:iam::aws:policy/AdministratorAccess"), "wide-policy", "policyArn"),
    "an administrator in a job's words": (attached("aws:policy/job-function/SystemAdministrator"), "wide-policy", "policyArn"),
    "a user who is one": (attached("aws:policy/AdministratorAccess", "User"), "wide-policy", "policyArn"),
    "every secret of the account": (
        may(Action="secretsmanager:GetSecretValue", Resource="arn:aws:secretsmanager:r:1:secret:*"), "wide-policy", "policy.Statement[0].Resource"),
    "every role to pass on": (may(Action="iam:PassRole", Resource="arn:aws:iam::1:role/*"), "wide-policy", "policy.Statement[0].Resource"),
    "any bucket's bundle": (may(Resource="arn:aws:s3:::*/bundle.tar.gz"), "wide-policy", "policy.Statement[0].Resource"),
    "a name of any letters": (may(Resource="arn:aws:s3:::?*"), "wide-policy", "policy.Statement[0].Resource"),
    "words that IAM takes in another case": (put("rights", policy=LOWER), "wide-policy", "policy.Statement[0]"),
    "anybody on no condition": (anybody(), "wide-policy", "assumeRolePolicy.Statement[0].Principal"),
    "anybody of any name": (anybody(StringLike={"aws:PrincipalArn": "*"}), "wide-policy", "assumeRolePolicy.Statement[0].Principal"),
    "anybody with TLS": (anybody(Bool={"aws:SecureTransport": "true"}), "wide-policy", "assumeRolePolicy.Statement[0].Principal"),
    "an EFS for anybody": (
        also("efs", "aws:efs/fileSystemPolicy:FileSystemPolicy", policy=a_policy({**READ, "Principal": {"AWS": "*"}})), "wide-policy", "policy.Statement[0].Principal"),
    "a text that is no policy": (put("rights", policy="allow all"), "wide-policy", "policy"),
    "a document of a list": (put("rights", policy="[1, 2]"), "wide-policy", "policy"),
    "a munge key in base64": (booted(f"#!/bin/sh\necho {in_base64(KEY)} | base64 -d > /etc/munge/munge.key\n"), "secret-in-user-data", "userData"),
    "a munge key in hex": (booted(f"key: {KEY[:64].hex()}\n"), "secret-in-user-data", "userData"),
    "an AWS key": (booted("export ID=AKIAIOSFODNN7EXAMPLE\n"), "secret-in-user-data", "userData"),
    "a private key": (booted(PEM), "secret-in-user-data", "userData"),
    "a private key that is packed": (
        put("template", userData=in_base64(gzip.compress(f"#cloud-config\ncontent: {in_base64(PEM)}\n".encode(), mtime=0))), "secret-in-user-data", "userData"),
    "a password": (booted('{"db_password": "hunter22"}\n'), "secret-in-user-data", "userData"),
    "a password in plain user data": (put("head", userData="#!/bin/sh\nexport PASSWORD=hunter22\n"), "secret-in-user-data", "userData"),
    "a password in a JSON of a JSON": (booted(json.dumps({"content": json.dumps({"password": "hunter22"})})), "secret-in-user-data", "userData"),
    "a key of munge by its name": (booted("MUNGE_KEY=hunter22-hunter22\n"), "secret-in-user-data", "userData"),
    "a secret of a client": (booted("CLIENT_SECRET=hunter2222\n"), "secret-in-user-data", "userData"),
    "a password of root": (booted("#cloud-config\nchpasswd:\n  list: |\n    root:hunter22\n"), "secret-in-user-data", "userData"),
    "a short password that is packed": (booted(f"echo {in_base64('password: hunter22')} | base64 -d\n"), "secret-in-user-data", "userData"),
    "an AWS key in hex": (booted(f"key: {b'export ID=AKIAIOSFODNN7EXAMPLE'.hex()}\n"), "secret-in-user-data", "userData"),
    "a secret of the program": (put("head", userDataBase64=SECRET), "secret-in-user-data", "userDataBase64"),
    "volumes that nobody owns": (put("template", tagSpecifications=SPEC), "untagged-cost", "tagSpecifications[volume].tags"),
    "a head's volumes that nobody owns": (elsewhere("head", **BARE), "untagged-cost", "rootBlockDevice.tags"),
    "a head's second volume that nobody owns": (elsewhere("head", **PARTED), "untagged-cost", "ebsBlockDevices[0].tags"),
    "a provider without default tags": (
        lambda stack: [*stack.values(), replace(a_resource("b", "aws:ebs/volume:Volume", encrypted=True, protect=True, tags={"Name": "b"}), provider="elsewhere")],
        "untagged-cost", "tags"),
}  # fmt: skip

# a sentence -> (the unknown value, the rule that reports it, the property)
OPEN: Mapping[str, tuple[Callable[[Stack], Iterable[Resource]], str, str]] = {
    "a range that is looked up": (put("ssh", cidrIpv4=UNKNOWN), "open-group", "cidrIpv4"),
    "a list of ranges by its id": (put("ssh", cidrIpv4=None, prefixListId="pl-1"), "open-group", "prefixListId"),
    "a site's own group": (without("nodes"), "efa-group", "networkInterfaces.securityGroups"),
    "cards that are looked up": (put("template", networkInterfaces=UNKNOWN), "efa-group", "networkInterfaces"),
    "a hop limit that is looked up": (
        put("head", metadataOptions={**META, "httpPutResponseHopLimit": UNKNOWN}), "imdsv2", "metadataOptions.httpPutResponseHopLimit"),
    "a reservation that is looked up": (
        put("template", capacityReservationSpecification=UNKNOWN), "placement-on-reservation", "capacityReservationSpecification"),
    "a volume that may be encrypted": (put("state", encrypted=UNKNOWN), "unencrypted-storage", "encrypted"),
    "a policy of ARNs": (put("rights", policy=UNKNOWN), "wide-policy", "policy"),
    "a policy of the site": (attached("123456789012:policy/site"), "wide-policy", "policyArn"),
    "user data with a bucket's name": (put("template", userData=UNKNOWN), "secret-in-user-data", "userData"),
    "tags that are looked up": (put("template", tagSpecifications=UNKNOWN), "untagged-cost", "tagSpecifications"),
}  # fmt: skip
