"""`gpucluster plan --policy`: check the declared resources against policy packs. The Pulumi engine runs the same packs."""

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gpucluster.cli.output import PlanOutput, answer, print_result, progress
from gpucluster.errors import GpuclusterError

if TYPE_CHECKING:
    from gpucluster.cli.context import ResolvedSpec
    from gpucluster.engine.offline.model import Lookup
    from gpucluster.engine.policy import Finding, Pack, Report
    from gpucluster.spec import Problem
    from gpucluster.spec.problem import Mark


@dataclass(frozen=True, slots=True)
class _Page:
    """All that a page shows."""

    report: "Report"
    resolved: "ResolvedSpec"
    file: Path
    why: str | None  # why there are no resources
    packs: Sequence[Path]
    lookups: "tuple[Lookup, ...]"  # only `pulumi up` makes them


def show(resolved: "ResolvedSpec", file: Path, packs: Sequence[Path], output: PlanOutput) -> None:
    """Check and print. Exit 1 when a mandatory rule is violated."""
    from gpucluster.cli.resources import recorded, warn_of_open_lookups, why_not
    from gpucluster.engine.offline.answers import still_open
    from gpucluster.engine.policy import evaluate, has_undecided_texts, load
    from gpucluster.files import shipped

    every = [load(folder) for folder in (shipped("policies"), *packs)]
    if output is not PlanOutput.JSON:
        for warning in resolved.warnings:
            progress(str(warning))
    planned = recorded(resolved.plan, file)
    warn_of_open_lookups(planned, file)
    report = evaluate(every, () if planned is None else planned.resources)
    if has_undecided_texts(every, report):
        report = _second_look(every, report, resolved, file)
    lookups = () if planned is None else still_open(planned)
    _ANSWERS[output](_Page(report, resolved, file, why_not(resolved.plan), packs, lookups))
    raise typer.Exit(0 if report.passed else 1)


def _second_look(packs: "Sequence[Pack]", report: "Report", resolved: "ResolvedSpec", file: Path) -> "Report":
    """Check values that the cloud decides with placeholders. A gate that cannot read them is not green."""
    from gpucluster.cli.resources import recorded
    from gpucluster.engine.offline import ProgramError
    from gpucluster.engine.policy import evaluate, with_decided_texts

    try:
        again = recorded(resolved.plan, file, assume=True)
    except ProgramError as error:
        raise GpuclusterError(
            f"policies of texts are not checked, because placeholder names do not work: {error.message}",
            next_step="record the account's answers: gpucluster plan FILE --resources --live --record",
        ) from error
    return report if again is None else with_decided_texts(packs, report, evaluate(packs, again.resources))


def _text(page: _Page) -> None:
    from gpucluster.text import printable

    for finding in page.report.findings:
        word = "open" if finding.open else str(finding.level)
        print_result(printable(f"{word}[{finding.rule}] {finding}"))
        if not finding.open:
            print_result(printable(f"  next: {finding.next_step}"))
    for line in _open_lines(page):
        print_result(printable(line))
    print_result(printable(page.why or _verdict(page.report, page.resolved.plan.name)))


def _json(page: _Page) -> None:
    from gpucluster.plan.codec import to_json

    answer(
        ok=page.report.passed,
        findings=to_json(page.report.findings),
        rules=list(page.report.rules),
        resources=page.report.resources,
        why=page.why,
        open_lookups=to_json(page.lookups),
        problems=to_json(page.resolved.warnings),
    )


def _markdown(page: _Page) -> None:
    from gpucluster import markdown
    from gpucluster.text import printable

    report, name = page.report, page.resolved.plan.name
    verdict = markdown.text(page.why or _verdict(report, name))
    argv = [
        "gpucluster",
        "plan",
        str(page.file),
        "--policy",
        *(w for p in page.packs for w in ("--policy-pack", str(p))),
    ]
    head = (
        f"<!-- gpucluster:policy:{printable(name).replace('--', '-')} -->",
        f"### {verdict}",
        *([_table(report.violations)] if report.violations else []),
        *(["\n".join(f"- {markdown.text(line)}" for line in _open_lines(page))] if page.lookups else []),
        f"To repeat this check: {markdown.code(shlex.join(argv))}",
    )
    opened = "\n".join(
        f"{finding.rule}: {finding.type} {finding.name}: {finding.property}" for finding in report.open
    )
    title = f"{len(report.open)} undecided until `pulumi up`"
    parts = [markdown.details(title, markdown.fence(opened))] if report.open else []
    print_result(markdown.fitted("\n\n".join(head), parts, markdown.code(shlex.join(argv))).rstrip("\n"))


def _open_lines(page: _Page) -> Iterator[str]:
    from gpucluster.engine.offline.show import asked

    return map(asked, page.lookups)


def _table(findings: "Sequence[Finding]") -> str:
    from gpucluster import markdown

    rows = [
        (
            markdown.code(one.rule),
            str(one.level),
            markdown.code(f"{one.type} {one.name}"),
            markdown.code(one.property),
            markdown.text(one.found),
            markdown.text(one.expected),
            markdown.text(one.next_step),
        )
        for one in findings
    ]
    return markdown.table(("rule", "level", "resource", "property", "found", "expected", "next"), rows)


def _sarif(page: _Page) -> None:
    """Return only violations: an alert for a value that only `pulumi up` knows would never be closed."""
    from importlib.metadata import version

    from gpucluster.cli.check import from_top
    from gpucluster.gitops.sarif import sarif

    for finding in page.report.open:
        progress(f"not known yet: [{finding.rule}] {finding.type} {finding.name}: {finding.property}")
    if page.why is not None:
        progress(page.why)
    problems = [_problem(one, page.resolved, page.file) for one in page.report.violations]
    uris = {str(page.file): from_top(page.file)}
    log: Any = sarif(problems, uris=uris, unread=(), version=version("gpucluster"))
    print_result(json.dumps(log, indent=1, sort_keys=True))


def _problem(finding: "Finding", resolved: "ResolvedSpec", file: Path) -> "Problem":
    from gpucluster.engine.policy import EnforcementLevel
    from gpucluster.spec import Problem
    from gpucluster.spec.problem import Level

    return Problem(
        file=str(file),
        mark=_mark(finding, resolved, file),
        level=Level.ERROR if finding.level is EnforcementLevel.MANDATORY else Level.WARNING,
        id=f"policy-{finding.rule}",
        path=finding.name,
        message=f"{finding}; next: {finding.next_step}",
        source="",
    )


def _mark(finding: "Finding", resolved: "ResolvedSpec", file: Path) -> "Mark":
    """Return the line of the pool that declares the resource, or the first line."""
    from gpucluster.spec.problem import Mark

    names = [
        pool.name
        for pool in resolved.plan.pools
        if finding.name.startswith(f"{resolved.plan.name}-{pool.name}-")
    ]
    if names:
        wanted = re.compile(rf"name:\s*[\"']?{re.escape(max(names, key=len))}\b")
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if found := wanted.search(line):
                return Mark(number, found.start() + 1)
    return Mark(1, 1)


def _verdict(report: "Report", name: str) -> str:
    return f"{name}: {', '.join(_counts(report))}"


def _counts(report: "Report") -> Iterator[str]:
    from gpucluster.engine.policy import EnforcementLevel

    mandatory = sum(one.level is EnforcementLevel.MANDATORY for one in report.violations)
    advisory = len(report.violations) - mandatory
    yield f"{len(report.rules)} rules over {report.resources} resources"
    yield f"{mandatory} mandatory violation{'s' * (mandatory != 1)}"
    yield f"{advisory} advisory"
    yield f"{len(report.open)} undecided until `pulumi up`"


_ANSWERS = {
    PlanOutput.TEXT: _text,
    PlanOutput.JSON: _json,
    PlanOutput.MARKDOWN: _markdown,
    PlanOutput.SARIF: _sarif,
}
