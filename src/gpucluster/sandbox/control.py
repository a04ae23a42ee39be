"""The client of the sandbox's orders: what tests and the CLI use to make a cloud refuse."""

import json
import urllib.error
import urllib.request
from collections.abc import Collection, Mapping
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from gpucluster.errors import GpuclusterError
from gpucluster.sandbox.scenario import PREFIX


class SandboxControl:
    """Orders to one sandbox, signed with the operator's key. `endpoint` is `http://127.0.0.1:PORT`."""

    def __init__(self, endpoint: str, access_key: str, secret: str, *, timeout_s: float = 10.0) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._credentials = Credentials(access_key, secret)
        self._timeout_s = timeout_s

    def set_capacity(
        self, *, machine: str = "*", zone: str = "*", market: str = "*", free: int | None = None
    ) -> None:
        """From now on `free` more of these can be had; None is any number."""
        self._ask("POST", "capacity", {"machine": machine, "zone": zone, "market": market, "free": free})

    def withdraw(self, machine: str, zone: str = "*") -> None:
        """The machine is not sold in the zone at all."""
        self._ask("POST", "withdraw", {"machine": machine, "zone": zone})

    def next_error(self, action: str, code: str, times: int = 1, message: str = "") -> None:
        """The next `times` calls of `action` fail with `code`."""
        self._ask("POST", "error", {"action": action, "code": code, "times": times, "message": message})

    def lose_reply(self, action: str, times: int = 1) -> None:
        """The next `times` calls of `action` are executed, and their replies lost."""
        self._ask("POST", "lose", {"action": action, "times": times})

    def interrupt(self, instance: str, after_s: float = 120.0, *, silent: Collection[str] = ()) -> None:
        """Take a spot instance back after `after_s`; `silent` ways (`metadata`, `queue`) say nothing."""
        order = {"instance": instance, "after_s": after_s, "silent": sorted(silent)}
        self._ask("POST", "notice", order)

    def rebalance(self, instance: str, *, silent: Collection[str] = ()) -> None:
        """Give a rebalance recommendation."""
        self._ask("POST", "rebalance", {"instance": instance, "silent": sorted(silent)})

    def maintain(self, instance: str, **event: Any) -> str:
        """Schedule an event: code, after_s, deadline_s, words, completed, id, silent; return its id."""
        return self._ask("POST", "maintenance", {"instance": instance, **event})

    def hang_metadata(self, *instances: str) -> None:
        """The metadata service of these instances never answers; of none: all answer again."""
        self._ask("POST", "hang", {"instances": instances})

    def reserve(self, machine: str, zone: str, count: int, **more: Any) -> str:
        """Make a reservation or block: id, block, open, starts_in_s, ends_in_s; return its id."""
        return self._ask("POST", "reserve", {"machine": machine, "zone": zone, "count": count, **more})

    def set_quota(self, bucket: str, vcpus: int | None, market: str = "on-demand") -> None:
        """Bound the vCPU of a bucket of machines."""
        self._ask("POST", "quota", {"bucket": bucket, "vcpus": vcpus, "market": market})

    def set_spot_price(self, machine: str, zone: str, micro_usd: int) -> None:
        """What spot costs at least."""
        self._ask("POST", "price", {"machine": machine, "zone": zone, "micro_usd": micro_usd})

    def switch(self, **faults: Any) -> None:
        """Turn faults on that stay on: lag, dead_token, profile_lag_s, images_gone, dark_zones, page_size, moving_latest."""
        self._ask("POST", "switch", faults)

    def deliver_news(self, **how: Any) -> None:
        """How events come from now on: twice_every, lose, shuffle, late_s."""
        self._ask("POST", "news", how)

    def clear(self) -> None:
        """Drop all orders: capacity is unlimited again, no error is due."""
        self._ask("POST", "clear", {})

    def instances(self) -> list[dict[str, Any]]:
        """Every instance that the cloud still shows."""
        return self._ask("GET", "instances", None)

    def trail(self) -> list[dict[str, Any]]:
        """Every call so far: at, action, code ("" = done), detail (who)."""
        return self._ask("GET", "trail", None)

    def _ask(self, method: str, name: str, order: Mapping[str, Any] | None) -> Any:
        body = b"" if order is None else json.dumps(order).encode()
        signed: Any = AWSRequest(method=method, url=f"{self._endpoint}{PREFIX}{name}", data=body)
        SigV4Auth(self._credentials, "gpucluster", "local").add_auth(signed)
        request = urllib.request.Request(  # noqa: S310 - the endpoint is our own, on loopback
            str(signed.url), data=body or None, headers=dict(signed.headers.items()), method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:  # noqa: S310
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            raise GpuclusterError(f"the sandbox refused {name}: {text}") from error
        except OSError as error:
            raise GpuclusterError(f"the sandbox at {self._endpoint} does not answer: {error}") from error
