"""`gpucluster import`: an existing Slurm site becomes a spec."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpucluster.cli.output import Output, answer, print_result, progress, reporting
from gpucluster.errors import GpuclusterError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpucluster.importer.differences import Difference
    from gpucluster.importer.lines import Complaint
    from gpucluster.importer.run import Imported

_SHOWN = 200  # characters of a value


def import_(  # noqa: PLR0917 -- the options of the command
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="SLURM.CONF [FILE]...",
            help="The site's slurm.conf or its folder, then gres.conf, topology.conf or topology.yaml, cgroup.conf, assoc.dump of `sacctmgr dump`, passwd of `getent passwd`, group of `getent group`.",
        ),
    ],
    to: Annotated[
        Path | None, typer.Option("--to", "-o", metavar="FILE", help="The spec, such as stacks/NAME.yaml.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the cluster. Default: ClusterName of slurm.conf.")
    ] = None,
    version: Annotated[
        str | None, typer.Option("--version", help="Slurm release of the spec. Default: the newest.")
    ] = None,
    whole: Annotated[
        bool, typer.Option("--all", help="List the settings that only the rendered files have.")
    ] = False,
    output: Annotated[
        Output, typer.Option("--output", help="Output format.", show_default=True)
    ] = Output.TEXT,
) -> None:
    """Write a spec for the hosts of an existing site, and list what its rendered files change.

    Exit 1 if access is wider, jobs can be ended or jobs that ran will be refused, or if a line is not imported.
    """
    with reporting(output):
        from gpucluster import catalog
        from gpucluster.importer.run import import_files

        wanted = version or catalog.load().slurm_supported[-1]
        if wanted not in catalog.load().slurm_supported:
            known = ", ".join(catalog.load().slurm_supported)
            raise GpuclusterError(f"Slurm {wanted} is not supported", next_step=f"choose one of {known}")
        if to is not None and to.exists():
            raise GpuclusterError(f"{to} exists already", next_step="name another file, or remove it")
        of_file = to.stem if to is not None and to.parent.name == "stacks" else None
        done = import_files(files, version=wanted, name=name or of_file)
        if to is not None:
            _write(to, done.text)
        if output is Output.JSON:
            _answer(done, to)
        else:
            _print(done, to, whole=whole)
        if done.hurts:
            raise typer.Exit(1)


def _write(to: Path, text: str) -> None:
    try:
        to.write_text(text)
    except OSError as error:
        raise GpuclusterError(
            f"{to}: cannot be written: {error.strerror}", next_step="name a writable file"
        ) from error


def _answer(done: "Imported", to: Path | None) -> None:
    from gpucluster.importer.differences import counts
    from gpucluster.plan.codec import to_json

    answer(
        ok=not done.hurts,
        name=done.name,
        to=None if to is None else str(to),
        spec=done.text,
        made_up=list(done.made.sentences),
        counts={change.value: count for change, count in counts(done.differences).items()},
        parts={title.replace(" ", "_"): to_json(rows) for title, rows in parts(done).items()},
        problems=to_json(done.warnings),
    )


def _print(done: "Imported", to: Path | None, *, whole: bool) -> None:
    """The spec goes to stdout if it is in no file; the report then goes to stderr."""
    show = progress if to is None else print_result
    if to is None:
        print_result(done.text.rstrip("\n"))
    for line in report(done, whole=whole):
        show(line)
    if to is not None:
        print_result(f"{to}\n  next: gpucluster check {to}; gpucluster sandbox up {to}")


def parts(done: "Imported") -> "dict[str, tuple[Complaint | Difference, ...]]":
    """The parts of the report by their titles, in its order: what hurts, what is not imported, then the other differences."""
    from gpucluster.importer.differences import Change
    from gpucluster.importer.lines import Effect

    rows = (*done.complaints, *done.differences)
    found = {effect.value: tuple(one for one in rows if one.effect is effect) for effect in Effect}
    found["not imported"] = tuple(one for one in done.complaints if one.effect is None)
    for change in Change:
        if change is not Change.SAME:
            found[change.value] = tuple(
                one for one in done.differences if (one.change, one.effect) == (change, None)
            )
    return found


def report(done: "Imported", *, whole: bool = False) -> "Iterator[str]":
    """The parts with their rows, the warnings of `check`, and the counts. Defaults are one line if not `whole`."""
    from gpucluster.importer.differences import Change, counts
    from gpucluster.importer.lines import Effect
    from gpucluster.text import printable

    for title, rows in parts(done).items():
        if title == Change.DEFAULTED and rows and not whole:
            yield f"{title}: `--all` lists the settings that only the rendered files have"
        elif rows:
            yield f"{title}:"
            yield from (f"  {printable(_row(one))}" for one in rows)
        elif title in tuple(Effect):
            yield f"{title}: none"
    for problem in done.warnings:
        yield str(problem)
    yield ", ".join(f"{count} {change}" for change, count in counts(done.differences).items())


def _row(one: "Complaint | Difference") -> str:
    from gpucluster.importer.lines import Complaint
    from gpucluster.slurm.hostlist import fold
    from gpucluster.text import cut_middle

    if isinstance(one, Complaint):
        return str(one)
    where = f" of {one.kind} {cut_middle(fold(one.names), _SHOWN)}" if one.names else f" of {one.kind}"
    values = " -> ".join(
        "none" if value is None else cut_middle(value, _SHOWN) for value in (one.before, one.after)
    )
    place = "" if one.place is None else f"{one.place}: "
    return f"{place}{one.key}{where}: {values}; {one.why}"
