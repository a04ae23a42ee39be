"""What is said of events on existing hosts: for each subject a table, of which the first fitting row is said. Pure.

`gitops.sentences` has those of AWS. On hosts nothing is launched, and the playbook changes running hosts at once.
"""

from collections.abc import Iterator
from dataclasses import replace

from gpucluster.gitops.host_events import HostEvents
from gpucluster.gitops.identity import is_refused, split
from gpucluster.gitops.model import REFUSES, Clause
from gpucluster.gitops.rows import Row, always, first, fitting
from gpucluster.gitops.rows import clauses as of_tables
from gpucluster.gitops.sentences import (
    ALL_DRAIN,
    ALL_WAIT,
    DRAINS,
    FINISH_IN_PARTITION,
    FINISH_ON_NODES,
    MUST_END,
    NODE_HOLDS,
    OLDER_DATABASE,
    PARTITION_HOLDS,
    START_AFTER,
    START_ELSEWHERE,
    STAYS,
    is_start,
    of_drained,
    of_emptied,
    worst_first,
)
from gpucluster.plan.model import SlurmOnHosts
from gpucluster.plan.model.accounting import LocalDatabase
from gpucluster.plan.mounts import exports
from gpucluster.plan.slurm_identity import takes_name
from gpucluster.text import listed

# OLD and NEW stand for the heads
RUNNING: tuple[Row[HostEvents], ...] = (
    Row(lambda e: e.fleet_stops or e.older, MUST_END, total=True),
    Row(lambda e: e.refuses, f"go on: {REFUSES}", requests=STAYS),
    Row(lambda e: e.held and e.removals.nodes, FINISH_ON_NODES, requests=DRAINS),
    Row(lambda e: e.held, FINISH_IN_PARTITION, requests=STAYS),
    Row(always, "go on", requests=STAYS),
)
QUEUED: tuple[Row[HostEvents], ...] = (
    Row(lambda e: e.older, "are lost with slurmctld's state; users submit them again", total=True),
    Row(
        lambda e: e.head_moves and split(e.old, e.new, moved=True) != "",
        "are lost if slurmctld's state is not copied from OLD to NEW; with it slurmctld does not start on NEW",
        total=True,
    ),
    Row(
        lambda e: e.head_moves,
        "are lost if slurmctld's state is not copied from OLD to NEW before the playbook; else they start after the change",
        total=True,
    ),
    Row(lambda e: e.refuses, f"stay in the queue: {REFUSES}", requests=STAYS),
    Row(
        lambda e: e.removals.partitions,
        PARTITION_HOLDS,
        requests=STAYS,
    ),
    Row(
        lambda e: e.removals.removed and e.fleet_stops,
        f"{START_AFTER}; {NODE_HOLDS}",
        requests=STAYS,
    ),
    Row(lambda e: e.fleet_stops, START_AFTER, requests=STAYS),
    Row(lambda e: e.all_wait and e.removals.removed, f"{ALL_WAIT}; {NODE_HOLDS}", requests=ALL_DRAIN),
    Row(lambda e: e.all_wait, ALL_WAIT, requests=ALL_DRAIN),
    Row(lambda e: e.held and e.removals.removed, f"{START_ELSEWHERE}; {NODE_HOLDS}", requests=DRAINS),
    Row(lambda e: e.held, START_ELSEWHERE, requests=DRAINS),
    Row(always, "stay in the queue", requests=STAYS),
)
# Sessions have three sides: the connection, the job of an srun, and Slurm's commands.
_SRUN: tuple[Row[HostEvents], ...] = (
    Row(lambda e: e.fleet_stops or e.older, "those with srun must have ended, as they are jobs"),
    Row(lambda e: e.held, "an srun session is a running job, and holds the bundle"),
)
_COMMANDS: tuple[Row[HostEvents], ...] = (
    Row(lambda e: e.head_moves, "Slurm's commands wait until slurmctld runs on NEW, and OLD has none"),
    Row(
        lambda e: is_refused(e.old, e.new) and not (e.older or e.refuses),
        "Slurm's commands wait while slurmctld is stopped",
    ),
    Row(
        lambda e: not e.refuses and (e.restarts or e.version or takes_name(e.old, e.new)),
        "Slurm's commands wait while slurmctld restarts",
    ),
)


def clauses(events: HostEvents) -> Iterator[Clause]:
    """Yield those that have rows in `slurm.request_table`."""
    yield from of_tables({"running": RUNNING, "queued": QUEUED}, events)
    if not first(QUEUED, events).total:
        yield from of_drained(_of_partitions(events))


def running(events: HostEvents, notes: tuple[str, ...] = ()) -> str:
    return _said(RUNNING, events, (*_of_mounts(events), *_of_people(events), *notes))


def queued(events: HostEvents, notes: tuple[str, ...] = ()) -> str:
    return _said(QUEUED, events, worst_first((*_of_partitions(events), *_unmounted(events), *notes)))


def _unmounted(events: HostEvents) -> Iterator[str]:
    """Yield what the `umount` of the commands does."""
    if gone := events.mounts.removed:
        yield f"those that use {listed(gone)} fail where it is unmounted"


def starts(events: HostEvents) -> bool:
    """Whether all queued jobs are said to start."""
    return is_start(first(QUEUED, events).words)


def sessions(events: HostEvents, notes: tuple[str, ...] = ()) -> str:
    sides = [row for rows in (_SRUN, _COMMANDS) if (row := fitting(rows, events))]
    said = (*(_words(row, events) for row in sides), *_of_people(events))
    return "; ".join(("stay open", *said, *notes))


def data(events: HostEvents, notes: tuple[str, ...] = ()) -> str:
    """All that is not named stays."""
    return "; ".join((*_data(events), *notes)) or "stays where it is"


def _data(events: HostEvents) -> Iterator[str]:
    kept = [
        path for path in (*events.mounts.removed, *events.mounts.changed) if path not in events.mounts.local
    ]
    if events.head_moves:
        own = ["slurmctld", *(["its database"] if has_database(events.old) else []), *kept]
        there = "stays on OLD, and NEW has only what is copied there"
        yield _of_heads(f"of {listed(own)} {there}", events)
    elif kept:
        yield f"of what was mounted at {listed(kept)} stays there, and is not copied"
    if events.older_database:
        yield OLDER_DATABASE


def _of_partitions(events: HostEvents) -> Iterator[str]:
    waits = events.held and not (events.fleet_stops or events.all_wait)
    return of_emptied(events.emptied if waits else ())


def _of_people(events: HostEvents) -> Iterator[str]:
    for one in events.renamed:
        yield f"those of {one.was} must have ended: usermod refuses while a process of his runs"


def _of_mounts(events: HostEvents) -> Iterator[str]:
    found = events.mounts
    if found.added:
        yield f"the playbook mounts {listed(found.added)} on running hosts at once"
    if found.removed:
        yield f"hosts keep their mount of {listed(found.removed)}, also after they restart, as its line of fstab stays"
    if events.unexported:
        until = (
            "at once" if exports(events.new) else "when it restarts"
        )  # the playbook calls exportfs only with exports
        yield f"the head ends its export of {listed(events.unexported)} {until}, and jobs on nodes that use it fail"
    if found.changed:
        yield f"the playbook remounts {listed(found.changed)}; where that needs an unmount, it fails while a process uses it"


def has_database(plan: SlurmOnHosts) -> bool:
    """Whether MariaDB runs on the head."""
    return plan.slurm.accounting is not None and isinstance(plan.slurm.accounting.database, LocalDatabase)


def _said(rows: tuple[Row[HostEvents], ...], events: HostEvents, notes: tuple[str, ...]) -> str:
    row = first(rows, events)
    return replace(row, words=_words(row, events)).with_notes(notes)


def _words(row: Row[HostEvents], events: HostEvents) -> str:
    return _of_heads(row.words, events)


def _of_heads(words: str, events: HostEvents) -> str:
    old, new = events.old.head, events.new.head
    same = old.name == new.name
    return words.replace("OLD", old.address if same else old.name).replace(
        "NEW", new.address if same else new.name
    )
