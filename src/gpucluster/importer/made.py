"""A spec that is being made of a site, with what was changed or made up on the way."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpucluster.importer.write_yaml import Value

# (kind, node or partition, key) -> why the spec has another value or none, from where that was decided
Reasons = dict[tuple[str, str, str], str]


@dataclass(slots=True)
class Made:
    """A spec as plain values."""

    spec: dict[str, Value]
    nodes: dict[str, str]  # name in the files -> name in the spec
    partitions: dict[str, str]
    left_out: dict[str, str]  # node -> why it is in no pool
    made_up: tuple[str, ...]  # sentences
    switches: dict[str, str] = field(default_factory=dict[str, str])
    reasons: Reasons = field(default_factory=Reasons)
    lost_exemptions: tuple[str, ...] = ()  # of the dump: they keep jobs from being preempted
    left_out_names: frozenset[tuple[str, str]] = frozenset()  # of the dump: kind and name in lower case

    @property
    def slurm(self) -> Mapping[str, Value]:
        """The part `slurm`."""
        return mapping(self.spec["slurm"])

    def rows(self, part: str) -> list[Mapping[str, Value]]:
        """The rows of a list such as `partitions`; none without the part."""
        found = self.spec.get(part)
        return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def mapping(value: Value) -> Mapping[str, Value]:
    """The mapping; an empty one for another value, and for none."""
    return value if isinstance(value, Mapping) else {}
