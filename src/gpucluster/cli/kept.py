"""What `gpucluster down` leaves, because it holds data: named, with what it costs a month, and how to take it too."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpucluster.cost.amount import Amount

if TYPE_CHECKING:
    from gpucluster.catalog import Prices
    from gpucluster.engine.standing import Standing

_NETWORK = "the network it hangs on"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One thing with data in it; `cost` is a month's."""

    what: str
    name: str
    id: str
    cost: Amount

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "what": self.what,
            "name": self.name,
            "id": self.id,
            "monthly": str(self.cost.known),
            "unknown": list(self.cost.unknown),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """All that stays; `ground` is what only the data needs, and costs nothing."""

    data: tuple[Kept, ...]
    ground: tuple[str, ...]  # ids
    currency: str

    def lines(self, cluster: str) -> Iterable[str]:
        """For people."""
        for one in self.data:
            yield f"  {one.what} {one.id} ({one.name}): {one.cost.words(self.currency)} a month"
        if self.ground:
            yield f"  {_NETWORK}, at no cost: {', '.join(self.ground)}"
        yield f"  next: `up` finds the data again; to delete it for ever: {delete_line(cluster)}"


def delete_line(cluster: str) -> str:
    """What deletes the data as well."""
    return f"gpucluster down {cluster} --delete-data --confirm {cluster}"


def left_of(found: "Iterable[Standing]", region: str, prices: "Prices") -> Left:
    """What the state still has, its data first by name."""
    every = sorted(found, key=lambda one: (one.type, one.name))
    holders = [one for one in every if one.type in _ROWS]
    return Left(
        data=tuple(_kept(one, _Rates(prices, region)) for one in holders),
        ground=tuple(one.id for one in every if one.type in _GROUND),
        currency=prices.currency,
    )


@dataclass(frozen=True, slots=True)
class _Rates:
    prices: "Prices"
    region: str

    def month(self, key: str, gib: int | None, what: str) -> Amount:
        """`gib` of what `key` prices, or by name why that is not known."""
        if self.region != self.prices.region:
            return Amount(unknown=(f"{what} (no price for {self.region})",))
        rate = self.prices.services.get(f"{key}-gib-month")
        if rate is None:
            return Amount(unknown=(f"{what} (no price of {key} for {self.region})",))
        if gib is None:
            return Amount(unknown=(f"{what} at {rate} {self.prices.currency} a GiB",))
        return Amount(rate * gib)


def _kept(one: "Standing", rates: _Rates) -> Kept:
    what, cost = _ROWS[one.type](one.outputs, rates)
    return Kept(what=what, name=one.name, id=one.id, cost=cost)


def _disk(outputs: Mapping[str, Any], rates: _Rates) -> tuple[str, Amount]:
    size, kind = _whole(outputs.get("size")), str(outputs.get("type") or "gp3")
    what = f"disk of {size} GiB" if size else "disk"
    return what, rates.month(kind, size, f"a {what}")


def _efs(_: Mapping[str, Any], rates: _Rates) -> tuple[str, Amount]:
    """By what is in it, which only the cloud measures."""
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
_GROUND = frozenset({"aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet", "aws:ec2/securityGroup:SecurityGroup"})


def _whole(value: object) -> int | None:
    """Numbers of a state are floats, or text."""
    try:
        return int(float(str(value)))
    except ValueError:
        return None
