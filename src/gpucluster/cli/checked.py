"""The work of `gpucluster check`, and its short way for plain `check FILE...`, which imports no typer."""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from gpucluster.cli.spec_files import require_spec
from gpucluster.errors import GpuclusterError

if TYPE_CHECKING:
    from gpucluster.spec import Report, WorkloadsReport

Reports: TypeAlias = "Mapping[Path, Report | WorkloadsReport]"


def reports_of(files: list[str]) -> tuple[Reports, list[GpuclusterError]]:
    """Check each file: the reports by file, and the errors of files that cannot be read."""
    from gpucluster.spec import inspect_any

    reports: dict[Path, Report | WorkloadsReport] = {}
    unread: list[GpuclusterError] = []
    for word in files:
        try:
            file = require_spec(word)
            reports[file] = inspect_any(file)
        except GpuclusterError as error:
            unread.append(error)
    return reports, unread


def text_of(reports: Reports) -> Iterator[str]:
    """The problems of each file, and one line with its verdict."""
    for file, report in reports.items():
        yield from map(str, report.problems)
        yield f"{file}: {_verdict([problem.level.value for problem in report.problems])}"


def check_plain(argv: list[str]) -> int | None:
    """Run `check FILE...` without options: the exit code, or None when typer must handle the command line.

    Typer also handles options, completion, and files that cannot be read.
    """
    plain = argv[:1] == ["check"] and len(argv) > 1 and not any(word.startswith("-") for word in argv)
    if not plain or "_GPUCLUSTER_COMPLETE" in os.environ:
        return None
    reports, unread = reports_of(argv[1:])
    if unread:
        return None
    try:
        sys.stdout.write("".join(f"{line}\n" for line in text_of(reports)))
        sys.stdout.flush()
    except OSError as error:
        from gpucluster.cli.output import exit_code_of_failed_write

        return exit_code_of_failed_write(error)
    return 1 if any(report.errors for report in reports.values()) else 0


def _verdict(levels: list[str]) -> str:
    counts = ((levels.count(level), level, plural) for level, plural in _LEVELS)
    words = [f"{count} {plural if count > 1 else level}" for count, level, plural in counts if count]
    return ", ".join(words if "error" in levels else ["ok", *words])


_LEVELS = (("error", "errors"), ("warning", "warnings"), ("advice", "advices"))
