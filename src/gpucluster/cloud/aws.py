"""The CloudPort over EC2. boto3 is imported at the first call, because its import is slow.

The SDK never repeats a launch: a refusal for capacity is a 5xx, which it would repeat (T06), and each repetition uses a token
of the bucket of RunInstances (T11). The caller repeats the identical request instead (T01).
"""

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from gpucluster.cloud.faults import cloud_error
from gpucluster.cloud.limits import in_filters
from gpucluster.cloud.port import (
    CloudError,
    Fault,
    FleetAnswer,
    FleetCall,
    FleetError,
    Instance,
    InstanceState,
    LaunchCall,
    LaunchSpec,
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

_TAGGED = ("instance", "volume", "network-interface")  # templates do not tag these by themselves (T17)
_PAGE = 1000
CONNECT_S = 5  # for each address of a name
_READ = (  # the parts of an instance that `view` takes
    *("InstanceId", "State", "Placement", "InstanceType", "PrivateIpAddress", "LaunchTime", "ClientToken"),
    *("StateReason", "StateTransitionReason", "CapacityReservationId", "InstanceLifecycle", "Tags"),
)
_TOPOLOGY_IDS = 100  # ids in one DescribeInstanceTopology
_WOULD_DO = "DryRunOperation"
_BATCH = 500  # ids in one TerminateInstances; EC2 accepts 1000


class AwsCloud:
    """EC2 of one Region. `client` creates a client for a botocore Config; the default is boto3's."""

    def __init__(self, region: str, client: "Callable[[Config], EC2Client] | None" = None) -> None:
        self._region = region
        self._client = client or self._boto3_client
        self._made: tuple[EC2Client, EC2Client] | None = None
        self._session: Any = None
        self._making = (
            threading.Lock()
        )  # threads of the daemon share this object, and a boto3 session is not thread-safe

    def launch(self, call: LaunchCall) -> tuple[str, ...]:
        """See CloudPort."""
        with translated():
            answer = self._launcher().run_instances(**launch_arguments(call))
        return tuple(i["InstanceId"] for i in answer["Instances"] if "InstanceId" in i)

    def try_launch(self, call: LaunchCall) -> None:
        """See TrialPort. EC2 answers a dry run that it would take with an error, too (API reference, RunInstances)."""
        arguments = {k: v for k, v in launch_arguments(call).items() if k != "ClientToken"}
        try:
            with translated():
                self._reader().run_instances(**arguments, DryRun=True)
        except CloudError as error:
            if error.code != _WOULD_DO:
                raise

    def fleet(self, call: FleetCall) -> FleetAnswer:
        """See CloudPort. CreateFleet returns only ids, so DescribeInstances must follow (T13)."""
        with translated():
            answer = self._launcher().create_fleet(**fleet_arguments(call))
        return fleet_view(answer)

    def instances(self, cluster: str, also: Sequence[str] = ()) -> tuple[Instance, ...]:
        """See CloudPort. The list is filtered and paged: an id that is not visible yet would fail the call (T20, T21)."""
        filters = [
            {"Name": f"tag:{names.TAG_CLUSTER}", "Values": [cluster]},
            {"Name": f"tag:{names.TAG_ROLE}", "Values": [names.ROLE_NODE]},
        ]
        found = self._described(filters)
        for part in in_filters(sorted(set(also) - {i.id for i in found})):
            found += self._described([{"Name": "instance-id", "Values": part}])
        return tuple(found)

    def _described(self, filters: list[dict[str, Any]]) -> list[Instance]:
        with translated():
            pages = (
                self._reader()
                .get_paginator("describe_instances")
                .paginate(Filters=cast(Any, filters), PaginationConfig={"PageSize": _PAGE})
            )
            return [view(i) for page in pages for r in page["Reservations"] for i in r.get("Instances", [])]

    def reservations(self, ids: Sequence[str]) -> tuple[Reservation, ...]:
        """See CloudPort. All reservations are listed: an unknown id fails the call, and no filter takes ids (T22)."""
        if not ids:
            return ()
        with translated():
            pages = self._reader().get_paginator("describe_capacity_reservations").paginate()
            found = [r for page in pages for r in page.get("CapacityReservations", [])]
        return tuple(reservation_view(r) for r in found if r.get("CapacityReservationId") in ids)

    def network_nodes(self, ids: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        """See TopologyPort. A call takes 100 ids (T28)."""
        found: dict[str, tuple[str, ...]] = {}
        for start in range(0, len(ids), _TOPOLOGY_IDS):
            with translated():
                batch = list(ids[start : start + _TOPOLOGY_IDS])
                answer = self._reader().describe_instance_topology(InstanceIds=batch)
            for one in answer.get("Instances", []):
                found[one.get("InstanceId", "")] = tuple(one.get("NetworkNodes") or ())
        return {instance: nodes for instance, nodes in found.items() if nodes}

    def terminate(self, ids: Sequence[str]) -> tuple[str, ...]:
        """See CloudPort. One unknown id prevents the termination of all (T23), so then each id gets its own call."""
        unknown = list[str]()
        for start in range(0, len(ids), _BATCH):
            batch = list(ids[start : start + _BATCH])
            if self._knows(batch):
                continue
            unknown += batch if len(batch) == 1 else [one for one in batch if not self._knows([one])]
        return tuple(unknown)

    def _knows(self, ids: list[str]) -> bool:
        """Terminate the instances; False if EC2 does not know one of them, and terminates none."""
        try:
            with translated():
                self._reader().terminate_instances(InstanceIds=ids)
        except CloudError as error:
            if error.fault is not Fault.GONE:
                raise
            return False
        return True

    def _reader(self) -> "EC2Client":
        return self._clients()[0]

    def _launcher(self) -> "EC2Client":
        return self._clients()[1]

    def _clients(self) -> "tuple[EC2Client, EC2Client]":
        """Create both clients at the first call. A client takes half a second. The first call is DescribeInstances, so no launch waits."""
        with self._making:
            if self._made is None:
                launching = self._client(client_config(attempts=1, read_timeout_s=60))
                self._made = self._client(client_config(attempts=3, read_timeout_s=20)), launching
            return self._made

    def _boto3_client(self, config: "Config") -> "EC2Client":
        self._session = self._session or ec2_session()
        return _client_of(self._session, "ec2", self._region, config)


def boto3_client(service: str, region: str, config: "Config") -> Any:
    """A client of boto3's session, which finds the role of the machine by itself."""
    return _client_of(boto3_session(), service, region, config)


def _client_of(session: Any, service: str, region: str, config: "Config") -> Any:
    """Drop a client that found no credentials: botocore does not search again, so one failed query would disable it forever."""
    if session.get_credentials() is None:
        from botocore.exceptions import NoCredentialsError  # noqa: PLC0415

        raise NoCredentialsError
    return session.client(service, region_name=region, config=config)


def ec2_session() -> Any:
    """A session whose EC2 clients parse only the parts of answers that `AwsCloud` reads.

    botocore parses each element of an answer in Python: for 1,000 instances of RunInstances 0.34 s instead of 0.06 s, while
    the daemon's other threads wait for the interpreter.
    """
    import boto3  # noqa: PLC0415 - 0.2 s that importers need not pay
    import botocore.session  # noqa: PLC0415

    core: Any = botocore.session.get_session()
    # with the arguments of botocore's own call, so that its clients get this very value from the loader's cache
    narrow(core.get_component("data_loader").load_service_model("ec2", "service-2", api_version=None))
    return boto3.Session(botocore_session=core)


def narrow(model: dict[str, Any]) -> None:
    """Remove from botocore's model of EC2 what no caller of `AwsCloud` reads: RunInstances gives ids, others what `view` takes."""
    shapes, ids = model["shapes"], "InstanceId"
    instance, reservation = shapes["Instance"]["members"], shapes["Reservation"]["members"]
    instances = shapes[reservation["Instances"]["shape"]]
    shapes["LaunchedInstance"] = {"type": "structure", "members": {ids: instance[ids]}}
    shapes["LaunchedInstances"] = {
        **instances,
        "member": {**instances["member"], "shape": "LaunchedInstance"},
    }
    launched = {**reservation["Instances"], "shape": "LaunchedInstances"}
    shapes["LaunchedReservation"] = {"type": "structure", "members": {"Instances": launched}}
    model["operations"]["RunInstances"]["output"] = {"shape": "LaunchedReservation"}
    shapes["Reservation"]["members"] = {"Instances": reservation["Instances"]}
    shapes["Instance"]["members"] = {name: instance[name] for name in _READ}


def boto3_session() -> Any:
    """A session; it caches service models, so a second client of one service is fast."""
    import boto3  # noqa: PLC0415 - 0.2 s that importers need not pay

    return boto3.Session()  # its `client` has an overload for each service of AWS


def client_config(*, attempts: int, read_timeout_s: float) -> "Config":
    """The botocore Config of the clients: few attempts, short waits."""
    from botocore.config import Config  # noqa: PLC0415

    return Config(
        connect_timeout=CONNECT_S,
        read_timeout=read_timeout_s,
        retries={"mode": "standard", "total_max_attempts": attempts},
        user_agent_extra="gpucluster",
    )


def launch_arguments(call: LaunchCall) -> dict[str, Any]:
    """Return the arguments of RunInstances: a pure function of the call, so that repeated calls are identical."""
    spec, tags = call.spec, _tags(call)
    arguments: dict[str, Any] = {
        "ClientToken": call.token,
        "MinCount": call.count if call.at_least is None else call.at_least,
        "MaxCount": call.count,
        "LaunchTemplate": {
            "LaunchTemplateId": spec.template_id,
            "Version": str(spec.template_version),  # never $Latest (T15)
        },
        "InstanceType": spec.machine,
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in _TAGGED],
    }
    if spec.interfaces:
        arguments["NetworkInterfaces"] = [_interface(spec, one) for one in spec.interfaces]
    else:
        arguments["SubnetId"] = spec.subnet_id
    if spec.placement_group is not None:
        arguments["Placement"] = {"GroupName": spec.placement_group}
    if spec.market is Market.SPOT:
        arguments["TagSpecifications"].append({"ResourceType": "spot-instances-request", "Tags": tags})
        options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
        if spec.max_price is not None:
            options["MaxPrice"] = _dollars(spec.max_price)
        arguments["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": options}
    if spec.market is Market.CAPACITY_BLOCK:
        arguments["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
    if spec.reservation is not None:
        arguments["CapacityReservationSpecification"] = {
            "CapacityReservationTarget": {"CapacityReservationId": spec.reservation}
        }
    return arguments


def _interface(spec: LaunchSpec, one: Interface) -> dict[str, Any]:
    """Return one interface with its subnet: RunInstances accepts no subnet with a list of interfaces (T31)."""
    return {
        "NetworkCardIndex": one.card,
        "DeviceIndex": one.device,
        "InterfaceType": one.kind.value,
        "SubnetId": spec.subnet_id,
        "Groups": [spec.security_group],
        "DeleteOnTermination": True,
    }


def fleet_arguments(call: FleetCall) -> dict[str, Any]:
    """Return the arguments of CreateFleet in one zone, so that MinTargetCapacity applies (T13)."""
    market = call.specs[0].market
    least = call.count if call.at_least is None else call.at_least
    common: dict[str, Any] = {"SingleAvailabilityZone": True, "MinTargetCapacity": least}
    options = {"AllocationStrategy": "prioritized", **common}
    if market is Market.SPOT:
        options = {
            "AllocationStrategy": "capacity-optimized-prioritized",
            "InstanceInterruptionBehavior": "terminate",
            **common,
        }
    return {
        "ClientToken": call.token,
        "Type": "instant",
        "LaunchTemplateConfigs": [_fleet_config(n, spec) for n, spec in enumerate(call.specs)],
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": call.count,
            "DefaultTargetCapacityType": market.value,
        },
        "SpotOptions" if market is Market.SPOT else "OnDemandOptions": options,
        # an instant fleet tags only these resource types; the template tags the rest
        "TagSpecifications": [{"ResourceType": kind, "Tags": _tags(call)} for kind in ("fleet", "instance")],
    }


def _fleet_config(priority: int, spec: LaunchSpec) -> dict[str, Any]:
    override: dict[str, Any] = {
        "InstanceType": spec.machine,
        "SubnetId": spec.subnet_id,
        "Priority": float(priority),
    }
    if spec.placement_group is not None:
        override["Placement"] = {"GroupName": spec.placement_group}
    if spec.max_price is not None:
        override["MaxPrice"] = _dollars(spec.max_price)
    return {
        "LaunchTemplateSpecification": {
            "LaunchTemplateId": spec.template_id,
            "Version": str(spec.template_version),  # CreateFleet refuses a template without a version (T14)
        },
        "Overrides": [override],
    }


def _dollars(micro: int) -> str:
    return f"{micro / 1e6:.6f}"


def fleet_view(answer: "CreateFleetResultTypeDef") -> FleetAnswer:
    """Instances and errors of CreateFleet by machine type."""
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


def _tags(call: LaunchCall | FleetCall) -> list[dict[str, str]]:
    return [{"Key": k, "Value": v} for k, v in sorted(call.tags.items())]


def reservation_view(found: "CapacityReservationTypeDef") -> Reservation:
    """Convert an item of DescribeCapacityReservations."""
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


def reason_of(instance: "InstanceTypeDef") -> str:
    """Return why an item of DescribeInstances has its state, in EC2's words; empty if it says nothing."""
    return instance.get("StateReason", {}).get("Message") or instance.get("StateTransitionReason") or ""


def view(instance: "InstanceTypeDef") -> Instance:
    """Convert an item of DescribeInstances; every field but the id may be absent (T20)."""
    launched = instance.get("LaunchTime")
    return Instance(
        id=instance.get("InstanceId", ""),
        state=InstanceState(instance.get("State", {}).get("Name", "pending")),
        zone=instance.get("Placement", {}).get("AvailabilityZone", ""),
        machine=instance.get("InstanceType", ""),
        market=_market(instance),
        address=instance.get("PrivateIpAddress") or None,
        launched_at=launched.timestamp() if launched else 0.0,
        token=instance.get("ClientToken") or None,
        reason=reason_of(instance) or None,
        reservation=instance.get("CapacityReservationId"),
        tags={t.get("Key", ""): t.get("Value", "") for t in instance.get("Tags", [])},
    )


def _market(instance: "InstanceTypeDef") -> Market:
    """Return the real market: an instance that joined an open reservation runs in it (T25)."""
    lifecycle: str = instance.get("InstanceLifecycle", "")  # absent for On-Demand (T14)
    if lifecycle in (Market.SPOT.value, Market.CAPACITY_BLOCK.value):
        return Market(lifecycle)
    return Market.RESERVATION if instance.get("CapacityReservationId") else Market.ON_DEMAND


@contextmanager
def translated() -> Generator[None, None, None]:
    """Convert an error of boto3 into a CloudError. Only an error with a code of the service counts as refused."""
    from botocore import exceptions as boto  # noqa: PLC0415

    try:
        yield
    except boto.ClientError as error:
        raise _refused(error) from error
    except (boto.NoCredentialsError, boto.PartialCredentialsError, boto.ParamValidationError) as error:
        raise CloudError(Fault.CONFIGURATION, type(error).__name__, str(error)) from error
    except (boto.CredentialRetrievalError, boto.MetadataRetrievalError) as error:
        # nothing was sent: the metadata service answers again later
        raise CloudError(Fault.THROTTLED, type(error).__name__, str(error)) from error
    except boto.BotoCoreError as error:
        raise CloudError(Fault.LOST, type(error).__name__, str(error)) from error


def _refused(error: Any) -> CloudError:
    response: Mapping[str, Any] = error.response  # a TypedDict with only optional keys
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400))
    words: Mapping[str, str] = response.get("Error", {})
    return cloud_error(words.get("Code", "Unknown"), words.get("Message", ""), status=status)
