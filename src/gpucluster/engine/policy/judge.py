"""Every rule of every pack over one stack: findings in a fixed order."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from gpucluster.engine.offline.model import Resource
from gpucluster.engine.policy.model import Level, Rule, Stack, Violation
from gpucluster.engine.policy.pack import Pack
from gpucluster.errors import GpuclusterError


class PolicyError(GpuclusterError):
    """A pack that cannot be read, or a rule that failed: never a pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one rule says of one property. `open`: only the deployment tells, so that it is neither passed nor broken."""

    pack: str
    rule: str
    level: Level
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
    """All findings; `rules` and `resources` say what was asked of what."""

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
        """Whether no mandatory rule is broken."""
        return not any(f.level is Level.MANDATORY for f in self.violations)


def judge(packs: Iterable[Pack], resources: Iterable[Resource]) -> Report:
    """Ask every rule. PolicyError when one fails: its silence would be a pass."""
    every = tuple(packs)
    stack = Stack.of(resources)
    found = [one for pack in every for rule in pack.rules for one in _asked(pack, rule, stack)]
    rules = tuple(f"{pack.name}/{rule.name}" for pack in every for rule in pack.rules)
    return Report(findings=_ordered(found), rules=rules, resources=sum(1 for _ in stack.made()))


def open_texts(packs: Iterable[Pack], report: Report) -> bool:
    """Whether a second look, with made-up names, would tell more."""
    texts = _texts(packs)
    return any((one.pack, one.rule) in texts for one in report.open)


def settled(packs: Iterable[Pack], report: Report, again: Report) -> Report:
    """The report, in which open texts are answered by `again`: the same program, with made-up names in them."""
    texts = _texts(packs)
    asked = [one for one in report.open if (one.pack, one.rule) in texts]
    found = (one for one in again.findings if any(_within(one, whole) for whole in asked))
    stay = (one for one in report.findings if one not in asked)
    return replace(report, findings=_ordered(dict.fromkeys((*stay, *found))))


def _texts(packs: Iterable[Pack]) -> frozenset[tuple[str, str]]:
    return frozenset((pack.name, rule.name) for pack in packs for rule in pack.rules if rule.texts)


def _within(finding: Finding, whole: Finding) -> bool:
    """Whether it speaks of the same property, or of a part of it: `policy` has `policy.Action`."""
    below = finding.property.removeprefix(whole.property)
    same = (finding.pack, finding.rule, finding.urn) == (whole.pack, whole.rule, whole.urn)
    return same and finding.property.startswith(whole.property) and below[:1] in ("", ".", "[")


def _ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """What is known first, what stops a run before what is told."""
    return tuple(
        sorted(
            findings, key=lambda f: (f.open, f.level is Level.ADVISORY, f.rule, f.urn, f.property, f.found)
        )
    )


def _asked(pack: Pack, rule: Rule, stack: Stack) -> Iterator[Finding]:
    try:
        said = list(rule.judge(stack))
    except Exception as error:  # a rule is a site's code
        raise PolicyError(
            f"the rule {rule.name!r} of {pack.folder} failed: {type(error).__name__}: {error}",
            next_step="mend the rule; what it cannot read it should call Open",
        ) from error
    for one in said:
        broken = isinstance(one, Violation)
        yield Finding(
            pack=pack.name,
            rule=rule.name,
            level=rule.level,
            urn=one.resource.urn,
            type=one.resource.type,
            name=one.resource.name,
            property=one.property,
            found=one.found if broken else "what only `pulumi up` will tell",
            expected=one.expected,
            next_step=one.next_step if broken else "run the pack at `pulumi up`, too: --policy-pack policies",
            open=not broken,
        )
