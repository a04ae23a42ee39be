"""Typed access to moto's own objects. moto stores everything but instances.

Calls into moto take `lock`: its backends are plain dictionaries, and the server has many threads.
"""

import base64
import functools
import hashlib
import ipaddress
import json
import threading
import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from gpucluster.sandbox.aws.ec2.cards import Cards
from gpucluster.sandbox.aws.ec2.state.values import Refusal, SubnetRef

ACCOUNT = "123456789012"  # moto's account; the sandbox has no other
EBS_KEY = "alias/aws/ebs"  # the key that AWS manages for volumes


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A KMS key."""

    arn: str
    state: str  # Enabled, Disabled, PendingDeletion
    manager: str  # CUSTOMER or AWS


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One version of a launch template; `content` is LaunchTemplateData with EC2's field names."""

    id: str
    name: str
    version: int
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """An instance profile and its role, if it has one."""

    id: str
    name: str
    arn: str
    role: str | None
    role_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A role and its trust policy."""

    id: str
    name: str
    trust: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTable:
    """A route table with the range of its VPC and the associated subnets."""

    id: str
    vpc: str
    main: bool
    local: str
    subnets: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A security group and the ids of the groups that its rules name."""

    id: str
    name: str
    vpc: str
    named: frozenset[str]


class Moto:
    """moto's backends for the one account and Region."""

    def __init__(self, region: str) -> None:
        from moto.ec2.models import ec2_backends  # noqa: PLC0415 - seconds; only a sandbox pays them
        from moto.events.models import events_backends  # noqa: PLC0415
        from moto.iam.models import iam_backends  # noqa: PLC0415
        from moto.kms.models import kms_backends  # noqa: PLC0415
        from moto.s3.models import s3_backends  # noqa: PLC0415
        from moto.secretsmanager.models import secretsmanager_backends  # noqa: PLC0415
        from moto.sqs.models import sqs_backends  # noqa: PLC0415

        self.region = region
        self.lock = threading.RLock()
        self.ebs_key = EBS_KEY  # of volumes that name no key
        self._owners: dict[str, str] = {}  # of a shared network's parts, by id
        self._ec2: Any = ec2_backends[ACCOUNT][region]
        self._iam: Any = iam_backends[ACCOUNT]["aws"]
        self._kms: Any = kms_backends[ACCOUNT][region]
        self._s3: Any = s3_backends[ACCOUNT]["aws"]
        self._secrets: Any = secretsmanager_backends[ACCOUNT][region]
        self._events: Any = events_backends[ACCOUNT][region]
        self._sqs: Any = sqs_backends[ACCOUNT][region]
        _disable_bucket_policies_of_moto()

    # --- EC2 ------------------------------------------------------------------------------------

    def subnet(self, subnet_id: str) -> SubnetRef:
        """The subnet by id; a Refusal if it does not exist."""
        for subnet in self._subnets():
            if subnet.id == subnet_id:
                return _place(subnet)
        raise Refusal("InvalidSubnetID.NotFound", f"The subnet ID '{subnet_id}' does not exist")

    def default_subnet(self, zone: str | None) -> SubnetRef:
        """The default subnet of a zone, or of the first."""
        found = [s for s in self._subnets() if s.default_for_az and zone in (None, s.availability_zone)]
        if not found:
            raise Refusal("InvalidParameterValue", f"Invalid availability zone: [{zone}]")
        return _place(min(found, key=lambda s: str(s.availability_zone)))

    def zones(self) -> list[str]:
        """Zones with a subnet; moto's default VPC has one in each zone."""
        return sorted({str(s.availability_zone) for s in self._subnets()})

    def make_vpc(self, vpc: str, cidr: str, subnets: Mapping[str, tuple[str, str]]) -> None:
        """Create a VPC with known ids, with both DNS attributes on; `subnets` has zone and range by id."""
        from moto.ec2.models import subnets as moto_subnets  # noqa: PLC0415
        from moto.ec2.models import vpcs as moto_vpcs  # noqa: PLC0415

        with self.lock:
            with _fixed(moto_vpcs, "random_vpc_id", vpc):
                self._ec2.create_vpc(cidr)
            for name in ("enable_dns_support", "enable_dns_hostnames"):
                self._ec2.modify_vpc_attribute(vpc, name, True)
            for identifier, (zone, span) in subnets.items():
                with _fixed(moto_subnets, "random_subnet_id", identifier):
                    self._ec2.create_subnet(vpc, span, availability_zone=zone)

    def share_vpc(self, vpc: str, owner: str) -> None:
        """Make another account the owner of a VPC and of its subnets, which it shares with this account (T50).

        A participant does not see the owner's tags. ACCOUNT as owner ends the sharing.
        """
        with self.lock:
            subnets = [subnet for subnet in self._subnets() if subnet.vpc_id == vpc]
            for one in (self._ec2.vpcs[vpc], *subnets):  # moto derives the owner from its backend
                one.__class__ = type("Shared", (one.__class__,), {"owner_id": owner})
            for part in (vpc, *(str(one.id) for one in subnets), *self._parts(vpc)):
                self._owners.pop(part, None)
                if owner != ACCOUNT:
                    self._owners[part] = owner
                    self._ec2.tags.pop(part, None)

    def owner_of(self, network_id: str) -> str:
        """The account that owns a VPC, or what was in it when it was shared; ACCOUNT for everything else."""
        return self._owners.get(network_id, ACCOUNT)

    def _parts(self, vpc: str) -> Iterator[str]:
        """The default group, route tables with their associations, network ACLs, gateways and endpoints of a VPC."""
        default = self.default_group(vpc)
        if default is not None:
            yield default
        for table in self._ec2.route_tables.values():
            if table.vpc_id == vpc:
                yield str(table.id)
                yield from sorted(map(str, table.all_associations_ids))
        for acl in self._ec2.network_acls.values():
            if acl.vpc_id == vpc:
                yield str(acl.id)
        yield from (name for name, of in self.gateway_vpcs().items() if of == vpc)
        yield from self.endpoints(vpc)

    def subnets_of(self, vpc: str) -> list[str]:
        """The ids of the VPC's subnets."""
        return sorted(str(s.id) for s in self._subnets() if s.vpc_id == vpc)

    def template(self, template_id: str | None, name: str | None, version: str | None) -> Template:
        """One version; `$Latest` and `$Default` are resolved as in EC2. A Refusal if it does not exist."""
        with self.lock:
            found = next((t for t in self._ec2.launch_templates.values() if name and t.name == name), None)
            found = found or self._ec2.launch_templates.get(template_id)
            if found is None:
                code = (
                    "InvalidLaunchTemplateName.NotFoundException"
                    if name
                    else "InvalidLaunchTemplateId.NotFound"
                )
                raise Refusal(code, f"The specified launch template, {name or template_id}, does not exist.")
            chosen = _version(found, version or "$Default")
            return Template(id=found.id, name=found.name, version=chosen.number, content=dict(chosen.data))

    def renew_template_tags(self) -> None:
        """Show launch templates with their tags of now: moto keeps those of their creation for its answers."""
        with self.lock:
            for one in self._ec2.launch_templates.values():
                one.tags = one.get_tags()

    def groups(self) -> dict[str, Group]:
        """Every security group by id."""
        with self.lock:
            found = [g for by_id in self._ec2.groups.values() for g in by_id.values()]
            return {g.id: Group(id=g.id, name=g.name, vpc=g.vpc_id, named=_named_groups(g)) for g in found}

    def make_group(self, vpc: str, name: str) -> str:
        """Make a security group of a service in the VPC: all traffic inside it, and all out."""
        with self.lock:
            made = self._ec2.create_security_group(name, "created by a service of AWS", vpc)
            return str(made.id)

    def drop_group(self, group: str) -> None:
        """Delete a security group that a service made; one that another group names stays."""
        from moto.core.exceptions import ServiceException  # noqa: PLC0415

        with self.lock, suppress(ServiceException):
            self._ec2.delete_security_group(group_id=group)

    def open_ports(self, group: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """The TCP port ranges that a group allows in and out."""
        with self.lock:
            found = next(by_id[group] for by_id in self._ec2.groups.values() if group in by_id)
            return _spans(found.ingress_rules), _spans(found.egress_rules)

    def ranges_in(self, group: str, port: int) -> list[str]:
        """The address ranges that a group lets in on a TCP port; [] for a deleted group."""
        with self.lock:
            found = next((by_id[group] for by_id in self._ec2.groups.values() if group in by_id), None)
            rules = [] if found is None else [r for r in found.ingress_rules if _has_port(r, port)]
            return [str(rule.ip_range["CidrIp"]) for rule in rules if rule.ip_range.get("CidrIp")]

    def bucket_known(self, name: str) -> bool:
        """Whether a bucket of that name exists."""
        with self.lock:
            return name in self._s3.buckets

    def default_group(self, vpc: str) -> str | None:
        """The VPC's default group."""
        return next((g.id for g in self.groups().values() if g.vpc == vpc and g.name == "default"), None)

    def interfaces(self) -> list[tuple[str, str, str]]:
        """Interfaces that moto stores: (id, subnet, VPC)."""
        with self.lock:
            return [(e.id, e.subnet.id, e.subnet.vpc_id) for e in self._ec2.enis.values()]

    def attached_gateways(self, vpc: str) -> list[str]:
        """Internet gateways that are attached to the VPC."""
        with self.lock:
            gateways = self._ec2.internet_gateways.values()
            return [g.id for g in gateways if g.vpc is not None and g.vpc.id == vpc]

    def endpoints(self, vpc: str) -> list[str]:
        """VPC endpoints that are not deleted."""
        with self.lock:
            found = self._ec2.vpc_end_points.values()
            return [e.id for e in found if e.vpc_id == vpc and e.state.lower() != "deleted"]

    def gateway_vpcs(self) -> dict[str, str]:
        """The VPC of each internet gateway; empty for a detached one."""
        with self.lock:
            found = self._ec2.internet_gateways.values()
            return {str(g.id): "" if g.vpc is None else str(g.vpc.id) for g in found}

    def route_tables(self) -> dict[str, RouteTable]:
        """Every route table by id."""
        with self.lock:
            return {
                str(t.id): RouteTable(
                    id=str(t.id),
                    vpc=str(t.vpc_id),
                    main=t.main_association_id is not None,
                    local=str(self._ec2.vpcs[t.vpc_id].cidr_block),
                    subnets=frozenset(str(a["SubnetId"]) for a in t.associations if "SubnetId" in a),
                )
                for t in self._ec2.route_tables.values()
            }

    def tables_with_endpoint(self, service: str) -> set[str]:
        """Route tables with a route to a gateway endpoint of the service."""
        with self.lock:
            found = self._ec2.vpc_end_points.values()
            living = [e for e in found if e.service_name == service and e.state.lower() != "deleted"]
            return {str(t) for e in living for t in e.route_table_ids or ()}

    def know_gateway(self, gateway: str, subnet: str) -> None:
        """Register a NAT gateway in moto, so that routes can name it."""
        with self.lock:
            self._ec2.nat_gateways[gateway] = SimpleNamespace(id=gateway, subnet_id=subnet)

    def addresses_in(self, subnet: str) -> frozenset[str]:
        """Addresses of moto's interfaces in a subnet."""
        with self.lock:
            return frozenset(
                str(e.private_ip_address) for e in self._ec2.enis.values() if e.subnet.id == subnet
            )

    def reserved_in(self, subnet: str) -> frozenset[str]:
        """Addresses in CIDR reservations of a subnet: AWS gives them only to those who name them."""
        with self.lock:
            found = next((by_id[subnet] for by_id in self._ec2.subnets.values() if subnet in by_id), None)
            ranges = () if found is None else found._cidr_reservations  # noqa: SLF001  moto has no other way
            return frozenset(
                str(one) for held in ranges for one in ipaddress.ip_network(str(held.cidr), strict=False)
            )

    def strays(self) -> list[tuple[str, SubnetRef]]:
        """moto's interfaces with an address outside their subnet: moto chooses any address for endpoints (T10)."""
        with self.lock:
            return [
                (str(e.id), _place(e.subnet))
                for e in self._ec2.enis.values()
                if ipaddress.ip_address(e.private_ip_address) not in ipaddress.ip_network(e.subnet.cidr_block)
            ]

    def move(self, interface: str, address: str) -> None:
        """Change the address of one of moto's interfaces."""
        with self.lock:
            found = self._ec2.enis[interface]
            found.private_ip_address = address
            for one in found.private_ip_addresses:
                if one.get("Primary"):
                    one["PrivateIpAddress"] = address

    def image_known(self, image_id: str) -> bool:
        """Whether an AMI of that id exists."""
        with self.lock:
            return image_id in self._ec2.amis

    def image_name(self, image_id: str) -> str | None:
        """The AMI's name; None for an unknown id."""
        with self.lock:
            image = self._ec2.amis.get(image_id)
            return None if image is None else image.name

    def image_named(self, name: str) -> str | None:
        """The account's own AMI of that name."""
        with self.lock:
            return next(
                (i.id for i in self._ec2.amis.values() if i.name == name and i.owner_id == ACCOUNT), None
            )

    def image_owner(self, image_id: str) -> str:
        """The AMI's owner as EC2's condition key has it: an account, or `amazon`."""
        with self.lock:
            image = self._ec2.amis.get(image_id)
            return "" if image is None else str(image.owner_id)

    def register_image(
        self, name: str, tags: Mapping[str, str] | None = None, *, owner: str = ACCOUNT
    ) -> str:
        """Register an AMI, by default of ours; its id depends only on the name, so that plans are stable."""
        image_id = "ami-0" + hashlib.sha256(name.encode()).hexdigest()[:16]
        with self.lock:
            if image_id not in self._ec2.amis:
                image = self._ec2.register_image(name, f"gpucluster sandbox image {name}")
                del self._ec2.amis[image.id]
                image.id, image.owner_id, image.state = image_id, owner, "available"
                image.architecture, image.root_device_type, image.root_device_name = (
                    "x86_64",
                    "ebs",
                    "/dev/xvda",
                )
                self._ec2.amis[image_id] = image
                self._ec2.create_tags([image_id], dict(tags or {}))
        return image_id

    def machine_known(self, machine: str) -> bool:
        """Whether AWS has this instance type."""
        from moto.ec2.models.instance_types import INSTANCE_TYPES  # noqa: PLC0415

        return machine in INSTANCE_TYPES

    def cards(self, machine: str) -> Cards:
        """The limits of the network cards of an instance type. Source: moto's copy of EC2's data."""
        from moto.ec2.models.instance_types import INSTANCE_TYPES  # noqa: PLC0415

        network: dict[str, Any] = INSTANCE_TYPES[machine]["NetworkInfo"]
        known: list[dict[str, Any]] = network["NetworkCards"]
        found = sorted(known, key=lambda c: int(c["NetworkCardIndex"]))
        return Cards(
            kinds=tuple(frozenset(c["InterfaceTypes"]) for c in found),
            most=tuple(int(c["MaximumNetworkInterfaces"]) for c in found),
            efa=int(network["EfaInfo"]["MaximumEfaInterfaces"]) if network.get("EfaInfo") else 0,
        )

    def key_pair_known(self, name: str) -> bool:
        """Whether a key pair of that name exists."""
        with self.lock:
            return name in self._ec2.key_pairs

    def tags(self, resource_id: str) -> dict[str, str]:
        """Tags of any EC2 resource but instances."""
        with self.lock:
            return dict(self._ec2.tags.get(resource_id, {}))

    def tag(self, resource_id: str, tags: Mapping[str, str]) -> None:
        """Add tags to an EC2 resource of moto."""
        with self.lock:
            self._ec2.create_tags([resource_id], dict(tags))

    # --- IAM and secrets ------------------------------------------------------------------------

    def register_operator(self, arn: str, user_id: str, access_key: str) -> None:
        """Give IAM the user of the operator's key, so that IAM and STS name the same user."""
        name = arn.rpartition("/")[2]
        with self.lock:
            user = self._iam.users.get(name) or self._iam.create_user(self.region, name)
            user.id = user_id
            user.access_keys.clear()  # no other user has a key: the sandbox refuses CreateAccessKey
            self._iam.access_keys.clear()
            key = user.create_access_key(prefix="AKIA")
            key.access_key_id = access_key
            self._iam.access_keys[access_key] = key

    def profile(self, name: str | None, arn: str | None) -> Profile:
        """An instance profile; a Refusal if it does not exist or has no role (T36)."""
        with self.lock:
            for profile in self._iam.get_instance_profiles():
                if profile.name == name or (arn is not None and profile.arn == arn):
                    return _profile(profile)
        part, value = ("arn", arn) if arn else ("name", name)
        raise Refusal(
            "InvalidParameterValue",
            f"Value ({value}) for parameter iamInstanceProfile.{part} is invalid. Invalid IAM Instance Profile {part}",
        )

    def make_profile(self, name: str, role: str) -> None:
        """Make an instance profile of a service with the role."""
        with self.lock:
            self._iam.create_instance_profile(name, "/", [])
            self._iam.add_role_to_instance_profile(name, role)

    def drop_profile(self, name: str) -> None:
        """Delete an instance profile that a service made."""
        from moto.core.exceptions import ServiceException  # noqa: PLC0415

        with self.lock, suppress(ServiceException):
            for role in [one.name for one in self._iam.get_instance_profile(name).roles]:
                self._iam.remove_role_from_instance_profile(name, role)
            self._iam.delete_instance_profile(name)

    def profile_id(self, arn: str) -> str:
        """The profile's id; empty if it was deleted while its instances run."""
        try:
            return self.profile(None, arn).id
        except Refusal:
            return ""

    def role_policies(self, role: str) -> list[str]:
        """The JSON of every policy of the role, inline and managed; [] for a deleted role."""
        with self.lock:
            for found in self._iam.get_roles():
                if found.name == role:
                    managed = [_document(p) for p in found.managed_policies.values()]
                    return [*(str(p) for p in found.policies.values()), *managed]
        return []

    def know_policy(self, arn: str) -> None:
        """Let moto have a policy of AWS; it loads none by itself, because all of them take a second."""
        from moto.iam.models import AWSManagedPolicy  # noqa: PLC0415

        row = _aws_policies().get(arn.rpartition("/")[2])
        with self.lock:
            if row is None or arn in self._iam.managed_policies:
                return
            policy = AWSManagedPolicy.from_data(arn.rpartition("/")[2], ACCOUNT, self.region, row)
            if policy.arn == arn:
                self._iam.managed_policies[arn] = policy

    def role_boundary(self, role: str) -> tuple[str, str] | None:
        """ARN and JSON of the permission boundary of a role; None without one. A boundary that is gone allows nothing."""
        with self.lock:
            found = next((r for r in self._iam.get_roles() if r.name == role), None)
            arn = None if found is None else found.permissions_boundary_arn
            if not arn:
                return None
            policy = self._iam.managed_policies.get(arn)
            return str(arn), '{"Statement":[]}' if policy is None else _document(policy)

    def ends_of(self, association: str) -> list[str]:
        """Route table and subnet of an association; [] for an unknown one."""
        with self.lock:
            for table in self._ec2.route_tables.values():
                for one in table.associations:
                    if one.get("RouteTableAssociationId") == association:
                        return [str(table.id), *([str(one["SubnetId"])] if "SubnetId" in one else [])]
        return []

    def aliases(self, key_arn: str) -> tuple[str, ...]:
        """The aliases of a KMS key."""
        with self.lock:
            key = self._kms.keys.get(key_arn.rpartition("/")[2])
            return () if key is None else tuple(sorted(str(one) for one in key.aliases))

    def role(self, arn: str) -> Role | None:
        """The role with that ARN."""
        with self.lock:
            found = next((r for r in self._iam.get_roles() if r.arn == arn), None)
            if found is None:
                return None
            return Role(id=found.id, name=found.name, trust=str(found.assume_role_policy_document))

    def inline_policies(self, role: str) -> dict[str, str]:
        """The role's inline policies by name."""
        with self.lock:
            found = next((r for r in self._iam.get_roles() if r.name == role), None)
            return {} if found is None else {str(k): str(v) for k, v in found.policies.items()}

    def role_arn(self, role: str) -> str:
        """The role's ARN with its path."""
        with self.lock:
            found = next((r for r in self._iam.get_roles() if r.name == role), None)
            return f"arn:aws:iam::{ACCOUNT}:role/{role}" if found is None else str(found.arn)

    # --- keys -----------------------------------------------------------------------------------

    def make_key(self, named: str) -> None:
        """Create a customer-managed key under the name of a spec: an alias, or the ARN of a key or an alias."""
        from moto.kms import models  # noqa: PLC0415

        alias = named[named.find("alias/") :] if "alias/" in named else ""
        identifier = str(uuid.uuid5(uuid.NAMESPACE_URL, named)) if alias else named.rpartition("/")[2]
        with self.lock, _fixed(models, "generate_key_id", identifier):
            self._kms.create_key(
                policy=None,
                key_usage="ENCRYPT_DECRYPT",
                key_spec="SYMMETRIC_DEFAULT",
                description="",
                tags=[],
            )
            if alias:
                self._kms.create_alias(identifier, alias)

    def key(self, named: str) -> Key | None:
        """The KMS key of an id, an alias or an ARN of either; None if there is none."""
        with self.lock:
            alias = named[named.find("alias/") :] if "alias/" in named else ""
            found = self._kms.get_key_id_from_alias(alias) if alias else named.rpartition("/")[2]
            key = self._kms.keys.get(found) if found else None
            if key is None:
                return None
            return Key(arn=str(key.arn), state=str(key.key_state), manager=str(key.key_manager))

    def key_tags(self, arn: str) -> Mapping[str, str]:
        """The tags of a KMS key; empty if there is no such key."""
        with self.lock:
            key = self._kms.keys.get(arn.rpartition("/")[2])
            rows: Any = () if key is None else self._kms.list_resource_tags(key.id).get("Tags") or ()
            return {str(row["TagKey"]): str(row["TagValue"]) for row in rows}

    def put_object(self, bucket: str, key: str, body: bytes) -> None:
        """Write an object; a Refusal without the bucket."""
        with self.lock:
            if bucket not in self._s3.buckets:
                raise Refusal("NoSuchBucket", "The specified bucket does not exist", status=404)
            self._s3.put_object(bucket, key, body)

    def bucket_key(self, bucket: str) -> str | None:
        """The KMS key of a bucket's default encryption."""
        with self.lock:
            found = self._s3.buckets.get(bucket)
            rule: Any = None if found is None or not found.encryption else found.encryption.get("Rule")
            first: Any = cast(list[Any], rule)[0] if isinstance(rule, list) else rule
            default: Any = first and first.get("ApplyServerSideEncryptionByDefault")
            return default and default.get("KMSMasterKeyID")

    def secret_key(self, secret_id: str) -> str | None:
        """The KMS key that a secret names; None if it names none, or does not exist."""
        with self.lock:
            known = secret_id in self._secrets.secrets
            return self._secrets.secrets[secret_id].kms_key_id if known else None

    def secret(self, secret_id: str) -> tuple[str, dict[str, str]]:
        """ARN and tags of a secret by name or ARN; for an unknown one the ARN that it would have."""
        with self.lock:
            if secret_id in self._secrets.secrets:
                found = self._secrets.secrets[secret_id]
                tags: list[dict[str, str]] = found.tags or []
                return str(found.arn), {t["Key"]: t["Value"] for t in tags}
        if secret_id.startswith("arn:"):
            return secret_id, {}
        return f"arn:aws:secretsmanager:{self.region}:{ACCOUNT}:secret:{secret_id}-??????", {}

    def secret_leaves(self, name: str) -> bool:
        """Whether a secret of that name is scheduled for deletion."""
        with self.lock:
            found = self._secrets.secrets.get(name) if name in self._secrets.secrets else None
            return found is not None and bool(found.is_deleted())

    # --- events and queues ----------------------------------------------------------------------

    def matching(self, event: Mapping[str, Any]) -> list[tuple[str, str]]:
        """(ARN of the rule, ARN of the target) for every enabled rule of the default bus that matches the event."""
        with self.lock:
            rules = list(self._events.describe_event_bus("default").rules.values())
            return [
                (str(rule.arn), str(target["Arn"]))
                for rule in rules
                if rule.state == "ENABLED" and rule.event_pattern.matches_event(dict(event))
                for target in rule.targets
            ]

    def queue_policy(self, queue_arn: str) -> str:
        """The queue's policy as JSON; empty without one, or without the queue."""
        with self.lock:
            queue = self._queue(queue_arn)
            policy: Any = "" if queue is None else queue.policy
            return policy if isinstance(policy, str) else json.dumps(policy or {})

    def send(self, queue_arn: str, body: str) -> None:
        """Put a message into an existing queue."""
        with self.lock:
            queue = self._queue(queue_arn)
            if queue is not None:
                self._sqs.send_message(queue.name, body)

    def _queue(self, queue_arn: str) -> Any:
        return next((q for q in self._sqs.queues.values() if q.queue_arn == queue_arn), None)

    def _subnets(self) -> Iterator[Any]:
        with self.lock:
            return iter([s for by_id in self._ec2.subnets.values() for s in by_id.values()])


@contextmanager
def _fixed(module: Any, function: str, value: str) -> Generator[None]:
    """Let moto's generator of ids return `value`; the caller holds the lock."""
    before = getattr(module, function)

    def fixed(*_: object) -> str:
        return value

    setattr(module, function, fixed)
    try:
        yield
    finally:
        setattr(module, function, before)


def _disable_bucket_policies_of_moto() -> None:
    """Remove statements with a Condition: moto ignores conditions, so a deny without TLS would deny everything here over HTTP."""
    from moto.iam.access_control import PermissionResult  # noqa: PLC0415
    from moto.s3.models import FakeBucket  # noqa: PLC0415

    def undecided(*_: object) -> Any:
        return PermissionResult.NEUTRAL

    bucket: Any = FakeBucket
    bucket.get_permission = undecided


@functools.cache
def _aws_policies() -> Mapping[str, Any]:
    """The policies of AWS by name, as moto lists them."""
    from moto.iam.aws_managed_policies import aws_managed_policies_data  # noqa: PLC0415

    return json.loads(aws_managed_policies_data)


def _document(policy: Any) -> str:
    """The JSON of a managed policy, in its default version."""
    return str(next(v.document for v in policy.versions if v.version_id == policy.default_version_id))


def decoded(user_data: Any) -> bytes:
    """User data before base64; a template holds moto's own string type."""
    text = str(user_data)
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise Refusal("InvalidParameterValue", "Invalid BASE64 encoding of user data.") from None


def _place(subnet: Any) -> SubnetRef:
    public = str(subnet.map_public_ip_on_launch).lower() == "true"
    return SubnetRef(
        id=subnet.id, zone=subnet.availability_zone, cidr=subnet.cidr_block, vpc=subnet.vpc_id, public=public
    )


def _named_groups(group: Any) -> frozenset[str]:
    sources: list[dict[str, str]] = [
        rule.source_group or {} for rule in [*group.ingress_rules, *group.egress_rules]
    ]
    return frozenset(s["GroupId"] for s in sources if s.get("GroupId"))


def _has_port(rule: Any, port: int) -> bool:
    return any(first <= port <= last for first, last in _spans([rule]))


def _spans(rules: Any) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for rule in rules:
        if str(rule.ip_protocol) == "-1":
            found.append((0, 65535))
        elif str(rule.ip_protocol) in ("tcp", "6"):
            found.append((int(rule.from_port), int(rule.to_port)))
    return found


def _version(template: Any, wanted: str) -> Any:
    if wanted == "$Latest":
        return template.latest_version()
    if wanted == "$Default":
        return template.default_version()
    found = next((v for v in template.versions if str(v.number) == wanted), None)
    if found is None:
        raise Refusal(
            "InvalidLaunchTemplateId.VersionNotFound",
            f"Could not find the specified version {wanted} for the launch template with ID {template.id}.",
        )
    return found


def _profile(profile: Any) -> Profile:
    roles = list(profile.roles)
    return Profile(
        id=profile.id,
        name=profile.name,
        arn=profile.arn,
        role=roles[0].name if roles else None,
        role_id=roles[0].id if roles else None,
    )
