"""Check the elastic daemon, and that every instance of the cluster has an owner."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpucluster.checks import daemon_journal, json_fields
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
from gpucluster.cloud.tags import tag_step
from gpucluster.plan import names
from gpucluster.text import short

STARTS_S = 8  # the daemon listens 1 s after its start; a busy head takes longer
ENDED = ("shutting-down", "terminated")
_FIXED = (names.ROLE_LOGIN, names.ROLE_STANDBY)
UP = "pulumi up --refresh --stack {cluster}"  # the step for what Pulumi creates


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudDifference:
    """One difference, with the command that heals it, or with none. `off`: the name of a machine of Pulumi that does not run."""

    words: str
    step: str
    off: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """The URL at which nodes reach the elastic daemon."""

    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchScope:
    """Where instances of the cluster are looked for, besides by its tag: in its VPC, else by its nodes' security group.

    In a VPC of the site (`whole_vpc` false) others have instances, too.
    """

    cluster: str
    subnets: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    whole_vpc: bool = False

    def words(self) -> tuple[str, ...]:
        """The words of a query: `cluster=NAME`, then `vpc-of=SUBNET` or `group=ID`."""
        by = (
            [f"vpc-of={one}" for one in self.subnets]
            if self.whole_vpc
            else [f"group={one}" for one in self.groups]
        )
        return (f"cluster={self.cluster}", *by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """The place of the cluster; without `subnets` in it the check does not compare subnets.

    With `kubernetes`, EKS and Karpenter have nodes in it, too; `kube.instances` compares those with the API server.
    """

    place: SearchScope
    fixed: tuple[str, ...] = ()  # names of the login machines and the standby, which Pulumi creates
    kubernetes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A living instance. `cluster` is the value of its tag."""

    id: str
    cluster: str
    role: str
    request: str
    subnet: str
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """The cloud's instances, the head's own id, and the launches in the daemon's journal."""

    instances: tuple[Instance, ...]
    head: str
    open: frozenset[str]  # requests that are still open
    launched: frozenset[str]


def judged(faults: Iterable[CloudDifference], cluster: str, good: str, expected: str) -> CheckResult:
    """Passed with the words `good`, or failed with the faults and their commands. Culprits are the machines that do not run."""
    every = tuple(faults)
    if not every:
        return passed(good, expected)
    steps = dict.fromkeys(fault.step.format(cluster=cluster) for fault in every if fault.step)
    off = dict.fromkeys(fault.off for fault in every if fault.off)
    return failed(listed([fault.words for fault in every]), expected, tuple(off), "; ".join(steps))


def is_named(name: str, declared: str) -> bool:
    """Whether Pulumi gave this name: the declared one, by default with seven random characters."""
    return declared in (name, name.rpartition("-")[0])


def tags_of(item: Mapping[str, Any]) -> dict[str, str]:
    """The tags of an item of EC2."""
    pairs = json_fields.members_if_any(item, "Tags")
    return {json_fields.text(pair, "Key"): json_fields.text(pair, "Value") for pair in pairs}


def instances_of(listing: QueryOutput) -> list[Mapping[str, Any]]:
    """The items of DescribeInstances; ParseError if the answer is another one."""
    reservations = json_fields.members(json_fields.table(listing.text()), "Reservations")
    return [one for reservation in reservations for one in json_fields.members(reservation, "Instances")]


def query_daemon(want: Daemon) -> tuple[Query, ...]:
    """curl tries again while nothing listens: systemd says `active` at once, and the daemon listens a second later."""
    once = ("--output", "/dev/null", "--write-out", "%{http_code}", "--max-time", "4")
    again = (
        "--retry-connrefused",
        "--retry",
        str(STARTS_S),
        "--retry-delay",
        "1",
        "--retry-max-time",
        str(STARTS_S),
    )
    return (Query(argv=("curl", "--silent", *once, *again, want.url), limit_s=STARTS_S + 10),)


def parse_daemon(got: tuple[QueryOutput, ...]) -> str:
    """The HTTP status; 000 means no answer."""
    found = got[0].stdout.strip()
    if got[0].code not in (0, 7, 28, 52, 56) or not re.fullmatch(r"[0-9]{3}", found):
        raise ParseError(f"curl: exit {got[0].code}: {short(got[0].stderr or got[0].stdout)}")
    return found


def evaluate_daemon(found: str, want: Daemon) -> CheckResult:
    """The daemon refuses GET, so every status proves that it answers."""
    expected = f"an answer from {want.url}"
    return failed("no answer", expected) if found == "000" else passed(f"it answers ({found})", expected)


def query_holdings(want: Owned) -> tuple[Query, ...]:
    # the cloud first: the journal has each request before its launch
    return (
        Query(at=Location.CLOUD, argv=("instances", *want.place.words())),
        Query(argv=("cat", "/var/lib/cloud/data/instance-id"), at=Location.HEAD),
        daemon_journal.QUERY,
    )


def parse_holdings(got: tuple[QueryOutput, ...]) -> Holdings:
    """Instances from the JSON of DescribeInstances, and the launches from the journal."""
    listing, own, journal = got
    head = own.text().strip()
    if not re.fullmatch(r"i-[0-9a-f]{8,17}", head):
        raise ParseError(f"the head's instance id is {short(head, 40)}")
    launches = daemon_journal.parse(journal)
    instances = map(_instance, instances_of(listing))
    return Holdings(
        instances=tuple(sorted((i for i in instances if i is not None), key=lambda i: i.id)),
        head=head,
        open=launches.open,
        launched=launches.launched,
    )


def evaluate_holdings(found: Holdings, want: Owned) -> CheckResult:
    cluster = want.place.cluster
    expected = f"one head, and nodes of the daemon in the subnets of {cluster}"
    tagged = [i for i in found.instances if i.cluster == cluster]
    lost = [i for i in found.instances if i.cluster != cluster]
    odd = [_disowned(i, found, cluster) for i in tagged if not _is_owned(i, found, want)]
    odd += [_stray(i, found, cluster) for i in lost]
    odd += [
        CloudDifference(words=f"{i.id} (in {short(i.subnet, 40)})", step="")
        for i in tagged
        if not _is_placed(i, want)
    ]
    if all(i.id != found.head for i in found.instances):
        odd.append(CloudDifference(words=f"the head {found.head} is not in the list", step=""))
    if odd:
        healed = all(one.step for one in odd)
        steps = "; ".join(dict.fromkeys(one.step for one in odd)) if healed else ""
        return failed(f"without an owner: {listed([one.words for one in odd])}", expected, remedy=steps)
    fixed = sum(i.role in _FIXED for i in found.instances)
    others = sum(i.role == names.ROLE_KUBERNETES for i in found.instances)
    words = f"the head{f', {fixed} for logins and standby' if fixed else ''}{f', {others} of Kubernetes' if others else ''}"
    return passed(f"{words} and {len(found.instances) - 1 - fixed - others} nodes", expected)


def _is_ours(instance: Instance, found: Holdings) -> bool:
    """Whether an instance without the cluster's tag is the head, or one that the daemon launched."""
    return instance.cluster == "" and (instance.id == found.head or instance.id in found.launched)


def _disowned(instance: Instance, found: Holdings, cluster: str) -> CloudDifference:
    """The head may terminate only what has the role of a node: a node of the daemon without it runs for ever."""
    if not _is_launched(instance, found):
        return CloudDifference(words=f"{instance.id} ({short(instance.role, 20) or 'no role'})", step="")
    role = short(instance.role, 20) or "none"
    words = f"{instance.id} (of the daemon, its {names.TAG_ROLE} is {role}, not {names.ROLE_NODE})"
    return CloudDifference(words=words, step=_tag(instance, found, cluster))


def _stray(instance: Instance, found: Holdings, cluster: str) -> CloudDifference:
    """An instance without the cluster's tag, or of another cluster."""
    if instance.cluster:
        words = f"in the network, of the cluster {short(instance.cluster, 40)}"
        return CloudDifference(words=f"{instance.id} ({words})", step="")
    ours = _is_ours(instance, found)
    words = f"{'of the daemon' if ours else 'in the network'}, without the tag {names.TAG_CLUSTER}"
    return CloudDifference(
        words=f"{instance.id} ({words})", step=_tag(instance, found, cluster) if ours else ""
    )


def _tag(instance: Instance, found: Holdings, cluster: str) -> str:
    role = names.ROLE_HEAD if instance.id == found.head else names.ROLE_NODE
    return tag_step(instance.id, {names.TAG_CLUSTER: cluster, names.TAG_ROLE: role})


def _is_owned(instance: Instance, found: Holdings, want: Owned) -> bool:
    if instance.id == found.head:
        return True
    if _is_launched(instance, found):
        return instance.role == names.ROLE_NODE
    if instance.role in _FIXED:
        twins = sum(other.name == instance.name for other in found.instances if other.role in _FIXED)
        return instance.name in want.fixed and twins == 1
    return want.kubernetes and instance.role == names.ROLE_KUBERNETES


def _is_launched(instance: Instance, found: Holdings) -> bool:
    """Whether the daemon's journal has the instance, or the request of its launch, which has no outcome yet."""
    return instance.id in found.launched or (instance.request != "" and instance.request in found.open)


def _is_placed(instance: Instance, want: Owned) -> bool:
    """Whether the instance is in a subnet of the cluster. Login machines are in public subnets, which are not in `subnets`."""
    subnets = want.place.subnets
    return not subnets or instance.role == names.ROLE_LOGIN or instance.subnet in subnets


def _instance(item: Mapping[str, Any]) -> Instance | None:
    if json_fields.text(item, "State", "Name") in ENDED:
        return None
    tags = tags_of(item)
    return Instance(
        id=json_fields.text(item, "InstanceId"),
        cluster=tags.get(names.TAG_CLUSTER, ""),
        role=tags.get(names.TAG_ROLE, ""),
        request=tags.get(names.TAG_REQUEST, ""),
        subnet=json_fields.text(item, "SubnetId"),
        name=tags.get("Name", ""),
    )
