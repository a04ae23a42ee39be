"""Read a file of `workloads/` and check it against the spec of its cluster."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, TypeAlias

from gpucluster import catalog as catalogs
from gpucluster.catalog import Catalog
from gpucluster.spec.decode import did_you_mean
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.problem import Finding
from gpucluster.spec.reading import Read, Report, inspect, inspect_file, read, text_of
from gpucluster.spec.rules.findings import error, or_none, warning
from gpucluster.spec.tree import MapNode, Node
from gpucluster.spec.yaml import TreeError, parse

if TYPE_CHECKING:
    from gpucluster.spec.workloads import WorkloadsSpec

WorkloadsReport: TypeAlias = "Read[WorkloadsSpec]"
_LIKELY = re.compile(r"\b(?:cluster|serve|train)['\"]?\s*:")
_Find: TypeAlias = "Callable[[WorkloadsSpec], tuple[ClusterSpec | None, Iterable[Finding]]]"


def inspect_any(path: FilePath) -> "Report | WorkloadsReport":
    """Read a cluster spec or a workloads file. The top-level keys decide which."""
    text = text_of(path)
    if not _is_workloads(text):
        return inspect_file(text, path)
    return _inspect(text, path, lambda spec: _cluster(spec, path))


def inspect_workloads(path: FilePath, cluster: ClusterSpec) -> WorkloadsReport:
    """Read the workloads of a cluster with a known spec. GpuclusterError if the file cannot be read."""
    return _inspect(text_of(path), path, lambda _: (cluster, ()))


def inspect_workloads_text(
    text: str, file: str, cluster: ClusterSpec | None, catalog: Catalog
) -> WorkloadsReport:
    """Check a text; the pure part."""
    from gpucluster.spec.rules import workloads  # noqa: PLC0415  a check of a cluster needs none of it
    from gpucluster.spec.workloads import WorkloadsSpec  # noqa: PLC0415

    return read(text, file, WorkloadsSpec, lambda s: workloads.check(s, cluster, catalog), _none_later)


def _inspect(text: str, path: FilePath, find: _Find) -> WorkloadsReport:
    from gpucluster.spec.rules import workloads  # noqa: PLC0415
    from gpucluster.spec.workloads import WorkloadsSpec  # noqa: PLC0415

    def check(spec: WorkloadsSpec) -> Iterable[Finding]:
        cluster, findings = find(spec)
        return [*findings, *workloads.check(spec, cluster, catalogs.load())]

    return read(text, str(path), WorkloadsSpec, check, _none_later)


def _none_later(_pattern: str) -> tuple[str, ...]:
    return ()


def _is_workloads(text: str) -> bool:
    if not _LIKELY.search(text):  # most files are clusters: parse them once
        return False
    try:
        return _has_its_keys(parse(text).root)
    except TreeError:
        return False  # the caller reports it


def _has_its_keys(root: Node) -> bool:
    return isinstance(root, MapNode) and bool({"cluster", "serve", "train"} & root.entries.keys())


def _cluster(spec: "WorkloadsSpec", path: FilePath) -> tuple[ClusterSpec | None, Iterable[Finding]]:
    """Read the cluster's spec from its usual place: `../stacks/NAME.yaml`, relative to the file."""
    name = or_none(lambda: spec.cluster)
    stacks = path.absolute().parent.parent / "stacks"
    if name is None:
        return None, ()
    if not stacks.is_dir():
        message = (
            "there is no folder ../stacks beside this file, so teams, resources and topology were not checked"
        )
        return None, [warning("cluster", id="cluster-not-read", message=message)]
    file = stacks / f"{name}.yaml"
    if not file.is_file():
        near = did_you_mean(str(name), [one.stem for one in sorted(stacks.glob("*.yaml"))])
        return None, [error("cluster", id="unknown-cluster", message=f"there is no stacks/{name}.yaml{near}")]
    report = inspect(file)
    message = f"stacks/{name}.yaml has errors, so teams, resources and topology were not checked"
    return report.spec, () if report.spec else [warning("cluster", id="cluster-not-read", message=message)]
