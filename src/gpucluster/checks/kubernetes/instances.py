"""Check that each instance of the cluster's Kubernetes nodes is a node, and each node an instance: others cost money or hold pods back."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from gpucluster.checks import json_fields
from gpucluster.checks.check import (
    CheckResult,
    Location,
    ParseError,
    Query,
    QueryOutput,
    failed,
    listed,
    passed,
)
from gpucluster.checks.cloud import instances_of, tags_of
from gpucluster.checks.kubernetes import objects
from gpucluster.plan import names
from gpucluster.text import rounded_duration, short

JOINS_S = 900.0  # Karpenter ends an instance that is no node after 15 minutes (kubernetes-sigs/karpenter v1.14, registrationTTL)
_LIVES = ("pending", "running")
_END = "aws ec2 terminate-instances --instance-ids"
_FORGET = "kubectl delete node"
_AT_ONCE = 50  # names in a command, so that it is short enough to read and to type


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesInstances:
    """The cluster whose tag the instances carry."""

    cluster: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInstances:
    """Living instances by id with their age in seconds, and nodes by name with the id of their instance, empty if they name none."""

    ages_s: dict[str, float]
    nodes: dict[str, str]


def query_instances(want: KubernetesInstances) -> tuple[Query, ...]:
    return (
        Query(at=Location.CLOUD, argv=("instances", f"cluster={want.cluster}")),
        Query(at=Location.CLOUD, argv=("clock",)),
        Query(at=Location.API, argv=("get", "Node.v1.", "--output=json")),
    )


def parse_instances(outputs: tuple[QueryOutput, ...]) -> NodeInstances:
    listed_by_ec2, clock, nodes = outputs
    now = _time(json_fields.text(json_fields.table(clock.text()), "now"))
    ages = {
        json_fields.text(one, "InstanceId"): now - _time(json_fields.text(one, "LaunchTime"))
        for one in instances_of(listed_by_ec2)
        if json_fields.text(one, "State", "Name") in _LIVES
        and tags_of(one).get(names.TAG_ROLE) == names.ROLE_KUBERNETES
    }
    return NodeInstances(
        ages_s=ages, nodes={objects.name_of(one): _instance(one) for one in objects.items(nodes)}
    )


def evaluate_instances(found: NodeInstances, _: KubernetesInstances) -> CheckResult:
    expected = "each instance is a node, and each node an instance"
    faults = list(_faults(found))
    if faults:
        said, culprits, _commands = zip(*faults, strict=True)
        return failed(listed(said), expected, culprits, "; ".join(_remedy(faults)))
    boot = len(found.ages_s.keys() - set(found.nodes.values()))
    return passed(f"{len(found.nodes)} nodes" + f", {boot} instances boot" * bool(boot), expected)


def _remedy(faults: list[tuple[str, str, str]]) -> Iterator[str]:
    """Yield each command with its names. More of them are for the next run."""
    some = faults[:_AT_ONCE]
    for command in dict.fromkeys(command for _, _, command in some):
        yield " ".join([command, *(name for _, name, own in some if own == command)])
    if len(faults) > len(some):
        yield "gpucluster validate {cluster}"


def _faults(found: NodeInstances) -> Iterator[tuple[str, str, str]]:
    """Yield the words, the culprit, and the command that ends the fault without its name."""
    joined = set(found.nodes.values())
    for instance, age in sorted(found.ages_s.items()):
        if instance not in joined and age > JOINS_S:
            words = f"the instance {instance} is no node after {rounded_duration(age)}"
            yield words, instance, _END
    for node, instance in sorted(found.nodes.items()):
        if instance and instance not in found.ages_s:
            yield f"the node {node} has no instance ({instance})", node, _FORGET


def _instance(item: objects.Object) -> str:
    """The id at the end of `aws:///ZONE/ID`; empty for a node of another provider."""
    spec = objects.section(item, "spec")
    provider = json_fields.text(spec, "providerID") if "providerID" in spec else ""
    return short(provider.rpartition("/")[2], 40) if provider.startswith("aws:///") else ""


def _time(text: str) -> float:
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise ParseError(f"{short(text, 40)!r} is no time") from error
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
