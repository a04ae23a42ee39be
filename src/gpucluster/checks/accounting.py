"""Check accounting: slurmdbd answers and gets the records, and its accounts, limits and QOS are those of the plan.

Where the plan has no database: slurmctld writes the file of ended jobs.
"""

import re
import shlex
from dataclasses import dataclass, replace
from enum import StrEnum

from gpucluster.checks import accounting_by_hand, json_fields, remedies
from gpucluster.checks.accounting_by_hand import ByHand
from gpucluster.checks.check import (
    TIMED_OUT,
    CheckResult,
    ParseError,
    Query,
    QueryOutput,
    failed,
    listed,
    passed,
    warned,
)
from gpucluster.checks.slurmctld import parsed
from gpucluster.plan.model import Accounting
from gpucluster.plan.model.values import ROOT_ACCOUNT
from gpucluster.slurm import client, parse
from gpucluster.slurm.accounts import read
from gpucluster.slurm.accounts.diff import Change, difference
from gpucluster.slurm.accounts.read import AccountsAnswerError
from gpucluster.slurm.accounts.records import OtherLimit, Records
from gpucluster.slurm.accounts.wanted import wanted
from gpucluster.text import short

WAITING = 50  # records: below this slurmctld's queue is that of a moment
COMMANDS = 8  # in a remedy; for more changes it names the command that makes them all
_LIMIT_S = 20.0
_QUEUE = Query(argv=client.STATISTICS, limit_s=_LIMIT_S)
_LATER = Query(argv=("sh", "-c", f"sleep 2; exec {' '.join(client.STATISTICS)}"), limit_s=_LIMIT_S)
_OTHER_QOS = (  # limits of a QOS that gpucluster never sets: each must be empty
    *("GrpJobs", "GrpSubmit", "GrpWall", "GrpTRESRunMins", "MaxTRES", "MaxTRESPerNode", "MaxTRESMins", "MaxWall"),
    *("MaxJobsPU", "MaxSubmitPU", "MaxTRESPA", "MaxJobsPA", "MaxSubmitPA", "MinTRES"),
)  # fmt: skip
_OTHER_ASSOC = (
    *("MaxJobs", "MaxSubmit", "MaxTRES", "MaxTRESPerNode", "MaxTRESMins", "MaxWall"),
    *("GrpJobs", "GrpWall", "GrpTRESMins", "GrpTRESRunMins"),
)


class DatabaseFault(StrEnum):
    """Why records do not arrive in the database."""

    DATABASE_SILENT = "database silent"
    SILENT = "silent"  # slurmdbd, beside a database that answers or is elsewhere
    READ_ONLY = "read-only"
    UNREGISTERED = "unregistered"
    WAITING = "waiting"


MARIADB = "mariadb"
_READ_ONLY = Query(
    argv=(MARIADB, "--batch", "--skip-column-names", "--execute", "SELECT @@GLOBAL.read_only"),
    limit_s=_LIMIT_S,
)
_WRITABLE = "mariadb --execute 'SET GLOBAL read_only = 0'"
_WHERE_SET = "grep -rnsE '^[[:space:]]*read[_-]only' /etc/mysql || true  # a file with it sets it again at the next start"


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """slurmdbd knows the cluster, and no record waits in slurmctld. `units` are restarted by the remedy: with a local
    database MariaDB, which is asked whether it takes records.
    """

    cluster: str
    units: tuple[str, ...]

    @property
    def is_local(self) -> bool:
        return MARIADB in self.units


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """`controller`: the address of slurmctld that slurmdbd knows; empty: none. The records that wait, at two times.

    `read_only`: MariaDB refuses records; None: it does not answer, or is elsewhere.
    """

    answers: bool
    controller: str
    waiting: tuple[int, int]
    read_only: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The accounts and QOS of the plan."""

    cluster: str
    accounting: Accounting


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The records of slurmdbd, the month (UTC), and limits that gpucluster never sets."""

    records: Records
    month: str
    others: tuple[OtherLimit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLog:
    """The file of ended jobs."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """Whether slurmctld writes to the file at this path."""

    exists: bool
    is_open: bool


# --- slurmdbd --------------------------------------------------------------------------------------------
def query_database(want: Database) -> tuple[Query, ...]:
    columns = "format=cluster,controlhost,controlport"
    argv = ("sacctmgr", "--noheader", "--parsable2", "show", "cluster", f"name={want.cluster}", columns)
    asked = (Query(argv=argv, limit_s=_LIMIT_S), _QUEUE, _LATER)
    return (*asked, _READ_ONLY) if want.is_local else asked


def parse_database(got: tuple[QueryOutput, ...]) -> Registered:
    """sacctmgr ends with 1 if slurmdbd does not answer."""
    shown, *queues = got[:3]
    database = next((one.stdout.strip() for one in got[3:] if one.code == 0), "")
    read_only = database not in ("0", "OFF") if database else None
    if shown.code == TIMED_OUT or (shown.code == 1 and "sacctmgr: error: " in shown.stderr):
        return Registered(answers=False, controller="", waiting=(0, 0), read_only=read_only)
    rows = [line.split("|") for line in shown.text().splitlines() if line]
    if any(len(row) != 3 for row in rows):
        raise ParseError(f"sacctmgr printed {short(shown.stdout, 60)!r}")
    controller = next((f"{host}:{port}" for _, host, port in rows if host and port not in ("", "0")), "")
    first, second = (parsed(queue, parse.parse_waiting_records) for queue in queues)
    return Registered(answers=True, controller=controller, waiting=(first, second), read_only=read_only)


def evaluate_database(found: Registered, want: Database) -> CheckResult:
    expected = f"slurmdbd answers and knows slurmctld of {want.cluster}, and no records wait"
    first, second = found.waiting
    silent = "" if found.answers else "slurmdbd does not answer"
    slurmdbd = remedies.restart("slurmdbd", with_database=want.is_local)

    def fault(family: DatabaseFault, words: str, *steps: str) -> CheckResult:
        return failed(words, expected, (), f"on {{machine}}: {'; '.join(steps)}", family=family)

    if found.read_only:
        words = ", and ".join(filter(None, ("MariaDB is read-only, so it takes no record", silent)))
        return fault(DatabaseFault.READ_ONLY, words, _WRITABLE, *((slurmdbd,) if silent else ()), _WHERE_SET)
    if silent and want.is_local and found.read_only is None:
        both = remedies.restart(*want.units, with_database=True)
        return fault(DatabaseFault.DATABASE_SILENT, f"MariaDB does not answer, and {silent}", both)
    if silent:
        return fault(DatabaseFault.SILENT, silent, slurmdbd)
    if not found.controller:
        words = f"slurmdbd knows no slurmctld of {want.cluster}"
        return fault(DatabaseFault.UNREGISTERED, words, "scontrol reconfigure", "sacctmgr show cluster")
    if first >= WAITING and second >= first:
        words = f"{second} records wait in slurmctld"
        return fault(DatabaseFault.WAITING, words, slurmdbd, "scontrol reconfigure")
    return passed(
        f"slurmdbd knows slurmctld at {short(found.controller, 60)}, {second} records wait", expected
    )


# --- accounts and QOS ------------------------------------------------------------------------------------
def query_tree(want: Tree) -> tuple[Query, ...]:
    columns = f"format=account,user,partition,{','.join(_OTHER_ASSOC)}"
    return (*_records(want), _sacctmgr("assoc", f"cluster={want.cluster}", columns))


def query_qos(want: Tree) -> tuple[Query, ...]:
    return (*_records(want), _sacctmgr("qos", f"format=name,{','.join(_OTHER_QOS)}"))


def parse_tree(got: tuple[QueryOutput, ...]) -> Found:
    """Records, and other limits of accounts and of users in accounts."""
    return _found(got, ("account", "user", "partition"), _OTHER_ASSOC)


def parse_qos(got: tuple[QueryOutput, ...]) -> Found:
    """Records, and other limits of QOS."""
    return _found(got, ("qos",), _OTHER_QOS)


def evaluate_tree(found: Found, want: Tree) -> CheckResult:
    """The places in the tree of this cluster. An account or a user by hand is a warning: it has a share of its own."""
    accounts = want.accounting.accounts
    users = sum(len(one.users) for one in accounts)
    expected = f"{len(accounts)} accounts with {users} users, shares and limits as in the plan"
    planned = {one.name for one in accounts}
    others = [
        row
        for row in found.others
        if row.kind != "qos" and row.name.split("/")[0] in {*planned, ROOT_ACCOUNT}
    ]
    wished = _wished(found, want)
    by_hand = [
        *map(accounting_by_hand.limit(want.cluster), others),
        *accounting_by_hand.privileges(wished, found.records, want.cluster),
    ]
    compared = difference(wished, found.records, want.cluster)
    changes = [change for change in compared.changes if not change.subject.startswith("QOS ")]
    result = _result(changes, by_hand, expected, want.cluster)
    strange = tuple(accounting_by_hand.made_by_hand(wished, found.records, want.cluster))
    if result.is_healthy and strange:
        words = f"not in the plan: {short(listed([one.words for one in strange], 3), 200)}"
        return replace(warned(words, expected), remedy=_typed([one.command for one in strange]))
    return result


def evaluate_qos(found: Found, want: Tree) -> CheckResult:
    """The QOS of the plan, those of partitions among them."""
    planned = {one.name for one in want.accounting.qos}
    expected = f"{len(planned)} QOS with priority, preemption and limits as in the plan"
    others = [row for row in found.others if row.kind == "qos" and row.name in planned]
    wished = _wished(found, want)
    compared = difference(wished, found.records, want.cluster)
    by_hand = [
        *map(accounting_by_hand.limit(want.cluster), others),
        *accounting_by_hand.other_marks(wished, found.records, want.cluster),
    ]
    changes = [change for change in compared.changes if change.subject.startswith("QOS ")]
    return _result(changes, by_hand, expected, want.cluster)


# --- the file of ended jobs ------------------------------------------------------------------------------
def query_log(want: JobLog) -> tuple[Query, ...]:
    return (
        Query(argv=("systemctl", "show", "--property=MainPID", "--value", "slurmctld.service")),
        Query(argv=("find", "-L", "/proc/{fed}/fd", "-maxdepth", "1", "-samefile", want.path)),
    )


def parse_log(got: tuple[QueryOutput, ...]) -> LogFile:
    """find prints slurmctld's descriptor of the file; it fails if the file is missing."""
    pid, shown = got
    if not re.fullmatch(r"[1-9][0-9]{0,9}", pid.text().strip()):
        raise ParseError("slurmctld has no process")
    if shown.code != 0 and "No such file" in shown.stderr and "/proc/" not in shown.stderr:
        return LogFile(exists=False, is_open=False)
    return LogFile(
        exists=True, is_open=bool(re.search(r"^/proc/[0-9]+/fd/[0-9]+$", shown.text(), re.MULTILINE))
    )


def evaluate_log(found: LogFile, want: JobLog) -> CheckResult:
    expected = f"slurmctld writes to {want.path}"
    if not found.exists:
        return failed(f"{want.path} is missing", expected)
    return (
        passed(expected)
        if found.is_open
        else failed(f"slurmctld writes to another file than {want.path}", expected)
    )


def _sacctmgr(*words: str) -> Query:
    return Query(argv=("sacctmgr", "--noheader", "--parsable2", "show", *words), limit_s=_LIMIT_S)


def _records(want: Tree) -> tuple[Query, ...]:
    asked = (Query(argv=argv, limit_s=_LIMIT_S) for argv in read.commands(want.cluster).values())
    return (Query(argv=("date", "--utc", "+%Y-%m")), *asked)


def _found(got: tuple[QueryOutput, ...], names: tuple[str, ...], limits: tuple[str, ...]) -> Found:
    month, *answers, rows = got
    texts = {name: answer.text() for name, answer in zip(read.commands(""), answers, strict=True)}
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}", month.text().strip()):
        raise ParseError(f"date printed {short(month.stdout, 40)!r}")
    try:
        records = read.records(texts, _cluster(texts["associations"]))
    except AccountsAnswerError as error:
        raise ParseError(short(error.message)) from error
    others: list[OtherLimit] = []
    for line in rows.text().splitlines():
        words = line.split("|")
        if len(words) != len(names) + len(limits):
            raise ParseError(f"sacctmgr printed {short(line, 60)!r}")
        name = "/".join(word for word in words[: len(names)] if word)
        kind = names[0] if len(names) == 1 or not words[1] else "user"
        others += [
            OtherLimit(kind=kind, name=name, limit=limit, value=value)
            for limit, value in zip(limits, words[len(names) :], strict=True)
            if value
        ]
    return Found(records=records, month=month.stdout.strip(), others=(*others, *records.other_limits))


def _cluster(associations: str) -> str:
    """The cluster of the answer: sacctmgr was asked for those of one cluster."""
    rows = json_fields.members(json_fields.table(associations), "associations")
    return next((json_fields.text(row, "cluster") for row in rows), "")


def _wished(found: Found, want: Tree) -> Records:
    return wanted(want.accounting, want.cluster, found.month)


def _result(changes: list[Change], by_hand: list[ByHand], expected: str, cluster: str) -> CheckResult:
    words = [*map(_words, changes), *(one.words for one in by_hand)]
    if not words:
        return passed(expected)
    ours = [shlex.join(command) for change in changes for command in change.commands]
    theirs = [one.command for one in by_hand]
    apply = f"gpucluster accounts apply {cluster}"
    if len(ours) + len(theirs) <= COMMANDS:
        remedy = _typed([*ours, *theirs])
    elif theirs:
        remedy = _typed(theirs[:COMMANDS]) + (f"; then on your computer: {apply}" if ours else "")
    else:
        remedy = f"on your computer: {apply}"
    return failed(listed(words, 4), expected, (), remedy)


def _typed(commands: list[str]) -> str:
    return "on {machine}: " + "; ".join(dict.fromkeys(commands[:COMMANDS]))


def _words(change: Change) -> str:
    """`account research: fairshare is 1, not 3`"""
    parts = [
        f"{one.field} is {short(one.before, 40) or 'unset'}, not {short(one.after, 40)}"
        for one in change.details
    ]
    return f"{change.subject}: {', '.join(parts) or change.kind.value}"
