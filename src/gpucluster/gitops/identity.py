"""Whether two plans are one cluster, and what another name or accounting database does to it. Pure.

tests/slurm/test_cluster_identity.py makes happen what the notes say, on Slurm 24.11 and 26.05.
"""

from collections.abc import Iterator

from gpucluster.gitops.field_effects import Note
from gpucluster.gitops.requests import knows_no_account
from gpucluster.gitops.steps import COPY_DUMP, OPEN
from gpucluster.plan import names
from gpucluster.plan.model import Accounting, ClusterPlan, ExternalDatabase, SlurmPlan
from gpucluster.plan.removals import removals
from gpucluster.plan.slurm_identity import (
    CLUSTER_NAME,
    ID_MISMATCH,
    NAME_MISMATCH,
    STATE,
    backup_of,
    has_other_database,
    is_renamed,
    takes_name,
)
from gpucluster.text import format_duration

NO_QUEUE = (
    "scontrol update partitionname=PARTITION state=drain    # each partition that is UP: it takes no new jobs, and runs queued ones",
    "squeue --states=pending    # until no job waits, or cancel those that are left",
)
COPY = f"cp --archive {STATE} /root/slurmctld-before && rm {CLUSTER_NAME}"
_AS_ROOT = "    # on the head, as root"


def is_another(old: ClusterPlan, new: ClusterPlan) -> bool:
    """Whether the new plan is another cluster beside the old one. Hosts are the same machines under another name."""
    if old.aws is None and new.aws is None:
        return False
    return old.aws is None or new.aws is None or old.name != new.name


def is_refused(old: SlurmPlan, new: SlurmPlan) -> bool:
    """Whether the head refuses the bundle (`agent.boot.cluster_identity`)."""
    return has_other_database(old, new) or (is_renamed(old, new) and not takes_name(old, new))


def refused(old: SlurmPlan, new: SlurmPlan, *, moved: bool) -> str:
    """Return why the edit is not applied as it is; empty if it is. `moved`: another head gets slurmctld's state."""
    if split(old, new, moved=moved) or not is_refused(old, new):
        return ""
    what, words = ("name", NAME_MISMATCH) if is_renamed(old, new) else ("number", ID_MISMATCH)
    return (
        f"the head refuses the bundle, and goes on with the old one, while slurmctld's state has the {what} of the old cluster "
        f"({words}). What follows happens without this {what}"
    )


def split(old: SlurmPlan, new: SlurmPlan, *, moved: bool) -> str:
    """Return why the edit needs two edits; empty if it does not.

    Another head has no earlier bundle: it neither writes another name into the state that it gets, nor goes on without one.
    The same head gets no answer for the jobs on what is removed (`agent.boot.held_bundle`), and starts the old slurmctld again.
    """
    if not (is_renamed(old, new) or has_other_database(old, new)):
        return ""
    what = "name" if is_renamed(old, new) else "accounting database"
    if moved:
        return (
            f"another head cannot get another {what} in one edit, because slurmctld does not start there with the state of the old one. "
            f"First change the head; write the other {what} when slurmctld runs on it"
        )
    if is_refused(old, new) and removals(old, new):
        return (
            f"another {what} cannot come in the edit that removes or changes nodes or partitions, because the head asks slurmctld "
            "for their jobs, and slurmctld must be stopped then. "
            f"First remove or change those; write the other {what} when the head has applied it"
        )
    return ""


def note(old: SlurmPlan, new: SlurmPlan, *, moved: bool) -> Note:
    """Return what is said of jobs and data, and the commands, besides those of the fields."""
    if split(old, new, moved=moved):
        return Note(data=records(old, new))
    was, now = old.slurm.accounting, new.slurm.accounting
    if takes_name(old, new):
        return Note(data=f"of slurmctld as it was stays in {backup_of(new.name)}")
    if not is_refused(old, new):
        return Note(data=records(old, new))
    on_hosts = new.aws is None
    on_head = (
        *_compared(new),
        *_stopped(new),
        *_moved(was, now),
        f"{COPY}{_AS_ROOT}{': the playbook starts slurmctld again' if on_hosts else ''}",
    )
    first, last = (NO_QUEUE, (OPEN,)) if knows_no_account(old, new) else ((), ())
    return Note(
        data=records(old, new),
        before=(*first, *on_head) if on_hosts else first,
        after=last if on_hosts else (*on_head, *_started(new), *last),
    )


def highest_id(name: str) -> str:
    """Return the query for the highest job id of a cluster in the database, which has no table of a cluster that it does not know."""
    return f"SELECT MAX(id_job) FROM {names.DATABASE}.`{name}_job_table`"  # noqa: S608  an operator reads and types it


def _compared(new: SlurmPlan) -> Iterator[str]:
    """Yield what shows whether jobs would get ids that are taken, while slurmctld and the database still run."""
    if new.slurm.accounting is None:
        return
    database = new.slurm.accounting.database
    there = isinstance(database, ExternalDatabase)
    client = _client(database) if there else "systemctl start mariadb && mariadb"
    none = "NULL and ERROR 1146 say that there is none" + (
        "" if there else ", and so does a head without MariaDB"
    )
    yield f"{client} --execute '{highest_id(new.name)}'{_AS_ROOT}: the highest job id of {new.name} in the database. {none}"
    yield (
        "scontrol show config | grep -E 'NEXT_JOB_ID|FirstJobId'    # go on only if one of these is higher, or there is none; else "
        "jobs get ids that are taken: first apply a higher FirstJobId in `slurm.extra`"
    )


def _client(database: ExternalDatabase) -> str:
    return (
        f"mariadb --host={database.host} --port={database.port} --ssl-ca={database.ca} --user=USER --password"
    )


def _stopped(new: SlurmPlan) -> Iterator[str]:
    """Yield what stops slurmctld, the standby's first. An agent would start it again."""
    if new.head.standby is not None:
        yield f"systemctl stop {names.AGENT_UNIT} slurmctld    # on the standby, as root"
    timer = f"{names.WATCH_TIMER} " if new.aws is None else ""
    yield f"systemctl stop {timer}{names.AGENT_UNIT} slurmctld{_AS_ROOT}"


def _started(new: SlurmPlan) -> Iterator[str]:
    yield f"systemctl start {names.AGENT_UNIT}{_AS_ROOT}"
    if new.head.standby is not None:
        yield f"systemctl start {names.AGENT_UNIT}    # then on the standby, as root"


def _moved(was: Accounting | None, now: Accounting | None) -> Iterator[str]:
    """Yield the copy of the database on the head into an existing one."""
    if (
        was is None
        or now is None
        or was.database == now.database
        or not isinstance(now.database, ExternalDatabase)
    ):
        return
    source = (
        f"{COPY_DUMP} --host={was.database.host} --user=USER --password"
        if isinstance(was.database, ExternalDatabase)
        else COPY_DUMP
    )
    yield f"{source} | {_client(now.database)}{_AS_ROOT}: history and fair-share; it fails where the new database has tables, and changes none"


def records(old: SlurmPlan, new: SlurmPlan) -> str:
    """Return what happens to the history of accounting and to fair-share; empty if nothing."""
    was, now = old.slurm.accounting, new.slurm.accounting
    if was is None:
        return ""
    if now is None:
        return "history and fair-share of accounting stay in its database, and no command shows them"
    if is_renamed(old, new):
        return f"history and fair-share of accounting stay under the name {old.name}"
    if has_other_database(old, new):
        return "history and fair-share of accounting stay in the old database, and the new one has only what is copied there; without a copy, records of jobs that run now may be lost"
    if now.keep_s < was.keep_s:
        return f"records of accounting that are older than {format_duration(now.keep_s)} move to files: `sacctmgr archive load` reads one back"
    return ""
