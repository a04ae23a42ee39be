"""What `gpucluster down` will destroy: the plan that is shown before the question, and compared with what is there afterwards."""

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from gpucluster.cli.down_network import EKS, blocker_finder, network_of, require_no_karpenter
from gpucluster.cli.down_world import ClusterAccess, Stack, World
from gpucluster.cli.retained import retained_of
from gpucluster.cloud.network_interfaces import EKS_CLUSTER_TAG
from gpucluster.cloud.port import CloudError, Fault, Instance, InstanceState
from gpucluster.cost.amount import Amount
from gpucluster.cost.price_list import PriceList
from gpucluster.errors import StateError
from gpucluster.plan.model import Market
from gpucluster.text import format_amount

if TYPE_CHECKING:
    from gpucluster.cli.down_jobs import Jobs
    from gpucluster.cli.retained import RetainedResources
    from gpucluster.engine.deployment import DeployedResource

_INSTANCE = "aws:ec2/instance:Instance"
_STOPPED = frozenset({InstanceState.STOPPING, InstanceState.STOPPED})
_ACCOUNT_DIGITS = 12
_LABEL = 9  # columns
_Key = tuple[str, str, str, bool]  # type, name, id, retained


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """Machines of one type and one market. `hourly` is for all of them."""

    machine: str
    market: Market
    stopped: bool
    count: int
    hourly: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class DownPlan:
    """What is destroyed. `machines_unknown` says why the machines are not known."""

    stack: Stack
    account: str
    region: str
    delete_data: bool
    resources: "tuple[DeployedResource, ...]"  # of the state, with those that are retained
    retained: "RetainedResources"  # with data that stays
    lost: "RetainedResources"  # with data that is deleted: all of it if `delete_data`, else what nothing protects
    instances: frozenset[str]  # ids of the machines
    machines: tuple[Machines, ...]
    machines_unknown: str
    jobs: "Jobs | None"  # None: the stack has no head of Slurm
    currency: str

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.stack.name

    @property
    def has_head(self) -> bool:
        """Whether a machine of the state can have Slurm and the daemon's journal."""
        return has(self.resources, _INSTANCE)

    @property
    def deleted(self) -> int:
        """The number of resources that are deleted."""
        return sum(self.delete_data or not resource.retained for resource in self.resources)

    @property
    def destroys_nothing(self) -> bool:
        """Whether neither a resource nor a machine is left to destroy."""
        return not (self.deleted or self.machines or self.machines_unknown)

    @property
    def hourly(self) -> Amount:
        """The price of all machines for an hour."""
        return sum((group.hourly for group in self.machines), Amount())

    @property
    def where(self) -> str:
        """Return the world: the sandbox and its machine, or account and region."""
        if self.stack.world is World.SANDBOX:
            return f"the sandbox '{self.name}' on this machine, {platform.node()}"
        return f"AWS, account {self.account}, region {self.region}"

    def lines(self) -> Iterator[str]:
        """Return the text for people."""
        yield f"down destroys {self.name} in {self.where} (Pulumi stack {self.name}, project {self.stack.project})"
        yield from _labelled("resources", [f"{self.deleted} are deleted"])
        yield from _labelled("data", self._data_lines())
        yield from _labelled("machines", self._machine_lines())
        yield from _labelled("jobs", [_NO_HEAD] if self.jobs is None else self.jobs.lines())

    def _data_lines(self) -> Iterator[str]:
        for fate, holders in (("DELETED PERMANENTLY", self.lost.data), ("stays", self.retained.data)):
            for holder in holders:
                cost = holder.cost.words(self.currency)
                yield f"{fate}: {holder.what} {holder.id} ({holder.name}), {cost} a month"
        if not (self.lost.data or self.retained.data):
            yield "none"

    def _machine_lines(self) -> Iterator[str]:
        if self.machines_unknown:
            yield f"EC2 does not list them, they are not known ({self.machines_unknown})"
            return
        if not self.machines:
            yield "none runs"
            return
        for group in self.machines:
            state, price = ", stopped" if group.stopped else "", group.hourly.words(self.currency)
            yield f"{group.count} {group.machine}, {group.market.value}{state}, an hour: {price}"
        on_aws = " on AWS, nothing in a sandbox" if self.stack.world is World.SANDBOX else ""
        yield f"together an hour{on_aws}: {self.hourly.words(self.currency)}"

    def as_json(self) -> dict[str, Any]:
        """Return the JSON values."""
        return {
            "world": self.stack.world.value.strip("-"),
            "stack": self.name,
            "project": self.stack.project,
            "account": self.account,
            "region": self.region,
            "deletes": self.deleted,
            "delete_data": self.delete_data,
            "retained": [holder.as_json() for holder in self.retained.data],
            "lost": [holder.as_json() for holder in self.lost.data],
            "machines": [_machines_json(group) for group in self.machines],
            "machines_unknown": self.machines_unknown,
            "hourly": _amount_json(self.hourly),
            "jobs": None if self.jobs is None else self.jobs.as_json(),
        }


_NO_HEAD = "none of Slurm: the stack has no head; pods: kubectl get pods --all-namespaces"


def plan_of(access: ClusterAccess, *, delete_data: bool) -> DownPlan:
    """Look at the cluster, and change nothing. StateError if the credentials are of another account, or Karpenter's machines run."""
    from gpucluster.catalog import prices

    resources, listed = access.resources(), prices()
    region = access.region or (region_of(resources) if resources else "")
    account = access.account(region) if resources else ""
    _require_account(access.stack.name, account, resources)
    if has(resources, EKS):
        look = blocker_finder(access.occupants(region), resources, access.stack.name, region, data=True)
        require_no_karpenter(look, access.stack.name, region)
    instances, unknown = _instances(access, region, resources) if resources else ((), "")
    kept = () if delete_data else tuple(each for each in resources if each.retained)
    return DownPlan(
        stack=access.stack,
        account=account,
        region=region,
        delete_data=delete_data,
        resources=resources,
        retained=retained_of(kept, region, listed),
        lost=retained_of((each for each in resources if each not in kept), region, listed),
        instances=frozenset(instance.id for instance in instances),
        machines=_grouped(instances, PriceList(listed, region)),
        machines_unknown=unknown,
        jobs=access.jobs(region) if has(resources, _INSTANCE) else None,
        currency=listed.currency,
    )


def require_unchanged(plan: DownPlan, now: "Iterable[DeployedResource]", so_far: str) -> None:
    """Raise StateError if the state has other resources than the plan showed."""
    shown, there = set(map(_key, plan.resources)), set(map(_key, now))
    if shown != there:
        raise _changed(plan, there - shown, shown - there, so_far)


def require_none_new(plan: DownPlan, now: "Iterable[DeployedResource]", so_far: str) -> None:
    """Raise StateError if the state has a resource that the plan did not show; others may be gone."""
    if new := set(map(_key, now)) - set(map(_key, plan.resources)):
        raise _changed(plan, new, set(), so_far)


def _changed(plan: DownPlan, new: set[_Key], gone: set[_Key], so_far: str) -> StateError:
    changes = "; ".join(f"{word}: {_listed(keys)}" for word, keys in (("new", new), ("gone", gone)) if keys)
    return StateError(
        f"the stack {plan.name} changed after its plan was shown: {changes}; {so_far}",
        next_step=f"wait for the end of the other run; then: gpucluster down {plan.name}",
    )


def report_later_nodes(plan: DownPlan, ended: Iterable[str], report: Callable[[str], None]) -> None:
    """Say which of the terminated nodes the plan did not show."""
    later = sorted(set(ended) - plan.instances)
    if later and not plan.machines_unknown:
        report(
            f"{len(later)} more nodes had started after the plan was shown, and are terminated: {', '.join(later)}"
        )


def has(resources: "Iterable[DeployedResource]", kind: str) -> bool:
    """Return whether a resource has this type."""
    return any(resource.type == kind for resource in resources)


def region_of(resources: "Iterable[DeployedResource]") -> str:
    """Return the region of the ARNs. ARNs of IAM and S3 have none."""
    regions = sorted({arn[3] for arn in _arns(resources) if arn[3]})
    if not regions:
        raise StateError("the state names no region", next_step="pulumi destroy --exclude-protected")
    return regions[0]


def _arns(resources: "Iterable[DeployedResource]") -> Iterator[list[str]]:
    arns = (str(resource.outputs.get("arn", "")).split(":") for resource in resources)
    return (arn for arn in arns if len(arn) > 5)


def _require_account(name: str, account: str, resources: "Iterable[DeployedResource]") -> None:
    """Nodes are found by the cluster's name, and another account can have a cluster of the same name."""
    owners = sorted({arn[4] for arn in _arns(resources) if len(arn[4]) == _ACCOUNT_DIGITS})
    if owners and account not in owners:
        raise StateError(
            f"the credentials are of the AWS account {account}, and the resources of {name} are in {', '.join(owners)}:"
            " nothing was changed",
            next_step=f"use credentials of {owners[0]}, for example with AWS_PROFILE; then: gpucluster down {name}",
        )


def _instances(
    access: ClusterAccess, region: str, resources: "tuple[DeployedResource, ...]"
) -> tuple[tuple[Instance, ...], str]:
    """Return the living machines of the cluster, or why EC2 does not list them. A refusal is an error."""
    own = [resource.id for resource in resources if resource.type == _INSTANCE and resource.id]
    try:
        tagged = access.cloud(region).instances(access.stack.name, own)
        every = chain(tagged, _of_node_groups(access, region, resources))
        return tuple({each.id: each for each in every if each.living}.values()), ""
    except CloudError as error:
        if error.fault in (Fault.THROTTLED, Fault.LOST):
            return (), str(error)
        raise


def _of_node_groups(
    access: ClusterAccess, region: str, resources: "tuple[DeployedResource, ...]"
) -> Iterator[Instance]:
    """Return the instances that EKS launched for the node groups of the state."""
    clusters = {resource.id for resource in resources if resource.type == EKS}
    network = network_of(resources)
    if clusters and network:
        for occupant in access.occupants(region).occupants(network):
            instance = occupant.instance
            if instance is not None and instance.tags.get(EKS_CLUSTER_TAG) in clusters:
                yield instance


def _grouped(instances: Iterable[Instance], price: PriceList) -> tuple[Machines, ...]:
    counts = Counter((each.machine, each.market, each.state in _STOPPED) for each in instances)
    return tuple(
        Machines(
            machine=machine, market=market, stopped=stopped, count=count,
            hourly=Amount() if stopped else _hour(machine, market, price).times(count),
        )
        for (machine, market, stopped), count in sorted(counts.items())
    )  # fmt: skip


def _hour(machine: str, market: Market, price: PriceList) -> Amount:
    """Return the price of one machine. The catalog has no spot prices; a block is paid before it begins."""
    listed = price.hour(machine)
    if market is Market.CAPACITY_BLOCK:
        return Amount(unknown=(f"{machine} (capacity block: paid in advance)",))
    if market is Market.SPOT:
        most = f"; on-demand {format_amount(listed.known, price.prices.currency)}" if listed.exact else ""
        return Amount(unknown=(f"{machine} (spot price{most})",))
    return listed


def _machines_json(group: Machines) -> dict[str, Any]:
    return {
        "machine": group.machine,
        "market": group.market.value,
        "stopped": group.stopped,
        "count": group.count,
        "hourly": _amount_json(group.hourly),
    }


def _amount_json(amount: Amount) -> dict[str, Any]:
    return {"known": str(amount.known), "unknown": list(amount.unknown)}


def _labelled(label: str, texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield f"  {label:{_LABEL}}  {text}"
        label = ""


def _key(resource: "DeployedResource") -> _Key:
    return resource.type, resource.name, resource.id, resource.retained


def _listed(keys: Iterable[_Key]) -> str:
    every = sorted(f"{kind.rpartition(':')[2]} {name}" for kind, name, _, _ in keys)
    return ", ".join(every[:6]) + (f" and {len(every) - 6} more" if len(every) > 6 else "")
