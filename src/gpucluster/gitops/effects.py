"""What an edit does to running jobs, queued jobs, sessions and data, and the commands in their order. Pure.

Slurm: the events of the edit give the sentences (`gitops.sentences`) and the commands (`gitops.steps`); notes of single
fields follow. Pods: the worst class gives them. `tests/unit/gitops/test_edits.py` holds the sentences to what happened in
a living cluster.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpucluster.gitops import sentences, steps
from gpucluster.gitops.events import Events
from gpucluster.gitops.field_effects import BY_CLASS_OF_PODS, BY_CLASS_OF_WORKLOADS, ROWS, Note
from gpucluster.gitops.model import Effects, SpecChange, worse, worst
from gpucluster.gitops.refine import SHRINKS
from gpucluster.spec import UpdateClass

_ITEM = re.compile(r"\[[^\]]*\]")

UNAFFECTED = Effects(
    running="go on", queued="stay in the queue", sessions="stay open", data="stays where it is"
)
_ELSEWHERE = "stay on the old cluster, until it is deleted"
OTHER_CLUSTER = Effects(
    running=_ELSEWHERE,
    queued=_ELSEWHERE,
    sessions=_ELSEWHERE,
    data="stays on the old cluster, until it is deleted",
)


def of_jobs(name: str, apply: tuple[str, ...], found: Events, changes: Iterable[SpecChange]) -> Effects:
    """Return the effects on a Slurm cluster. `apply` has the commands that apply the spec."""
    changes = tuple(changes)
    notes = [] if found.queue_lost else list(_notes(changes))
    pods = tuple(_pods(changes))
    later = (*apply, *steps.after(found), *(step for one in notes for step in one.after))
    only_smaller = all(one.why == SHRINKS or one.update is UpdateClass.NONE for one in changes)
    fails = found.smaller and not found.refused and only_smaller
    lines = (*steps.before(found), *(() if fails else later))
    return Effects(
        running=sentences.running(found, (*_clauses(one.running for one in notes), *pods)),
        queued=sentences.queued(found, _clauses(one.queued for one in notes)),
        sessions=sentences.sessions(found, _clauses(one.sessions for one in notes)),
        data=sentences.data(found, _clauses(one.data for one in notes)),
        refused=sentences.refused(found),
        steps=_named(name, lines),
    )


def of_pods(
    name: str, apply: tuple[str, ...], cluster: UpdateClass, workloads: Iterable[SpecChange] = ()
) -> Effects:
    """Return the effects on a Kubernetes cluster without Slurm. A worse class of the cluster hides that of its workloads."""
    found = BY_CLASS_OF_PODS[cluster]
    own = worst(one.update for one in workloads)
    if own is not None and not worse(cluster, own):
        found = BY_CLASS_OF_WORKLOADS.get(own, found)
    return replace(found, steps=_named(name, (*found.steps, *apply)))


def of_another_cluster(name: str, apply: tuple[str, ...]) -> Effects:
    """Return the effects of another name: nothing is applied to the old cluster."""
    return replace(OTHER_CLUSTER, steps=_named(name, apply))


def _notes(changes: Iterable[SpecChange]) -> Iterable[Note]:
    for one in changes:
        pattern = _ITEM.sub("[]", one.path)
        if one.update is not UpdateClass.NONE:
            yield from (row.note for row in ROWS if row.fits(pattern, one.kind))


def _pods(changes: Iterable[SpecChange]) -> Iterator[str]:
    """Yield what happens to the pods of a cluster that has both schedulers."""
    found = worst(one.update for one in changes if one.path.partition(".")[0] == "kubernetes")
    if found is not None and (words := BY_CLASS_OF_PODS[found].running) != UNAFFECTED.running:
        yield f"pods {words}"


def _clauses(found: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for one in found if one))


def _named(name: str, lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(line.replace(steps.CLUSTER, name) for line in dict.fromkeys(lines))
