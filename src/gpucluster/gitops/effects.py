"""What an edit does to running jobs, queued jobs, sessions and data, and the commands in their order. Pure.

Slurm: the events of the edit give the sentences (`gitops.sentences`) and the commands (`gitops.steps`); notes of single
fields follow. `gitops.pods` has those of pods. `tests/unit/gitops/test_edits.py` holds the sentences to what happened in
a living cluster.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpucluster.gitops import (
    boots,
    extra_keys,
    identity,
    interruptions,
    job_rights,
    preemption,
    requests,
    sentences,
    sessions,
    steps,
    uids,
)
from gpucluster.gitops.events import Controller, Events
from gpucluster.gitops.field_effects import ROWS, Note, Row
from gpucluster.gitops.model import Clause, Effects, SpecChange
from gpucluster.gitops.refine import SHRINKS
from gpucluster.plan.model import SlurmPlan
from gpucluster.slurm.request_table import Way
from gpucluster.spec import UpdateClass
from gpucluster.text import listed

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
_ON_HOSTS = "stay on the hosts, which nothing changes"
OLD_HOSTS = Effects(
    running=_ON_HOSTS,
    queued=_ON_HOSTS,
    sessions=_ON_HOSTS,
    data="stays on the hosts, and is not copied",
    refused=(
        "this is another cluster, beside that of the hosts. Write it into a file of its own with another `name`, "
        "move users and data, and stop the hosts then"
    ),
)


def of_jobs(
    name: str,
    apply: tuple[str, ...],
    found: Events,
    changes: Iterable[SpecChange],
    plans: tuple[SlurmPlan, SlurmPlan | None],
) -> Effects:
    """Return the effects on a Slurm cluster. `apply` has the commands that apply the spec."""
    changes, (old, new) = tuple(changes), plans
    stays = None if found.queue_lost else new  # a controller without state has no other cluster's name
    unread = found.refuses or found.controller is Controller.OTHER_DATABASE
    said = [] if found.queue_lost or unread else [*notes(changes), *of_plans(old, new)]
    said += [] if stays is None else [identity.note(old, stays, moved=found.new_head), boots.note(old, stays)]
    by_head = "" if stays is None else identity.refused(old, stays, moved=found.new_head)
    way = Way.RECONFIGURE if found.controller is Controller.STAYS else Way.RESTART
    asked = () if unread else requests.clauses(old, stays, way, starts=sentences.starts(found))
    later = (*apply, *steps.after(found), *(step for one in said for step in one.after))
    only_smaller = all(one.why == SHRINKS or one.update is UpdateClass.NONE for one in changes)
    fails = found.smaller and not found.refused and only_smaller
    first = (*steps.before(found), *(step for one in said for step in one.before))
    lines = (*first, *(() if fails else later))
    return Effects(
        running=sentences.running(
            found, clauses((*requests.texts(asked, "running"), *(one.running for one in said)))
        ),
        queued=sentences.queued(
            found, clauses((*requests.texts(asked, "queued", "new"), *queued_notes(said, stays)))
        ),
        sessions=sentences.sessions(found, clauses(one.sessions for one in said)),
        data=sentences.data(found, clauses(one.data for one in said)),
        refused="; ".join(clauses((by_head, sentences.refused(found)))),
        split="" if stays is None else identity.split(old, stays, moved=found.new_head),
        steps=_named(name, lines),
        clauses=(*sentences.clauses(found), *asked, *of_rows(said, stays)),
    )


def queued_notes(said: Iterable[Note], plan: SlurmPlan | None) -> Iterator[str]:
    """Yield the notes about queued jobs, as Slurm enforces limits by this plan."""
    return (one.queued if plan is None else requests.as_enforced(one.queued, one.rows, plan) for one in said)


def of_rows(said: Iterable[Note], plan: SlurmPlan | None) -> Iterator[Clause]:
    """Yield the clauses about jobs of the notes that have rows, each once."""
    for one in dict.fromkeys(note for note in said if note.rows):
        for subject, text in (("running", one.running), ("queued", *queued_notes([one], plan))):
            if text:
                yield Clause(subject=subject, text=text, rows=one.rows)


def named(name: str, found: Effects, commands: Iterable[str]) -> Effects:
    """Return effects and their commands with the name of the cluster."""
    return replace(
        found,
        running=found.running.replace(steps.CLUSTER, name),
        queued=found.queued.replace(steps.CLUSTER, name),
        data=found.data.replace(steps.CLUSTER, name),
        steps=_named(name, commands),
    )


def of_another_cluster(name: str, apply: tuple[str, ...], *, on_hosts: bool = False) -> Effects:
    """Return the effects of another name, or of other machines: nothing is applied to the old cluster, which is `on_hosts`."""
    return replace(OLD_HOSTS if on_hosts else OTHER_CLUSTER, steps=_named(name, apply))


def notes(changes: Iterable[SpecChange], first: tuple[Row, ...] = ()) -> Iterable[Note]:
    """Yield the notes of each change: those of `first`, else those of ROWS. A note of several items is one, and names them."""
    found: dict[Note, list[str]] = {}
    for one in changes:
        pattern = _ITEM.sub("[]", one.path)
        if one.update is not UpdateClass.NONE:
            own = [row.note for row in first if row.fits(pattern, one)]
            for note in own or [row.note for row in ROWS if row.fits(pattern, one)]:
                found.setdefault(note, []).extend(name[1:-1] for name in _ITEM.findall(one.path)[:1])
    return (note.of(listed(sorted(set(names)))) for note, names in found.items())


def of_plans(old: SlurmPlan, new: SlurmPlan | None) -> Iterator[Note]:
    """Yield the notes that two plans decide, and no field of its own."""
    for one in (preemption, interruptions, job_rights, uids, extra_keys, sessions):
        yield from one.notes(old, new)


def clauses(found: Iterable[str]) -> tuple[str, ...]:
    """Return each text once, without the empty ones."""
    return tuple(dict.fromkeys(one for one in found if one))


def _named(name: str, lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(line.replace(steps.CLUSTER, name) for line in dict.fromkeys(lines))
