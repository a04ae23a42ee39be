"""Calls and requests of the launch port from flat keywords, so that a test sets only the relevant fields."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from gpucluster.cloud.port import FleetCall, LaunchCall, LaunchSpec
from gpucluster.elastic.events import Alternative, LaunchRequest
from gpucluster.plan.model import Market

Launch = TypeVar("Launch", LaunchCall, LaunchRequest)
_SPEC = frozenset(field.name for field in fields(LaunchSpec))


def launch_spec(**changes: Any) -> LaunchSpec:
    """A spot p5en.48xlarge in us-east-1a, with `changes`."""
    base = LaunchSpec(
        machine="p5en.48xlarge",
        market=Market.SPOT,
        zone="us-east-1a",
        subnet_id="subnet-1",
        template_id="lt-1",
        template_version=1,
    )
    return replace(base, **changes)


def launch_call(**changes: Any) -> LaunchCall:
    """One RunInstances; `changes` are fields of the call or of its spec."""
    call = LaunchCall(token="t", count=1, spec=launch_spec(), tags={})
    return with_changes(call, **changes)


def fleet_call(*machines: str, **changes: Any) -> FleetCall:
    """One CreateFleet over these machine types; `changes` are fields of the call or of all its specs."""
    spec, own = _split(changes)
    specs = tuple(launch_spec(machine=machine, **spec) for machine in machines)
    base = FleetCall(token="f", count=1, specs=specs, tags={})
    return replace(base, **own)


def with_changes(launch: Launch, **changes: Any) -> Launch:
    """The same call or request, with changed fields of it or of its spec."""
    spec, own = _split(changes)
    return replace(launch, spec=replace(launch.spec, **spec), **own)


def alternative(request: LaunchRequest, machine: str, price: int = 0, **changes: Any) -> Alternative:
    """Another machine type for a request."""
    return Alternative(spec=replace(request.spec, machine=machine, **changes), price=price)


def _split(changes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    spec = {name: value for name, value in changes.items() if name in _SPEC}
    return spec, {name: value for name, value in changes.items() if name not in _SPEC}
