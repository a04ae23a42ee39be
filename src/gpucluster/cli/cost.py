"""`gpucluster cost`: what one spec costs a month, line by line."""

from typing import TYPE_CHECKING, Annotated

import typer

from gpucluster.cli.output import Output, OutputOption, answer, print_result, reporting
from gpucluster.cli.prices import PricesOption

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpucluster.cost import Estimate


def cost(
    spec: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE", help="A spec, a name of stacks/, or REVISION:PATH of a spec in git."
        ),
    ],
    prices: PricesOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show the cost of a month: the least with idle pools, the most with all nodes."""
    with reporting(output):
        from gpucluster.cli.diff import side_of
        from gpucluster.cli.prices import prices_from, warn_of_prices
        from gpucluster.gitops.report.values import estimate_values

        side = side_of(spec, prices_from(prices)).revision
        warn_of_prices(side.cost)
        if output is Output.JSON:
            answer(ok=True, name=side.spec.name, cost=estimate_values(side.cost))
            return
        for line in _lines(side.spec.name, side.cost):
            print_result(line)


def _lines(name: str, found: "Estimate") -> "Iterator[str]":
    from gpucluster.cost import ASSUMPTIONS
    from gpucluster.gitops.report.words import span
    from gpucluster.text import printable

    yield f"{name}: a month costs {span(found)}"
    for line in found.lines:
        least, most = line.least.words(found.currency), line.most.words(found.currency)
        notes = line.notes if line.kind == "control-plane" else ()  # those of pools are assumptions, below
        cost = most if least == most else f"{least} to {most}"
        yield printable("; ".join((f"  {line.kind} {line.name}: {cost}", *notes)))
    yield f"prices of {found.prices_date} for {found.prices_region}:"
    yield from (f"  {one}" for one in ASSUMPTIONS)
