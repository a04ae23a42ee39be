"""The table of `validate` in a terminal: live during the run, complete at the end."""

import contextlib
import io
from collections import Counter
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.live import Live as RichLive
from rich.table import Table
from rich.text import Text

from gpucluster.checks.check import CheckStatus
from gpucluster.cli.output import PROGRESS_INTERVAL_S, repeat_progress
from gpucluster.text import printable
from gpucluster.validate.report import headline
from gpucluster.validate.results import Result, Run, needs_attention

if TYPE_CHECKING:
    from gpucluster.validate.expectation import Expectation

COLOURS = {
    CheckStatus.PASS: "green",
    CheckStatus.WARN: "yellow",
    CheckStatus.FAIL: "bold red",
    CheckStatus.UNKNOWN: "magenta",
}
SHOWN = 12  # rows of the live table: a terminal cannot scroll it
PLAIN_WIDTH = 160  # without a terminal


class Live:
    """A live table on a terminal; otherwise one line every ten seconds."""

    def __init__(self, total: int, stream: TextIO, every_s: float = PROGRESS_INTERVAL_S) -> None:
        self._total, self._done, self._asked, self._awaited = total, list[Result](), "", ""
        self._still = repeat_progress(self._where, lambda line: print(line, file=stream, flush=True), every_s)
        console = Console(file=stream)
        self._live = (
            RichLive(console=console, transient=True, auto_refresh=False) if console.is_terminal else None
        )

    def update(self, expectation: "Expectation", result: Result | None) -> None:
        """An expectation started or ended."""
        self._asked, self._awaited = expectation.id, ""
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

    def wait(self, words: str) -> None:
        """The run waits before its first check."""
        self._awaited = printable(words)
        if self._live is not None:
            self._live.update(Text(self._awaited, style="dim"), refresh=True)

    def _where(self) -> str:
        return self._awaited or printable(
            f"{len(self._done)} of {self._total} checks answered, {self._asked} runs"
        )

    def __enter__(self) -> "Live":
        (self._live or self._still).__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        (self._live or self._still).__exit__(kind, error, trace)


def final(run: Run, stream: TextIO | None = None, *, every: bool = False) -> str:
    """Return what is wrong with its remedies, the passed checks of each group in one line, and the headline.

    `every`: the table of all results instead of these lines.
    """
    seen = Console(file=stream) if stream is not None else Console()
    out = io.StringIO()
    console = Console(
        file=out,
        width=seen.width if seen.is_terminal else PLAIN_WIDTH,
        force_terminal=seen.is_terminal,
        color_system="auto" if seen.is_terminal else None,
    )
    with contextlib.closing(out):
        for result in needs_attention(run.results):
            if not result.blocked_by:
                console.print(_trouble(result), soft_wrap=True)
        for cause, count in Counter(r.blocked_by for r in run.results if r.blocked_by).items():
            console.print(Text(f"unknown: {count} more, until {cause} is repaired"), soft_wrap=True)
        if every:
            console.print(rows(run.results))
        else:
            console.print(Text("\n".join(passes(run.results))), soft_wrap=True)
        console.print(Text(f"{run.name}: {headline(run)}, in {run.seconds:.1f} s"), soft_wrap=True)
        return out.getvalue().rstrip("\n")


def passes(results: Iterable[Result]) -> Iterator[str]:
    """Yield one line for each group of checks that passed: `pass: cfg: 5 (bundle, same)`. A check may be its whole group."""
    groups: dict[str, list[str]] = {}
    for result in results:
        if result.verdict is CheckStatus.PASS:
            group, _, name = result.check.partition(".")
            groups.setdefault(group, []).append(name)
    for group, names in sorted(groups.items()):
        parts = ", ".join(dict.fromkeys(name for name in names if name))
        yield f"pass: {group}: {len(names)}{f' ({parts})' if parts else ''}"


def rows(results: Iterable[Result]) -> Table:
    """Text of machines is Text, never markup."""
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
        f"{result.verdict.value}: {result.check}[{result.machine}] {result.found}\n",
        style=COLOURS[result.verdict],
    )
    for name, words in (("expected", result.expected), ("remedy", result.remedy)):
        text.append(f"  {name}: {words}\n", style="none")
    return text
