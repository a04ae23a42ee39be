"""What changes do to running jobs, queued jobs, sessions and data, and the commands in their order. Pure.

One table: the first row whose pattern and classes fit gives the effect of a change. A change without a row has the effect
of its class. `tests/unit/gitops/test_edits.py` holds the sentences to what happened in a living cluster.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpucluster.gitops.effect_rows import BY_CLASS, BY_CLASS_OF_PODS, ROWS, Row
from gpucluster.gitops.model import Consequence, Effect, Effects, Kind, ResourceChange, Said, SpecChange
from gpucluster.spec import UpdateClass

_ITEM = re.compile(r"\[[^\]]*\]")


UNAFFECTED = Effects(
    running="go on", queued="stay in the queue", sessions="stay open", data="stays where it is"
)


@dataclass(frozen=True, slots=True)
class Rules:
    """The table of a scheduler."""

    rows: tuple[Row, ...]
    by_class: Mapping[UpdateClass, Effect]

    def of(self, path: str, update: UpdateClass, kind: Kind) -> Effect:
        pattern = _ITEM.sub("[]", path)
        fitting = (row.effect for row in self.rows if row.fits(pattern, update, kind))
        return next(fitting, self.by_class[update])


JOBS = Rules(ROWS, BY_CLASS)
PODS = Rules((), BY_CLASS_OF_PODS)


def effects(
    name: str,
    apply: tuple[str, ...],
    changes: Iterable[SpecChange],
    consequences: Iterable[Consequence],
    resources: Iterable[ResourceChange] = (),
    *,
    rules: Rules = JOBS,
) -> Effects:
    """Merge the effects. `apply` has the commands that apply the spec; `resources` are those worse than all changes."""
    found = (
        *(rules.of(one.path, one.update, one.kind) for one in changes),
        *(one.effect or rules.of(one.path, one.update, Kind.CHANGED) for one in consequences),
        *(rules.by_class[one.update] for one in resources),
    )
    before = (step for one in found for step in one.before)
    after = (step for one in found for step in one.after)
    steps = dict.fromkeys((*before, *apply, *after))
    return Effects(
        running=_merged(UNAFFECTED.running, (one.running for one in found)),
        queued=_merged(UNAFFECTED.queued, (one.queued for one in found)),
        sessions=_merged(UNAFFECTED.sessions, (one.sessions for one in found)),
        data=_merged(UNAFFECTED.data, (one.data for one in found)),
        steps=tuple(step.replace("NAME", name) for step in steps),
    )


def _merged(unaffected: str, said: Iterable[Said | None]) -> str:
    """Return what is said of one subject. A sentence about all of them makes the weaker ones untrue."""
    found = [one for one in said if one is not None]
    total = [one for one in found if one.total]
    clauses = dict.fromkeys(clause for one in total or found for clause in one.words.split("; "))
    return "; ".join(clauses) or unaffected
