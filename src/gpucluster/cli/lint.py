"""`gpucluster lint`: check Kubernetes manifests without a cluster."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpucluster.cli.lint_input import read_all, read_schemas
from gpucluster.cli.output import Output, OutputOption, answer, print_result, reporting
from gpucluster.errors import GpuclusterError

if TYPE_CHECKING:
    from gpucluster.k8s.lint import Facts, Finding

SpecOption = Annotated[
    Path | None, typer.Option("--spec", help="The cluster's spec: checks quotas, labels and sizes against its pools.")
]  # fmt: skip
VersionOption = Annotated[
    str | None, typer.Option("--kubernetes", help="Kubernetes version, such as 1.36. [default: the spec's, or the newest]")
]  # fmt: skip
WholeOption = Annotated[
    bool, typer.Option("--whole", help="The manifests are a whole cluster: an object that they name and do not hold is an error. [default with --spec]")
]  # fmt: skip
SchemasOption = Annotated[
    list[Path] | None, typer.Option("--schemas", help="File or folder with CustomResourceDefinitions, for the fields of custom resources.")
]  # fmt: skip


def lint(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH", help="Files, folders with .yaml files, or - for standard input."),
    ],
    spec: SpecOption = None,
    kubernetes: VersionOption = None,
    *,
    whole: WholeOption = False,
    schemas: SchemasOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Check Kubernetes manifests. Exit 1 if there is an error, 2 if something cannot be read."""
    from gpucluster.k8s.lint import Severity, check, unchecked

    with reporting(output):
        facts = replace(_facts(spec, kubernetes, whole=whole), resources=read_schemas(schemas or []))
        found = read_all(paths)
        findings = (*found.findings, *check(found.documents, facts))
        silent = (*unchecked(found.documents, facts), *found.other)
    wrong = any(finding.level is Severity.ERROR for finding in findings)
    if output is Output.JSON:
        _answer(findings, silent, facts, len(found.documents))
    else:
        _print_findings(findings, silent, facts, len(found.documents))
    raise typer.Exit(1 if wrong else 0)


def _facts(spec: Path | None, kubernetes: str | None, *, whole: bool) -> "Facts":
    from gpucluster.catalog import kubernetes_facts
    from gpucluster.k8s.lint import Facts

    known = kubernetes_facts().versions
    if kubernetes is not None and kubernetes not in known:
        raise GpuclusterError(
            f"--kubernetes {kubernetes}: the catalog has facts of {', '.join(known)}",
            next_step=f"gpucluster lint --kubernetes {known[-1]} …",
        )
    if spec is None:
        return Facts(kubernetes=kubernetes or known[-1], whole=whole)
    facts = _of_spec(spec)
    return replace(facts, kubernetes=kubernetes) if kubernetes else facts


def _of_spec(spec: Path) -> "Facts":
    from gpucluster.cli.context import resolve_file
    from gpucluster.k8s.lint import facts

    plan = resolve_file(spec).plan
    if plan.kubernetes is None:
        raise GpuclusterError(
            f"{spec} has no `kubernetes:`", next_step="leave --spec out, or name another spec"
        )
    return facts(plan)


def _answer(findings: "tuple[Finding, ...]", silent: tuple[str, ...], facts: "Facts", count: int) -> None:
    from gpucluster.k8s.lint import Severity
    from gpucluster.plan.codec import to_json

    answer(
        ok=not any(finding.level is Severity.ERROR for finding in findings),
        kubernetes=facts.kubernetes,
        documents=count,
        findings=[to_json(finding) for finding in findings],
        unchecked=list(silent),
    )


def _print_findings(
    findings: "tuple[Finding, ...]", silent: tuple[str, ...], facts: "Facts", count: int
) -> None:
    from gpucluster.k8s.lint import Severity
    from gpucluster.text import printable

    for finding in findings:
        print_result(printable(str(finding)))
    for sentence in silent:
        print_result(printable(f"not checked: {sentence}"))
    errors = sum(finding.level is Severity.ERROR for finding in findings)
    verdict = f"{_counted(errors, 'error')}, {_counted(len(findings) - errors, 'warning')}"
    print_result(f"{_counted(count, 'document')} for Kubernetes {facts.kubernetes}: {verdict}")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
