"""Scenario commands over HTTP: capacity, refusals, errors, notices. Only the operator's key may send them."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from gpucluster.plan.codec import to_json
from gpucluster.plan.model import Market
from gpucluster.sandbox.aws.ec2.state.faults import FaultSwitches
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Lag, MaintenanceEvent, Refusal
from gpucluster.sandbox.aws.moto_state import Moto
from gpucluster.sandbox.aws.protocols import Answer
from gpucluster.sandbox.paths import SCENARIO_PREFIX

Order = Mapping[str, Any]


class Scenario:
    """One table of commands: POST sets, GET reads; every body is a JSON object."""

    def __init__(self, model: CloudModel, moto: Moto | None = None) -> None:
        self._model, self._moto = model, moto
        self._posts: Mapping[str, Callable[[Order, float], object]] = {
            "capacity": self._capacity,
            "withdraw": lambda o, _: model.capacity.withdraw(str(o["machine"]), str(o.get("zone", "*"))),
            "error": self._error,
            "lose": lambda o, _: model.faults.lose_reply(str(o["action"]), int(o.get("times", 1))),
            "notice": lambda o, now: model.interrupt(
                str(o["instance"]), now, float(o.get("after_s", 120.0)), silent=_silent(o)
            ),
            "rebalance": lambda o, now: model.recommend(str(o["instance"]), now, silent=_silent(o)),
            "maintenance": self._maintenance,
            "hang": self._hang,
            "reserve": self._reserve,
            "vpc": self._vpc,
            "key": lambda o, _: self._site().make_key(str(o["name"])),
            "quota": self._quota,
            "price": self._price,
            "switch": self._switch,
            "news": self._news,
            "clear": lambda _o, _n: model.clear(),
        }
        self._gets: Mapping[str, Callable[[float], object]] = {
            "instances": lambda now: [_instance(i) for i in model.describe((), now)],
            "trail": lambda _: list(model.trail),
        }

    def answer(self, method: str, target: str, body: bytes, now: float) -> Answer:
        """Carry out one command; a Refusal explains a wrong one."""
        name = target.removeprefix(SCENARIO_PREFIX).partition("?")[0]
        try:
            if method == "POST" and name in self._posts:
                return _json(self._posts[name](json.loads(body or b"{}"), now))
            if method == "GET" and name in self._gets:
                return _json(self._gets[name](now))
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise Refusal("InvalidOrder", f"{name}: {type(error).__name__} {error}") from error
        raise Refusal("InvalidOrder", f"no order {method} {name!r}", status=404)

    def _capacity(self, order: Order, _: float) -> None:
        free = order.get("free")
        self._model.set_capacity(
            str(order.get("machine", "*")),
            str(order.get("zone", "*")),
            str(order.get("market", "*")),
            None if free is None else int(free),
        )

    def _maintenance(self, order: Order, now: float) -> str:
        deadline = order.get("deadline_s")
        event = MaintenanceEvent(
            id=str(order.get("id", "")),
            code=str(order.get("code", "instance-retirement")),
            not_before=now + float(order.get("after_s", 7200.0)),
            description=str(order.get("words", "The instance is running on degraded hardware")),
            deadline=None if deadline is None else now + float(deadline),
            completed=order.get("completed") is True,
        )
        return self._model.maintain(str(order["instance"]), event, now, silent=_silent(order)).id

    def _hang(self, order: Order, _: float) -> None:
        """Let the metadata service of these instances accept connections and never answer."""
        self._model.switches.hanging_metadata = {str(one) for one in order["instances"]}

    def _reserve(self, order: Order, now: float) -> str:
        starts, ends = order.get("starts_in_s"), order.get("ends_in_s")
        return self._model.reserve(
            str(order["machine"]),
            str(order["zone"]),
            int(order["count"]),
            id=str(order.get("id", "")),
            owner=str(order.get("owner", "")),
            block=order.get("block") is True,
            open=order.get("open") is True,
            starts_at=None if starts is None else now + float(starts),
            ends_at=None if ends is None else now + float(ends),
        )

    def _site(self) -> Moto:
        """What the site has; a scenario without it only sets the state of EC2."""
        if self._moto is None:
            raise ValueError("this scenario has no networks and no keys")
        return self._moto

    def _vpc(self, order: Order, _: float) -> None:
        """Create a VPC with known ids; another `owner` shares it (T50)."""
        vpc, owner = str(order["id"]), str(order.get("owner", ""))
        subnets = {str(one["id"]): (str(one["zone"]), str(one["cidr"])) for one in order["subnets"]}
        self._site().make_vpc(vpc, str(order["cidr"]), subnets)
        if owner:
            self._site().share_vpc(vpc, owner)

    def _quota(self, order: Order, _: float) -> None:
        limit = order.get("vcpus")
        market = Market(str(order.get("market", Market.ON_DEMAND)))
        self._model.set_quota(str(order["bucket"]), market, None if limit is None else int(limit))

    def _price(self, order: Order, _: float) -> None:
        self._model.set_spot_price(str(order["machine"]), str(order["zone"]), int(order["micro_usd"]))

    def _switch(self, order: Order, now: float) -> None:
        """Switch faults on by the names of `FaultSwitches`."""
        for name, value in order.items():
            _SWITCHES[name](self._model.switches, value, now)

    def _news(self, order: Order, _: float) -> None:
        """Set how events are delivered, by the names of `DeliverySwitches`."""
        self._model.set_delivery(
            twice_every=int(order.get("twice_every", 0)),
            lose=int(order.get("lose", 0)),
            shuffle=order.get("shuffle") is True,
            late_s=float(order.get("late_s", 0.0)),
        )

    def _error(self, order: Order, _: float) -> None:
        times, message = int(order.get("times", 1)), str(order.get("message", ""))
        self._model.faults.next_error(str(order["action"]), str(order["code"]), times, message)


def _silent(order: Order) -> frozenset[str]:
    asked = frozenset(map(str, order.get("silent") or ()))
    if not asked <= _WAYS:
        raise ValueError(f"silent: expected some of {', '.join(sorted(_WAYS))}")
    return asked


def _set_lag(switches: FaultSwitches, value: Any, _: float) -> None:
    switches.lag = Lag(**{name: float(seconds) for name, seconds in value.items()})


def _set_dead_token(switches: FaultSwitches, value: Any, _: float) -> None:
    if value not in ("replay", "refuse"):
        raise ValueError("dead_token: expected replay or refuse")
    switches.dead_token = value


def _set_profile_lag(switches: FaultSwitches, value: Any, now: float) -> None:
    switches.profile_lag_until = now + float(value)


def _set_images_gone(switches: FaultSwitches, value: Any, _: float) -> None:
    switches.images_gone = {str(image): str(code) for image, code in value.items()}


def _set_failing_zones(switches: FaultSwitches, value: Any, _: float) -> None:
    switches.failing_zones = set(map(str, value))


def _set_page_size(switches: FaultSwitches, value: Any, _: float) -> None:
    switches.page_size = None if value is None else int(value)


def _set_moving_latest(switches: FaultSwitches, value: Any, _: float) -> None:
    switches.moving_latest = value is True


def _set_clocks(switches: FaultSwitches, value: Any, _: float) -> None:
    switches.clocks = {str(role): float(seconds) for role, seconds in value.items()}


_WAYS = frozenset({"metadata", "queue"})
_SWITCHES: Mapping[str, Callable[[FaultSwitches, Any, float], None]] = {
    "lag": _set_lag,
    "dead_token": _set_dead_token,
    "profile_lag_s": _set_profile_lag,
    "images_gone": _set_images_gone,
    "failing_zones": _set_failing_zones,
    "page_size": _set_page_size,
    "moving_latest": _set_moving_latest,
    "clocks": _set_clocks,
}


def _instance(instance: Any) -> dict[str, Any]:
    return {
        "id": instance.id,
        "state": instance.state.value,
        "zone": instance.zone,
        "machine": instance.spec.machine,
        "market": instance.spec.market.value,
        "address": instance.address,
        "launched_at": instance.launched_at,
        "since": instance.since,
        "reason": instance.reason,
        "tags": dict(instance.tags),
    }


def _json(value: object) -> Answer:
    return Answer(status=200, body=json.dumps(to_json(value)).encode(), content_type="application/json")
