"""The CloudPort over EC2. boto3 is loaded at the first call, so that importing this costs nothing.

Launches are never retried by the SDK: a refusal for capacity is a 5xx, which it would repeat (T06), and each
repeat empties the bucket of RunInstances (T11). The caller repeats the identical request instead (T01).
"""

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from gpucluster.cloud.faults import cloud_error
from gpucluster.cloud.port import (
    CloudError,
    Fault,
    FleetAnswer,
    FleetError,
    FleetOverride,
    FleetRequest,
    Instance,
    InstanceState,
    LaunchRequest,
    Reservation,
)
from gpucluster.plan import names
from gpucluster.plan.model import Interface, Market

if TYPE_CHECKING:
    from botocore.config import Config
    from types_boto3_ec2 import EC2Client
    from types_boto3_ec2.type_defs import (
        CapacityReservationTypeDef,
        CreateFleetErrorTypeDef,
        CreateFleetResultTypeDef,
        InstanceTypeDef,
    )

_TAGGED = ("instance", "volume", "network-interface")  # tags reach none of them by themselves (T17)
_PAGE = 1000
_BATCH = 500  # ids in one TerminateInstances; EC2 takes 1000


class AwsCloud:
    """EC2 of one Region. `client` makes a client for a botocore Config; the default is boto3's."""

    def __init__(self, region: str, client: "Callable[[Config], EC2Client] | None" = None) -> None:
        self._region = region
        self._client = client or self._boto3_client
        self._made: tuple[EC2Client, EC2Client] | None = None
        self._session: Any = None
        self._making = threading.Lock()  # the daemon's threads share us, and a session is not safe to share

    def launch(self, request: LaunchRequest) -> tuple[str, ...]:
        """As the port says."""
        with translated():
            answer = self._launcher().run_instances(**launch_arguments(request))
        return tuple(i["InstanceId"] for i in answer["Instances"] if "InstanceId" in i)

    def fleet(self, request: FleetRequest) -> FleetAnswer:
        """As the port says; ids alone come back, so that DescribeInstances must follow (T13)."""
        with translated():
            answer = self._launcher().create_fleet(**fleet_arguments(request))
        return fleet_view(answer)

    def instances(self, cluster: str) -> tuple[Instance, ...]:
        """As the port says; by filter and paged, so that no young id can fail the call (T20, T21)."""
        filters = [
            {"Name": f"tag:{names.TAG_CLUSTER}", "Values": [cluster]},
            {"Name": f"tag:{names.TAG_ROLE}", "Values": [names.ROLE_NODE]},
        ]
        with translated():
            pages = (
                self._reader()
                .get_paginator("describe_instances")
                .paginate(Filters=cast(Any, filters), PaginationConfig={"PageSize": _PAGE})
            )
            found = [i for page in pages for r in page["Reservations"] for i in r.get("Instances", [])]
        return tuple(view(i) for i in found)

    def reservations(self, ids: Sequence[str]) -> tuple[Reservation, ...]:
        """As the port says; from the list of all, for an unknown id fails the call and no filter takes ids (T22)."""
        if not ids:
            return ()
        with translated():
            pages = self._reader().get_paginator("describe_capacity_reservations").paginate()
            found = [r for page in pages for r in page.get("CapacityReservations", [])]
        return tuple(reservation_view(r) for r in found if r.get("CapacityReservationId") in ids)

    def terminate(self, ids: Sequence[str]) -> None:
        """As the port says: one unknown id spares them all (T23), so then each is asked alone."""
        for start in range(0, len(ids), _BATCH):
            batch = list(ids[start : start + _BATCH])
            try:
                self._terminate(batch)
            except CloudError as error:
                if error.fault is not Fault.GONE:
                    raise
                self._terminate_alone(batch if len(batch) > 1 else [])

    def _terminate(self, ids: list[str]) -> None:
        with translated():
            self._reader().terminate_instances(InstanceIds=ids)

    def _terminate_alone(self, ids: list[str]) -> None:
        for one in ids:
            try:
                self._terminate([one])
            except CloudError as error:
                if error.fault is not Fault.GONE:
                    raise

    def _reader(self) -> "EC2Client":
        return self._clients()[0]

    def _launcher(self) -> "EC2Client":
        return self._clients()[1]

    def _clients(self) -> "tuple[EC2Client, EC2Client]":
        """Reader and launcher, both at the first call, which is a look: one takes half a second, and a launch has none."""
        with self._making:
            if self._made is None:
                launching = self._client(client_config(attempts=1, read_timeout_s=60))
                self._made = self._client(client_config(attempts=3, read_timeout_s=20)), launching
            return self._made

    def _boto3_client(self, config: "Config") -> "EC2Client":
        self._session = self._session or boto3_session()
        return _client_of(self._session, "ec2", self._region, config)


def boto3_client(service: str, region: str, config: "Config") -> Any:
    """A client of boto3's own session, which finds the machine's role by itself."""
    return _client_of(boto3_session(), service, region, config)


def _client_of(session: Any, service: str, region: str, config: "Config") -> Any:
    """A client that was made without credentials never looks for them again: a busy metadata service would end it for good."""
    if session.get_credentials() is None:
        from botocore.exceptions import NoCredentialsError  # noqa: PLC0415

        raise NoCredentialsError
    return session.client(service, region_name=region, config=config)


def boto3_session() -> Any:
    """A session; it keeps what it read of a service, so a second client of one is quick."""
    import boto3  # noqa: PLC0415 - 0.2 s that importers need not pay

    return boto3.Session()  # its `client` has an overload for each service of AWS


def client_config(*, attempts: int, read_timeout_s: float) -> "Config":
    """The botocore Config of our clients: few attempts, short waits."""
    from botocore.config import Config  # noqa: PLC0415

    return Config(
        connect_timeout=5,
        read_timeout=read_timeout_s,
        retries={"mode": "standard", "total_max_attempts": attempts},
        user_agent_extra="gpucluster",
    )


def launch_arguments(request: LaunchRequest) -> dict[str, Any]:
    """What RunInstances is called with: a function of the request alone, so that repeats are identical."""
    tags = _tags(request)
    arguments: dict[str, Any] = {
        "ClientToken": request.token,
        "MinCount": request.count if request.at_least is None else request.at_least,
        "MaxCount": request.count,
        "LaunchTemplate": {
            "LaunchTemplateId": request.template_id,
            "Version": str(request.template_version),  # never $Latest (T15)
        },
        "InstanceType": request.machine,
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in _TAGGED],
    }
    if request.interfaces:
        arguments["NetworkInterfaces"] = [_interface(request, one) for one in request.interfaces]
    else:
        arguments["SubnetId"] = request.subnet_id
    if request.placement_group is not None:
        arguments["Placement"] = {"GroupName": request.placement_group}
    if request.market is Market.SPOT:
        arguments["TagSpecifications"].append({"ResourceType": "spot-instances-request", "Tags": tags})
        options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
        if request.max_price is not None:
            options["MaxPrice"] = f"{request.max_price / 1e6:.6f}"
        arguments["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": options}
    if request.market is Market.CAPACITY_BLOCK:
        arguments["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
    if request.reservation is not None:
        arguments["CapacityReservationSpecification"] = {
            "CapacityReservationTarget": {"CapacityReservationId": request.reservation}
        }
    return arguments


def _interface(request: LaunchRequest, one: Interface) -> dict[str, Any]:
    """In full, over the template's: beside a list of interfaces nothing names the subnet (T31)."""
    return {
        "NetworkCardIndex": one.card,
        "DeviceIndex": one.device,
        "InterfaceType": one.kind.value,
        "SubnetId": request.subnet_id,
        "Groups": [request.group],
        "DeleteOnTermination": True,
    }


def fleet_arguments(request: FleetRequest) -> dict[str, Any]:
    """What CreateFleet is called with; one zone, so that MinTargetCapacity counts (T13)."""
    least = request.count if request.at_least is None else request.at_least
    ways: dict[str, Any] = {"SingleAvailabilityZone": True, "MinTargetCapacity": least}
    options = {"AllocationStrategy": "prioritized", **ways}
    if request.market is Market.SPOT:
        options = {
            "AllocationStrategy": "capacity-optimized-prioritized",
            "InstanceInterruptionBehavior": "terminate",
            **ways,
        }
    return {
        "ClientToken": request.token,
        "Type": "instant",
        "LaunchTemplateConfigs": [_fleet_config(request, n, o) for n, o in enumerate(request.overrides)],
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": request.count,
            "DefaultTargetCapacityType": request.market.value,
        },
        "SpotOptions" if request.market is Market.SPOT else "OnDemandOptions": options,
        # an instant fleet takes tags for these kinds alone; the template tags the rest
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": _tags(request)} for kind in ("fleet", "instance")
        ],
    }


def _fleet_config(request: FleetRequest, priority: int, override: FleetOverride) -> dict[str, Any]:
    place: dict[str, Any] = {
        "InstanceType": override.machine,
        "SubnetId": request.subnet_id,
        "Priority": float(priority),
    }
    if request.placement_group is not None:
        place["Placement"] = {"GroupName": request.placement_group}
    if request.max_price is not None:
        place["MaxPrice"] = f"{request.max_price / 1e6:.6f}"
    return {
        "LaunchTemplateSpecification": {
            "LaunchTemplateId": override.template_id,
            "Version": str(override.template_version),  # a fleet without it is refused (T14)
        },
        "Overrides": [place],
    }


def fleet_view(answer: "CreateFleetResultTypeDef") -> FleetAnswer:
    """Instances and errors of CreateFleet, by machine."""
    instances = [
        (instance, made.get("InstanceType", ""))
        for made in answer.get("Instances", [])
        for instance in made.get("InstanceIds", [])
    ]
    return FleetAnswer(
        instances=tuple(instances), errors=tuple(_fleet_error(e) for e in answer.get("Errors", []))
    )


def _fleet_error(error: "CreateFleetErrorTypeDef") -> FleetError:
    overrides = error.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
    return FleetError(
        machine=overrides.get("InstanceType", ""),
        code=error.get("ErrorCode", "Unknown"),
        message=error.get("ErrorMessage", ""),
    )


def _tags(request: LaunchRequest | FleetRequest) -> list[dict[str, str]]:
    return [{"Key": k, "Value": v} for k, v in sorted(request.tags.items())]


def reservation_view(found: "CapacityReservationTypeDef") -> Reservation:
    """A reservation or block of DescribeCapacityReservations as the port lists it."""
    starts, ends = found.get("StartDate"), found.get("EndDate")
    return Reservation(
        id=found.get("CapacityReservationId", ""),
        state=found.get("State", "unknown"),
        machine=found.get("InstanceType", ""),
        zone=found.get("AvailabilityZone", ""),
        total=found.get("TotalInstanceCount", 0),
        free=found.get("AvailableInstanceCount", 0),
        starts_at=starts.timestamp() if starts else None,
        ends_at=ends.timestamp() if ends else None,
    )


def view(instance: "InstanceTypeDef") -> Instance:
    """An instance of DescribeInstances as the port lists it; anything but the id may lack (T20)."""
    launched = instance.get("LaunchTime")
    reason = instance.get("StateReason", {}).get("Message") or instance.get("StateTransitionReason")
    return Instance(
        id=instance.get("InstanceId", ""),
        state=InstanceState(instance.get("State", {}).get("Name", "pending")),
        zone=instance.get("Placement", {}).get("AvailabilityZone", ""),
        machine=instance.get("InstanceType", ""),
        market=_market(instance),
        address=instance.get("PrivateIpAddress") or None,
        launched_at=launched.timestamp() if launched else 0.0,
        token=instance.get("ClientToken") or None,
        reason=reason or None,
        reservation=instance.get("CapacityReservationId"),
        tags={t.get("Key", ""): t.get("Value", "") for t in instance.get("Tags", [])},
    )


def _market(instance: "InstanceTypeDef") -> Market:
    """How it is really bought: one that joined an open reservation is in it (T25)."""
    lifecycle: str = instance.get("InstanceLifecycle", "")  # absent for On-Demand (T14)
    if lifecycle in (Market.SPOT.value, Market.CAPACITY_BLOCK.value):
        return Market(lifecycle)
    return Market.RESERVATION if instance.get("CapacityReservationId") else Market.ON_DEMAND


@contextmanager
def translated() -> Generator[None, None, None]:
    """Turn what boto3 raises into a CloudError; only what the service refused in words counts as refused."""
    from botocore import exceptions as boto  # noqa: PLC0415

    try:
        yield
    except boto.ClientError as error:
        raise _refused(error) from error
    except (boto.NoCredentialsError, boto.PartialCredentialsError, boto.ParamValidationError) as error:
        raise CloudError(Fault.CONFIGURATION, type(error).__name__, str(error)) from error
    except (boto.CredentialRetrievalError, boto.MetadataRetrievalError) as error:
        # nothing was sent: the metadata service will answer again
        raise CloudError(Fault.THROTTLED, type(error).__name__, str(error)) from error
    except boto.BotoCoreError as error:
        raise CloudError(Fault.LOST, type(error).__name__, str(error)) from error


def _refused(error: Any) -> CloudError:
    response: Mapping[str, Any] = error.response  # a TypedDict of optional parts
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400))
    words: Mapping[str, str] = response.get("Error", {})
    return cloud_error(words.get("Code", "Unknown"), words.get("Message", ""), status=status)
