"""`gpucluster plan --policy`: the rules of policy packs over what Pulumi would declare; the engine runs the same packs."""

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gpucluster.cli.output import PlanOutput, answer, progress, say

if TYPE_CHECKING:
    from gpucluster.cli.desk import Desk
    from gpucluster.engine.policy import Finding, Pack, Report
    from gpucluster.spec import Problem
    from gpucluster.spec.problem import Mark


def show(desk: "Desk", file: Path, packs: Sequence[Path], output: PlanOutput) -> None:
    """Judge and tell. Exit 1 when a mandatory rule is broken."""
    from gpucluster.cli.resources import recorded, why_not
    from gpucluster.engine.policy import judge, load, open_texts
    from gpucluster.files import shipped

    every = [load(folder) for folder in (shipped("policies"), *packs)]
    if output is not PlanOutput.JSON:
        for warning in desk.warnings:
            progress(str(warning))
    planned = recorded(desk.plan, file)
    report = judge(every, () if planned is None else planned.resources)
    if open_texts(every, report):
        report = _second_look(every, report, desk, file)
    _ANSWERS[output](report, desk, file, why_not(desk.plan), packs)
    raise typer.Exit(0 if report.passed else 1)


def _second_look(packs: "Sequence[Pack]", report: "Report", desk: "Desk", file: Path) -> "Report":
    """Open texts judged with made-up names; what the program cannot do with those stays open."""
    from gpucluster.cli.resources import recorded
    from gpucluster.engine.offline import ProgramError
    from gpucluster.engine.policy import judge, settled

    try:
        again = recorded(desk.plan, file, assume=True)
    except ProgramError as error:
        progress(f"texts stay open, for made-up names do not do: {error}")
        return report
    return report if again is None else settled(packs, report, judge(packs, again.resources))


def _text(report: "Report", desk: "Desk", _file: Path, why: str | None, _packs: Sequence[Path]) -> None:
    from gpucluster.markdown import printable

    for finding in report.findings:
        word = "open" if finding.open else str(finding.level)
        say(printable(f"{word}[{finding.rule}] {finding}"))
        if not finding.open:
            say(printable(f"  next: {finding.next_step}"))
    say(printable(why or _verdict(report, desk.plan.name)))


def _json(report: "Report", desk: "Desk", _file: Path, why: str | None, _packs: Sequence[Path]) -> None:
    from gpucluster.plan.codec import to_json

    answer(
        ok=report.passed,
        findings=to_json(report.findings),
        rules=list(report.rules),
        resources=report.resources,
        why=why,
        problems=to_json(desk.warnings),
    )


def _markdown(report: "Report", desk: "Desk", file: Path, why: str | None, packs: Sequence[Path]) -> None:
    from gpucluster import markdown

    name = desk.plan.name
    verdict = markdown.text(why or _verdict(report, name))
    argv = [
        "gpucluster",
        "plan",
        str(file),
        "--policy",
        *(w for p in packs for w in ("--policy-pack", str(p))),
    ]
    head = (
        f"<!-- gpucluster:policy:{markdown.printable(name).replace('--', '-')} -->",
        f"### {verdict}",
        *([_table(report.violations)] if report.violations else []),
        f"To see it at the desk: {markdown.code(shlex.join(argv))}",
    )
    opened = "\n".join(
        f"{finding.rule}: {finding.type} {finding.name}: {finding.property}" for finding in report.open
    )
    title = f"{len(report.open)} not known before `pulumi up`"
    parts = [markdown.details(title, markdown.fence(opened))] if report.open else []
    say(markdown.fitted("\n\n".join(head), parts, markdown.code(shlex.join(argv))).rstrip("\n"))


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


def _sarif(report: "Report", desk: "Desk", file: Path, why: str | None, _packs: Sequence[Path]) -> None:
    """Violations only: an alert for each thing that only `pulumi up` tells would never be closed."""
    from importlib.metadata import version

    from gpucluster.cli.check import from_top
    from gpucluster.gitops.sarif import sarif

    for finding in report.open:
        progress(f"not known yet: [{finding.rule}] {finding.type} {finding.name}: {finding.property}")
    if why is not None:
        progress(why)
    problems = [_problem(one, desk, file) for one in report.violations]
    log: Any = sarif(problems, uris={str(file): from_top(file)}, unread=(), version=version("gpucluster"))
    say(json.dumps(log, indent=1, sort_keys=True))


def _problem(finding: "Finding", desk: "Desk", file: Path) -> "Problem":
    from gpucluster.engine.policy import Level as Enforced
    from gpucluster.spec import Problem
    from gpucluster.spec.problem import Level

    return Problem(
        file=str(file),
        mark=_mark(finding, desk, file),
        level=Level.ERROR if finding.level is Enforced.MANDATORY else Level.WARNING,
        id=f"policy-{finding.rule}",
        path=finding.name,
        message=f"{finding}; next: {finding.next_step}",
        source="",
    )


def _mark(finding: "Finding", desk: "Desk", file: Path) -> "Mark":
    """The line of the pool whose resource it is; else the first. A program's resource has no line in a spec."""
    from gpucluster.spec.problem import Mark

    names = [
        pool.name for pool in desk.plan.pools if finding.name.startswith(f"{desk.plan.name}-{pool.name}-")
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
    from gpucluster.engine.policy import Level

    mandatory = sum(one.level is Level.MANDATORY for one in report.violations)
    advisory = len(report.violations) - mandatory
    yield f"{len(report.rules)} rules over {report.resources} resources"
    yield f"{mandatory} mandatory violation{'s' * (mandatory != 1)}"
    yield f"{advisory} advisory"
    yield f"{len(report.open)} not known before `pulumi up`"


_ANSWERS = {
    PlanOutput.TEXT: _text,
    PlanOutput.JSON: _json,
    PlanOutput.MARKDOWN: _markdown,
    PlanOutput.SARIF: _sarif,
}
