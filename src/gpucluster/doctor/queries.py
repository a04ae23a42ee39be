"""Read-only queries to the account. A denied query does not stop the others."""

import ipaddress
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from gpucluster.catalog import Catalog
from gpucluster.catalog.quotas import quotas
from gpucluster.cloud.aws import translated
from gpucluster.cloud.port import CloudError, Fault
from gpucluster.doctor import requirements
from gpucluster.doctor.facts import (
    AddressFact,
    DefaultKeyFact,
    Facts,
    ImageFact,
    KeyFact,
    LockFact,
    QuotaFact,
    ReservationFact,
    SubnetFact,
    Unknown,
)
from gpucluster.plan.model import AwsPlan, Image, ImageById, SiteNetwork
from gpucluster.plan.names import TAG_CLUSTER
from gpucluster.text import short

T = TypeVar("T")
Clients = Callable[[str], Any]  # service -> boto3 client
_DENIED = frozenset(
    {"UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "UnauthorizedException"}
)
_NO_ROLES = Unknown("the sandbox has no service-linked roles")
_NO_CREDENTIALS = frozenset({"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"})


def query_account(
    plan: AwsPlan,
    catalog: Catalog,
    clients: Clients,
    lock: LockFact | Unknown,
    *,
    stand_in: bool = False,
) -> Facts:
    """Query the facts that the plan requires. Without a caller identity nothing else is queried.

    `stand_in`: the sandbox, which has no service-linked roles.
    """
    ec2 = _LazyClient(clients, "ec2")
    identity = query("sts:GetCallerIdentity", lambda: str(clients("sts").get_caller_identity()["Arn"]))
    if isinstance(identity, Unknown):
        return Facts(identity=identity, zones=Unknown("not queried"), lock=lock)
    codes = {use.quota.code for use in requirements.quota_uses(plan, catalog, ()) if use.quota is not None}
    return Facts(
        identity=identity,
        zones=query("ec2:DescribeAvailabilityZones", lambda: _zones(ec2())),
        quotas=_quotas(codes | {q.code for q in quotas() if q.market == "on-demand"}, clients),
        offered=query("ec2:DescribeInstanceTypeOfferings", lambda: _offered(ec2(), plan)),
        subnets=query("ec2:DescribeSubnets", lambda: _subnets(ec2(), plan)),
        addresses={
            address: _address(ec2, plan, zone, address)
            for address, (_, zone) in requirements.fixed_addresses(plan).items()
        },
        images={
            key: query("ec2:DescribeImages", lambda image=image: _images(ec2(), image))
            for key, (image, _) in requirements.images(plan).items()
        },
        roles={
            role: _NO_ROLES if stand_in else _role_fact(clients, role) for role in requirements.roles(plan)
        },
        reservations=query("ec2:DescribeCapacityReservations", lambda: _reservations(ec2())),
        secrets={
            arn: query("secretsmanager:DescribeSecret", lambda arn=arn: _secret(clients, arn))
            for arn in _secret_arns(plan)
        },
        key=None if plan.aws.kms_key is None else _key(clients, plan.aws.kms_key),
        default_key=query("ec2:GetEbsDefaultKmsKeyId", lambda: _default_key(ec2(), clients)),
        lock=lock,
    )


def query(action: str, call: Callable[[], T]) -> T | Unknown:
    """Return the answer, or the reason for its absence in one sentence."""
    try:
        with translated():
            return call()
    except CloudError as error:
        if error.code in _DENIED:
            return Unknown(f"no permission for {action}", denied=True)
        if error.code in _NO_CREDENTIALS:
            return Unknown("there are no credentials")
        return Unknown(f"{action} answered {error.code}: {short(error.message, 300)}")


class _LazyClient:
    """A client that is created at its first use."""

    def __init__(self, clients: Clients, service: str) -> None:
        self._clients, self._service, self._made = clients, service, None

    def __call__(self) -> Any:
        self._made = self._made or self._clients(self._service)
        return self._made


def _zones(ec2: Any) -> Mapping[str, str]:
    found = ec2.describe_availability_zones()["AvailabilityZones"]
    return {str(z["ZoneName"]): str(z["State"]) for z in found}


def _quotas(codes: Iterable[str], clients: Clients) -> dict[str, QuotaFact | Unknown]:
    client = _LazyClient(clients, "service-quotas")
    return {
        code: query("servicequotas:GetServiceQuota", lambda code=code: _quota(client(), code))
        for code in sorted(codes)
    }


def _quota(client: Any, code: str) -> QuotaFact:
    found = client.get_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]
    return QuotaFact(name=str(found["QuotaName"]), value=float(found["Value"]))


def _offered(ec2: Any, plan: AwsPlan) -> frozenset[tuple[str, str]]:
    machines = sorted({place.machine for place in requirements.placements(plan)})
    pages = ec2.get_paginator("describe_instance_type_offerings").paginate(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": machines}]
    )
    rows = (row for page in pages for row in page["InstanceTypeOfferings"])
    return frozenset((str(row["InstanceType"]), str(row["Location"])) for row in rows)


def _subnets(ec2: Any, plan: AwsPlan) -> Mapping[str, SubnetFact]:
    network = plan.aws.network
    if not isinstance(network, SiteNetwork):
        return {}
    ids = [subnet.id for subnet in network.subnets]
    found = ec2.describe_subnets(Filters=[{"Name": "subnet-id", "Values": ids}])["Subnets"]
    return {
        str(s["SubnetId"]): SubnetFact(
            zone=str(s["AvailabilityZone"]),
            vpc=str(s["VpcId"]),
            free=int(s["AvailableIpAddressCount"]),
            owner=str(s["OwnerId"]),
        )
        for s in found
    }


def _address(ec2: "_LazyClient", plan: AwsPlan, zone: str, address: str) -> AddressFact | Unknown:
    """Return who uses a fixed address, and whether a CIDR reservation keeps it."""
    subnet = query("ec2:DescribeSubnets", lambda: _subnet_of(ec2(), plan, zone))
    if isinstance(subnet, Unknown) or not subnet:
        return AddressFact() if subnet == "" else subnet
    held = query("ec2:DescribeNetworkInterfaces", lambda: _holder(ec2(), subnet, address))
    if isinstance(held, Unknown):
        return held
    holder, instance = held
    ours = query("ec2:DescribeInstances", lambda: bool(instance) and _is_ours(ec2(), instance, plan.name))
    if isinstance(ours, Unknown):
        return ours
    kept = query("ec2:GetSubnetCidrReservations", lambda: _is_reserved(ec2(), subnet, address))
    if isinstance(kept, Unknown):
        return kept
    return AddressFact(subnet=subnet, holder=holder, ours=ours, reserved=kept)


def _subnet_of(ec2: Any, plan: AwsPlan, zone: str) -> str:
    """Return the private subnet of a zone: the site's, or ours by tag and range. Empty: `pulumi up` has not made it yet."""
    network = plan.aws.network
    if isinstance(network, SiteNetwork):
        return next(subnet.id for subnet in network.subnets if subnet.zone == zone)
    span = next(subnet for subnet in network.subnets if subnet.zone == zone)
    wanted = {f"tag:{TAG_CLUSTER}": plan.name, "availability-zone": zone, "cidr-block": span.cidr}
    found = ec2.describe_subnets(Filters=_filters(wanted))["Subnets"]
    return str(found[0]["SubnetId"]) if found else ""


def _holder(ec2: Any, subnet: str, address: str) -> tuple[str, str]:
    """Return the interface that uses the address, with its description, and its instance; empty texts for none."""
    wanted = {"subnet-id": subnet, "addresses.private-ip-address": address}
    found = ec2.describe_network_interfaces(Filters=_filters(wanted))["NetworkInterfaces"]
    if not found:
        return "", ""
    one = found[0]
    text = str(one.get("Description") or one.get("InterfaceType") or "no description")
    return f"{one['NetworkInterfaceId']} ({text})", str(one.get("Attachment", {}).get("InstanceId", ""))


def _is_ours(ec2: Any, instance: str, cluster: str) -> bool:
    wanted = {"instance-id": instance, f"tag:{TAG_CLUSTER}": cluster}
    return bool(ec2.describe_instances(Filters=_filters(wanted))["Reservations"])


def _is_reserved(ec2: Any, subnet: str, address: str) -> bool:
    every = ec2.get_subnet_cidr_reservations(SubnetId=subnet)["SubnetIpv4CidrReservations"]
    kept = [ipaddress.ip_network(one["Cidr"]) for one in every if one["ReservationType"] == "explicit"]
    return any(ipaddress.ip_address(address) in span for span in kept)


def _filters(wanted: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"Name": name, "Values": [value]} for name, value in wanted.items()]


def _images(ec2: Any, image: Image) -> tuple[ImageFact, ...]:
    """Find an image by id among all, or by name among the account's own, as the Pulumi program does."""
    wanted: dict[str, Any] = (
        {"Filters": [{"Name": "image-id", "Values": [image.id]}]}
        if isinstance(image, ImageById)
        else {"Owners": ["self"], "Filters": [{"Name": "name", "Values": [image.name]}]}
    )
    found = ec2.describe_images(IncludeDeprecated=True, **wanted)["Images"]
    return tuple(
        ImageFact(
            id=str(i["ImageId"]),
            name=str(i.get("Name", "")),
            state=str(i["State"]),
            created=str(i.get("CreationDate", "")),
            deprecated=str(i.get("DeprecationTime") or ""),
        )
        for i in found
    )


def _role_fact(clients: Clients, role: str) -> bool | Unknown:
    return query("iam:GetRole", lambda: _role(clients("iam"), role))


def _role(iam: Any, role: str) -> bool:
    try:
        with translated():
            iam.get_role(RoleName=role)
    except CloudError as error:
        if error.fault is Fault.GONE or error.code == "NoSuchEntity":
            return False
        raise
    return True


def _reservations(ec2: Any) -> tuple[ReservationFact, ...]:
    pages = ec2.get_paginator("describe_capacity_reservations").paginate()
    return tuple(
        ReservationFact(
            id=str(r["CapacityReservationId"]),
            state=str(r["State"]),
            machine=str(r["InstanceType"]),
            zone=str(r["AvailabilityZone"]),
            total=int(r["TotalInstanceCount"]),
            block=r.get("ReservationType") == "capacity-block",
        )
        for page in pages
        for r in page["CapacityReservations"]
    )


def _key(clients: Clients, named: str) -> KeyFact | Unknown:
    return query("kms:DescribeKey", lambda: _described(clients, named))


def _described(clients: Clients, named: str) -> KeyFact:
    try:
        with translated():
            found = clients("kms").describe_key(KeyId=named)["KeyMetadata"]
    except CloudError as error:
        if error.fault is Fault.GONE or error.code == "NotFoundException":
            return KeyFact(id=named)
        raise
    return KeyFact(id=named, state=str(found["KeyState"]), manager=str(found.get("KeyManager", "CUSTOMER")))


def _default_key(ec2: Any, clients: Clients) -> DefaultKeyFact:
    """Return the account's default key of EBS. It counts for every encrypted volume that names no key (T51)."""
    always = bool(ec2.get_ebs_encryption_by_default()["EbsEncryptionByDefault"])
    named = str(ec2.get_ebs_default_kms_key_id()["KmsKeyId"])
    if named.endswith("alias/aws/ebs"):  # it may not exist yet: the first encrypted volume creates it
        return DefaultKeyFact(always=always, key=KeyFact(id=named, state="Enabled", manager="AWS"))
    return DefaultKeyFact(always=always, key=_key(clients, named))


def _secret_arns(plan: AwsPlan) -> tuple[str, ...]:
    found = None if plan.directory is None else plan.directory.secret
    return () if found is None else (found,)


def _secret(clients: Clients, arn: str) -> str:
    try:
        with translated():
            found = clients("secretsmanager").describe_secret(SecretId=arn)
    except CloudError as error:
        if error.fault is Fault.GONE or error.code == "ResourceNotFoundException":
            return "missing"
        raise
    return "scheduled for deletion" if found.get("DeletedDate") else "exists"
