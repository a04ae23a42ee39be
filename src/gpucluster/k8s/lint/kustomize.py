"""Check a Kustomization against the files beside it: no listed file is missing, and no file is left out.

A file that it names as a patch is a part of an object, so the checks of whole objects do not apply to it.
"""

import posixpath
from collections.abc import Iterator
from typing import Any

from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.tree import along, entries, items, mapping, text
from gpucluster.text import quoted

FILES = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_PATCHES = ("patches.*", "patches.*.path", "patchesStrategicMerge.*", "patchesJson6902.*.path")
_DIRECTIVES = ("$patch", "$setElementOrder", "$deleteFromPrimitiveList", "$retainKeys")
_ELSEWHERE = ("://", "github.com/", "..")  # a remote file, or a file outside of the read folder


def patches(kustomization: Any, file: str) -> frozenset[str]:
    """Return the files that a Kustomization, read from `file`, names as patches."""
    own = posixpath.dirname(file)
    named = [text(name) for way in _PATCHES for _, name in along(kustomization, way.split("."))]
    return frozenset(
        posixpath.normpath(posixpath.join(own, name)) for name in named if name and "\n" not in name
    )


def resources(kustomization: Any, file: str) -> frozenset[str]:
    """Return the files that a Kustomization, read from `file`, takes as they are and can complete."""
    own = posixpath.dirname(file)
    named = [text(name) for key in ("resources", "bases") for _, name in entries(kustomization, key)]
    return frozenset(posixpath.normpath(posixpath.join(own, name)) for name in named if name)


def is_pod_template(file: str) -> bool:
    """Return whether a file is a pod that a client completes, as those of Spark and Airflow are."""
    return "pod-template" in file.rpartition("/")[2].replace("_", "-").lower()


def is_patch(value: Any, file: str) -> bool:
    """Return whether a document is a patch by its directives, or by the name of its file or folder."""
    *folders, name = file.split("/")
    return "patch" in name.lower() or folders[-1:] == ["patches"] or _has_directive(value)


def _has_directive(value: Any) -> bool:
    inner = (*mapping(value).values(), *items(value))
    return any(key.startswith(_DIRECTIVES) for key in mapping(value)) or any(map(_has_directive, inner))


def check(manifests: ManifestSet) -> Iterator[Finding]:
    """Run only for a whole tree of files."""
    files = {thing.document.file for thing in manifests.objects if thing.document.file}
    for thing in manifests.objects:
        if (
            thing.is_client_file
            and thing.kind == "Kustomization"
            and len(files) > 1
            and manifests.facts.whole
        ):
            yield from _check(thing, files)


def _check(thing: Obj, files: set[str]) -> Iterator[Finding]:
    own = posixpath.dirname(thing.document.file)
    listed = set(patches(thing.body, thing.document.file))
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
