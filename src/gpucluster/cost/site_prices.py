"""Read a site's own price list. Pure: the text is an argument."""

import re
from collections.abc import Mapping
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Final, cast

from gpucluster.catalog import Prices
from gpucluster.errors import GpuclusterError
from gpucluster.spec.problem import Finding, Mark
from gpucluster.spec.tree import WrittenFloat, plain
from gpucluster.spec.yaml import TreeError, parse
from gpucluster.text import quoted

EXAMPLE: Final = "date: 2026-11-01, region: eu-west-1, currency: USD, machines: {p5en.48xlarge: 75.10}, services: {nat-hour: 0.048}"
_KEYS: Final = frozenset({"date", "region", "currency", "machines", "services"})
_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_MOST: Final = Decimal(1_000_000)


def site_prices(text: str, where: str) -> Prices:
    """Return the list. It replaces the catalog's: a machine that it lacks has no price. GpuclusterError names the fault."""
    try:
        parsed = parse(text)
    except TreeError as error:
        raise _at(where, error.mark, error.finding) from None
    for mark, finding in parsed.findings:
        raise _at(where, mark, finding)
    found = plain(parsed.root)
    if not isinstance(found, dict):
        raise _wrong(where, "expected a mapping")
    values = cast("dict[str, object]", found)
    if strange := sorted(values.keys() - _KEYS):
        raise _wrong(where, f"unknown keys {', '.join(map(quoted, strange))}")
    return Prices(
        source=where,
        date=_date(values.get("date"), where),
        licence="",
        currency=_matching(_CURRENCY, values.get("currency", "USD"), "currency", where),
        region=_text(values.get("region"), "region", where),
        rows=_amounts(values.get("machines"), "machines", where),
        services=_amounts(values.get("services", {}), "services", where),
    )


def _date(value: object, where: str) -> str:
    text = _text(value, "date", where)
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise _wrong(where, f"date: {quoted(text)} is not a day such as 2026-11-01") from None


def _amounts(value: object, key: str, where: str) -> Mapping[str, Decimal]:
    if not isinstance(value, dict):
        raise _wrong(where, f"{key}: expected a mapping of names to prices")
    return {
        name: _amount(amount, f"{key}.{name}", where)
        for name, amount in cast("dict[str, object]", value).items()
    }


def _amount(value: object, key: str, where: str) -> Decimal:
    """Return the exact decimal as written: a float would round it."""
    text = value.text if isinstance(value, WrittenFloat) else str(value)
    try:
        amount = Decimal(text)
    except InvalidOperation:
        amount = Decimal("NaN")
    if isinstance(value, bool) or not amount.is_finite() or not 0 <= amount <= _MOST:
        raise _wrong(where, f"{key}: {quoted(text)} is not an amount of money, such as 75.10")
    return amount


def _text(value: object, key: str, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise _wrong(where, f"{key}: {'missing' if value is None else 'expected text'}")
    return value


def _matching(form: re.Pattern[str], value: object, key: str, where: str) -> str:
    text = _text(value, key, where)
    if not form.fullmatch(text):
        raise _wrong(where, f"{key}: {quoted(text)} is not valid, such as USD")
    return text


def _at(where: str, mark: Mark, finding: Finding) -> GpuclusterError:
    return _wrong(where, f"line {mark.line}: {finding.message}")


def _wrong(where: str, what: str) -> GpuclusterError:
    return GpuclusterError(f"{where}: {what}", next_step=f"write it as {{{EXAMPLE}}}")
