"""The sentences about events. Each subject has a table, most severe row first; only the first row that fits is used.

So two rows of a subject never contradict each other. Clauses about a part of the subject follow it, unless the row is
about all of it. `{}` in a clause is the list of mount points.
"""

import re
from collections.abc import Callable, Iterable, Iterator

from gpucluster.gitops.events import Controller, Events
from gpucluster.gitops.model import REFUSES, WAITS, Clause
from gpucluster.gitops.rows import Row, always, first, fitting
from gpucluster.gitops.rows import clauses as of_tables
from gpucluster.gitops.severity import severity_of
from gpucluster.gitops.storage_events import Loss
from gpucluster.text import listed


def _is(*found: Controller) -> Callable[[Events], object]:
    return lambda events: events.controller in found


def _gone(events: Events) -> bool:
    return bool(events.removals.removed or events.removals.partitions)


MUST_END = "must have ended before: let them end, or cancel them"
FINISH_ON_NODES = f"finish on the nodes that are removed or changed: {WAITS}"
FINISH_IN_PARTITION = (
    "of a removed partition finish; the head applies the bundle, with all its changes, after them"
)
PARTITION_HOLDS = (
    "of a removed partition hold the bundle until they have run, are cancelled, or are in another partition"
)
STAYS = ("nothing-leaves",)  # the requests of jobs whose nodes and partitions stay
DRAINS = ("node-drained", *STAYS)
ENDS = ("node-named", "partition-removed", *STAYS)
_DEPEND, _NEVER = ("afterok-cancelled",), "with afterok wait with DependencyNeverSatisfied"
ALL_DRAIN = ("nodes-drained",)
START_AFTER = "stay in the queue, and start after the change"
START_ELSEWHERE = "stay in the queue, and start on other nodes of their partition"
ALL_WAIT = "wait until the bundle is applied"
NODE_HOLDS = "one that names a removed node holds the bundle until it is cancelled or changed"
_FROM_HEAD = "a job that reads a file system of the head waits for it"
_NO_SLURMCTLD = "wait until slurmctld runs: with the old state it does not on the new head"
_WITHOUT = f"go on without slurmctld; {_FROM_HEAD}"
_LOST = "are lost: slurmctld does not know them when it starts, and nodes of a cloud are replaced"
_AT_ONCE = f"a new head applies the bundle at once; others go on, {_FROM_HEAD}"
_REMOVED = "on nodes and in partitions that are removed are ended by Slurm"
_OTHER_HARDWARE = "on nodes with other CPUs or GPUs are requeued"
_REQUEUES = ("cpus-too-few", "gpus-fewer", "gpu-model")
_NEW_ONLY = "go on: only nodes that are launched later have the change"
OTHER_DATA = "other data stays where it is"
OLDER_DATABASE = "in the accounting database, what only the newer slurmdbd knows is lost: the older one removes its columns"

RUNNING: tuple[Row[Events], ...] = (
    Row(_is(Controller.REMOVED), "are lost: slurmctld is removed", total=True),
    Row(lambda e: e.fleet_stops, MUST_END, total=True),
    Row(_is(Controller.EMPTY), _LOST, total=True),
    Row(_is(Controller.OTHER_DATABASE), _WITHOUT, requests=STAYS),
    Row(lambda e: e.refuses, f"go on: {REFUSES}", requests=STAYS),
    Row(
        lambda e: e.new_head and e.removals.changed and _gone(e),
        f"{_REMOVED}, and {_OTHER_HARDWARE}: {_AT_ONCE}",
        requests=(*ENDS, *_REQUEUES),
    ),
    Row(lambda e: e.new_head and _gone(e), f"{_REMOVED}: {_AT_ONCE}", requests=ENDS),
    Row(
        lambda e: e.new_head and e.removals,
        f"{_OTHER_HARDWARE}: {_AT_ONCE}",
        requests=(*_REQUEUES, *STAYS),
    ),
    Row(lambda e: e.held and e.removals.nodes, FINISH_ON_NODES, requests=DRAINS),
    Row(lambda e: e.held, FINISH_IN_PARTITION, requests=STAYS),
    Row(_is(Controller.LEFT_STOPPED), _WITHOUT, requests=STAYS),
    Row(_is(Controller.REPLACED), f"go on while the head is replaced; {_FROM_HEAD}", requests=STAYS),
    Row(
        _is(Controller.HEAD_RESTARTS), f"go on while the head stops and starts; {_FROM_HEAD}", requests=STAYS
    ),
    Row(lambda e: e.new_nodes and e.only_new_nodes, _NEW_ONLY, requests=STAYS),
    Row(
        lambda e: e.new_nodes, "go on; some changes reach only nodes that are launched later", requests=STAYS
    ),
    Row(always, "go on", requests=STAYS),
)

QUEUED: tuple[Row[Events], ...] = (
    Row(_is(Controller.REMOVED), "are lost: slurmctld is removed", total=True),
    Row(
        _is(Controller.OLDER),
        "are lost: the older slurmctld ends when it reads the newer state, and starts without it, or with a copy of before the upgrade",
        total=True,
    ),
    Row(_is(Controller.EMPTY), "are lost with slurmctld's state; users submit them again", total=True),
    Row(_is(Controller.OTHER_DATABASE), _NO_SLURMCTLD, total=True, requests=STAYS),
    Row(lambda e: e.refuses, f"stay in the queue: {REFUSES}", requests=STAYS),
    Row(
        lambda e: e.removals.partitions and e.new_head,
        f"that name a removed node or partition are ended by Slurm, and those that depend on them {_NEVER}; "
        "others start when the new head is up",
        requests=(*ENDS, *_DEPEND),
    ),
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
    Row(
        lambda e: e.removals.removed and e.new_head,
        "stay in the queue, and start when the new head is up; one that names a removed node is ended by Slurm, "
        f"and those that depend on it {_NEVER}",
        requests=("node-named", *STAYS, *_DEPEND),
    ),
    Row(lambda e: e.all_wait and e.removals.removed, f"{ALL_WAIT}; {NODE_HOLDS}", requests=ALL_DRAIN),
    Row(lambda e: e.all_wait, ALL_WAIT, requests=ALL_DRAIN),
    Row(lambda e: e.held and e.removals.removed, f"{START_ELSEWHERE}; {NODE_HOLDS}", requests=DRAINS),
    Row(lambda e: e.held, START_ELSEWHERE, requests=DRAINS),
    Row(_is(Controller.LEFT_STOPPED), "wait until the head is started by hand", requests=STAYS),
    Row(_is(Controller.REPLACED), "stay in the queue, and start when the new head is up", requests=STAYS),
    Row(_is(Controller.HEAD_RESTARTS), "stay in the queue, and start when the head is up", requests=STAYS),
    Row(
        lambda e: e.new_nodes,
        "stay in the queue; on nodes that are launched later they have the change",
        requests=STAYS,
    ),
    Row(always, "stay in the queue", requests=STAYS),
)

# Sessions have three sides: the connection, the job of an srun, and Slurm's commands. One row of each is said.
_CONNECTION: tuple[Row[Events], ...] = (
    Row(_is(Controller.REMOVED), "on the machines of the cluster end", total=True),
    Row(
        lambda e: e.login_ends and e.head_is_down,
        "on the head and on login machines that stop or leave end, also srun in them",
    ),
    Row(lambda e: e.login_ends, "on login machines that stop or leave end, also srun in them"),
    Row(lambda e: e.head_is_down, "on the head end; others stay open"),
    Row(always, "stay open"),
)
_SRUN: tuple[Row[Events], ...] = (
    Row(lambda e: e.fleet_stops, "those with srun must have ended, as they are jobs"),
    Row(
        _is(Controller.OLDER, Controller.EMPTY),
        "those with srun lose their jobs: srun ends, or waits until it is stopped (Ctrl-C)",
    ),
    Row(lambda e: e.held, "an srun session is a running job, and holds the bundle"),
)
_COMMANDS: tuple[Row[Events], ...] = (
    Row(lambda e: e.left_stopped, "Slurm's commands wait until the head is started by hand"),
    Row(_is(Controller.OTHER_DATABASE), f"Slurm's commands {_NO_SLURMCTLD}"),
    Row(_is(Controller.OLDER), "Slurm's commands wait until slurmctld has no newer state"),
    Row(
        lambda e: e.head_is_down,
        "Slurm's commands wait until the head is up",
    ),
    Row(
        _is(Controller.COPIES_STATE),
        "Slurm's commands wait while slurmctld's state is copied",
    ),
    Row(_is(Controller.RESTARTS, Controller.EMPTY), "Slurm's commands wait while slurmctld restarts"),
)


def clauses(events: Events) -> Iterator[Clause]:
    """Yield those that have rows in `slurm.request_table`."""
    yield from of_tables({"running": RUNNING, "queued": QUEUED}, events)
    if not first(QUEUED, events).total:
        yield from of_drained(_of_partitions(events))


def of_drained(texts: Iterable[str]) -> Iterator[Clause]:
    return (Clause(subject="queued", text=one, rows=ALL_DRAIN) for one in texts)


def running(events: Events, notes: tuple[str, ...] = ()) -> str:
    return first(RUNNING, events).with_notes((*_of_mounts(events), *notes))


def queued(events: Events, notes: tuple[str, ...] = ()) -> str:
    found = (*_of_partitions(events), *_queued_mounts(events), *notes)
    return first(QUEUED, events).with_notes(worst_first(found))


def starts(events: Events) -> bool:
    """Whether all queued jobs are said to start."""
    return is_start(first(QUEUED, events).words)


def is_start(words: str) -> bool:
    return re.search(r"\bstart\b", words) is not None


def worst_first(found: Iterable[str]) -> tuple[str, ...]:
    """Return clauses about jobs, the worst first."""
    return tuple(sorted(found, key=severity_of))


def sessions(events: Events, notes: tuple[str, ...] = ()) -> str:
    if events.controller is Controller.REMOVED:
        return first(_CONNECTION, events).words
    sides = [found for rows in (_CONNECTION, _SRUN, _COMMANDS) if (found := fitting(rows, events))]
    return "; ".join((*(one.words for one in sides), *_session_mounts(events), *_of_people(events), *notes))


def data(events: Events, notes: tuple[str, ...] = ()) -> str:
    """All that is not named stays."""
    gone = tuple(_deleted(events))
    rest = (OTHER_DATA,) if gone else ()
    older = (OLDER_DATABASE,) if events.older_database else ()
    return "; ".join((*gone, *rest, *_moved(events), *older, *notes)) or "stays where it is"


def refused(events: Events) -> str:
    """Return why `pulumi up` cannot apply the edit as it is; empty if it can."""
    if events.refused:
        return is_protected(events.refused)
    if events.smaller:
        return (
            f"`pulumi up` fails: AWS refuses a smaller volume ({_list(events.smaller)}), and its data stays"
        )
    if events.fixed_image:
        return (
            f"the image {events.fixed_image} stays, and it alone decides which Slurm runs: "
            "name an image with the new slurm.version"
        )
    return ""


def is_protected(parts: tuple[str, ...]) -> str:
    """Return that `pulumi up` refuses because of these protected parts."""
    return (
        "`pulumi up` refuses in its preview, and changes nothing, while what the edit deletes or replaces is protected: "
        f"{_list(parts)}. What follows happens without the protection"
    )


def _of_mounts(events: Events) -> Iterator[str]:
    if shared := _shared(events):
        yield f"those that use {_list(shared)} hang or fail"
    if events.stalls:
        yield f"those that use {_list(events.stalls)} wait while it changes"
    if kept := (*events.mounts.removed, *events.mounts.changed):
        yield f"machines that run keep their mount of {_list(kept)} until they start anew"
    if events.mounts.added:
        yield f"a node mounts {_list(events.mounts.added)} when it starts"


def _of_partitions(events: Events) -> Iterator[str]:
    waits = events.held and not (events.fleet_stops or events.all_wait)
    return of_emptied(events.emptied if waits else ())


def of_emptied(emptied: tuple[str, ...]) -> Iterator[str]:
    """Yield what waits in partitions that lose all their old nodes."""
    if emptied:
        whose = "all of whose nodes are removed or changed"
        yield f"those of {_list(emptied)}, {whose}, {ALL_WAIT}"


def _queued_mounts(events: Events) -> Iterator[str]:
    lost = (one.path for one in events.lost if one.shared and not one.replaced)
    gone = [path for path in (*lost, *events.mounts.removed) if path not in events.mounts.changed]
    if gone:
        yield f"on nodes that are launched later {_list(gone)} is not mounted"
    if events.mounts.changed:
        yield f"on nodes that are launched later {_list(events.mounts.changed)} is what the new spec mounts"
    if events.mounts.added:
        yield f"on nodes that run already they do not have {_list(events.mounts.added)}"


def _session_mounts(events: Events) -> Iterator[str]:
    if shared := _shared(events):
        yield f"those that use {_list(shared)} hang"
    if events.stalls:
        yield f"those that use {_list(events.stalls)} wait while it changes"


def _of_people(events: Events) -> Iterator[str]:
    for one in events.renamed:
        yield (
            f"{one.was} and {one.now} cannot log in, and machines ignore this change and all later ones, "
            f"until the account {one.was} is renamed"
        )


def _shared(events: Events) -> list[str]:
    return [one.path for one in events.lost if one.shared]


def of_lost(lost: tuple[Loss, ...]) -> Iterator[str]:
    """Yield the data that is lost with volumes and file systems of ours."""
    gone = [one.path for one in lost if not one.replaced]
    empty = [one.path for one in lost if one.replaced]
    if gone:
        yield f"on {_list(gone)} is lost: it is deleted"
    if empty:
        yield f"on {_list(empty)} is lost: an empty one replaces it"


def _deleted(events: Events) -> Iterator[str]:
    yield from of_lost(events.lost)
    if state := [one.path for one in events.lost if not one.shared]:
        yield f"a copy of {_list(state)} is not put back: jobs that have ended since would run again"
    if events.new_head or events.login_gone:
        yield "on the root volume of a machine that is replaced or leaves is deleted"


def _moved(events: Events) -> Iterator[str]:
    if events.controller is Controller.COPIES_STATE:
        yield "of slurmctld and of the daemon moves to its new place, and its old copy stays"
    without = {*_shared(events), *events.mounts.local}
    kept = [path for path in (*events.mounts.removed, *events.mounts.changed) if path not in without]
    if kept:
        yield f"of what was mounted at {_list(kept)} stays there, and is not copied"


def _list(found: Iterable[str]) -> str:
    return listed(found)
