"""Parse Slurm's answers: the JSON of scontrol, squeue and sdiag, and the rows of squeue in a format of ours.

Missing needed fields raise SlurmAnswerError; unknown fields are ignored. Names and comments are untrusted text: a job's name
can imitate a line of scontrol's text, so that text is not read.
The JSON has the fields of 24.11 (data_parser v0.0.42). Numbers may be plain or Slurm's `{set, infinite, number}`, and a
state may be one word or a list, because versions differ there.

The rows exist because squeue needs 3 s for the JSON of 10,000 jobs and 0.1 s for their rows (S23, `make bench NAME=observer`).
Each field of a row ends with a mark that is random in each call, so no text of a user can imitate the end of a field or row.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, cast

from gpucluster import gc_control
from gpucluster.errors import GpuclusterError
from gpucluster.json_text import parse_json
from gpucluster.slurm import hostlist
from gpucluster.slurm.pending import PendingReason
from gpucluster.slurm.states import JOB_ENDED, JobState, canonical
from gpucluster.slurm.values import (
    ActiveJob,
    NodeHardware,
    SlurmJob,
    SlurmNode,
    SlurmReservation,
    SlurmView,
)

_RELEASE = re.compile(r"\d+\.\d+")
_BOOT_TIME = re.compile(r"^BOOT_TIME\s*= (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)$", re.MULTILINE)
_SOCKETS = re.compile(r"\(S:[0-9,-]+\)")  # the sockets of GPUs with cores: `gpu:h200:8(S:0-1)` (24.11)
_NODES_OF_REQUEST = re.compile(r"(?:^|,)node=(\d{1,9})(?:,|$)")
_TASKS = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")
_HARDWARE = ("cpus", "sockets", "cores", "threads", "real_memory", "gres")


class SlurmAnswerError(GpuclusterError):
    """Slurm's answer cannot be read; the caller must treat its content as unknown."""


def view(nodes: str, jobs: str | tuple[SlurmJob, ...], at: float, reservations: str) -> SlurmView:
    """The answers as one value; `at` is the time of the first call."""
    # JSON has no cycles. Without collection, parsing needs a third of the time (`make bench NAME=reconcile`).
    with gc_control.collection_disabled():
        return SlurmView(
            at=at,
            nodes={node.name: node for node in parse_nodes(nodes)},
            jobs=parse_jobs(jobs) if isinstance(jobs, str) else jobs,
            reservations=parse_reservations(reservations),
        )


def parse_nodes(text: str) -> tuple[SlurmNode, ...]:
    """The nodes of `scontrol show nodes --json`."""
    answer = _object(text, "nodes")
    version = _version(answer)
    return tuple(parse_node(item, version) for item in _items_of(answer, "nodes"))


def parse_jobs(text: str) -> tuple[SlurmJob, ...]:
    """The jobs of `scontrol show jobs --json` and `scontrol show job ID --json`."""
    return tuple(parse_job(item) for item in _items(text, "jobs"))


class QueueRow(NamedTuple):
    """The fields of squeue's format, as squeue writes them. An array has a row for each of its waiting tasks."""

    job: str
    array: str
    task: str
    het: str
    state: str
    nodes: str
    max_nodes: str
    tres: str
    partitions: str
    batch: str
    requeue: str
    priority: str
    submitted: str
    eligible: str
    time_limit: str
    time_min: str
    user: str
    restarts: str
    exit_code: str
    node_list: str
    required: str
    excluded: str
    features: str
    reservation: str
    reason: str
    account: str
    admin_comment: str
    started: str
    tasks: int = 1  # rows with this job: the waiting tasks of an array; no field of squeue's

    @property
    def fields(self) -> tuple[str, ...]:
        """What squeue writes."""
        return cast(tuple[str, ...], self[:-1])

    @property
    def remembered(self) -> tuple[str, ...]:
        """All but the start, which for a waiting job is an estimate that changes with each pass of the scheduler."""
        return self.fields[:-1]


_NAMES_OF_SQUEUE = (
    *("JobId", "ArrayJobId", "ArrayTaskId", "HetJobId", "State", "NumNodes", "MaxNodes", "tres-alloc", "Partition"),
    *("BatchFlag", "Requeue", "PriorityLong", "SubmitTime", "EligibleTime", "TimeLimit", "MinTime", "UserId", "RestartCnt"),
    *("exit_code", "NodeList", "ReqNodes", "ExcNodes", "Feature", "Reservation", "Reason", "Account"),
    *("admin_comment", "StartTime"),
)  # fmt: skip
# squeue writes one word: a flag, or else the base state. Under CONFIGURING the base is RUNNING (tests/recorded/transitions).
_STATES: dict[str, frozenset[str]] = {
    **{
        str(word): frozenset({str(word)}) for word in (JobState.PENDING, JobState.RUNNING, JobState.SUSPENDED)
    },
    **{str(word): frozenset({str(word)}) for word in JOB_ENDED},
    str(JobState.CONFIGURING): frozenset({"RUNNING", "CONFIGURING"}),
}
_NO_PRIORITY = 0xFFFFFFFE  # NO_VAL of slurm.h
_TIME = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d\d)")
# Where slurmctld describes a reason, squeue writes the description and the JSON has both. The begin of the description, and
# the reason of the JSON (slurmctld 24.11: job_scheduler.c, node_scheduler.c, job_mgr.c, partition_mgr.c).
_DESCRIPTIONS = (
    ("ReqNodeNotAvail", PendingReason.REQUESTED_NODES),
    ("Nodes required for job are DOWN", PendingReason.RESOURCES),
    ("job requeued in held state", PendingReason.HELD_BY_USER),
    ("job requeued in special exit state", PendingReason.HELD_BY_USER),
    ("launch failed requeued held", PendingReason.HELD_BY_USER),
    ("Job's QOS not", "QOSNotAllowed"),
    ("RaisedSignal:", "RaisedSignal"),
)


def parse_active(text: str) -> tuple[ActiveJob, ...]:
    """The jobs of `client.ACTIVE_JOBS`. The waiting tasks of an array that are still one job have one id."""
    return tuple({job.id: job for job in map(_active, text.splitlines())}.values())


def _active(line: str) -> ActiveJob:
    fields = line.split("|", 4)
    if len(fields) != 5 or not fields[0].isdecimal():
        raise SlurmAnswerError(f"a row of squeue cannot be read: {line[:80]!r}")
    job, state, partitions, nodes, required = fields
    return ActiveJob(
        id=int(job),
        pending=state == JobState.PENDING or not nodes,
        partitions=tuple(p for p in partitions.split(",") if p),
        nodes=_hostlist(nodes),
        required_nodes=_hostlist(required),
    )


def queue_format(mark: str) -> str:
    """The format of squeue for `parse_queue`. `mark` begins with neither a digit nor a comma, and no user can know it."""
    return ",".join(f"{name}:0{mark}" for name in _NAMES_OF_SQUEUE)


def parse_queue(text: str, mark: str) -> tuple[QueueRow, ...]:
    """The rows of squeue with `queue_format(mark)`: one for each job, and for the tasks of an array that are still one job."""
    rows = text.split(mark + "\n")
    if rows.pop():
        raise SlurmAnswerError("squeue's answer ends within a row")
    found: list[QueueRow] = []
    counts: dict[str, int] = {}
    for row in rows:
        job, _, _ = row.partition(mark)
        counts[job] = counts.get(job, 0) + 1
        if counts[job] > 1:
            continue
        fields = row.split(mark)
        if len(fields) != len(_NAMES_OF_SQUEUE) or not job.isdecimal():
            raise SlurmAnswerError(f"a row of squeue cannot be read: {row[:80]!r}")
        found.append(QueueRow._make((*fields, 1)))
    return tuple(
        row if counts[row.job] == 1 else row._replace(task="", tasks=counts[row.job]) for row in found
    )


def job_of_row(row: QueueRow) -> SlurmJob | None:
    """The job; None if the row does not say all of it: its state has other flags, or the least number of its nodes is not clear."""
    try:
        nodes = _least_nodes_of_row(row)
        states = _STATES.get(row.state)
        if states is None or nodes is None or row.time_limit == "INVALID":
            return None  # squeue writes INVALID for a limit over a year
        return SlurmJob(
            id=int(row.job),
            states=states,
            nodes=hostlist.expand_slurm(row.node_list),
            node_count=nodes,
            partitions=tuple(p for p in row.partitions.split(",") if p),
            requeueable=row.requeue != "0",
            batch=row.batch != "0",
            het_id=_optional(row.het),
            priority=int(row.priority) if int(row.priority) < _NO_PRIORITY else 0,
            reason=_reason_of(_or_empty(row.reason)),
            admin_comment=_or_empty(row.admin_comment),
            submitted_at=float(_optional(row.submitted)),
            begins_at=float(_optional(row.eligible)),
            user_id=int(row.user),
            started_at=float(_optional(row.started)),
            time_limit_s=_seconds(row.time_limit),
            time_min_s=_seconds(row.time_min),
            restarts=int(row.restarts),
            account=_or_empty(row.account),
            task=f"{row.array}_{row.task}" if row.task.isdecimal() else "",
            tasks=row.tasks,
            exit_code=int(row.exit_code.partition(":")[0] or 0),
            exit_signal=int(row.exit_code.partition(":")[2] or 0),
            required_nodes=_hostlist(row.required),
            excluded_nodes=_hostlist(row.excluded),
            features=_or_empty(row.features),
            reservation=_or_empty(row.reservation),
        )
    except _ERRORS as error:
        raise SlurmAnswerError(f"a row of squeue cannot be read: {str(error)[:200]}") from error


def _least_nodes_of_row(row: QueueRow) -> int | None:
    """The row has no sign whether its greatest number of nodes was asked for, so a smaller request is not clear.

    After a requeue squeue writes the resources of the last run instead of those of the request.
    """
    count = int(row.nodes)
    request = _NODES_OF_REQUEST.search(row.tres)
    requeued = row.restarts != "0" and count > 1
    whole = request is None or int(request[1]) >= count
    clear = row.state != JobState.PENDING or (whole and not requeued)
    return count if clear or int(row.max_nodes) != count else None


def _reason_of(words: str) -> str:
    return next((reason for begin, reason in _DESCRIPTIONS if words.startswith(begin)), words)


def _or_empty(value: str) -> str:
    return "" if value == "(null)" else value


def _optional(value: str) -> int:
    return 0 if value == "N/A" else int(value)


def _seconds(value: str) -> float | None:
    """`1-02:30:00` or `30:00` in seconds; None: unlimited, or that of the partition."""
    if value in ("UNLIMITED", "NOT_SET"):
        return None
    time = _TIME.fullmatch(value)
    if time is None:
        raise ValueError(f"{value[:40]!r} is not a time")
    days, hours, minutes, seconds = (int(part or 0) for part in time.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds or None


def parse_reservations(text: str) -> tuple[SlurmReservation, ...]:
    """The reservations of `scontrol show reservations --json`."""
    return tuple(_reservation(item) for item in _items(text, "reservations"))


def parse_pings(text: str) -> dict[str, str]:
    """Controller -> `UP` or `DOWN`, of `scontrol ping --json`. 24.11 has the word and a flag, 26.05 only the flag."""
    try:
        return {_text(item, "hostname"): _pinged(item) for item in _items(text, "pings")}
    except _ERRORS as error:
        raise _unreadable("ping", error) from error


def parse_waiting_records(text: str) -> int:
    """How many records wait in slurmctld for slurmdbd, of `sdiag --json`."""
    body = _object(text, "statistics")
    try:
        waiting = body["statistics"]["dbd_agent_queue_size"]
        if not isinstance(waiting, int):
            raise TypeError(f"dbd_agent_queue_size is {waiting!r}")
        return waiting
    except _ERRORS as error:
        raise _unreadable("statistic", error) from error


def _pinged(item: Mapping[str, Any]) -> str:
    if "pinged" in item:
        return _text(item, "pinged")
    if not isinstance(item["responding"], bool):
        raise TypeError(f"responding is {item['responding']!r}")
    return "UP" if item["responding"] else "DOWN"


_ERRORS = (KeyError, TypeError, ValueError, AttributeError, OverflowError)


def started_at(config: str) -> float | None:
    """Return the start of slurmctld from `scontrol show config` with the time zone UTC; None: it does not say."""
    found = _BOOT_TIME.search(config)
    return datetime.fromisoformat(f"{found[1]}Z").timestamp() if found is not None else None


def parse_node(item: Mapping[str, Any], version: str = "") -> SlurmNode:
    """One element of `nodes`, and the version of the answer."""
    get = item.get
    try:
        return SlurmNode(
            name=_name(item, "name"),
            states=canonical(_words(item, "state")),
            reason=str(get("reason") or ""),
            reason_at=_number(get("reason_changed_at")),
            reason_by=str(get("reason_set_by_user") or ""),
            last_busy=_number(get("last_busy")),
            boot_time=_number(get("boot_time")),
            address=str(get("address") or ""),
            partitions=_strings(get("partitions")),
            hardware=_hardware(tuple(map(get, _HARDWARE))),
            reservation=str(get("reservation") or ""),
            features=_strings(get("active_features")),
            comment=str(get("comment") or ""),
            version=version,
        )
    except _ERRORS as error:
        raise _unreadable("node", error) from error


def parse_job(item: Mapping[str, Any]) -> SlurmJob:
    """One element of `jobs`."""
    try:
        return SlurmJob(
            id=int(item["job_id"]),
            states=frozenset(word.upper() for word in _words(item, "job_state")),
            nodes=hostlist.expand_slurm(str(item.get("nodes") or "")),
            node_count=_least_nodes(item),
            partitions=tuple(p for p in str(item.get("partition") or "").split(",") if p),
            requeueable=bool(item["requeue"]),
            batch=bool(item["batch_flag"]),
            het_id=int(_number(item.get("het_job_id"))),
            priority=int(_number(item.get("priority"))),
            reason=str(item.get("state_reason") or ""),
            admin_comment=str(item.get("admin_comment") or ""),
            submitted_at=_number(item.get("submit_time")),
            begins_at=_number(item.get("eligible_time")),
            user_id=_integer(item.get("user_id"), -1),
            started_at=_number(item.get("start_time")),
            time_limit_s=_minutes(item.get("time_limit")),
            time_min_s=_minutes(item.get("time_minimum")),
            restarts=int(_number(item.get("restart_cnt"))),
            account=str(item.get("account") or ""),
            task=_task(item),
            tasks=_tasks(str(item.get("array_task_string") or "")),
            exit_code=_return_code(item.get("exit_code")),
            exit_signal=_signal(item.get("exit_code")),
            required_nodes=_hostlist(item.get("required_nodes")),
            excluded_nodes=_hostlist(item.get("excluded_nodes")),
            features=str(item.get("features") or ""),
            reservation=str(item.get("resv_name") or ""),
        )
    except _ERRORS as error:
        raise _unreadable("job", error) from error


def _reservation(item: Mapping[str, Any]) -> SlurmReservation:
    try:
        return SlurmReservation(
            name=_name(item, "name"),
            starts_at=_number(item.get("start_time")),
            ends_at=_number(item.get("end_time")),
            nodes=hostlist.expand_slurm(str(item.get("node_list") or "")),
            users=_commas(item.get("users")),
            accounts=_commas(item.get("accounts")),
            groups=_commas(item.get("groups")),
            partition=str(item.get("partition") or ""),
            flags=_strings(item.get("flags")),
            whole=not item.get("core_specializations"),
        )
    except _ERRORS as error:
        raise _unreadable("reservation", error) from error


def _commas(value: object) -> tuple[str, ...]:
    """The words of Slurm's comma list."""
    return tuple(word for word in str(value or "").split(",") if word)


def _object(text: str, key: str) -> Mapping[str, Any]:
    try:
        body = parse_json(text)
    except ValueError as error:
        raise SlurmAnswerError(f"Slurm's answer for {key} is not JSON: {str(error)[:200]}") from error
    answer = cast(dict[str, Any], body) if isinstance(body, dict) else {}
    if answer.get("errors"):  # scontrol can exit with 0 and print an empty list with its errors
        raise SlurmAnswerError(f"Slurm cannot list {key}: {str(answer['errors'])[:200]}")
    return answer


def _items(text: str, key: str) -> list[Mapping[str, Any]]:
    return _items_of(_object(text, key), key)


def _version(answer: Mapping[str, Any]) -> str:
    """The version of the program that answers, such as `24.11`; empty if the answer has none."""
    match answer:
        case {"meta": {"slurm": {"release": str(release)}}} if found := _RELEASE.match(release):
            return found[0]
        case _:
            return ""


def _items_of(answer: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    items = answer.get(key)
    if not isinstance(items, list):
        raise SlurmAnswerError(f"Slurm's answer has no list of {key}")
    for item in cast(list[object], items):
        if not isinstance(item, dict):
            raise SlurmAnswerError(f"Slurm's list of {key} has {str(item)[:40]!r}; expected an object")
    return cast(list[Mapping[str, Any]], items)


def _unreadable(what: str, error: Exception) -> SlurmAnswerError:
    words = f"no field {error.args[0]!r}" if isinstance(error, KeyError) else str(error)[:200]
    return SlurmAnswerError(f"a {what} in Slurm's JSON cannot be read: {words}")


def _hardware(values: tuple[object, ...]) -> NodeHardware | None:
    """None if a value is missing or of another type: the daemon does not need them, and the checks say so."""
    if tuple(map(type, values)) != (int, int, int, int, int, str):
        return None
    return _shared_hardware(values)


@lru_cache(maxsize=256)  # the nodes of a pool are alike
def _shared_hardware(values: tuple[object, ...]) -> NodeHardware:
    cpus, sockets, cores, threads, memory_mib, gres = cast(tuple[int, int, int, int, int, str], values)
    return NodeHardware(
        cpus=cpus,
        sockets=sockets,
        cores=cores,
        threads=threads,
        memory_mib=memory_mib,
        gres=_SOCKETS.sub("", gres),
    )


def _name(item: Mapping[str, Any], key: str) -> str:
    value = _text(item, key)
    if not value:
        raise ValueError(f"{key} is empty")
    return value


def _text(item: Mapping[str, Any], key: str) -> str:
    value = item[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is {str(value)[:40]!r}, not text")
    return value


def _hostlist(value: object) -> tuple[str, ...]:
    """The names of a hostlist that a user wrote; a text that is no hostlist counts as one name."""
    text = value if isinstance(value, str) else ""
    try:
        return hostlist.expand_slurm(text)
    except hostlist.HostlistError:
        return (text,)


def _words(item: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """State words: a list, or one word in older versions."""
    words = _strings(item[key])
    if not words:
        raise ValueError(f"{key} is {str(item[key])[:40]!r}")
    return words


def _strings(value: object) -> tuple[str, ...]:
    """A list of words, or one word; anything else has none."""
    if not value:
        return ()
    if not isinstance(value, list):
        return (value,) if isinstance(value, str) else ()
    try:
        "".join(value)  # pyright: ignore[reportUnknownArgumentType]  the fastest check that all are texts; a node has three such lists
    except TypeError:
        return ()
    return tuple(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _least_nodes(item: Mapping[str, Any]) -> int:
    """The least nodes that the job takes. For `-N 2-4`, `node_count` is 4 while it waits; its request says `node=2` (24.11)."""
    count = int(_number(item["node_count"]))
    request = _NODES_OF_REQUEST.search(str(item.get("tres_req_str") or ""))
    waits = any(word.upper() == JobState.PENDING for word in _words(item, "job_state"))
    if not waits or request is None or int(_number(item.get("max_nodes"))) != count:
        return count
    return max(1, min(count, int(request[1])))


def _task(item: Mapping[str, Any]) -> str:
    """`4_3`; empty outside of arrays, and for the part of an array that has no task number yet."""
    array, number = int(_number(item.get("array_job_id"))), cast(object, item.get("array_task_id"))
    split = cast(dict[str, Any], number).get("set") if isinstance(number, dict) else number is not None
    return f"{array}_{int(_number(cast(object, number)))}" if split and array else ""


def _tasks(text: str) -> int:
    """How many tasks `0-9:2,12%3` names; 1 for a job without such a list."""
    ranges = _TASKS.findall(text.partition("%")[0])
    return (
        sum(len(range(int(first), int(last or first) + 1, int(step or 1))) for first, last, step in ranges)
        or 1
    )


def _signal(value: object) -> int:
    """The number in `exit_code.signal.id`; 0 for none."""
    code = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    signal = code.get("signal")
    found = cast(dict[str, Any], signal) if isinstance(signal, dict) else {}
    return int(_number(found.get("id")))


def _return_code(value: object) -> int:
    """The number in `exit_code.return_code`; 0 for none."""
    code = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    return int(_number(code.get("return_code")))


def _integer(value: object, otherwise: int) -> int:
    """A plain integer. Other types are not converted: 0 would be root."""
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def _minutes(value: object) -> float | None:
    """Slurm's minutes in seconds; None: unlimited or unset."""
    minutes = _number(value)
    return minutes * 60.0 if minutes > 0 else None


def _number(value: object) -> float:
    """A number, or Slurm's {set, infinite, number}; 0: unset."""
    if isinstance(value, dict):
        wrapped: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]  a cast costs as much as the look-up
        return float(wrapped.get("number") or 0) if wrapped.get("set") else 0.0
    return float(value) if isinstance(value, int | float) else 0.0
