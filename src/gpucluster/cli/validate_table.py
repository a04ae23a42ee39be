"""How `validate` looks in a terminal: a table that grows while checks run, and the same at the end."""

import contextlib
import io
from collections import Counter
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.live import Live as RichLive
from rich.table import Table
from rich.text import Text

from gpucluster.checks.model import Verdict
from gpucluster.cli.still import EVERY_S, still
from gpucluster.markdown import printable
from gpucluster.validate.report import headline
from gpucluster.validate.results import Result, Run, to_look_at

if TYPE_CHECKING:
    from gpucluster.validate.expect import Expectation

COLOURS = {
    Verdict.PASS: "green",
    Verdict.WARN: "yellow",
    Verdict.FAIL: "bold red",
    Verdict.UNKNOWN: "magenta",
}
SHOWN = 12  # rows of a living table: the last ones; a terminal cannot scroll in it
PLAIN_WIDTH = 160  # without a terminal


class Live:
    """A table on a terminal while it runs; elsewhere a line every ten seconds."""

    def __init__(self, total: int, stream: TextIO, every_s: float = EVERY_S) -> None:
        self._total, self._done, self._asked = total, list[Result](), ""
        self._still = still(self._where, lambda line: print(line, file=stream, flush=True), every_s)
        console = Console(file=stream)
        self._live = (
            RichLive(console=console, transient=True, auto_refresh=False) if console.is_terminal else None
        )

    def told(self, expectation: "Expectation", result: Result | None) -> None:
        """An expectation is asked, or answered."""
        self._asked = expectation.id
        if result is not None:
            self._done.append(result)
        if self._live is not None:
            table = rows(self._done[-SHOWN:])
            if result is None:
                table.add_row(
                    Text("…", style="dim"),
                    Text(expectation.check),
                    Text(expectation.target),
                    Text(expectation.of.title, style="dim"),
                    Text(""),
                )
            table.caption = f"{len(self._done)} of {self._total}"
            self._live.update(table, refresh=True)

    def _where(self) -> str:
        return printable(f"{len(self._done)} of {self._total} checks answered, {self._asked} is asked")

    def __enter__(self) -> "Live":
        (self._live or self._still).__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        (self._live or self._still).__exit__(kind, error, trace)


def final(run: Run, stream: TextIO | None = None) -> str:
    """The whole table, what must be mended with its remedy, and the headline."""
    seen = Console(file=stream) if stream is not None else Console()
    out = io.StringIO()
    console = Console(
        file=out,
        width=seen.width if seen.is_terminal else PLAIN_WIDTH,
        force_terminal=seen.is_terminal,
        color_system="auto" if seen.is_terminal else None,
    )
    with contextlib.closing(out):
        console.print(rows(run.results))
        for result in to_look_at(run.results):
            if not result.blocked_by:
                console.print(_trouble(result), soft_wrap=True)
        for cause, count in Counter(r.blocked_by for r in run.results if r.blocked_by).items():
            console.print(Text(f"unknown: {count} more, until {cause} is mended"), soft_wrap=True)
        console.print(Text(f"{run.name}: {headline(run)}, in {run.seconds:.1f} s"), soft_wrap=True)
        return out.getvalue().rstrip("\n")


def rows(results: Iterable[Result]) -> Table:
    """Words of others are Text, never markup."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in ("verdict", "check", "where", "found"):
        table.add_column(name, overflow="fold")
    table.add_column("s", justify="right")
    for result in results:
        table.add_row(
            Text(result.verdict.value, style=COLOURS[result.verdict]),
            Text(result.check),
            Text(result.machine),
            Text(result.found),
            Text(f"{result.seconds:.2f}"),
        )
    return table


def _trouble(result: Result) -> Text:
    text = Text(
        f"\n{result.verdict.value}: {result.check}[{result.machine}] {result.found}\n",
        style=COLOURS[result.verdict],
    )
    for name, words in (("expected", result.expected), ("remedy", result.remedy)):
        text.append(f"  {name}: {words}\n", style="none")
    return text
