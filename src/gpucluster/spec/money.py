"""Amounts of money in a spec, and the budget."""

from collections.abc import Callable
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from gpucluster.spec.aws_fields import Mail
from gpucluster.spec.fields import UpdateClass, parse_text, refuse, spec_field
from gpucluster.spec.part import Part
from gpucluster.text import (
    AMOUNT,
    MICRO,
    MONEY_FORMS,
    PERCENT_FORMS,
    RATE_FORMS,
    parse_money,
    parse_percent,
    parse_rate,
    quoted,
)

MOST_MONTH = 1_000_000_000 * MICRO
MOST_HOUR = 100_000 * MICRO


def amount(read: Callable[[str], int | None], forms: str, most: int) -> Callable[[object], int]:
    """Return a parser of money, or of money for each hour; the result is in micro-USD."""

    def parse(value: object) -> int:
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise refuse("no-unit", f"{value} has no unit; write {forms}")
        text = parse_text(value)
        micro = read(text)
        if micro is None:
            raise refuse("bad-amount", f"{quoted(text)} is not an amount in USD; write {forms}")
        if not 0 < micro <= most:
            raise refuse("out-of-range", f"{text} is not above 0 and at most {most // MICRO} USD")
        return micro

    return parse


def parse_share(value: object) -> int:
    """Parse a whole percentage of the budget."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise refuse("no-unit", f"{value} has no unit; write {PERCENT_FORMS}")
    text = parse_text(value)
    percent = parse_percent(text)
    if percent is None:
        raise refuse("bad-percent", f"{quoted(text)} is not a whole percentage; write {PERCENT_FORMS}")
    if not 1 <= percent <= 100:
        raise refuse("out-of-range", f"{text} is not between 1% and 100%")
    return percent


def _schema(pattern: str, example: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern}$", "examples": [example]})


Money = Annotated[
    int,
    BeforeValidator(amount(parse_money, MONEY_FORMS, MOST_MONTH)),
    _schema(f"{AMOUNT} USD", "250000 USD"),
]
HourlyPrice = Annotated[
    int, BeforeValidator(amount(parse_rate, RATE_FORMS, MOST_HOUR)), _schema(f"{AMOUNT} USD/h", "40 USD/h")
]
Percent = Annotated[int, BeforeValidator(parse_share), _schema("0{0,2}(?:[1-9][0-9]?|100)%", "80%")]


class Budget(Part):
    """Limit on the cost of Slurm's nodes on AWS in a calendar month (UTC), by our own ledger at catalog prices."""

    monthly: Money = spec_field(UpdateClass.LIVE, "Budget of a calendar month: `250000 USD`.")
    warn_at: Percent | None = spec_field(
        UpdateClass.LIVE, "The daemon warns from this share of the budget on.", default=None
    )
    stop_scaling_at: Percent | None = spec_field(
        UpdateClass.LIVE, "Launches stop from this share of the budget on. No job ends.", default=None
    )
    notify: tuple[Mail, ...] = spec_field(
        UpdateClass.LIVE, "Mail addresses that AWS Budgets notifies.", default=(), min_length=1
    )
