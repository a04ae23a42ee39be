"""`python -m gpucluster.elastic.order VERB TARGET`, on the head: an operator's order to the daemon, by way of the spool.

Exit 0 given, 1 no such pool or node, 2 it could not be given. The daemon takes it within a second; where none lives it
waits in the spool for the next one.
"""

import contextlib
import json
import os
import pwd
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpucluster.elastic import head, spool
from gpucluster.elastic.decide.world import slots_of
from gpucluster.elastic.events import Verb
from gpucluster.elastic.memory import Memory, fold
from gpucluster.errors import StateError
from gpucluster.plan.model import ClusterPlan

TAKEN_S = 3.0  # the bell wakes the daemon at once; its scan is each second
LONGEST_KEEP_S = 30 * 86400.0  # a machine that is kept costs: for longer, order it again
WORDS, NAME = 160, 64  # characters that are kept
DONE: Mapping[Verb, str] = {
    Verb.POOL_PAUSE: "launches nothing more; what runs goes on",
    Verb.POOL_DRAIN: "launches nothing more, and its nodes go as they fall idle",
    Verb.POOL_RESUME: "launches again",
    Verb.NODE_REPLACE: "gets another machine as soon as its jobs let it",
    Verb.NODE_KEEP: "is kept, whatever becomes of it",
    Verb.NODE_RELEASE: "is the daemon's to use and to end again",
}
EMPTY: Mapping[Verb, str] = {  # of a node that has no machine, and none on its way
    Verb.NODE_KEEP: "has no machine now: one that comes while the order stands is kept, whatever becomes of it",
    Verb.NODE_REPLACE: "has no machine now: there is nothing to replace",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """An order as it was typed."""

    verb: Verb
    target: str
    words: str = ""
    for_s: float | None = None
    now: bool = False
    by: str = ""


def main(argv: Sequence[str] | None = None, taken_s: float = TAKEN_S) -> int:
    """Give one order, and wait so long for the daemon to take it."""
    parser = head.parser("order")
    parser.add_argument("verb", choices=[verb.value for verb in Verb])
    parser.add_argument("target", metavar="POOL|NODE")
    parser.add_argument(
        "--because", default="", help="for people: stands in `why`, the journal and the node's reason"
    )
    parser.add_argument("--for", dest="for_s", type=float, help="seconds that a keep lasts")
    parser.add_argument(
        "--now", action="store_true", help="of a replace: signal and requeue, rather than wait"
    )
    parser.add_argument("--by", default="", help="who gives it; else the login name")
    options = parser.parse_args(argv)
    wish = Wish(
        verb=Verb(options.verb),
        target=options.target,
        words=plain(options.because, WORDS),
        for_s=options.for_s,
        now=options.now,
        by=plain(options.by, NAME) or login(os.environ),
    )
    return head.run(lambda: _give(wish, head.places(options), taken_s, as_json=options.json))


def refusal(plan: ClusterPlan, wish: Wish) -> str:
    """Why the order makes no sense in this cluster; empty: it does."""
    if wish.verb.value.startswith("pool-"):
        known = [pool.name for pool in plan.pools]
        if wish.target not in known:
            return f"there is no pool {wish.target!r}; this cluster has {', '.join(known)}"
    elif wish.target not in slots_of(plan):
        spans = ", ".join(part.hostlist for pool in plan.pools for part in pool.slots)
        return f"there is no node {wish.target!r}; this cluster has {spans}"
    if wish.for_s is not None and not 0 < wish.for_s <= LONGEST_KEEP_S:
        asked = f"{wish.for_s / 86400:,.1f} days" if wish.for_s > LONGEST_KEEP_S else f"{wish.for_s:g} s"
        return f"{asked} is no time to keep a node: more than 0, at most {LONGEST_KEEP_S / 86400:g} days"
    if wish.for_s is not None and wish.verb is not Verb.NODE_KEEP:
        return f"{wish.verb.value} takes no time: only node-keep does"
    if wish.now and wish.verb is not Verb.NODE_REPLACE:
        return f"{wish.verb.value} takes no --now: only node-replace does"
    return ""


def login(environ: Mapping[str, str]) -> str:
    """Who is at the keyboard."""
    name = environ.get("SUDO_USER", "")
    if not name:
        try:
            name = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            name = f"uid {os.getuid()}"
    return plain(name, NAME)


def plain(text: str, most: int) -> str:
    """Printable, on one line, and short."""
    return "".join(c for c in " ".join(text.split()) if c.isprintable())[:most]


def ring(wake: Path) -> bool:
    """Wake the daemon; whether one listens."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as bell:
            bell.sendto(b"order", str(wake))
    except OSError as error:
        return isinstance(error, BlockingIOError)  # its queue is full: it has been rung enough
    return True


def _give(wish: Wish, where: head.Places, taken_s: float, *, as_json: bool) -> int:
    plan = head.plan_of(where)
    if plan.aws is None:
        raise StateError(
            f"{plan.name} stands on hosts that exist: no daemon owns them",
            next_step=f"scontrol update nodename={wish.target} state=drain reason=...",
        )
    if words := refusal(plan, wish):
        problem = {"message": words, "next": "gpucluster why NODE, sinfo -N", "exit_code": 1}
        _say(as_json, {"ok": False, "error": problem}, f"error: {words}", error=True)
        return 1
    words, now = _effect(where, wish), time.time()
    order = spool.Order(
        kind=spool.ORDER,
        verb=wish.verb,
        target=wish.target,
        by=wish.by,
        words=wish.words,
        until=None if wish.for_s is None else now + wish.for_s,
        now=wish.now,
        time=now,
    )
    try:
        path = spool.put(where.spool, order, f"{time.time_ns()}.{os.getpid()}.{spool.ORDER}")
    except OSError as error:
        step = "be root or slurm, on the head where gpucluster-elastic runs"
        raise StateError(
            f"the spool {where.spool} takes no order: {error.strerror}", next_step=step
        ) from error
    ring(where.wake)
    taken = _gone(path, time.monotonic() + taken_s, time.sleep)
    rest = "" if taken else "; no daemon has taken it yet: it waits in the spool"
    told = {
        "ok": True,
        "verb": wish.verb.value,
        "target": wish.target,
        "by": wish.by,
        "until": order.until,
        "taken": taken,
    }
    _say(as_json, told, f"{wish.target} {words}{rest}")
    return 0


def _effect(where: head.Places, wish: Wish) -> str:
    """What the daemon makes of it: by the journal, where it can be read."""
    if wish.verb in EMPTY:
        with contextlib.suppress(StateError):
            life = fold(Memory(), head.journal(where)).lives.get(wish.target)
            if life is None or not (life.instance or life.request):
                return EMPTY[wish.verb]
    return DONE[wish.verb]


def _gone(path: Path, deadline: float, pause: Callable[[float], None]) -> bool:
    while path.exists():
        if time.monotonic() >= deadline:
            return False
        pause(0.05)
    return True


def _say(as_json: bool, values: Mapping[str, object], words: str, *, error: bool = False) -> None:
    if as_json:
        sys.stdout.write(json.dumps({"schema": 1, **values}, indent=1, sort_keys=True) + "\n")
    else:
        (sys.stderr if error else sys.stdout).write(words + "\n")


if __name__ == "__main__":
    sys.exit(main())
