"""Ask Slurm, and parse its JSON (24.11, data_parser v0.0.42): strict about what is needed, deaf to the rest.

Asking and parsing are apart, so that recorded answers are the tests. Names and comments are other people's text;
only `--json` is read, never a line format that a job's name could imitate.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from ClusterShell.NodeSet import (  # pyright: ignore[reportMissingTypeStubs] -- it ships none
    RESOLVER_NOGROUP,
    NodeSet,
    NodeSetException,
)

from gpucluster import collector
from gpucluster.elastic.model import SlurmJob, SlurmNode, SlurmView, Window
from gpucluster.elastic.states import canonical
from gpucluster.errors import GpuclusterError
from gpucluster.plan.names import WINDOW_PREFIX

NODES = ("scontrol", "--future", "show", "nodes", "--json")  # a node in FUTURE is hidden from the plain view
JOBS = ("scontrol", "show", "jobs", "--json")
RESERVATIONS = ("scontrol", "show", "reservations", "--json")


class ObserveError(GpuclusterError):
    """Slurm's answer cannot be read; nothing is concluded from it."""


def expand(hostlist: str) -> tuple[str, ...]:
    """`h200-1a-[1-2]` -> its names, in order; '' -> none. No group is ever looked up."""
    if not hostlist:
        return ()
    try:
        return tuple(
            str(name) for name in cast(Iterable[object], NodeSet(hostlist, resolver=RESOLVER_NOGROUP))
        )
    except NodeSetException as error:
        raise ObserveError(f"hostlist {hostlist[:80]!r}: {error}") from error


def view(nodes: str, jobs: str, at: float, reservations: str = "") -> SlurmView:
    """The answers as one value; `at` is when the first was asked."""
    with collector.resting():  # JSON has no cycles: a third of the time (`make bench NAME=reconcile`)
        parsed = (parse_node(item) for item in _items(nodes, "nodes"))
        return SlurmView(
            at=at,
            nodes={node.name: node for node in parsed},
            jobs=tuple(parse_job(item) for item in _items(jobs, "jobs")),
            windows=tuple(_windows(_items(reservations, "reservations"))) if reservations else (),
        )


def parse_node(item: Mapping[str, Any]) -> SlurmNode:
    """One element of `nodes`."""
    try:
        return SlurmNode(
            name=_text(item, "name"),
            states=canonical(_words(item, "state")),
            reason=str(item.get("reason") or ""),
            reason_at=_number(item.get("reason_changed_at")),
            reason_by=str(item.get("reason_set_by_user") or ""),
            last_busy=_number(item.get("last_busy")),
            boot_time=_number(item.get("boot_time")),
            address=str(item.get("address") or ""),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ObserveError(f"a node in scontrol's JSON: {error!r}") from error


def parse_job(item: Mapping[str, Any]) -> SlurmJob:
    """One element of `jobs`."""
    try:
        return SlurmJob(
            id=int(item["job_id"]),
            states=_words(item, "job_state"),
            nodes=expand(str(item.get("nodes") or "")),
            node_count=int(_number(item["node_count"])),
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
            restarts=int(_number(item.get("restart_cnt"))),
            batch_host=str(item.get("batch_host") or ""),
            comment=str(item.get("comment") or ""),
            account=str(item.get("account") or ""),
            task=_task(item),
            ended_by=_signal(item.get("exit_code")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ObserveError(f"a job in scontrol's JSON: {error!r}") from error


def parse_window(item: Mapping[str, Any]) -> Window:
    """One element of `reservations`."""
    try:
        return Window(
            name=_text(item, "name"),
            starts_at=_number(item.get("start_time")),
            ends_at=_number(item.get("end_time")),
            nodes=expand(str(item.get("node_list") or "")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ObserveError(f"a reservation in scontrol's JSON: {error!r}") from error


def _windows(items: Iterable[Mapping[str, Any]]) -> Iterator[Window]:
    """Ours; what others reserve is their own."""
    for item in items:
        if str(item.get("name", "")).startswith(WINDOW_PREFIX):
            yield parse_window(item)


def _items(text: str, key: str) -> list[Mapping[str, Any]]:
    try:
        body = json.loads(text)
    except ValueError as error:
        raise ObserveError(f"scontrol's {key} are not JSON: {error}") from error
    answer = cast(dict[str, Any], body) if isinstance(body, dict) else {}
    if answer.get("errors"):  # it may exit with 0 and an empty list beside them
        raise ObserveError(f"scontrol could not tell its {key}: {str(answer['errors'])[:200]}")
    items = answer.get(key)
    if not isinstance(items, list):
        raise ObserveError(f"scontrol's answer has no list of {key}")
    return cast(list[Mapping[str, Any]], items)


def _text(item: Mapping[str, Any], key: str) -> str:
    value = item[key]
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key} is {value!r}")
    return value


def _words(item: Mapping[str, Any], key: str) -> frozenset[str]:
    """State words: a list, or one word in older forms."""
    value = item[key]
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not words:
        raise ValueError(f"{key} is {value!r}")
    return frozenset(str(word).upper() for word in cast(list[object], words))


def _task(item: Mapping[str, Any]) -> str:
    """`4_3`; empty for no array, and for the part of one that no task was split from yet."""
    array, number = int(_number(item.get("array_job_id"))), cast(object, item.get("array_task_id"))
    split = cast(dict[str, Any], number).get("set") if isinstance(number, dict) else number is not None
    return f"{array}_{int(_number(cast(object, number)))}" if split and array else ""


def _signal(value: object) -> int:
    """The number in `exit_code.signal.id`; 0 for none."""
    code = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    signal = code.get("signal")
    found = cast(dict[str, Any], signal) if isinstance(signal, dict) else {}
    return int(_number(found.get("id")))


def _integer(value: object, otherwise: int) -> int:
    """A plain number; anything else is not taken for one (0 is root)."""
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def _minutes(value: object) -> float | None:
    """Slurm's minutes as seconds; None: without a limit, or not told."""
    minutes = _number(value)
    return minutes * 60.0 if minutes > 0 else None


def _number(value: object) -> float:
    """A number, or Slurm's {set, infinite, number}; unset is 0."""
    if isinstance(value, dict):
        wrapped = cast(dict[str, Any], value)
        return float(wrapped.get("number") or 0) if wrapped.get("set") else 0.0
    return float(value) if isinstance(value, int | float) else 0.0
