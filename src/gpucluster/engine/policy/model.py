"""Types of a policy pack: rules, violations, undecided properties, and the stack that rules check."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpucluster.engine.offline.model import Resource, Value, is_provider


class EnforcementLevel(StrEnum):
    """A mandatory rule stops the run. An advisory rule only reports."""

    MANDATORY = "mandatory"
    ADVISORY = "advisory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A resource that breaks a rule. `found` never contains a secret."""

    resource: Resource
    property: str
    found: str
    expected: str
    next_step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """A property whose value is known only after the deployment. The rule neither passes nor fails."""

    resource: Resource
    property: str
    expected: str


RuleResult = Violation | Undecided


@dataclass(frozen=True, slots=True)
class Stack:
    """All resources that the program declares, as the planner or the engine lists them."""

    resources: tuple[Resource, ...]
    by_urn: Mapping[str, Resource] = field(default_factory=dict[str, Resource])

    @staticmethod
    def of(resources: Iterable[Resource]) -> "Stack":
        """Return the stack without resources that are only read: other owners manage those."""
        own = tuple(sorted((r for r in resources if not r.external), key=lambda r: r.urn))
        return Stack(own, {r.urn: r for r in own})

    def of_type(self, *types: str) -> Iterator[Resource]:
        """Yield resources of these types, sorted by URN."""
        return (r for r in self.resources if r.type in types)

    def made(self) -> Iterator[Resource]:
        """Yield resources that exist in the cloud: no components and no providers."""
        return (r for r in self.resources if r.custom and not is_provider(r))

    def provider(self, resource: Resource) -> Mapping[str, Value]:
        """Return the settings of the resource's provider; {} for the default provider."""
        found = self.by_urn.get(resource.provider or "")
        return {} if found is None else found.properties


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule. Its name is stable because sites and code scanning refer to it."""

    name: str
    level: EnforcementLevel
    about: str
    check: Callable[[Stack], Iterable[RuleResult]]
    texts: bool = False  # checks texts in which only names are unknown: placeholder names are enough
