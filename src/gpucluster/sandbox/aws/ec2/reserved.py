"""The calls on capacity reservations and capacity blocks (T25, T26). A scenario creates a block; no call buys one."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, cast

from gpucluster.cloud.port import Reservation
from gpucluster.sandbox.aws.ec2 import filters, views
from gpucluster.sandbox.aws.ec2.call import Calls, Ec2Call, Result, creation_tags
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.network import NEVER
from gpucluster.sandbox.aws.ec2.state.values import Refusal
from gpucluster.sandbox.aws.moto_state import ACCOUNT, Moto

_AT_ONCE = 1000  # instances that one call may add (T25)


def calls(model: CloudModel, moto: Moto) -> Calls:
    """Calls of this module by operation name."""
    here = _Reserved(model, moto)
    return {
        "DescribeCapacityReservations": here.describe,
        "CreateCapacityReservation": here.create,
        "ModifyCapacityReservation": here.modify,
        "CancelCapacityReservation": here.cancel,
    }


class _Reserved:
    def __init__(self, model: CloudModel, moto: Moto) -> None:
        self._model, self._moto = model, moto

    def describe(self, call: Ec2Call) -> Result:
        ids = cast(Sequence[str], call.asked.get("CapacityReservationIds") or ())
        found = self._model.reservations(ids, call.now)
        missing = sorted(set(ids) - {r.id for r in found})
        if missing:
            raise Refusal(
                "InvalidCapacityReservationId.NotFound",
                f"The capacity reservation ID '{missing[0]}' does not exist",
            )
        fitting = filters.chosen(
            found, call.asked.get("Filters"), filters.RESERVATION, lambda r: self._model.tags_of(r.id) or {}
        )
        forced = self._model.switches.page_size
        shown, token = filters.page(fitting, lambda r: r.id, call.asked, self._model.draw(), forced)
        result: Result = {"CapacityReservations": [self._shape(r) for r in shown]}
        return result if token is None else {**result, "NextToken": token}

    def create(self, call: Ec2Call) -> Result:
        asked = call.asked
        for name in ("InstanceType", "InstancePlatform", "AvailabilityZone", "InstanceCount"):
            if asked.get(name) in (None, ""):
                raise Refusal("MissingParameter", f"The request must contain the parameter {name}")
        tags = creation_tags(call, "capacity-reservation")
        self._check(asked, call.now)
        made = self._model.reserve(
            str(asked["InstanceType"]),
            str(asked["AvailabilityZone"]),
            int(asked["InstanceCount"]),
            open=str(asked.get("InstanceMatchCriteria") or "open") == "open",
            ends_at=_seconds(asked.get("EndDate")),
        )
        self._model.tag_holding(made, tags, ())
        return {"CapacityReservation": self._shape(self._model.reservations((made,), call.now)[0])}

    def _check(self, asked: Mapping[str, Any], now: float) -> None:
        machine, zone = str(asked["InstanceType"]), str(asked["AvailabilityZone"])
        ends, limited = _seconds(asked.get("EndDate")), str(asked.get("EndDateType")) == "limited"
        if not 1 <= int(asked["InstanceCount"]) <= _AT_ONCE:
            raise Refusal("InvalidParameterValue", f"InstanceCount is from 1 to {_AT_ONCE} at a time.")
        if zone not in self._moto.zones():
            raise Refusal("InvalidParameterValue", f"Invalid availability zone: [{zone}]")
        if not self._moto.machine_known(machine):
            raise Refusal("InvalidParameterValue", f"Invalid value '{machine}' for InstanceType.")
        if limited != (ends is not None):
            raise Refusal(
                "InvalidParameterCombination",
                "EndDate goes with the EndDateType 'limited', and only with it.",
            )
        if ends is not None and ends <= now:
            raise Refusal("InvalidParameterValue", "EndDate must be in the future.")

    def modify(self, call: Ec2Call) -> Result:
        """Change count and end; type, zone, platform and tenancy cannot change (T25)."""
        asked = call.asked
        ends = _seconds(asked.get("EndDate"))
        if str(asked.get("EndDateType")) == "unlimited":
            ends = NEVER
        count = asked.get("InstanceCount")
        self._model.change_reservation(
            str(asked.get("CapacityReservationId")),
            None if count is None else int(count),
            ends,
        )
        return {"Return": True}

    def cancel(self, call: Ec2Call) -> Result:
        self._model.cancel_reservation(str(call.asked.get("CapacityReservationId")), call.now)
        return {"Return": True}

    def _shape(self, one: Reservation) -> Result:
        shape: Result = {
            "CapacityReservationId": one.id,
            "OwnerId": self._model.owner_of_reservation(one.id) or ACCOUNT,
            "InstanceType": one.machine,
            "InstancePlatform": "Linux/UNIX",
            "AvailabilityZone": one.zone,
            "Tenancy": "default",
            "TotalInstanceCount": one.total,
            "AvailableInstanceCount": one.free,
            "State": one.state,
            "InstanceMatchCriteria": "open" if self._model.is_open(one.id) else "targeted",
            "EndDateType": "unlimited" if one.ends_at is None else "limited",
            "Tags": views.tag_list(self._model.tags_of(one.id) or {}),
        }
        if one.starts_at is not None:
            shape["StartDate"] = views.when(one.starts_at)
        if one.ends_at is not None:
            shape["EndDate"] = views.when(one.ends_at)
        return shape


def _seconds(when: Any) -> float | None:
    if not isinstance(when, datetime.datetime):
        return None
    return (when if when.tzinfo else when.replace(tzinfo=datetime.UTC)).timestamp()
