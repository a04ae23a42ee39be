"""Events of EventBridge about instances, as a queue delivers them (T34, T41).

Switches repeat, reorder or drop events. The sandbox moves them into its SQS; ModelNotices reads them here.
"""

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpucluster.sandbox.aws.ec2.state.values import Ec2Instance, MaintenanceEvent, RandomSource

_ACCOUNT = "123456789012"
VISIBILITY_S = 30.0  # the default of SQS
_PAGE = 10  # messages in one ReceiveMessage


@dataclass(slots=True)
class _Message:
    id: str
    body: str
    visible_at: float


@dataclass(slots=True)
class DeliverySwitches:
    """Faults of the delivery: every k-th event twice, the next few lost, random order, a delay."""

    twice_every: int = 0
    lose: int = 0
    shuffle: bool = False
    late_s: float = 0.0


class InstanceEvents:
    """A queue of event bodies."""

    def __init__(self, region: str, dice: RandomSource) -> None:
        self.switches = DeliverySwitches()
        self.reports_states = False
        self._region, self._random = region, dice
        self._messages: list[_Message] = []
        self._put = 0

    def clear(self) -> None:
        """Remove the faults; events in the queue stay."""
        self.switches = DeliverySwitches()

    def spot(self, instance: Ec2Instance, now: float) -> None:
        """Add a spot interruption warning."""
        detail = {"instance-id": instance.id, "instance-action": "terminate"}
        self._event("aws.ec2", "EC2 Spot Instance Interruption Warning", detail, now, instance)

    def rebalance(self, instance: Ec2Instance, now: float) -> None:
        """Add a rebalance recommendation."""
        detail = {"instance-id": instance.id}
        self._event("aws.ec2", "EC2 Instance Rebalance Recommendation", detail, now, instance)

    def state(self, instance: Ec2Instance, now: float) -> None:
        """Add a change of state, if `reports_states` is on."""
        if self.reports_states:
            detail = {"instance-id": instance.id, "state": instance.state.value}
            self._event("aws.ec2", "EC2 Instance State-change Notification", detail, now, instance)

    def maintenance(self, instance: Ec2Instance, event: MaintenanceEvent, now: float) -> None:
        """Add a scheduled change of AWS Health."""
        code = event.code.upper().replace("-", "_")
        detail = {
            "service": "EC2",
            "eventTypeCode": f"AWS_EC2_{code}_SCHEDULED",
            "eventTypeCategory": "scheduledChange",
            "startTime": _rfc(event.not_before),
            "eventDescription": [{"language": "en_US", "latestDescription": event.text}],
            "affectedEntities": [{"entityValue": instance.id}],
        }
        self._event("aws.health", "AWS Health Event", detail, now, instance)

    def block_warning(self, reservation: str, machine: str, zone: str, ends_at: float, now: float) -> None:
        """Add the warning that a capacity block ends in 40 minutes (T26)."""
        detail = {
            "capacity-reservation-id": reservation,
            "instance-type": machine,
            "availability-zone": zone,
            "end-date": _zulu(ends_at),
        }
        self._event("aws.ec2", "Capacity Block Reservation Expiration Warning", detail, now, None)

    def receive(self, now: float) -> tuple[tuple[str, str], ...]:
        """Up to ten visible (handle, body); they are hidden until deleted, or for the visibility timeout."""
        seen = [m for m in self._messages if m.visible_at <= now]
        if self.switches.shuffle:
            self._random.shuffle(seen)
        for message in seen[:_PAGE]:
            message.visible_at = now + VISIBILITY_S
        return tuple((m.id, m.body) for m in seen[:_PAGE])

    def delete(self, handles: Sequence[str]) -> None:
        """Delete messages; unknown handles are ignored."""
        gone = frozenset(handles)
        self._messages = [m for m in self._messages if m.id not in gone]

    def put(self, body: str, now: float) -> None:
        """Add a body with the faults of the switches; tests use it for arbitrary text."""
        switches = self.switches
        if switches.lose > 0:
            switches.lose -= 1
            return
        self._put += 1
        twice = switches.twice_every and self._put % switches.twice_every == 0
        for _ in range(2 if twice else 1):
            handle = f"{self._random.getrandbits(64):016x}"
            self._messages.append(_Message(handle, body, now + switches.late_s))

    def _event(
        self, source: str, kind: str, detail: Mapping[str, Any], now: float, instance: Ec2Instance | None
    ) -> None:
        zone = self._region if instance is None else instance.zone
        body = {
            "version": "0",
            "id": f"{self._random.getrandbits(128):032x}",
            "detail-type": kind,
            "source": source,
            "account": _ACCOUNT,
            "time": _zulu(now),
            "region": self._region,
            "resources": [] if instance is None else [f"arn:aws:ec2:{zone}:instance/{instance.id}"],
            "detail": dict(detail),
        }
        self.put(json.dumps(body, sort_keys=True), now)


def _zulu(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _rfc(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
