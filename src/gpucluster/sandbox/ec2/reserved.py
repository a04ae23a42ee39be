"""Capacity reservations in EC2's words (T25, T26). Blocks are bought elsewhere: a scenario's order makes one."""

import datetime
from collections.abc import Sequence
from typing import Any, cast

from gpucluster.cloud.model import CloudModel, Refusal
from gpucluster.cloud.port import Reservation
from gpucluster.sandbox.backends import ACCOUNT
from gpucluster.sandbox.ec2 import filters, views
from gpucluster.sandbox.ec2.call import Call, Calls, Result


def calls(model: CloudModel) -> Calls:
    """The calls of this module by name."""
    here = _Reserved(model)
    return {
        "DescribeCapacityReservations": here.describe,
        "CreateCapacityReservation": here.create,
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
        fitting = filters.chosen(found, call.asked.get("Filters"), filters.RESERVATION, lambda _: {})
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
        return {"CapacityReservation": self._shape(self._model.reservations((made,), call.now)[0])}

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
