"""What a rule of a policy pack is, what it is asked of, and what it can say."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpucluster.engine.offline.model import Resource, Value, is_provider


class Level(StrEnum):
    """A mandatory rule stops the run; an advisory one is told."""

    MANDATORY = "mandatory"
    ADVISORY = "advisory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A resource that a rule does not pass. `found` never holds a secret."""

    resource: Resource
    property: str
    found: str
    expected: str
    next_step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """What only the deployment tells: no violation, and not passed either."""

    resource: Resource
    property: str
    expected: str


Said = Violation | Open


@dataclass(frozen=True, slots=True)
class Stack:
    """All that the program declares, as the planner or the engine sees it."""

    resources: tuple[Resource, ...]
    by_urn: Mapping[str, Resource] = field(default_factory=dict[str, Resource])

    @staticmethod
    def of(resources: Iterable[Resource]) -> "Stack":
        """The program's own resources: what is only read belongs to somebody else."""
        own = tuple(sorted((r for r in resources if not r.external), key=lambda r: r.urn))
        return Stack(own, {r.urn: r for r in own})

    def of_type(self, *types: str) -> Iterator[Resource]:
        """Resources of these types, by urn."""
        return (r for r in self.resources if r.type in types)

    def made(self) -> Iterator[Resource]:
        """What stands in the cloud: neither components nor providers."""
        return (r for r in self.resources if r.custom and not is_provider(r))

    def provider(self, resource: Resource) -> Mapping[str, Value]:
        """The settings of the resource's provider; {} when it is the default one."""
        found = self.by_urn.get(resource.provider or "")
        return {} if found is None else found.properties


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule: its name is stable, for sites and code scanning refer to it."""

    name: str
    level: Level
    about: str
    judge: Callable[[Stack], Iterable[Said]]
    texts: bool = False  # judges texts in which only names are open: made-up ones will do
