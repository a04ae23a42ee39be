"""Run every rule of every pack over one stack. Findings have a fixed order."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from gpucluster.engine.offline.model import Resource
from gpucluster.engine.policy.model import EnforcementLevel, Rule, Stack, Violation
from gpucluster.engine.policy.pack import Pack
from gpucluster.errors import GpuclusterError


class PolicyError(GpuclusterError):
    """A pack cannot be read, or a rule raised an exception. This never counts as a pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding of a rule about a property. `open`: the value is known only after the deployment."""

    pack: str
    rule: str
    level: EnforcementLevel
    urn: str
    type: str
    name: str
    property: str
    found: str
    expected: str
    next_step: str
    open: bool = False

    def __str__(self) -> str:
        return f"{self.type} {self.name}: {self.property}: found {self.found}, expected {self.expected}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All findings, the names of the rules, and the number of checked resources."""

    findings: tuple[Finding, ...]
    rules: tuple[str, ...]
    resources: int

    @property
    def violations(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if not f.open)

    @property
    def open(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.open)

    @property
    def passed(self) -> bool:
        """Return whether no mandatory rule is broken."""
        return not any(f.level is EnforcementLevel.MANDATORY for f in self.violations)


def evaluate(packs: Iterable[Pack], resources: Iterable[Resource]) -> Report:
    """Run every rule. Raise PolicyError if a rule raises: a rule without a result must not count as a pass."""
    every = tuple(packs)
    stack = Stack.of(resources)
    found = [one for pack in every for rule in pack.rules for one in _findings(pack, rule, stack)]
    rules = tuple(f"{pack.name}/{rule.name}" for pack in every for rule in pack.rules)
    return Report(findings=_ordered(found), rules=rules, resources=sum(1 for _ in stack.made()))


def has_undecided_texts(packs: Iterable[Pack], report: Report) -> bool:
    """Return whether a second run with placeholder names can decide more properties."""
    texts = _texts(packs)
    return any((one.pack, one.rule) in texts for one in report.open)


def with_decided_texts(packs: Iterable[Pack], report: Report, again: Report) -> Report:
    """Return the report with undecided texts replaced by findings of `again`, a run with placeholder names."""
    texts = _texts(packs)
    asked = [one for one in report.open if (one.pack, one.rule) in texts]
    found = (one for one in again.findings if any(_within(one, whole) for whole in asked))
    stay = (one for one in report.findings if one not in asked)
    return replace(report, findings=_ordered(dict.fromkeys((*stay, *found))))


def _texts(packs: Iterable[Pack]) -> frozenset[tuple[str, str]]:
    return frozenset((pack.name, rule.name) for pack in packs for rule in pack.rules if rule.texts)


def _within(finding: Finding, whole: Finding) -> bool:
    """Return whether the finding is about the same property or a part of it: `policy` contains `policy.Action`."""
    below = finding.property.removeprefix(whole.property)
    same = (finding.pack, finding.rule, finding.urn) == (whole.pack, whole.rule, whole.urn)
    return same and finding.property.startswith(whole.property) and below[:1] in ("", ".", "[")


def _ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings: violations before undecided properties, mandatory before advisory."""
    return tuple(
        sorted(
            findings,
            key=lambda f: (f.open, f.level is EnforcementLevel.ADVISORY, f.rule, f.urn, f.property, f.found),
        )
    )


def _findings(pack: Pack, rule: Rule, stack: Stack) -> Iterator[Finding]:
    try:
        results = list(rule.check(stack))
    except Exception as error:  # a rule is code of the site
        raise PolicyError(
            f"the rule {rule.name!r} of {pack.folder} failed: {type(error).__name__}: {error}",
            next_step="fix the rule; for a property that it cannot read, it must return Undecided",
        ) from error
    for one in results:
        broken = isinstance(one, Violation)
        yield Finding(
            pack=pack.name,
            rule=rule.name,
            level=rule.level,
            urn=one.resource.urn,
            type=one.resource.type,
            name=one.resource.name,
            property=one.property,
            found=one.found if broken else "a value that is known only after `pulumi up`",
            expected=one.expected,
            next_step=one.next_step
            if broken
            else "run the pack during `pulumi up`, too: --policy-pack policies",
            open=not broken,
        )
