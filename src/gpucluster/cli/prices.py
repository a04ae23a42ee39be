"""`--prices FILE`: a site's own price list, and what to do about a missing or an old price."""

from typing import TYPE_CHECKING, Annotated

import typer

from gpucluster.cli.output import progress
from gpucluster.errors import GpuclusterError

if TYPE_CHECKING:
    from gpucluster.catalog import Prices
    from gpucluster.cost import Estimate

PricesOption = Annotated[
    str | None,
    typer.Option(
        "--prices",
        metavar="FILE",
        help="Your own prices, instead of those of the catalog; also REVISION:PATH in git.",
    ),
]
_OLD_DAYS = 60  # older prices cause a warning
_STEP = "write the prices of your region into a file, and name it: --prices FILE (docs/prices.md)"


def prices_from(given: str | None) -> "Prices":
    """Return the prices of the file or revision, or those of the catalog."""
    if given is None:
        from gpucluster import catalog

        return catalog.prices()
    from gpucluster.cli.revisions import source_of
    from gpucluster.cost.site_prices import site_prices

    source = source_of(given)
    try:
        text = source.read().decode()
    except GpuclusterError as error:
        raise GpuclusterError(error.message, next_step=_STEP) from None
    except UnicodeDecodeError as error:
        raise GpuclusterError(f"{source.label}: cannot be read: {error}", next_step=_STEP) from None
    return site_prices(text, source.label)


def warn_of_prices(*estimates: "Estimate") -> None:
    """Warn of missing and of old prices. The result itself does not depend on the clock."""
    from datetime import UTC, date, datetime

    from gpucluster.cost.price_list import is_missing

    missing = sorted({one for found in estimates for one in found.most.unknown if is_missing(one)})
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        progress(f"warning[no-price] unknown: {', '.join(missing[:3])}{more}")
        progress(f"  next: {_STEP}")
    if not any(found.most.known for found in estimates):
        return  # there are no prices
    day = estimates[-1].prices_date
    age_days = (datetime.now(UTC).date() - date.fromisoformat(day)).days
    if age_days > _OLD_DAYS:
        progress(f"warning[old-prices] the prices are of {day}, {age_days} days ago")
        progress(f"  next: {_STEP}")
