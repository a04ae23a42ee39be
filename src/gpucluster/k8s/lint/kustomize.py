"""A Kustomization lists what lies beside it: nothing that is missing, and nothing left out, which would never be applied."""

import posixpath
from collections.abc import Iterator

from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.tree import entries, text
from gpucluster.k8s.lint.world import CLIENT_GROUPS, Obj, World
from gpucluster.spec.problem import quoted

_ELSEWHERE = ("://", "github.com/", "..")  # fetched, or outside of what was read


def check(world: World) -> Iterator[Finding]:
    """Only where manifests were read from files."""
    files = {thing.document.file for thing in world.objects if thing.document.file}
    for thing in world.objects:
        if thing.group in CLIENT_GROUPS and thing.kind == "Kustomization" and len(files) > 1:
            yield from _check(thing, files)


def _check(thing: Obj, files: set[str]) -> Iterator[Finding]:
    own = posixpath.dirname(thing.document.file)
    listed: set[str] = set()
    for path, entry in entries(thing.body, "resources"):
        name = text(entry)
        target = posixpath.normpath(posixpath.join(own, name))
        listed.add(target)
        there = target in files or any(file.startswith(f"{target}/") for file in files)
        if not there and not any(mark in name for mark in _ELSEWHERE):
            yield thing.found("kustomize", f"there is no {quoted(name)}", path)
    beside = {file for file in files if posixpath.dirname(file) == own and file != thing.document.file}
    for file in sorted(beside - listed):
        yield thing.found("kustomize", f"{quoted(posixpath.basename(file))} is not listed", ("resources",))
