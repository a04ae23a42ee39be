"""Wait for a fixed address that a terminating instance still uses (T42), and report the wait."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from botocore.exceptions import ClientError

from gpucluster.engine.aws_account import code_of
from gpucluster.sandbox.provider.cloud import only
from gpucluster.sandbox.provider.schema import Call

T = TypeVar("T")

IN_USE = "InvalidIPAddress.InUse"
ENDED = ("shutting-down", "terminated")


@dataclass(frozen=True, slots=True)
class Holder:
    """The current user of the address. `lives`: it does not terminate by itself."""

    words: str
    permanent: bool


def once_free(call: Call, launch: Callable[[], T]) -> T:
    """Launch with a fixed address. Wait for a terminating user up to the creation timeout; fail for any other user."""
    reported: set[str] = set()

    def is_terminating(error: ClientError) -> bool:
        if code_of(error) != IN_USE:
            return False
        holder = holder_of(call)
        if holder.permanent:
            raise RuntimeError(f"{error}; it is used by {holder.words}") from error
        if holder.words not in reported:
            reported.add(holder.words)
            call.report_progress(f"waiting for the address {call.inputs.get('privateIp')}: {holder.words}")
        return True

    try:
        return call.cloud.retry(call.seconds, is_terminating, launch)
    except ClientError as error:
        if code_of(error) != IN_USE:
            raise
        holder = holder_of(call).words
        raise RuntimeError(f"{error}; not free after {call.seconds:g} s: {holder}") from error


def holder_of(call: Call) -> Holder:
    """Return the interface that has the address in the subnet."""
    where = {"subnet-id": call.inputs["subnetId"], "addresses.private-ip-address": call.inputs["privateIp"]}
    filters = [{"Name": name, "Values": [value]} for name, value in where.items()]
    found = only(call.cloud.ec2.describe_network_interfaces(Filters=filters)["NetworkInterfaces"])
    if found is None:
        return Holder("EC2 shows no interface with this address", permanent=False)
    name, instance = found["NetworkInterfaceId"], found.get("Attachment", {}).get("InstanceId")
    if instance:
        return _instance(call, instance)
    if found.get("RequesterManaged"):
        return Holder(f"{name} of a service ({found.get('Description')})", permanent=True)
    return Holder(f"{name} outlives its machine", permanent=False)


def _instance(call: Call, identifier: str) -> Holder:
    where = [{"Name": "instance-id", "Values": [identifier]}]  # no error for an unknown id (T21)
    answer: list[dict[str, Any]] = call.cloud.ec2.describe_instances(Filters=where)["Reservations"]
    state = next((i["State"]["Name"] for r in answer for i in r["Instances"]), "terminated")
    return Holder(f"{identifier} is {state}", permanent=state not in ENDED)
