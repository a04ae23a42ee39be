"""`gpucluster schema`: the JSON Schema of the spec, for editors and other checkers. It is in the wheel."""

from enum import StrEnum
from typing import Annotated

import typer

from gpucluster.cli.output import Output, OutputOption, answer, print_result
from gpucluster.json_text import parse_json


class SchemaOf(StrEnum):
    """The kinds of spec files."""

    CLUSTER = "cluster"
    WORKLOADS = "workloads"


def schema(
    which: Annotated[
        SchemaOf, typer.Argument(help="`cluster` for stacks/, `workloads` for workloads/.")
    ] = SchemaOf.CLUSTER,
    output: OutputOption = Output.TEXT,
) -> None:
    """Print the JSON Schema (draft-07) with the machines, regions and versions of this release."""
    from gpucluster import catalog
    from gpucluster.spec.jsonschema import schema_text, workloads_text

    text = schema_text(catalog.load()) if which is SchemaOf.CLUSTER else workloads_text()
    if output is Output.JSON:
        answer(ok=True, json_schema=parse_json(text))
    else:
        print_result(text.rstrip("\n"))
