"""The documents that `gpucluster lint` reads: files, folders and standard input. What is not a manifest is named."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from gpucluster.errors import GpuclusterError
from gpucluster.plan import names

if TYPE_CHECKING:
    from gpucluster.k8s.lint import Document, Finding
    from gpucluster.k8s.lint.custom_resources import CustomResource

SUFFIXES = frozenset({".yaml", ".yml", ".json"})
STDIN = Path("-")
_STDIN_NAME = "stdin"
_INSTALLATION = {"apiVersion", "baseDomain", "platform"}  # keys of an install-config.yaml
_ABOVE = 3  # folders above a file in which a Kustomization can name it as a patch


@dataclass(frozen=True, slots=True)
class Found:
    """What was read. `other` are sentences about documents that are no manifests."""

    documents: "tuple[Document, ...]"
    findings: "tuple[Finding, ...]"
    other: tuple[str, ...]


def read_all(paths: list[Path]) -> Found:
    """Read all documents of files, folders and `-`."""
    from gpucluster.k8s.lint.read import read

    documents: list[Document] = []
    findings: list[Finding] = []
    other: list[str] = []
    for path in paths:
        for file in _files(path):
            if _is_template(file):
                other.append(f"{file.as_posix()}: a template of a Helm chart; `helm template` renders it")
                continue
            if path.is_dir() and not _is_text(file):
                other.append(f"{file.as_posix()}: not UTF-8")
                continue
            written = _text(file)
            got = read(written, _STDIN_NAME if file == STDIN else file.as_posix())
            if path.is_dir() and got.findings and not _looks_like_manifest(written):
                other.append(f"{file.as_posix()}: no YAML of manifests, but a template or another language")
                continue
            if "{{" in written and (wrong := [one for one in got.findings if one.level == "error"]):
                findings.append(_template(wrong[0]))
                continue
            findings.extend(got.findings)
            is_base = _is_named(file, _bases)
            for document in got.documents:
                if reason := _other(document, file, in_folder=path.is_dir()):
                    other.append(f"{document.file}: document {document.number} {reason}")
                else:
                    documents.append(replace(document, is_base=is_base))
    return Found(tuple(documents), tuple(findings), tuple(other))


def read_schemas(paths: list[Path]) -> "tuple[CustomResource, ...]":
    """Read the CustomResourceDefinitions of files and folders."""
    from gpucluster.k8s.lint.custom_resources import definitions
    from gpucluster.k8s.lint.read import read

    found: list[CustomResource] = []
    for path in paths:
        values = (
            document.value
            for file in _files(path)
            for document in read(_text(file), file.as_posix()).documents
        )
        here = tuple(definitions(values))
        if not here:
            raise GpuclusterError(f"--schemas {path}: no CustomResourceDefinition of apiextensions.k8s.io/v1", next_step="name files or folders with CustomResourceDefinitions")  # fmt: skip
        found.extend(here)
    return tuple(found)


def _files(path: Path) -> Iterator[Path]:
    """Return a file itself, or all manifest files of a folder. Hidden folders are skipped."""
    if not path.is_dir():
        yield path
        return
    below = (file for file in sorted(path.rglob("*")) if file.suffix in SUFFIXES and file.is_file())
    below = (
        file for file in below if file.name != names.PLAN_FILE
    )  # `render` writes it beside the manifests
    found = [file for file in below if not any(part.startswith(".") for part in file.relative_to(path).parts)]
    if not found:
        raise GpuclusterError(f"{path} has no .yaml, .yml or .json file", next_step="name the folder with manifests")  # fmt: skip
    yield from found


def _text(file: Path) -> str:
    try:
        return sys.stdin.buffer.read().decode() if file == STDIN else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise GpuclusterError(f"{file}: {reason}", next_step="name files or folders of YAML") from error


def _is_text(file: Path) -> bool:
    try:
        file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return False
    except OSError:
        return True  # `_text` says why
    return True


def _is_template(file: Path) -> bool:
    above = file.absolute().parents if file != STDIN else ()
    return any(folder.name == "templates" and (folder.parent / "Chart.yaml").is_file() for folder in above)


def _other(document: "Document", file: Path, *, in_folder: bool) -> str:
    """Return what a document is instead of a manifest; "" for a manifest."""
    from gpucluster.k8s.lint.kustomize import is_patch, is_pod_template
    from gpucluster.k8s.lint.tree import mapping

    if file.name == "Chart.yaml" or (in_folder and _has_no_key(document.value)):
        return "is not a manifest"
    if is_patch(document.value, document.file) or _is_named(file, _patches):
        return "is a patch of Kustomize: it holds a part of an object"
    if is_pod_template(document.file):
        return "is a pod template: its client completes it"
    if mapping(document.value).keys() >= _INSTALLATION:
        return "is a configuration of OpenShift's installer"
    return ""


def _template(first: "Finding") -> "Finding":
    return replace(first, document=0, line=0, message="holds {{ }}: render it first, as `helm template` does")


def _has_no_key(value: Any) -> bool:
    """Return whether a document lacks the keys of a manifest, as a file of Helm values or a JSON patch does. The files from
    which Grafana reads its sources, dashboards and alerts have `apiVersion: 1` and no kind."""
    if not isinstance(value, dict):
        return True
    manifest = cast("dict[Any, Any]", value)
    numbered = isinstance(manifest.get("apiVersion"), int) and "kind" not in manifest
    return numbered or not ("apiVersion" in manifest or {"kind", "metadata"} <= manifest.keys())


def _looks_like_manifest(written: str) -> bool:
    """Return whether a text that is no YAML begins as a manifest does, and is no template of Go."""
    keys = any(line.startswith(("apiVersion:", "kind:")) for line in written.splitlines())
    return keys and "{{" not in written


def _is_named(file: Path, listed: Callable[[Path], frozenset[str]]) -> bool:
    """Return whether a Kustomization in the file's folder, or above it, names the file."""
    if file == STDIN:
        return False
    whole = file.absolute()
    return any(whole.as_posix() in listed(folder) for folder in list(whole.parents)[:_ABOVE])


@cache
def _patches(folder: Path) -> frozenset[str]:
    """Return the files that the Kustomization of a folder names as patches."""
    from gpucluster.k8s.lint.kustomize import patches

    return frozenset(name for value, file in _kustomizations(folder) for name in patches(value, file))


@cache
def _bases(folder: Path) -> frozenset[str]:
    """Return the files that the Kustomization of a folder takes as resources."""
    from gpucluster.k8s.lint.kustomize import resources

    return frozenset(name for value, file in _kustomizations(folder) for name in resources(value, file))


def _kustomizations(folder: Path) -> list[tuple[Any, str]]:
    from gpucluster.k8s.lint.kustomize import FILES
    from gpucluster.k8s.lint.read import read

    there = [folder / name for name in FILES if (folder / name).is_file()]
    documents = [document for file in there[:1] for document in read(_text(file), file.as_posix()).documents]
    return [(document.value, document.file) for document in documents]
