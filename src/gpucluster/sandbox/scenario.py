"""Orders of a scenario over HTTP: capacity, refusals, errors, lost replies. Only the operator's key gives them."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from gpucluster.cloud.model import CloudModel, Refusal
from gpucluster.plan.codec import to_json
from gpucluster.sandbox.wire import Answer

PREFIX = "/_gpucluster/"
Order = Mapping[str, Any]


class Scenario:
    """One table of orders: POST does, GET reads; every body is a JSON object."""

    def __init__(self, model: CloudModel) -> None:
        self._model = model
        self._posts: Mapping[str, Callable[[Order, float], object]] = {
            "capacity": self._capacity,
            "withdraw": lambda o, _: model.capacity.withdraw(str(o["machine"]), str(o.get("zone", "*"))),
            "error": self._error,
            "lose": lambda o, _: model.faults.lose_reply(str(o["action"]), int(o.get("times", 1))),
            "interrupt": lambda o, now: model.interrupt(
                str(o["instance"]), now, float(o.get("after_s", 120.0))
            ),
            "clear": lambda _o, _n: model.clear(),
        }
        self._gets: Mapping[str, Callable[[float], object]] = {
            "instances": lambda now: [_instance(i) for i in model.describe((), now)],
            "trail": lambda _: list(model.trail),
        }

    def answer(self, method: str, target: str, body: bytes, now: float) -> Answer:
        """Do or read one thing; a wrong order is a Refusal that says what is wrong."""
        name = target.removeprefix(PREFIX).partition("?")[0]
        try:
            if method == "POST" and name in self._posts:
                return _json(self._posts[name](json.loads(body or b"{}"), now))
            if method == "GET" and name in self._gets:
                return _json(self._gets[name](now))
        except (KeyError, ValueError, TypeError) as error:
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

    def _error(self, order: Order, _: float) -> None:
        times, message = int(order.get("times", 1)), str(order.get("message", ""))
        self._model.faults.next_error(str(order["action"]), str(order["code"]), times, message)


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
