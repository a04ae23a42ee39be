"""The client of the scenario commands, for tests and the CLI."""

import json
import urllib.error
import urllib.request
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from gpucluster.errors import GpuclusterError
from gpucluster.sandbox.paths import SCENARIO_PREFIX


class SandboxControl:
    """Sends scenario commands to one sandbox, signed with the operator's key. `endpoint` is `http://127.0.0.1:PORT`."""

    def __init__(self, endpoint: str, access_key: str, secret: str, *, timeout_s: float = 10.0) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._credentials = Credentials(access_key, secret)
        self._timeout_s = timeout_s

    def set_capacity(
        self, *, machine: str = "*", zone: str = "*", market: str = "*", free: int | None = None
    ) -> None:
        """Set the number of instances that can still be launched; None is any number."""
        self._ask("POST", "capacity", {"machine": machine, "zone": zone, "market": market, "free": free})

    def withdraw(self, machine: str, zone: str = "*") -> None:
        """Declare that the zone does not offer the machine type."""
        self._ask("POST", "withdraw", {"machine": machine, "zone": zone})

    def next_error(self, action: str, code: str, times: int = 1, message: str = "") -> None:
        """Let the next `times` calls of `action` fail with `code`."""
        self._ask("POST", "error", {"action": action, "code": code, "times": times, "message": message})

    def lose_reply(self, action: str, times: int = 1) -> None:
        """Execute the next `times` calls of `action` and drop their replies."""
        self._ask("POST", "lose", {"action": action, "times": times})

    def interrupt(self, instance: str, after_s: float = 120.0, *, silent: Collection[str] = ()) -> None:
        """Interrupt a spot instance after `after_s`; `silent` channels (`metadata`, `queue`) get no notice."""
        order = {"instance": instance, "after_s": after_s, "silent": sorted(silent)}
        self._ask("POST", "notice", order)

    def rebalance(self, instance: str, *, silent: Collection[str] = ()) -> None:
        """Send a rebalance recommendation."""
        self._ask("POST", "rebalance", {"instance": instance, "silent": sorted(silent)})

    def maintain(self, instance: str, **event: Any) -> str:
        """Schedule an event: code, after_s, deadline_s, words, completed, id, silent; return its id."""
        return self._ask("POST", "maintenance", {"instance": instance, **event})

    def hang_metadata(self, *instances: str) -> None:
        """Let the metadata service of these instances never answer; no instance: all answer again."""
        self._ask("POST", "hang", {"instances": instances})

    def reserve(self, machine: str, zone: str, count: int, **more: Any) -> str:
        """Create a reservation or block: id, owner, block, open, starts_in_s, ends_in_s; return its id."""
        return self._ask("POST", "reserve", {"machine": machine, "zone": zone, "count": count, **more})

    def make_vpc(self, vpc: str, cidr: str, subnets: Sequence[Mapping[str, str]], *, owner: str = "") -> None:
        """Create a VPC with known ids; a subnet has id, zone and cidr. Another `owner` shares it."""
        self._ask("POST", "vpc", {"id": vpc, "cidr": cidr, "subnets": list(subnets), "owner": owner})

    def make_key(self, name: str) -> None:
        """Create a customer-managed KMS key under an alias or an ARN."""
        self._ask("POST", "key", {"name": name})

    def set_quota(self, bucket: str, vcpus: int | None, market: str = "on-demand") -> None:
        """Limit the vCPUs of a family bucket."""
        self._ask("POST", "quota", {"bucket": bucket, "vcpus": vcpus, "market": market})

    def set_spot_price(self, machine: str, zone: str, micro_usd: int) -> None:
        """Set the spot price."""
        self._ask("POST", "price", {"machine": machine, "zone": zone, "micro_usd": micro_usd})

    def switch(self, **faults: Any) -> None:
        """Switch faults on: lag, dead_token, profile_lag_s, images_gone, failing_zones, page_size, moving_latest, clocks."""
        self._ask("POST", "switch", faults)

    def set_delivery(self, **how: Any) -> None:
        """Set how events are delivered: twice_every, lose, shuffle, late_s."""
        self._ask("POST", "news", how)

    def clear(self) -> None:
        """Remove everything that scenarios have set."""
        self._ask("POST", "clear", {})

    def instances(self) -> list[dict[str, Any]]:
        """Every instance that EC2 still lists."""
        return self._ask("GET", "instances", None)

    def trail(self) -> list[dict[str, Any]]:
        """Every call so far: at, action, code ("" = success), detail (the caller)."""
        return self._ask("GET", "trail", None)

    def _ask(self, method: str, name: str, order: Mapping[str, Any] | None) -> Any:
        body = b"" if order is None else json.dumps(order).encode()
        signed: Any = AWSRequest(method=method, url=f"{self._endpoint}{SCENARIO_PREFIX}{name}", data=body)
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
