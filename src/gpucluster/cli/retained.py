"""The resources that `gpucluster down` retains because they hold data, with their monthly cost."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpucluster.cli.down_world import World, down_line
from gpucluster.cost.amount import Amount

if TYPE_CHECKING:
    from gpucluster.catalog import Prices
    from gpucluster.engine.deployment import DeployedResource

_NETWORK = "the network of the data"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedResource:
    """One resource with data. `cost` is for one month."""

    what: str
    name: str
    id: str
    cost: Amount

    def as_json(self) -> dict[str, Any]:
        """Return the JSON values."""
        return {
            "what": self.what,
            "name": self.name,
            "id": self.id,
            "monthly": str(self.cost.known),
            "unknown": list(self.cost.unknown),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedResources:
    """All retained resources. `network` has the resources that the data needs; they cost nothing."""

    data: tuple[RetainedResource, ...]
    network: tuple[str, ...]  # ids
    currency: str

    def lines(self, cluster: str, world: World) -> Iterable[str]:
        """Return the text for people."""
        for one in self.data:
            yield f"  {one.what} {one.id} ({one.name}): {one.cost.words(self.currency)} a month"
        if self.network:
            yield f"  {_NETWORK}, at no cost: {', '.join(self.network)}"
        yield f"  next: `up` uses the data again; to delete it permanently: {delete_line(cluster, world)}"


def delete_line(cluster: str, world: World | None) -> str:
    """Return the command that also deletes the data."""
    return f"{down_line(cluster, world)} --delete-data --confirm {cluster}"


def retained_of(found: "Iterable[DeployedResource]", region: str, prices: "Prices") -> RetainedResources:
    """Return the retained resources of the state, sorted by name."""
    every = sorted(found, key=lambda one: (one.type, one.name))
    holders = [one for one in every if one.type in _ROWS]
    return RetainedResources(
        data=tuple(_retained(one, _Rates(prices, region)) for one in holders),
        network=tuple(one.id for one in every if one.type in _NETWORK_TYPES),
        currency=prices.currency,
    )


@dataclass(frozen=True, slots=True)
class _Rates:
    prices: "Prices"
    region: str

    def month(self, key: str, gib: int | None, what: str) -> Amount:
        """Return the monthly price of `gib` GiB, or the reason why it is unknown."""
        if self.region != self.prices.region:
            return Amount(unknown=(f"{what} (no price for {self.region})",))
        rate = self.prices.services.get(f"{key}-gib-month")
        if rate is None:
            return Amount(unknown=(f"{what} (no price of {key} for {self.region})",))
        if gib is None:
            return Amount(unknown=(f"{what} at {rate} {self.prices.currency} a GiB",))
        return Amount(rate * gib)


def _retained(one: "DeployedResource", rates: _Rates) -> RetainedResource:
    what, cost = _ROWS[one.type](one.outputs, rates)
    return RetainedResource(what=what, name=one.name, id=one.id, cost=cost)


def _disk(outputs: Mapping[str, Any], rates: _Rates) -> tuple[str, Amount]:
    size, kind = _whole(outputs.get("size")), str(outputs.get("type") or "gp3")
    what = f"disk of {size} GiB" if size else "disk"
    return what, rates.month(kind, size, f"a {what}")


def _efs(_: Mapping[str, Any], rates: _Rates) -> tuple[str, Amount]:
    """EFS is charged by its content, which only AWS measures."""
    return "EFS", rates.month("efs", None, "what it holds")


def _lustre(outputs: Mapping[str, Any], rates: _Rates) -> tuple[str, Amount]:
    size, speed = _whole(outputs.get("storageCapacity")), _whole(outputs.get("perUnitStorageThroughput"))
    what = f"FSx for Lustre of {size} GiB" if size else "FSx for Lustre"
    return what, rates.month(f"fsx-lustre-{speed}", size, what)


_ROWS: Mapping[str, Callable[[Mapping[str, Any], _Rates], tuple[str, Amount]]] = {
    "aws:ebs/volume:Volume": _disk,
    "aws:efs/fileSystem:FileSystem": _efs,
    "aws:fsx/lustreFileSystem:LustreFileSystem": _lustre,
}
_NETWORK_TYPES = frozenset(
    {"aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet", "aws:ec2/securityGroup:SecurityGroup"}
)


def _whole(value: object) -> int | None:
    """Return a number of the Pulumi state, which is a float or text."""
    try:
        return int(float(str(value)))
    except ValueError:
        return None
