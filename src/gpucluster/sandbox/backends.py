"""What the sandbox reads of moto's own objects, in one place and typed: moto keeps all but the instances.

Calls into moto are made under `lock`: its backends are plain dictionaries, and the server has many threads.
"""

import base64
import hashlib
import ipaddress
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from gpucluster.cloud.model import Refusal, SubnetPlace
from gpucluster.sandbox.ec2.cards import Cards

ACCOUNT = "123456789012"  # moto's; the sandbox has one account


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One version of a launch template; `content` is LaunchTemplateData as EC2 spells it."""

    id: str
    name: str
    version: int
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """An instance profile and the role in it, if any."""

    id: str
    name: str
    arn: str
    role: str | None
    role_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A role that may be taken on, and the policy that says by whom."""

    id: str
    name: str
    trust: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTable:
    """A route table of moto's, with its VPC's own range and the subnets that name it."""

    id: str
    vpc: str
    main: bool
    local: str
    subnets: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A security group, and the ids of the groups that its rules name."""

    id: str
    name: str
    vpc: str
    named: frozenset[str]


class Moto:
    """moto's backends of the one account and Region."""

    def __init__(self, region: str) -> None:
        from moto.ec2.models import ec2_backends  # noqa: PLC0415 - seconds; only a sandbox pays them
        from moto.events.models import events_backends  # noqa: PLC0415
        from moto.iam.models import iam_backends  # noqa: PLC0415
        from moto.s3.models import s3_backends  # noqa: PLC0415
        from moto.secretsmanager.models import secretsmanager_backends  # noqa: PLC0415
        from moto.sqs.models import sqs_backends  # noqa: PLC0415

        self.region = region
        self.lock = threading.RLock()
        self._ec2: Any = ec2_backends[ACCOUNT][region]
        self._iam: Any = iam_backends[ACCOUNT]["aws"]
        self._s3: Any = s3_backends[ACCOUNT]["aws"]
        self._secrets: Any = secretsmanager_backends[ACCOUNT][region]
        self._events: Any = events_backends[ACCOUNT][region]
        self._sqs: Any = sqs_backends[ACCOUNT][region]
        _let_the_face_judge_buckets()

    # --- EC2 ------------------------------------------------------------------------------------

    def subnet(self, subnet_id: str) -> SubnetPlace:
        """The subnet by id; refused if there is none."""
        for subnet in self._subnets():
            if subnet.id == subnet_id:
                return _place(subnet)
        raise Refusal("InvalidSubnetID.NotFound", f"The subnet ID '{subnet_id}' does not exist")

    def default_subnet(self, zone: str | None) -> SubnetPlace:
        """The default subnet of a zone, or of the first."""
        found = [s for s in self._subnets() if s.default_for_az and zone in (None, s.availability_zone)]
        if not found:
            raise Refusal("InvalidParameterValue", f"Invalid availability zone: [{zone}]")
        return _place(min(found, key=lambda s: str(s.availability_zone)))

    def zones(self) -> list[str]:
        """Zones that have a subnet; moto's default VPC has one in each."""
        return sorted({str(s.availability_zone) for s in self._subnets()})

    def subnets_of(self, vpc: str) -> list[str]:
        """Ids of the VPC's subnets."""
        return sorted(str(s.id) for s in self._subnets() if s.vpc_id == vpc)

    def template(self, template_id: str | None, name: str | None, version: str | None) -> Template:
        """One version; `$Latest` and `$Default` as EC2 resolves them; refused if there is none."""
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

    def groups(self) -> dict[str, Group]:
        """Every security group by id."""
        with self.lock:
            found = [g for by_id in self._ec2.groups.values() for g in by_id.values()]
            return {g.id: Group(id=g.id, name=g.name, vpc=g.vpc_id, named=_named_groups(g)) for g in found}

    def open_ports(self, group: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Spans of TCP ports that a group lets in, and out."""
        with self.lock:
            found = next(by_id[group] for by_id in self._ec2.groups.values() if group in by_id)
            return _spans(found.ingress_rules), _spans(found.egress_rules)

    def bucket_known(self, name: str) -> bool:
        """Whether a bucket of that name exists."""
        with self.lock:
            return name in self._s3.buckets

    def default_group(self, vpc: str) -> str | None:
        """The VPC's own group."""
        return next((g.id for g in self.groups().values() if g.vpc == vpc and g.name == "default"), None)

    def interfaces(self) -> list[tuple[str, str, str]]:
        """moto's own interfaces: (id, subnet, VPC)."""
        with self.lock:
            return [(e.id, e.subnet.id, e.subnet.vpc_id) for e in self._ec2.enis.values()]

    def attached_gateways(self, vpc: str) -> list[str]:
        """Internet gateways that hang on the VPC."""
        with self.lock:
            gateways = self._ec2.internet_gateways.values()
            return [g.id for g in gateways if g.vpc is not None and g.vpc.id == vpc]

    def endpoints(self, vpc: str) -> list[str]:
        """VPC endpoints that are not deleted."""
        with self.lock:
            found = self._ec2.vpc_end_points.values()
            return [e.id for e in found if e.vpc_id == vpc and e.state.lower() != "deleted"]

    def gateway_vpcs(self) -> dict[str, str]:
        """The VPC of each internet gateway; empty for one that hangs on none."""
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
        """Route tables that lead to a service through a gateway endpoint."""
        with self.lock:
            found = self._ec2.vpc_end_points.values()
            living = [e for e in found if e.service_name == service and e.state.lower() != "deleted"]
            return {str(t) for e in living for t in e.route_table_ids or ()}

    def know_gateway(self, gateway: str, subnet: str) -> None:
        """A NAT gateway of the model's, so that moto's routes can name it."""
        with self.lock:
            self._ec2.nat_gateways[gateway] = SimpleNamespace(id=gateway, subnet_id=subnet)

    def addresses_in(self, subnet: str) -> frozenset[str]:
        """Addresses of moto's own interfaces in a subnet."""
        with self.lock:
            return frozenset(
                str(e.private_ip_address) for e in self._ec2.enis.values() if e.subnet.id == subnet
            )

    def strays(self) -> list[tuple[str, SubnetPlace]]:
        """moto's interfaces whose address is not of their subnet: it draws those of endpoints anywhere (T10)."""
        with self.lock:
            return [
                (str(e.id), _place(e.subnet))
                for e in self._ec2.enis.values()
                if ipaddress.ip_address(e.private_ip_address) not in ipaddress.ip_network(e.subnet.cidr_block)
            ]

    def move(self, interface: str, address: str) -> None:
        """Give one of moto's interfaces another address."""
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

    def register_image(self, name: str, tags: Mapping[str, str] | None = None) -> str:
        """Make an AMI of ours; its id depends on the name alone, so that plans are stable."""
        image_id = "ami-0" + hashlib.sha256(name.encode()).hexdigest()[:16]
        with self.lock:
            if image_id not in self._ec2.amis:
                image = self._ec2.register_image(name, f"gpucluster sandbox image {name}")
                del self._ec2.amis[image.id]
                image.id, image.owner_id, image.state = image_id, ACCOUNT, "available"
                image.architecture, image.root_device_type, image.root_device_name = (
                    "x86_64",
                    "ebs",
                    "/dev/xvda",
                )
                self._ec2.amis[image_id] = image
                self._ec2.create_tags([image_id], dict(tags or {}))
        return image_id

    def machine_known(self, machine: str) -> bool:
        """Whether AWS has such an instance type."""
        from moto.ec2.models.instance_types import INSTANCE_TYPES  # noqa: PLC0415

        return machine in INSTANCE_TYPES

    def cards(self, machine: str) -> Cards:
        """What the network cards of an instance type take; its data are EC2's own."""
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

    # --- IAM and secrets ------------------------------------------------------------------------

    def profile(self, name: str | None, arn: str | None) -> Profile:
        """An instance profile; refused in EC2's words if there is none, or no role in it (T36)."""
        with self.lock:
            for profile in self._iam.get_instance_profiles():
                if profile.name == name or (arn is not None and profile.arn == arn):
                    return _profile(profile)
        part, value = ("arn", arn) if arn else ("name", name)
        raise Refusal(
            "InvalidParameterValue",
            f"Value ({value}) for parameter iamInstanceProfile.{part} is invalid. Invalid IAM Instance Profile {part}",
        )

    def profile_id(self, arn: str) -> str:
        """The profile's id; empty for one that was deleted while its instances live."""
        try:
            return self.profile(None, arn).id
        except Refusal:
            return ""

    def role_policies(self, role: str) -> list[str]:
        """JSON of every policy of the role, inline and managed; [] for one that is gone."""
        with self.lock:
            for found in self._iam.get_roles():
                if found.name == role:
                    managed = [str(p.document) for p in found.managed_policies.values()]
                    return [*(str(p) for p in found.policies.values()), *managed]
        return []

    def role(self, arn: str) -> Role | None:
        """The role of that ARN."""
        with self.lock:
            found = next((r for r in self._iam.get_roles() if r.arn == arn), None)
            if found is None:
                return None
            return Role(id=found.id, name=found.name, trust=str(found.assume_role_policy_document))

    def inline_policies(self, role: str) -> dict[str, str]:
        """The role's own policies by name."""
        with self.lock:
            found = next((r for r in self._iam.get_roles() if r.name == role), None)
            return {} if found is None else {str(k): str(v) for k, v in found.policies.items()}

    def role_arn(self, role: str) -> str:
        """The role's ARN, its path included."""
        with self.lock:
            found = next((r for r in self._iam.get_roles() if r.name == role), None)
            return f"arn:aws:iam::{ACCOUNT}:role/{role}" if found is None else str(found.arn)

    def secret(self, secret_id: str) -> tuple[str, dict[str, str]]:
        """ARN and tags of a secret by name or ARN; an unknown one gets the ARN that was meant."""
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
        """(ARN of the rule, ARN of the target) of every enabled rule of the default bus that takes the event."""
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
        """Put a message into a queue that is there."""
        with self.lock:
            queue = self._queue(queue_arn)
            if queue is not None:
                self._sqs.send_message(queue.name, body)

    def _queue(self, queue_arn: str) -> Any:
        return next((q for q in self._sqs.queues.values() if q.queue_arn == queue_arn), None)

    def _subnets(self) -> Iterator[Any]:
        with self.lock:
            return iter([s for by_id in self._ec2.subnets.values() for s in by_id.values()])


def _let_the_face_judge_buckets() -> None:
    """moto knows no Condition: a bucket that denies what comes without TLS would deny everything, here over HTTP."""
    from moto.iam.access_control import PermissionResult  # noqa: PLC0415
    from moto.s3.models import FakeBucket  # noqa: PLC0415

    def undecided(*_: object) -> Any:
        return PermissionResult.NEUTRAL

    bucket: Any = FakeBucket
    bucket.get_permission = undecided


def decoded(user_data: Any) -> bytes:
    """User data as it was before base64; a template holds moto's own string type."""
    text = str(user_data)
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise Refusal("InvalidParameterValue", "Invalid BASE64 encoding of user data.") from None


def _place(subnet: Any) -> SubnetPlace:
    public = str(subnet.map_public_ip_on_launch).lower() == "true"
    return SubnetPlace(
        id=subnet.id, zone=subnet.availability_zone, cidr=subnet.cidr_block, vpc=subnet.vpc_id, public=public
    )


def _named_groups(group: Any) -> frozenset[str]:
    sources: list[dict[str, str]] = [
        rule.source_group or {} for rule in [*group.ingress_rules, *group.egress_rules]
    ]
    return frozenset(s["GroupId"] for s in sources if s.get("GroupId"))


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
