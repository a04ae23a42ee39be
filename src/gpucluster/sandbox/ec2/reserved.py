"""Capacity reservations in EC2's words (T25, T26). Blocks are bought elsewhere: a scenario's order makes one."""

import datetime
from collections.abc import Sequence
from typing import Any, cast

from gpucluster.cloud.model import CloudModel, Refusal
from gpucluster.cloud.model.premises import NEVER
from gpucluster.cloud.port import Reservation
from gpucluster.sandbox.backends import ACCOUNT
from gpucluster.sandbox.ec2 import filters, views
from gpucluster.sandbox.ec2.call import Call, Calls, Result, birth_tags


def calls(model: CloudModel) -> Calls:
    """The calls of this module by name."""
    here = _Reserved(model)
    return {
        "DescribeCapacityReservations": here.describe,
        "CreateCapacityReservation": here.create,
        "ModifyCapacityReservation": here.modify,
        "CancelCapacityReservation": here.cancel,
    }


class _Reserved:
    def __init__(self, model: CloudModel) -> None:
        self._model = model

    def describe(self, call: Call) -> Result:
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

    def create(self, call: Call) -> Result:
        asked = call.asked
        for name in ("InstanceType", "InstancePlatform", "AvailabilityZone", "InstanceCount"):
            if not asked.get(name):
                raise Refusal("MissingParameter", f"The request must contain the parameter {name}")
        made = self._model.reserve(
            str(asked["InstanceType"]),
            str(asked["AvailabilityZone"]),
            int(asked["InstanceCount"]),
            open=str(asked.get("InstanceMatchCriteria") or "open") == "open",
            ends_at=_seconds(asked.get("EndDate")),
        )
        self._model.tag_holding(made, birth_tags(call, "capacity-reservation"), ())
        return {"CapacityReservation": self._shape(self._model.reservations((made,), call.now)[0])}

    def modify(self, call: Call) -> Result:
        """Count and end; type, zone, platform and tenancy stay (T25)."""
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

    def cancel(self, call: Call) -> Result:
        self._model.cancel_reservation(str(call.asked.get("CapacityReservationId")), call.now)
        return {"Return": True}

    def _shape(self, one: Reservation) -> Result:
        shape: Result = {
            "CapacityReservationId": one.id,
            "OwnerId": ACCOUNT,
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
