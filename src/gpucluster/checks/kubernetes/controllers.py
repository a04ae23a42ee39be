"""Check that controllers and add-ons run: the Deployments and DaemonSets of their namespaces have all their pods."""

from dataclasses import dataclass

from gpucluster.checks import json_fields
from gpucluster.checks.check import CheckResult, Location, Query, QueryOutput, failed, listed, passed
from gpucluster.checks.kubernetes import objects


@dataclass(frozen=True, slots=True, kw_only=True)
class Controllers:
    """The namespaces of add-ons and charts, and `NAMESPACE/NAME` of what must be there."""

    namespaces: tuple[str, ...]
    needed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """A Deployment or a DaemonSet: how many pods it wants, and how many are available with its newest template."""

    name: str
    wanted: int
    available: int


def query_controllers(_: Controllers) -> tuple[Query, ...]:
    argv = ("get", "Deployment.v1.apps,DaemonSet.v1.apps", "--all-namespaces", "--output=json")
    return (Query(at=Location.API, argv=argv),)


def parse_controllers(outputs: tuple[QueryOutput, ...]) -> tuple[Controller, ...]:
    (output,) = outputs
    return tuple(map(_controller, objects.items(output)))


def evaluate_controllers(found: tuple[Controller, ...], want: Controllers) -> CheckResult:
    ours = {one.name: one for one in found if one.name.partition("/")[0] in want.namespaces}
    expected = f"all pods of {', '.join(want.namespaces)}"
    faults = {name: "missing" for name in want.needed if name not in ours}
    for one in ours.values():
        if one.available < one.wanted:
            faults[one.name] = f"{one.available} of {one.wanted} pods"
    if faults:
        return failed(listed([f"{name}: {words}" for name, words in faults.items()]), expected, tuple(faults))
    return passed(f"{len(ours)} controllers have all their pods", expected)


def _controller(item: objects.Object) -> Controller:
    spec, status = objects.section(item, "spec"), objects.section(item, "status")
    seen = objects.count(status, "observedGeneration") >= objects.count(
        objects.section(item, "metadata"), "generation"
    )
    if json_fields.text(item, "kind") == "DaemonSet":
        wanted = objects.count(status, "desiredNumberScheduled")
        available = min(
            objects.count(status, "numberAvailable"), objects.count(status, "updatedNumberScheduled")
        )
    else:
        wanted = objects.count(spec, "replicas") if "replicas" in spec else 1
        available = min(objects.count(status, "availableReplicas"), objects.count(status, "updatedReplicas"))
    return Controller(
        name=objects.name_of(item), wanted=wanted, available=available if seen else min(available, wanted - 1)
    )
