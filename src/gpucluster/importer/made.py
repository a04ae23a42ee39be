"""A spec that is being made of a site, with what was changed or made up on the way."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpucluster.importer.write_yaml import Value

FIRST_MADE_UP = 100_001  # a uid for a user without one in `passwd`
_SHOWN = 3  # names in a sentence
# (kind, node or partition, key; of a whole file only the kind) -> why the spec has another value or none, from where that was decided
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

    without_uid: frozenset[str] = frozenset()  # users of the dump that are not in `passwd`

    @property
    def sentences(self) -> tuple[str, ...]:
        """What was made up, and the users of the finished spec whose uid was."""
        names = [name for one in self.rows("users") if (name := str(one["name"])) in self.without_uid]
        if not names:
            return self.made_up
        listed = ", ".join([*names[:_SHOWN], *(["..."] if len(names) > _SHOWN else [])])
        return (
            *self.made_up,
            f"the uid of {len(names)} users is made up, from {FIRST_MADE_UP} ({listed}): name a file `passwd` with them, "
            "written by `getent passwd`, or write the real ones.",
        )

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
