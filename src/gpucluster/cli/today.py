"""`--today DATE`: the day on which the acceptance of a warning may have ended. Without it no acceptance ends: `diff` and `review` read no clock."""

from typing import TYPE_CHECKING, Annotated

import typer

from gpucluster.errors import GpuclusterError
from gpucluster.text import parse_date, quoted

if TYPE_CHECKING:
    from datetime import date

TodayOption = Annotated[
    str | None,
    typer.Option(
        "--today",
        metavar="DATE",
        help="Also show the warnings whose acceptance has ended before this day, such as 2027-05-31.",
    ),
]


def day_of(given: str | None) -> "date | None":
    """Return the day of the option. GpuclusterError if there is no such day."""
    found = None if given is None else parse_date(given)
    if given is not None and found is None:
        raise GpuclusterError(f"--today: {quoted(given)} is not a date such as 2027-05-31")
    return found
