"""`gpucluster lint`: check Kubernetes manifests, ours or anybody's, without a cluster."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpucluster.cli.output import Output, OutputOption, answer, reporting, say
from gpucluster.errors import GpuclusterError

if TYPE_CHECKING:
    from gpucluster.k8s.lint import Document, Facts, Finding

SUFFIXES = frozenset({".yaml", ".yml", ".json"})
SpecOption = Annotated[
    Path | None, typer.Option("--spec", help="The cluster's spec: checks quotas, labels and sizes against its pools.")
]  # fmt: skip
VersionOption = Annotated[
    str | None, typer.Option("--kubernetes", help="Kubernetes version, such as 1.36. [default: the spec's, or the newest]")
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Found:
    documents: "tuple[Document, ...]"
    findings: "tuple[Finding, ...]"
    other: tuple[str, ...]  # documents in a folder that are no manifests


def lint(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="Files, or folders with .yaml files.")],
    spec: SpecOption = None,
    kubernetes: VersionOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Check Kubernetes manifests. Exit 1 if there is an error, 2 if something cannot be read."""
    from gpucluster.k8s.lint import Level, check, unchecked

    with reporting(output):
        facts = _facts(spec, kubernetes)
        found = _read(paths)
        findings = (*found.findings, *check(found.documents, facts))
        silent = (*unchecked(found.documents, facts), *found.other)
    wrong = any(finding.level is Level.ERROR for finding in findings)
    if output is Output.JSON:
        _answer(findings, silent, facts, len(found.documents))
    else:
        _say(findings, silent, facts, len(found.documents))
    raise typer.Exit(1 if wrong else 0)


def _facts(spec: Path | None, kubernetes: str | None) -> "Facts":
    from gpucluster.catalog import kubernetes_facts
    from gpucluster.k8s.lint import Facts

    known = kubernetes_facts().versions
    if kubernetes is not None and kubernetes not in known:
        raise GpuclusterError(
            f"--kubernetes {kubernetes}: there are facts of {', '.join(known)}",
            next_step=f"gpucluster lint --kubernetes {known[-1]} …",
        )
    if spec is None:
        return Facts(kubernetes=kubernetes or known[-1], whole=False)
    facts = _of_spec(spec)
    return replace(facts, kubernetes=kubernetes) if kubernetes else facts


def _of_spec(spec: Path) -> "Facts":
    from gpucluster.cli.desk import resolve_file
    from gpucluster.k8s.lint import facts

    plan = resolve_file(spec).plan
    if plan.kubernetes is None:
        raise GpuclusterError(
            f"{spec} has no `kubernetes`", next_step="leave --spec out, or name another spec"
        )
    return facts(plan)


def _read(paths: list[Path]) -> _Found:
    from gpucluster.k8s.lint.read import read

    documents: list[Document] = []
    findings: list[Finding] = []
    other: list[str] = []
    for path in paths:
        for file in _files(path):
            got = read(_text(file), file.as_posix())
            findings.extend(got.findings)
            for document in got.documents:
                if path.is_dir() and _is_other(document.value):
                    other.append(f"{document.file}: document {document.number} is no manifest")
                else:
                    documents.append(document)
    return _Found(tuple(documents), tuple(findings), tuple(other))


def _files(path: Path) -> Iterator[Path]:
    """A file as it is; of a folder all that look like manifests, hidden folders left out."""
    if not path.is_dir():
        yield path
        return
    below = (file for file in sorted(path.rglob("*")) if file.suffix in SUFFIXES and file.is_file())
    found = [file for file in below if not any(part.startswith(".") for part in file.relative_to(path).parts)]
    if not found:
        raise GpuclusterError(f"{path} has no .yaml, .yml or .json file", next_step="name the folder with manifests")  # fmt: skip
    yield from found


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise GpuclusterError(f"{file}: {reason}", next_step="name files or folders of YAML") from error


def _is_other(value: Any) -> bool:
    """A file of values or a patch beside manifests: neither of the two keys that all manifests have."""
    return not (isinstance(value, dict) and ("apiVersion" in value or "kind" in value))


def _answer(findings: "tuple[Finding, ...]", silent: tuple[str, ...], facts: "Facts", count: int) -> None:
    from gpucluster.k8s.lint import Level
    from gpucluster.plan.codec import to_json

    answer(
        ok=not any(finding.level is Level.ERROR for finding in findings),
        kubernetes=facts.kubernetes,
        documents=count,
        findings=[to_json(finding) for finding in findings],
        unchecked=list(silent),
    )


def _say(findings: "tuple[Finding, ...]", silent: tuple[str, ...], facts: "Facts", count: int) -> None:
    from gpucluster.k8s.lint import Level
    from gpucluster.spec.problem import printable

    for finding in findings:
        say(printable(str(finding)))
    for sentence in silent:
        say(printable(f"not checked: {sentence}"))
    errors = sum(finding.level is Level.ERROR for finding in findings)
    verdict = f"{_counted(errors, 'error')}, {_counted(len(findings) - errors, 'warning')}"
    say(f"{_counted(count, 'document')} for Kubernetes {facts.kubernetes}: {verdict}")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
