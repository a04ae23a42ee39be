"""The questions: each is asked by itself, so that one that may not be asked spares the others. Nothing is changed."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from gpucluster.catalog import Catalog
from gpucluster.catalog.quotas import quotas
from gpucluster.cloud.aws import translated
from gpucluster.cloud.port import CloudError, Fault
from gpucluster.doctor import needs
from gpucluster.doctor.model import (
    Facts,
    ImageFact,
    LockFact,
    QuotaFact,
    ReservedFact,
    SubnetFact,
    Unknown,
)
from gpucluster.plan.model import ClusterPlan, Image

T = TypeVar("T")
Clients = Callable[[str], Any]  # service -> boto3 client
_DENIED = frozenset(
    {"UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "UnauthorizedException"}
)
_NO_ROLES = Unknown("this is a stand-in of AWS, which needs none")
_OURSELVES = frozenset({"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"})


def gather(
    plan: ClusterPlan,
    catalog: Catalog,
    clients: Clients,
    lock: LockFact | Unknown,
    *,
    stand_in: bool = False,
) -> Facts:
    """Ask for everything that the plan needs; without a caller's identity nothing else. A stand-in has no roles of AWS's own."""
    ec2 = _Once(clients, "ec2")
    identity = asked("sts:GetCallerIdentity", lambda: str(clients("sts").get_caller_identity()["Arn"]))
    if isinstance(identity, Unknown):
        return Facts(identity=identity, zones=Unknown("not asked"), lock=lock)
    codes = {share.quota.code for share in needs.shares(plan, catalog, ()) if share.quota is not None}
    return Facts(
        identity=identity,
        zones=asked("ec2:DescribeAvailabilityZones", lambda: _zones(ec2())),
        quotas=_quotas(codes | {q.code for q in quotas() if q.market == "on-demand"}, clients),
        offered=asked("ec2:DescribeInstanceTypeOfferings", lambda: _offered(ec2(), plan)),
        subnets=asked("ec2:DescribeSubnets", lambda: _subnets(ec2(), plan)),
        images={
            key: asked("ec2:DescribeImages", lambda image=image: _images(ec2(), image))
            for key, (image, _) in needs.images(plan).items()
        },
        roles={role: _NO_ROLES if stand_in else _role_fact(clients, role) for role in needs.roles(plan)},
        reservations=asked("ec2:DescribeCapacityReservations", lambda: _reservations(ec2())),
        secrets={
            arn: asked("secretsmanager:DescribeSecret", lambda arn=arn: _secret(clients, arn))
            for arn in _secret_arns(plan)
        },
        lock=lock,
    )


def asked(action: str, ask: Callable[[], T]) -> T | Unknown:
    """The answer, or in one sentence why there is none."""
    try:
        with translated():
            return ask()
    except CloudError as error:
        if error.code in _DENIED:
            return Unknown(f"no permission for {action}", denied=True)
        if error.code in _OURSELVES:
            return Unknown("there are no credentials")
        return Unknown(f"{action} answered {error.code}: {_one_line(error.message)}")


def _one_line(text: str) -> str:
    """The cloud's words are others' words: printable, and not a page."""
    return "".join(c if c.isprintable() else " " for c in text)[:300]


class _Once:
    """A client that is made when it is first needed."""

    def __init__(self, clients: Clients, service: str) -> None:
        self._clients, self._service, self._made = clients, service, None

    def __call__(self) -> Any:
        self._made = self._made or self._clients(self._service)
        return self._made


def _zones(ec2: Any) -> Mapping[str, str]:
    found = ec2.describe_availability_zones()["AvailabilityZones"]
    return {str(z["ZoneName"]): str(z["State"]) for z in found}


def _quotas(codes: Iterable[str], clients: Clients) -> dict[str, QuotaFact | Unknown]:
    client = _Once(clients, "service-quotas")
    return {
        code: asked("servicequotas:GetServiceQuota", lambda code=code: _quota(client(), code))
        for code in sorted(codes)
    }


def _quota(client: Any, code: str) -> QuotaFact:
    found = client.get_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]
    return QuotaFact(name=str(found["QuotaName"]), value=float(found["Value"]))


def _offered(ec2: Any, plan: ClusterPlan) -> frozenset[tuple[str, str]]:
    machines = sorted({place.machine for place in needs.places(plan)})
    pages = ec2.get_paginator("describe_instance_type_offerings").paginate(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": machines}]
    )
    rows = (row for page in pages for row in page["InstanceTypeOfferings"])
    return frozenset((str(row["InstanceType"]), str(row["Location"])) for row in rows)


def _subnets(ec2: Any, plan: ClusterPlan) -> Mapping[str, SubnetFact]:
    ids = [s.id for s in needs.aws_of(plan).network.subnets if s.id is not None]
    if not ids:
        return {}
    found = ec2.describe_subnets(Filters=[{"Name": "subnet-id", "Values": ids}])["Subnets"]
    return {
        str(s["SubnetId"]): SubnetFact(
            zone=str(s["AvailabilityZone"]), vpc=str(s["VpcId"]), free=int(s["AvailableIpAddressCount"])
        )
        for s in found
    }


def _images(ec2: Any, image: Image) -> tuple[ImageFact, ...]:
    """By id it may be anyone's; by name it is the account's own, as the program looks it up."""
    wanted: dict[str, Any] = (
        {"Filters": [{"Name": "image-id", "Values": [image.id]}]}
        if image.id is not None
        else {"Owners": ["self"], "Filters": [{"Name": "name", "Values": [image.name or ""]}]}
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
    return asked("iam:GetRole", lambda: _role(clients("iam"), role))


def _role(iam: Any, role: str) -> bool:
    try:
        with translated():
            iam.get_role(RoleName=role)
    except CloudError as error:
        if error.fault is Fault.GONE or error.code == "NoSuchEntity":
            return False
        raise
    return True


def _reservations(ec2: Any) -> tuple[ReservedFact, ...]:
    pages = ec2.get_paginator("describe_capacity_reservations").paginate()
    return tuple(
        ReservedFact(
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


def _secret_arns(plan: ClusterPlan) -> tuple[str, ...]:
    found = None if plan.directory is None else plan.directory.secret
    return () if found is None else (found,)


def _secret(clients: Clients, arn: str) -> str:
    try:
        with translated():
            found = clients("secretsmanager").describe_secret(SecretId=arn)
    except CloudError as error:
        if error.fault is Fault.GONE or error.code == "ResourceNotFoundException":
            return "there is none"
        raise
    return "scheduled for deletion" if found.get("DeletedDate") else "there"
