"""An address that is asked for while its last owner is still on its way out (T42): waited for, and told of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from botocore.exceptions import ClientError

from gpucluster.engine.provider.calls import Call, code_of, only

T = TypeVar("T")

IN_USE = "InvalidIPAddress.InUse"
ENDED = ("shutting-down", "terminated")


@dataclass(frozen=True, slots=True)
class Holder:
    """What has the address now; `lives`: it will not let go by itself."""

    words: str
    lives: bool


def once_free(call: Call, launch: Callable[[], T]) -> T:
    """Launch with a fixed address. Whoever lives is not waited for; whoever ends is, for as long as a creation may take."""
    told: set[str] = set()

    def leaving(error: ClientError) -> bool:
        if code_of(error) != IN_USE:
            return False
        holder = holder_of(call)
        if holder.lives:
            raise RuntimeError(f"{error}; it is held by {holder.words}") from error
        if holder.words not in told:
            told.add(holder.words)
            call.tell(f"waiting for the address {call.inputs.get('privateIp')}: {holder.words}")
        return True

    try:
        return call.cloud.retry(call.seconds, leaving, launch)
    except ClientError as error:
        if code_of(error) != IN_USE:
            raise
        held = holder_of(call).words
        raise RuntimeError(f"{error}; still so after {call.seconds:g} s: {held}") from error


def holder_of(call: Call) -> Holder:
    """Whose interface has the address in the subnet."""
    where = {"subnet-id": call.inputs["subnetId"], "addresses.private-ip-address": call.inputs["privateIp"]}
    filters = [{"Name": name, "Values": [value]} for name, value in where.items()]
    found = only(call.cloud.ec2.describe_network_interfaces(Filters=filters)["NetworkInterfaces"])
    if found is None:
        return Holder("EC2 shows nobody who has it", lives=False)
    name, instance = found["NetworkInterfaceId"], found.get("Attachment", {}).get("InstanceId")
    if instance:
        return _instance(call, instance)
    if found.get("RequesterManaged"):
        return Holder(f"{name} of a service ({found.get('Description')})", lives=True)
    return Holder(f"{name} outlives its machine", lives=False)


def _instance(call: Call, identifier: str) -> Holder:
    where = [{"Name": "instance-id", "Values": [identifier]}]  # silent for the unknown (T21)
    answer: list[dict[str, Any]] = call.cloud.ec2.describe_instances(Filters=where)["Reservations"]
    state = next((i["State"]["Name"] for r in answer for i in r["Instances"]), "terminated")
    return Holder(f"{identifier} is {state}", lives=state not in ENDED)
