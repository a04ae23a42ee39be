"""`gpucluster init`: a first spec from five answers. The written spec passes `check` without a warning."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from gpucluster.cli.output import Output, OutputOption, answer, print_result, progress, reporting
from gpucluster.errors import GpuclusterError

if TYPE_CHECKING:
    from gpucluster.catalog import Catalog
    from gpucluster.cli.first_spec import Answers

Parser = Callable[["Catalog", "dict[str, str]", str], str]

QUESTIONS = (
    ("name", "Name of the cluster", "first"),
    ("region", "AWS region", "us-east-1"),
    ("machine", "Machine type of the GPU nodes", "g6.12xlarge"),
    ("nodes", "Most nodes", "4"),
    ("source", "Source of the machines (spot or on-demand)", "on-demand"),
)


def _regions() -> list[str]:
    from gpucluster import catalog

    return sorted(catalog.load().regions)


def _machines() -> list[str]:
    from gpucluster import catalog

    return sorted(name for name, machine in catalog.load().machines.items() if machine.gpu)


def _sources() -> list[str]:
    from gpucluster.cli.first_spec import SOURCES

    return list(SOURCES)


def init(  # noqa: PLR0917  typer's options
    name: Annotated[str | None, typer.Option(help="Name of the cluster.")] = None,
    region: Annotated[str | None, typer.Option(help="AWS region.", autocompletion=_regions)] = None,
    machine: Annotated[
        str | None, typer.Option(help="Machine type of the GPU nodes.", autocompletion=_machines)
    ] = None,
    nodes: Annotated[str | None, typer.Option(help="Most nodes.")] = None,
    source: Annotated[str | None, typer.Option(help="spot or on-demand.", autocompletion=_sources)] = None,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The new file. Default: stacks/NAME.yaml.")
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Ask five questions and write a spec. Each option answers its question; with all five, nothing is asked."""
    given = {"name": name, "region": region, "machine": machine, "nodes": nodes, "source": source}
    with reporting(output):
        from gpucluster.cli.first_spec import text_of

        answers = _answers(given)
        file = to or Path("stacks") / f"{answers.name}.yaml"
        text = text_of(answers, file)
        _write(file, text)
    if output is Output.JSON:
        answer(ok=True, file=str(file), spec=text)
    else:
        print_result(f"{file}: written; it passes `gpucluster check {file}`")
        print_result(f"  next: gpucluster plan {file} --explain")


def _answers(given: "dict[str, str | None]") -> "Answers":
    from gpucluster import catalog
    from gpucluster.cli.first_spec import PARSERS, Answers

    known, facts = dict[str, str](), catalog.load()
    lacking = [f"--{key}" for key, _, _ in QUESTIONS if given[key] is None]
    if lacking and not sys.stdin.isatty():
        _nobody_to_ask(lacking)
    for key, question, default in QUESTIONS:
        value = given[key]
        known[key] = (
            _ask(question, default, PARSERS[key], facts, known)
            if value is None
            else PARSERS[key](facts, known, value)
        )
    return Answers(**known)


def _nobody_to_ask(lacking: list[str]) -> NoReturn:
    raise GpuclusterError(
        "stdin is no terminal, so nothing can be asked", next_step=f"give {', '.join(lacking)}"
    )


def _ask(question: str, default: str, parse: Parser, facts: "Catalog", known: dict[str, str]) -> str:
    """Ask until the answer is valid. The questions go to stderr, because stdout has the result."""
    while True:
        typer.echo(f"{question} [{default}]: ", nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            raise GpuclusterError("the answers ended", next_step="answer every question, or give options")
        try:
            return parse(facts, known, line.strip() or default)
        except GpuclusterError as error:
            progress(str(error))


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        raise GpuclusterError(f"{file}: exists already", next_step="name another file: --to FILE") from None
    except OSError as error:
        raise GpuclusterError(f"{file}: cannot be written: {error.strerror}") from error
