"""DescribeSpotPriceHistory: the price that a scenario has set, else a share of the price list's on-demand price."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, cast

from gpucluster.catalog import prices
from gpucluster.sandbox.aws.ec2 import filters, views
from gpucluster.sandbox.aws.ec2.call import Calls, Ec2Call, Result
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel

_SHARE = Decimal("0.4")  # of the on-demand price; real spot prices move between a third and the whole
_PRODUCT = "Linux/UNIX"
_SINCE_S = 3600.0  # seconds since the last change of a price


def calls(model: CloudModel) -> Calls:
    """The call of this module."""
    return {"DescribeSpotPriceHistory": lambda call: _history(call, model)}


def _history(call: Ec2Call, model: CloudModel) -> Result:
    zones = [str(z) for z in (call.asked.get("AvailabilityZone"),) if z] or sorted(
        model.supply.capacity.zones
    )
    products = cast(Sequence[str], call.asked.get("ProductDescriptions") or (_PRODUCT,))
    asked = cast(Sequence[str], call.asked.get("InstanceTypes") or ())
    machines = asked or sorted({*prices().rows, *(m for m, _ in model.supply.spot_prices)})
    rows = [
        row
        for machine in machines
        for zone in zones
        for row in _row(model, str(machine), zone, call.now)
        if any(product.startswith(_PRODUCT) for product in products)
    ]
    fitting = filters.chosen(rows, call.asked.get("Filters"), filters.SPOT_PRICE, lambda _: {})
    return {"SpotPriceHistory": fitting}


def _row(model: CloudModel, machine: str, zone: str, now: float) -> Iterator[dict[str, Any]]:
    """One row; none for a machine without a price."""
    micro = model.supply.spot_prices.get((machine, zone))
    listed = prices().rows.get(machine)
    if micro is None and listed is None:
        return
    price = Decimal(micro).scaleb(-6) if micro is not None else (listed or Decimal()) * _SHARE
    yield {
        "AvailabilityZone": zone,
        "InstanceType": machine,
        "ProductDescription": _PRODUCT,
        "SpotPrice": f"{price:.6f}",
        "Timestamp": views.when(now - _SINCE_S),
    }
