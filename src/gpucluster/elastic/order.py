"""`python -m gpucluster.elastic.order VERB TARGET`, on the head: give an operator's order to the daemon through the spool.

Exit 0 given, 1 no such pool or node, 2 it could not be given. The daemon reads it within a second. Without a running
daemon, the order stays in the spool for the next one.
"""

import contextlib
import os
import pwd
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpucluster.elastic import spool, status_endpoint
from gpucluster.elastic.abilities import LOSSES, Ability, Dependency, Loss
from gpucluster.elastic.decide.world import slots_of
from gpucluster.elastic.events import ALL_ORDERS, Verb
from gpucluster.elastic.inspect import head
from gpucluster.errors import StateError
from gpucluster.plan.model import SlurmPlan
from gpucluster.plan.names import REASON_PREFIX
from gpucluster.text import short

TAKEN_S = 3.0  # the socket wakes the daemon at once; it scans each second
LONGEST_KEEP_S = 30 * 86400.0  # a retained instance costs money: for longer, order it again
WORDS, NAME = 160, 64  # characters of the text that are stored
DONE: Mapping[Verb, str] = {
    Verb.POOL_PAUSE: "launches nothing more; running nodes and jobs continue",
    Verb.POOL_DRAIN: "launches nothing more, and powers down its nodes as they become idle",
    Verb.POOL_RESUME: "launches again",
    Verb.NODE_REPLACE: "gets another instance when its jobs have ended",
    Verb.NODE_KEEP: "keeps its instance, even after a failure",
    Verb.NODE_RELEASE: "is managed by the daemon again",
    Verb.NODE_DRAIN: "takes no new jobs until a person lifts the drain",
    Verb.NODE_UNDRAIN: "takes jobs again, if a person drained it; drains of the daemon and a DOWN stay",
    Verb.ORDERS_CONFIRM: "lost orders are confirmed: the daemon launches again; pause pools and keep nodes anew",
}
EMPTY: Mapping[Verb, str] = {  # if a node has no instance and no launch
    Verb.NODE_KEEP: "has no instance now: one that is launched for it during the order is kept, even after a failure",
    Verb.NODE_REPLACE: "has no instance now: there is nothing to replace",
}
# What the daemon does for the order. The other orders only keep it from something.
NEEDS: Mapping[Verb, Ability] = {
    Verb.POOL_DRAIN: Ability.END_IDLE,
    Verb.POOL_RESUME: Ability.LAUNCH,
    Verb.NODE_REPLACE: Ability.TERMINATE,
    Verb.NODE_DRAIN: Ability.EVACUATE,
    Verb.NODE_UNDRAIN: Ability.UPDATE,
}
_DRAIN = "scontrol update nodename={nodes} state=drain reason=WORDS"
_UNENDED = "nothing: no daemon ends its machine"
ON_HOSTS: Mapping[Verb, str] = {  # what a person does instead on existing hosts
    Verb.POOL_PAUSE: _DRAIN,
    Verb.POOL_DRAIN: _DRAIN,
    Verb.POOL_RESUME: "sinfo -R lists the drained nodes; scontrol update nodename=NODE state=resume returns one",
    Verb.NODE_REPLACE: f"{_DRAIN}; replace the machine when its jobs have ended; scontrol update nodename={{nodes}} state=resume",
    Verb.NODE_KEEP: _UNENDED,
    Verb.NODE_RELEASE: _UNENDED,
    Verb.NODE_DRAIN: _DRAIN,
    Verb.NODE_UNDRAIN: "scontrol update nodename={nodes} state=undrain",
    Verb.ORDERS_CONFIRM: "nothing: without a daemon there are no orders",
}
NOTHING_LOST = "orders are known: there is nothing to confirm"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRequest:
    """An order as the operator typed it."""

    verb: Verb
    target: str
    words: str = ""
    for_s: float | None = None
    now: bool = False
    by: str = ""


def main(argv: Sequence[str] | None = None, taken_s: float = TAKEN_S) -> int:
    """Give one order, and wait this many seconds until the daemon reads it."""
    parser = head.parser("order")
    parser.add_argument("verb", choices=[verb.value for verb in Verb])
    parser.add_argument("target", metavar="POOL|NODE|all")
    parser.add_argument(
        "--because", default="", help="for people: shown in `why`, in the journal and in the node's reason"
    )
    parser.add_argument("--for", dest="for_s", type=float, help="seconds for which a keep applies")
    parser.add_argument(
        "--now", action="store_true", help="for a replace: signal and requeue the jobs instead of waiting"
    )
    parser.add_argument("--by", default="", help="who gives the order; default: the login name")
    options = parser.parse_args(argv)
    request = OrderRequest(
        verb=Verb(options.verb),
        target=options.target,
        words=short(options.because, WORDS),
        for_s=options.for_s,
        now=options.now,
        by=said_by(options.by),
    )
    return head.run(lambda: _give(request, head.head_files(options), taken_s, as_json=options.json))


def refusal(plan: SlurmPlan, request: OrderRequest) -> str:
    """Return why the order does not apply to this cluster; empty if it does."""
    if words := _unknown_target(plan, request):
        return words
    if request.for_s is not None and not 0 < request.for_s <= LONGEST_KEEP_S:
        asked = (
            f"{request.for_s / 86400:,.1f} days" if request.for_s > LONGEST_KEEP_S else f"{request.for_s:g} s"
        )
        return f"{asked} is not a valid time to keep a node: it must be more than 0, at most {LONGEST_KEEP_S / 86400:g} days"
    if request.for_s is not None and request.verb is not Verb.NODE_KEEP:
        return f"{request.verb.value} takes no time: only node-keep does"
    if request.now and request.verb is not Verb.NODE_REPLACE:
        return f"{request.verb.value} takes no --now: only node-replace does"
    if request.verb is Verb.NODE_DRAIN:
        return _unfit_reason(request)
    return ""


def _unfit_reason(request: OrderRequest) -> str:
    """Return why the words are no reason of a person; empty if they are. The name after them sets them apart from Slurm's."""
    if not request.words:
        return "node-drain needs --because: Slurm shows it as the reason"
    if request.words.startswith(REASON_PREFIX):
        return (
            f"--because begins with {REASON_PREFIX!r}, as the reasons of gpucluster itself: write other words"
        )
    return ""


def _unknown_target(plan: SlurmPlan, request: OrderRequest) -> str:
    if request.verb is Verb.ORDERS_CONFIRM:
        ours = request.target == ALL_ORDERS
        return "" if ours else f"{request.verb.value} takes {ALL_ORDERS!r}, not {request.target!r}"
    if request.verb.value.startswith("pool-"):
        known = [pool.name for pool in plan.pools]
        if request.target not in known:
            return f"there is no pool {request.target!r}; this cluster has {', '.join(known)}"
    elif request.target not in slots_of(plan):
        spans = ", ".join(pool.hostlist for pool in plan.pools)
        return f"there is no node {request.target!r}; this cluster has {spans}"
    return ""


def said_by(given: str) -> str:
    """Return who gives an order: what the command line says, else the login name."""
    return short(given, NAME) or login(os.environ)


def login(environ: Mapping[str, str]) -> str:
    """Return the operator's user name."""
    name = environ.get("SUDO_USER", "")
    if not name:
        try:
            name = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            name = f"uid {os.getuid()}"
    return short(name, NAME)


def wake_daemon(wake: Path) -> bool:
    """Wake the daemon. Return whether it listens."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
            sender.sendto(b"order", str(wake))
    except OSError as error:
        return isinstance(error, BlockingIOError)  # the queue is full: enough wake-ups are waiting
    return True


def _give(request: OrderRequest, where: head.HeadFiles, taken_s: float, *, as_json: bool) -> int:
    plan = head.read_plan(where)
    if plan.aws is None:
        raise StateError(
            f"{plan.name} runs on existing hosts: no daemon manages them",
            next_step=ON_HOSTS[request.verb].format(nodes=_hosts(plan, request)),
        )
    if words := refusal(plan, request):
        problem = {"message": words, "next": f"gpucluster {_listing(request)} -c {plan.name}", "exit_code": 1}
        head.print_answer(as_json, {"ok": False, "error": problem}, f"error: {words}", error=True)
        return 1
    words, now = _effect(where, request), time.time()
    order = spool.SpooledOrder(
        kind=spool.ORDER,
        verb=request.verb,
        target=request.target,
        by=request.by,
        words=request.words,
        until=None if request.for_s is None else now + request.for_s,
        now=request.now,
        time=now,
    )
    try:
        path = spool.put(where.spool, order, f"{time.time_ns()}.{os.getpid()}.{spool.ORDER}")
    except OSError as error:
        step = "be root or slurm, on the head where gpucluster-elastic runs"
        raise StateError(
            f"the spool {where.spool} takes no order: {error.strerror}", next_step=step
        ) from error
    wake_daemon(where.wake)
    taken = _gone(path, time.monotonic() + taken_s, time.sleep)
    rest = _postponed(request.verb, where) if taken else "; no daemon has read it yet: it waits in the spool"
    answer = {
        "ok": True,
        "verb": request.verb.value,
        "target": request.target,
        "by": request.by,
        "until": order.until,
        "taken": taken,
    }
    head.print_answer(as_json, answer, f"{request.target} {words}{rest}")
    return 0


def _hosts(plan: SlurmPlan, request: OrderRequest) -> str:
    """Return the target as Slurm's nodes: those of a pool, or the node."""
    if not request.verb.value.startswith("pool-"):
        return request.target
    return next((pool.hostlist for pool in plan.pools if pool.name == request.target), "NODES")


def _listing(request: OrderRequest) -> str:
    return "pool list" if request.verb.value.startswith("pool-") else "why NODE"


def _effect(where: head.HeadFiles, request: OrderRequest) -> str:
    """Return what the daemon does with the order, from the journal if it can be read."""
    if request.verb is Verb.ORDERS_CONFIRM:
        with contextlib.suppress(StateError):
            if head.read_journal(where).memory.unrestored_since is None:
                return NOTHING_LOST
    if request.verb in EMPTY:
        with contextlib.suppress(StateError):
            incarnation = head.read_journal(where).memory.incarnations.get(request.target)
            if incarnation is None or not (incarnation.instance or incarnation.request):
                return EMPTY[request.verb]
    return DONE[request.verb]


def _postponed(verb: Verb, where: head.HeadFiles) -> str:
    published = status_endpoint.read(where.port)
    return "" if published is None else postponed(verb, published.lost)


def postponed(verb: Verb, lost: Mapping[Dependency, Loss]) -> str:
    """Return that the daemon cannot carry out the order now, and why; empty if it can."""
    why = [f"{LOSSES[one].fails} {one}" for one in lost if NEEDS.get(verb) in LOSSES[one].denied]
    return f"; not yet: the daemon cannot {' and cannot '.join(why)} now" if why else ""


def _gone(path: Path, deadline: float, pause: Callable[[float], None]) -> bool:
    while path.exists():
        if time.monotonic() >= deadline:
            return False
        pause(0.05)
    return True


if __name__ == "__main__":
    sys.exit(main())
