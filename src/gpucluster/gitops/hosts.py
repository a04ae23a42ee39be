"""The effects of an edit on Slurm on existing hosts. Pure.

`playbooks/site.yml` applies it: it changes the hosts of the new inventory at once, and does not touch one that left. It
copies no state and no data, upgrades no package, changes no uid, and deletes no user, no mount and no line of fstab.
"""

from collections.abc import Iterable

from gpucluster.gitops import host_sentences, host_steps, identity, requests
from gpucluster.gitops.effects import clauses, named, notes, of_plans, of_rows, queued_notes
from gpucluster.gitops.field_effects import PYXIS_ON_HOSTS, Note, Row, pyxis_arrives
from gpucluster.gitops.host_events import HostEvents, host_events
from gpucluster.gitops.model import Effects, Kind, SpecChange
from gpucluster.plan.model import SlurmOnHosts
from gpucluster.slurm.request_table import Way

# Before the rows of clouds. A user keeps what the site gave him: a password, and keys in his own folder.
ROWS = (
    Row(r"slurm\.containers", PYXIS_ON_HOSTS, when=pyxis_arrives),
    Row(
        r"users\[\]",
        Note(
            running="a removed user's jobs are not ended",
            queued="a removed user's jobs are not cancelled",
            sessions="a removed user loses the keys of the spec; a password and ~/.ssh/authorized_keys still let him in",
            data="that of a removed user keeps the old uid",
        ),
        (Kind.REMOVED,),
    ),
    Row(
        r"users\[\]\.keys",
        Note(sessions="the next login needs the new keys, a password or a key in ~/.ssh/authorized_keys"),
    ),
    Row(
        r"users\[\]\.uid",
        Note(
            running="those of this user must have ended: usermod refuses while a process of his runs",
            sessions="those of this user must have ended",
            data="that of this user outside his home keeps the old uid until `chown` changes it",
        ),
    ),
)


def effects(name: str, old: SlurmOnHosts, new: SlurmOnHosts, changes: Iterable[SpecChange]) -> Effects:
    """Return the effects of an edit of existing hosts, with the commands in their order."""
    found = tuple(changes)
    events = host_events(old, new, found)
    by_fields = () if events.refuses else (*notes(found, ROWS), *of_plans(old, new))
    said = [*by_fields, _of_identity(events)]
    way = Way.RESTART if events.restarts or events.version else Way.RECONFIGURE
    unread = events.older or events.head_moves or events.refuses
    asked = () if unread else requests.clauses(old, new, way, starts=host_sentences.starts(events))
    found_effects = Effects(
        running=host_sentences.running(
            events, clauses((*requests.texts(asked, "running"), *(one.running for one in said)))
        ),
        queued=host_sentences.queued(
            events, clauses((*requests.texts(asked, "queued", "new"), *queued_notes(said, new)))
        ),
        sessions=host_sentences.sessions(events, clauses(one.sessions for one in said)),
        data=host_sentences.data(events, clauses(one.data for one in said)),
        refused="" if events.older else identity.refused(old, new, moved=events.head_moves),
        split="" if events.older else identity.split(old, new, moved=events.head_moves),
        clauses=(*host_sentences.clauses(events), *asked, *of_rows(said, new)),
    )
    lines = host_steps.steps(events, (step for one in said for step in one.before))
    return named(name, found_effects, (*lines, *(step for one in said for step in one.after)))


def _of_identity(events: HostEvents) -> Note:
    """An older slurmctld starts without its state, so with any name and database."""
    if events.older:
        return Note(data=identity.records(events.old, events.new))
    return identity.note(events.old, events.new, moved=events.head_moves)
