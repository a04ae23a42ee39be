"""What EKS holds. Things are created, changed and deleted over time; a cluster takes one update at a time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from gpucluster.sandbox.aws.ec2.state.values import Refusal
from gpucluster.sandbox.aws.ec2.state.vpc_context import VpcContext
from gpucluster.sandbox.aws.eks.planes import Planes

Tags = Mapping[str, str]
STANDARD, LINUX = "STANDARD", "EC2_LINUX"  # types of access entries: people and roles, nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """The times of a resource's states. `settles_at` ends its creation or its last update."""

    created_at: float
    settles_at: float
    updating: bool = False
    ends_at: float | None = None

    def state(self, now: float) -> str:
        """The state as EKS names it, apart from failures."""
        if self.ends_at is not None:
            return "DELETING"
        if now >= self.settles_at:
            return "ACTIVE"
        return "UPDATING" if self.updating else "CREATING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """A fault that EKS reports in the health of a node group or an add-on."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster. `options` are the parts of the request that its description repeats."""

    name: str
    arn: str
    life: Life
    version: str
    creator: str  # ARN of the caller of CreateCluster
    vpc: str
    zones: tuple[str, ...]
    group: str  # the security group that EKS makes
    interfaces: tuple[str, ...]
    options: Mapping[str, Any]
    tags: Tags


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """A managed node group. `options` are the parts of the request that its description repeats."""

    cluster: str
    name: str
    arn: str
    life: Life
    image: str  # AMI
    profile: str  # name of the instance profile that EKS makes of the node role
    options: Mapping[str, Any]
    tags: Tags
    issues: tuple[Issue, ...] = ()
    failed: bool = False  # it never became whole
    was_whole: bool = False  # it had all its nodes once
    before: tuple[str, Mapping[str, Any]] | None = None  # image and options before the update that runs

    @property
    def wanted(self) -> int:
        """The number of nodes that it keeps."""
        return int(self.options["scalingConfig"]["desiredSize"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Addon:
    """An add-on of a cluster."""

    cluster: str
    name: str
    arn: str
    life: Life
    version: str
    configuration: str | None
    identities: tuple[str, ...]  # ids of the pod identities that it owns
    tags: Tags


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """An access policy of an entry: for the whole cluster, or for namespaces."""

    at: float
    kind: str = "cluster"
    namespaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An access entry: who comes in, and as whom."""

    cluster: str
    principal: str  # ARN of a role or a user
    arn: str
    created_at: float
    kind: str
    username: str
    groups: tuple[str, ...] = ()
    policies: Mapping[str, Granted] = field(default_factory=dict[str, Granted])  # by ARN
    tags: Tags = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A pod identity association."""

    cluster: str
    id: str
    arn: str
    created_at: float
    namespace: str
    account: str  # of Kubernetes
    role: str
    owner: str | None = None  # ARN of an add-on
    tags: Tags = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A change that EKS makes over time."""

    id: str
    cluster: str
    part: str  # `nodegroup/NAME`, `addon/NAME`, or empty for the cluster itself
    kind: str
    created_at: float
    ends_at: float
    fault: tuple[str, str] | None = None  # code and message

    def state(self, now: float) -> str:
        """The state as EKS names it."""
        if self.fault is not None:
            return "Failed"
        return "Successful" if now >= self.ends_at else "InProgress"


class Part(Protocol):
    """What has a time of life."""

    @property
    def life(self) -> Life: ...


class Tagged(Protocol):
    """What has an ARN and tags."""

    @property
    def arn(self) -> str: ...
    @property
    def tags(self) -> Tags: ...


def deleted(life: Life, now: float, lasts_s: float) -> Life:
    """Return the life of what is being deleted; a second deletion changes nothing."""
    return life if life.ends_at is not None else replace(life, ends_at=now + lasts_s)


def changed(life: Life, until: float) -> Life:
    """Return the life of what is being updated."""
    return replace(life, settles_at=until, updating=True)


class Eks:
    """The clusters of the account. `vpcs` gives ids, interfaces and times; the caller holds its lock."""

    def __init__(self, vpcs: VpcContext) -> None:
        self.vpcs = vpcs
        self.planes: Planes = Planes()
        self.clusters: dict[str, Cluster] = {}
        self.groups: dict[tuple[str, str], NodeGroup] = {}
        self.addons: dict[tuple[str, str], Addon] = {}
        self.entries: dict[tuple[str, str], Entry] = {}
        self.identities: dict[tuple[str, str], Identity] = {}
        self.updates: dict[str, Update] = {}
        self.on_gone: list[Callable[[Cluster, float], None]] = []

    # --- reading ----------------------------------------------------------------------------------

    def cluster(self, name: str, now: float) -> Cluster:
        """One cluster by name."""
        self.advance(now)
        found = self.clusters.get(name)
        if found is None:
            raise missing(f"No cluster found for name: {name}.")
        return found

    def group(self, cluster: str, name: str, now: float) -> NodeGroup:
        """One node group."""
        self.cluster(cluster, now)
        found = self.groups.get((cluster, name))
        if found is None:
            raise missing(f"No node group found for name: {name}.")
        return found

    def addon(self, cluster: str, name: str, now: float) -> Addon:
        """One add-on."""
        self.cluster(cluster, now)
        found = self.addons.get((cluster, name))
        if found is None:
            raise missing(f"No addon: {name} found in cluster: {cluster}")
        return found

    def entry(self, cluster: str, principal: str, now: float) -> Entry:
        """One access entry."""
        self.cluster(cluster, now)
        found = self.entries.get((cluster, principal))
        if found is None:
            raise missing(
                "The specified principalArn could not be found. You can view your available access entries with "
                "'list-access-entries'."
            )
        return found

    def identity(self, cluster: str, identifier: str, now: float) -> Identity:
        """One pod identity."""
        self.cluster(cluster, now)
        found = self.identities.get((cluster, identifier))
        if found is None:
            raise missing(f"The association {identifier} of the cluster {cluster} does not exist.")
        return found

    def named(self, arn: str) -> Tagged | None:
        """What has this ARN; None if nothing has."""
        every: tuple[Tagged, ...] = (
            *self.clusters.values(),
            *self.groups.values(),
            *self.addons.values(),
            *self.entries.values(),
            *self.identities.values(),
        )
        return next((one for one in every if one.arn == arn), None)

    def groups_of(self, cluster: str) -> list[NodeGroup]:
        """The node groups of a cluster, by name."""
        return [self.groups[key] for key in sorted(self.groups) if key[0] == cluster]

    def status(self, cluster: Cluster, now: float) -> str:
        """The state of a cluster. It is not active before its API server answers."""
        state = cluster.life.state(now)
        return "CREATING" if state == "ACTIVE" and not self.planes.ready(cluster.name) else state

    def active(self, name: str, now: float, what: str) -> Cluster:
        """One cluster that takes an update now. `what` is the kind of the update."""
        found = self.cluster(name, now)
        running = [one for one in self.updates.values() if one.cluster == name and not one.part and one.ends_at > now]  # fmt: skip
        if running:
            raise in_use(
                f"Cannot {what} because cluster {name} currently has update {running[0].id} in progress"
            )
        state = self.status(found, now)
        if state != "ACTIVE":
            raise in_use(f"Cannot {what} because cluster {name} is in state {state}")
        return found

    # --- changing ---------------------------------------------------------------------------------

    def put(self, one: Cluster | NodeGroup | Addon | Entry | Identity) -> None:
        """Replace one by its names."""
        match one:
            case Cluster():
                self.clusters[one.name] = one
            case NodeGroup():
                self.groups[one.cluster, one.name] = one
            case Addon():
                self.addons[one.cluster, one.name] = one
            case Entry():
                self.entries[one.cluster, one.principal] = one
            case Identity():
                self.identities[one.cluster, one.id] = one

    def update(self, cluster: str, part: str, kind: str, now: float, lasts_s: float) -> Update:
        """Begin an update; it ends by itself."""
        made = Update(
            id=self.vpcs.fresh_id("update"),
            cluster=cluster,
            part=part,
            kind=kind,
            created_at=now,
            ends_at=now + lasts_s,
        )
        self.updates[made.id] = made
        return made

    def advance(self, now: float) -> None:
        """Forget what has been deleted. A cluster takes its entries, add-ons and identities with it."""
        for key in [k for k, one in self.addons.items() if _over(one, now)]:
            for identifier in self.addons.pop(key).identities:
                self.identities.pop((key[0], identifier), None)
        for name in [k for k, one in self.clusters.items() if _over(one, now)]:
            gone = self.clusters.pop(name)
            for interface in gone.interfaces:
                self.vpcs.vacate(interface, now)
            for table in (self.addons, self.entries, self.identities):
                for key in [k for k in table if k[0] == name]:
                    del table[key]
            for tell in self.on_gone:
                tell(gone, now)


def _over(one: Part, now: float) -> bool:
    return one.life.ends_at is not None and now >= one.life.ends_at


def missing(text: str) -> Refusal:
    """EKS's answer for what does not exist."""
    return Refusal("ResourceNotFoundException", text, status=404)


def in_use(text: str) -> Refusal:
    """EKS's answer for what exists already, or is not free for the call."""
    return Refusal("ResourceInUseException", text, status=409)


def invalid(text: str) -> Refusal:
    """EKS's answer for a parameter that it does not take."""
    return Refusal("InvalidParameterException", text)


def wrong(text: str) -> Refusal:
    """EKS's answer for a request that does not fit the state of the resource."""
    return Refusal("InvalidRequestException", text)
