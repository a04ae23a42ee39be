"""The spec that `gpucluster init` writes, and the parsers of its answers."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic_core import PydanticCustomError

from gpucluster.catalog import Catalog
from gpucluster.catalog.image import lacking_in_image
from gpucluster.errors import GpuclusterError
from gpucluster.spec.decode import did_you_mean
from gpucluster.spec.fields import MAX_NODES, parse_name
from gpucluster.text import quoted

HEADS: Final = ("m7i.2xlarge", "m6i.2xlarge", "m5.2xlarge")  # the first one that the region offers
SOURCES: Final = ("spot", "on-demand")
SCHEMA: Final = Path("../schema/cluster.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The five answers, each valid."""

    name: str
    region: str
    machine: str
    nodes: str
    source: str


def text_of(answers: Answers, file: Path) -> str:
    """Return the text of the spec. GpuclusterError if `check` has any problem with it."""
    from gpucluster import catalog
    from gpucluster.spec import inspect_text

    facts = catalog.load()
    zones = ", ".join(facts.regions[answers.region][:2])
    editor = (
        f"# yaml-language-server: $schema={SCHEMA}\n" if os.path.exists(file.parent / SCHEMA) else ""  # noqa: PTH110
    )
    text = f"""\
{editor}schema: 1
name: {answers.name}
aws: {{region: {answers.region}, network: {{cidr: 10.42.0.0/16, zones: [{zones}]}}}}
slurm: {{version: "{facts.slurm_supported[-1]}"}}
head: {{machine: {_head(answers.region, facts)}, state: 100GiB}}
access: {{ssm: true}} # the way to the head: Session Manager, without an open port
pools:
  - name: gpu
    nodes: {{min: 0, max: {answers.nodes}}} # min are always on, the rest elastic
    idle: 5m
    capacity:
      - {{from: {answers.source}, machines: [{answers.machine}]}}
partitions:
  - {{name: gpu, pools: [gpu], default: true, max_time: 1d}}
"""
    report = inspect_text(text, str(file), facts)
    if report.problems:
        raise GpuclusterError("\n".join(map(str, report.problems)), next_step="choose other answers")
    return text


def _head(region: str, facts: Catalog) -> str:
    return next((one for one in HEADS if _sold(one, region, facts)), HEADS[0])


def _sold(machine: str, region: str, facts: Catalog) -> bool:
    return machine in facts.machines and facts.machines[machine].zones_selling.get(region, 0) > 0


def _name(_facts: Catalog, _known: Mapping[str, str], text: str) -> str:
    try:
        return parse_name(text)
    except PydanticCustomError as error:
        raise GpuclusterError(error.message()) from None


def _region(facts: Catalog, _known: Mapping[str, str], text: str) -> str:
    if text not in facts.regions:
        near = did_you_mean(text, facts.regions)
        raise GpuclusterError(f"{quoted(text)} is not a known region{near}")
    return text


def _machine(facts: Catalog, known: Mapping[str, str], text: str) -> str:
    region, machine = known["region"], facts.machines.get(text)
    if machine is None:
        raise GpuclusterError(f"{quoted(text)} is not in the catalog{did_you_mean(text, facts.machines)}")
    if machine.gpu is None:
        raise GpuclusterError(f"{text} has no GPU")
    if lacking := lacking_in_image(text):
        raise GpuclusterError(
            f"{text} needs an image with {', '.join(lacking)}, which a first spec does not have; "
            "begin with another machine, or see `gpucluster image build --with nvlsm`"
        )
    if not _sold(text, region, facts):
        raise GpuclusterError(
            f"{region} does not offer {text}, by the catalog of {facts.date}{_offered(region, facts)}"
        )
    return text


def _offered(region: str, facts: Catalog) -> str:
    """The machines that a first spec of this region may name."""
    there = (name for name, one in facts.machines.items() if one.gpu and _sold(name, region, facts))
    names = sorted(name for name in there if not lacking_in_image(name))
    return f"; it offers {', '.join(names)}" if names else ""


def _nodes(_facts: Catalog, _known: Mapping[str, str], text: str) -> str:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= MAX_NODES:
        raise GpuclusterError(f"{quoted(text)} is not a whole number from 1 to {MAX_NODES}")
    return str(int(text))


def _source(facts: Catalog, known: Mapping[str, str], text: str) -> str:
    markets = [one for one in SOURCES if one in facts.machines[known["machine"]].markets]
    if text not in markets:
        raise GpuclusterError(
            f"{quoted(text)} is not a source of {known['machine']}; expected {' or '.join(markets) or 'another machine'}"
        )
    return text


PARSERS: Final[Mapping[str, Callable[[Catalog, dict[str, str], str], str]]] = {
    "name": _name,
    "region": _region,
    "machine": _machine,
    "nodes": _nodes,
    "source": _source,
}
