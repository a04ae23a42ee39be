"""Read a file of `workloads/`, against the spec of the cluster that it names."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path as FilePath

from gpucluster import catalog as catalogs
from gpucluster.catalog import Catalog
from gpucluster.spec.decode import Decoder, did_you_mean
from gpucluster.spec.load import Read, Report, inspect, inspect_text, read, text_of
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.problem import Finding
from gpucluster.spec.rules import workloads
from gpucluster.spec.rules.findings import error, or_none, warning
from gpucluster.spec.tree import MapNode, Node
from gpucluster.spec.workloads import WorkloadsSpec
from gpucluster.spec.yaml import TreeError, parse

WorkloadsReport = Read[WorkloadsSpec]
_LIKELY = re.compile(r"\b(?:cluster|serve|train)['\"]?\s*:")
_Find = Callable[[WorkloadsSpec], tuple[ClusterSpec | None, Iterable[Finding]]]


def inspect_any(path: FilePath) -> Report | WorkloadsReport:
    """A cluster's spec or what runs on one: the keys at the top tell which."""
    text = text_of(path)
    if not _is_workloads(text):
        return inspect_text(text, str(path), catalogs.load())
    return _inspect(text, path, lambda spec: _cluster(spec, path))


def inspect_workloads(path: FilePath, cluster: ClusterSpec) -> WorkloadsReport:
    """What runs on a cluster whose spec is at hand; a GpuclusterError if there is nothing to read."""
    return _inspect(text_of(path), path, lambda _: (cluster, ()))


def inspect_workloads_text(
    text: str, file: str, cluster: ClusterSpec | None, catalog: Catalog
) -> WorkloadsReport:
    """The pure half."""
    return read(
        text, file, lambda _: (WorkloadsSpec, _decoder(), lambda s: workloads.check(s, cluster, catalog))
    )


def _inspect(text: str, path: FilePath, find: _Find) -> WorkloadsReport:
    def check(spec: WorkloadsSpec) -> Iterable[Finding]:
        cluster, findings = find(spec)
        return [*findings, *workloads.check(spec, cluster, catalogs.load())]

    return read(text, str(path), lambda _: (WorkloadsSpec, _decoder(), check))


def _decoder() -> Decoder:
    return Decoder(later=lambda _: ())


def _is_workloads(text: str) -> bool:
    if not _LIKELY.search(text):  # most are clusters, and are parsed once
        return False
    try:
        return _has_its_keys(parse(text).root)
    except TreeError:
        return False  # said by whoever reads it


def _has_its_keys(root: Node) -> bool:
    return isinstance(root, MapNode) and bool({"cluster", "serve", "train"} & root.entries.keys())


def _cluster(spec: WorkloadsSpec, path: FilePath) -> tuple[ClusterSpec | None, Iterable[Finding]]:
    """The spec that stands where specs stand: `../stacks/NAME.yaml`, seen from the file."""
    name = or_none(lambda: spec.cluster)
    stacks = path.absolute().parent.parent / "stacks"
    if name is None:
        return None, ()
    if not stacks.is_dir():
        says = "there is no ../stacks beside this file: teams, resources and topology were not checked"
        return None, [warning("cluster", id="cluster-not-read", says=says)]
    file = stacks / f"{name}.yaml"
    if not file.is_file():
        near = did_you_mean(str(name), [one.stem for one in sorted(stacks.glob("*.yaml"))])
        return None, [error("cluster", id="unknown-cluster", says=f"there is no stacks/{name}.yaml{near}")]
    report = inspect(file)
    says = f"stacks/{name}.yaml has errors: what depends on it was not checked"
    return report.spec, () if report.spec else [warning("cluster", id="cluster-not-read", says=says)]
