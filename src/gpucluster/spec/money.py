"""Money and shares of it in a spec, and the budget that is made of them."""

from collections.abc import Callable
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from gpucluster.spec.aws_fields import Mail
from gpucluster.spec.fields import UpdateClass, parse_text, refuse, wish
from gpucluster.spec.part import Part
from gpucluster.spec.problem import quoted
from gpucluster.spec.units import (
    AMOUNT,
    MICRO,
    MONEY_FORMS,
    PERCENT_FORMS,
    RATE_FORMS,
    parse_money,
    parse_percent,
    parse_rate,
)

MOST_MONTH = 1_000_000_000 * MICRO
MOST_HOUR = 100_000 * MICRO


def amount(read: Callable[[str], int | None], forms: str, most: int) -> Callable[[object], int]:
    """A parser of money, or money an hour, to micro-USD."""

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
    """Whole percent of the budget."""
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
Percent = Annotated[int, BeforeValidator(parse_share), _schema("[0-9]{1,3}%", "80%")]


class Budget(Part):
    """What Slurm's nodes on AWS may cost in a calendar month (UTC), by our own ledger at catalog prices."""

    monthly: Money = wish(UpdateClass.LIVE, "The month's budget: `250000 USD`.")
    warn_at: Percent | None = wish(UpdateClass.LIVE, "Told from this part of it on.", default=None)
    stop_scaling_at: Percent | None = wish(
        UpdateClass.LIVE, "Nothing is launched from this part of it on; no job is ended.", default=None
    )
    notify: tuple[Mail, ...] = wish(
        UpdateClass.LIVE, "Addresses of mail that AWS Budgets tells.", default=(), min_length=1
    )
