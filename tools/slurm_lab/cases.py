"""The script: states to reach, and what is done to a node or a job in each of them."""

from dataclasses import dataclass, field

Op = tuple[str, ...]
BOTH = ("1", "2")


def op(*words: str) -> Op:
    return words


def job(label: str = "A", count: int = 2, *, kind: str = "batch", lasts: int = 300, nodes: str = "") -> Op:
    """kind: batch, once (batch --no-requeue), srun, het, swarm (one CPU a task: nodes are shared)."""
    return ("submit", label, str(count), kind, str(lasts), nodes)


def update(state: str, *nodes: str, reason: str = "") -> Op:
    return ("update", state, ",".join(nodes or BOTH), reason)


IDLE = (update("power_up"), op("until", "asked", "1,2"), op("boot", "1,2"), op("until", "plain", "1,2"))
RUN = (*IDLE, job(), op("until", "runs", "A"))
ASKED = (job(), op("until", "asked", "1,2"))

REACH: dict[str, tuple[Op, ...]] = {
    "idle~": (),
    "alloc#": ASKED,
    "alloc# half up": (*ASKED, op("boot", "1"), op("until", "plain", "1")),
    "idle#": (update("power_up"), op("until", "asked", "1,2")),
    "idle": IDLE,
    "alloc": RUN,
    "mixed": (*IDLE, job(count=1, kind="swarm"), op("until", "runs", "A")),
    "idle drained": (*IDLE, update("drain", reason="mine: look")),
    "alloc drained": (*RUN, update("drain", "1", reason="mine: look")),
    "idle~ drained": (update("drain", reason="mine: look"),),
    "alloc# drained": (*ASKED, update("drain", reason="mine: look")),
    "alloc!": (*RUN, update("power_down", "1")),
    "alloc! asap": (*RUN, update("power_down_asap", "1")),
    "idle%": (*IDLE, update("power_down"), op("until", "ending", "1,2")),
    "idle% drained": (
        *IDLE,
        update("power_down"),
        op("until", "ending", "1,2"),
        update("drain", reason="mine: look"),
    ),
    "down": (*IDLE, update("down", reason="mine: broken")),
    "down drained": (
        *IDLE,
        update("down", reason="mine: broken"),
        update("drain", reason="mine: look"),
    ),
    "down#": (*ASKED, update("down", reason="mine: refused"), op("settle", "1")),
    "down~": (update("power_up"), op("until", "asked", "1,2"), op("until", "down", "1,2")),
    "down*": (*IDLE, op("kill", "1,2"), op("until", "down", "1,2")),
    "alloc*": (*RUN, op("kill", "1"), op("settle", "2")),
    "maint": (*IDLE, op("reserve", "1,2")),
    "maint~": (op("reserve", "1,2"),),
}

_STATES = (
    "drain",
    "undrain",
    "down",
    "resume",
    "idle",
    "power_up",
    "power_down",
    "power_down_force",
    "power_down_asap",
)
DONE: dict[str, tuple[Op, ...]] = {
    **{s: (update(s, reason=f"test: {s}" if s in ("drain", "down") else ""),) for s in _STATES},
    "down then power_down": (update("down", reason="test: refused"), update("power_down")),
    "boot": (op("boot", "1,2"),),
    "boot stale": (op("boot_stale", "1,2"),),
    "kill": (op("kill", "1"),),
    "submit": (job("B"),),
    "requeue": (op("requeue", "A"),),
    "cancel": (op("cancel", "A"),),
    "signal": (op("signal", "A"),),
    "wait": (),
}
_WITH_JOB = {"requeue", "cancel", "signal"}
_HAS_JOB = {
    "alloc#",
    "alloc# half up",
    "alloc",
    "mixed",
    "alloc drained",
    "alloc# drained",
    "alloc!",
    "alloc! asap",
    "alloc*",
    "down#",
}
_UP = {
    "idle",
    "alloc",
    "mixed",
    "idle drained",
    "alloc drained",
    "alloc!",
    "alloc! asap",
    "alloc*",
    "down",
    "down drained",
    "maint",
}
_AWAITED = {"alloc#", "alloc# half up", "idle#", "alloc# drained", "down#"}
_LONG = {"kill": "20", "wait": "4"}


@dataclass(frozen=True)
class Case:
    """Run `steps` in a partition of its own; `quick`: in one that Slurm itself suspends when idle."""

    name: str
    steps: tuple[Op, ...]
    quick: bool = False
    late: tuple[Op, ...] = field(default=())  # of a global case: just before the moment


def cases() -> list[Case]:
    """Everything that concerns the nodes of one case only."""
    found: list[Case] = []
    for reached, before in REACH.items():
        for what, steps in DONE.items():
            if _makes_sense(reached, what):
                settle = op("settle", _LONG.get(what, "5"))
                found.append(Case(f"{reached}: {what}", (*before, *steps, settle, *_then(reached, what))))
    return [*found, *_stories()]


def _makes_sense(reached: str, what: str) -> bool:
    if what in _WITH_JOB:
        return reached in _HAS_JOB and not (what == "signal" and reached not in ("alloc", "alloc#"))
    if what.startswith("boot"):
        return reached not in _UP and reached != "alloc# half up"
    if what == "kill":
        return reached in ("idle", "alloc", "idle drained", "maint", "alloc!")
    return True


def _then(reached: str, what: str) -> tuple[Op, ...]:
    """What was asked for and not yet given comes after all, and a place that is free again is used."""
    if what in ("undrain", "resume", "power_down", "power_down_force") and reached in _AWAITED:
        return (
            op(
                "boot_missing",
            ),
            op("settle", "4"),
        )
    if what in ("undrain", "resume", "idle") and "drained" in reached and reached != "alloc# drained":
        return (job("B", 1), op("settle", "4"))
    if what == "power_down_force" and reached in ("down~", "down", "idle~ drained"):
        return (job("B", 1), op("settle", "4"))
    return ()


def _stories() -> list[Case]:
    s = "settle"
    kinds = [
        Case(f"{kind}: a node is refused", (job(kind=kind), op("until", "asked", "1,2"), update("down", "1", reason="test: no"), update("power_down", "1"), op(s, "9")))
        for kind in ("once", "srun", "het")
    ]  # fmt: skip
    dies = [
        Case(f"{kind}: a node dies under it", (*IDLE, job(kind=kind), op("until", "runs", "A"), op("kill", "1"), op(s, "20")))
        for kind in ("batch", "once", "srun")
    ]  # fmt: skip
    sent = [
        Case(f"{kind}: requeued", (*IDLE, job(kind=kind), op("until", "runs", "A"), op("requeue", "A"), op(s, "10")))
        for kind in ("once", "srun", "het")
    ]  # fmt: skip
    never = [
        Case(f"{kind}: one never comes", (job(kind=kind), op("until", "asked", "1,2"), op("boot", "1"), op("until", "down", "2"), op(s, "9")))
        for kind in ("batch", "once", "srun")
    ]  # fmt: skip
    return [*kinds, *dies, *sent, *never, *_lives()]


def _lives() -> list[Case]:
    s = "settle"
    return [
        Case("a whole life", (job(lasts=4), op("until", "asked", "1,2"), op("boot", "1,2"), op("until", "ended", "A"), op(s, "3"), update("power_down"), op(s, "5"), job("B", 1), op(s, "9"))),
        Case("powered down, and its machine lingers", (*IDLE, update("power_down"), op(s, "12"), job(), op("until", "asked", "1,2"), op(s, "5"))),
        Case("Slurm suspends the idle", (job(lasts=4), op("until", "asked", "1,2"), op("boot", "1,2"), op("until", "ended", "A"), op("until", "ending", "1,2"), op("kill", "1,2"), op(s, "10")), quick=True),
        Case("powered up for nothing, suspended again", (update("power_up"), op("until", "asked", "1,2"), op("boot", "1,2"), op("until", "ending", "1,2"), op(s, "10")), quick=True),
        Case("late by a little", (job(), op("until", "asked", "1,2"), op("boot", "1"), op("until", "down", "2"), op("boot", "2"), op(s, "9"))),
        Case("boots again under a job", (*RUN, op("kill", "1"), op("boot", "1"), op(s, "8"))),
        Case("boots again while idle", (*IDLE, op("kill", "1"), op("boot", "1"), op(s, "5"))),
        Case("comes back from silence", (*IDLE, op("kill", "1"), op("until", "down", "1"), op("boot", "1"), op(s, "5"))),
        Case("slurmd only restarts", (*RUN, op("kill", "1"), op("boot_stale", "1"), op(s, "6"))),
        Case("registers unasked", (op("boot", "1,2"), op(s, "5"), job(), op(s, "8"))),
        Case("the second job takes the requeued one's nodes", (*RUN, job("B"), op(s, "2"), op("requeue", "A"), op(s, "10"))),
        Case("a job joins nodes that are on their way", (update("power_up"), op("until", "asked", "1,2"), job(), op(s, "3"), op("boot", "1,2"), op("until", "runs", "A"))),
        Case("the job ends while its node is asked off", (*IDLE, job(lasts=6), op("until", "runs", "A"), update("power_down"), op(s, "14"))),
        Case("the job ends on a drained node", (*IDLE, job(lasts=5), op("until", "runs", "A"), update("drain", reason="mine: look"), op(s, "10"))),
        Case("a drained node is powered down and comes back free", (*IDLE, update("drain", reason="mine: look"), update("power_down"), op(s, "5"), job(), op(s, "5"))),
        Case("refused, set aside, and given back", (*ASKED, update("down", reason="test: no"), update("power_down"), op(s, "10"), update("drain", reason="gpucluster: no"), op(s, "9"), update("undrain"), op(s, "5"))),
        Case("refused, and refused again", (*ASKED, update("down", reason="test: no"), update("power_down"), op("until", "asked", "1,2"), update("down", reason="test: no"), update("power_down"), op(s, "10"))),
        Case("a job with too few places", (update("drain", "1", "2", reason="mine: full"), job(count=3), op(s, "6"), update("undrain"), op(s, "5"))),
        Case("maintenance ends", (job(count=3), op("until", "asked", "1,2,3"), op("reserve", "1,2"), op(s, "4"), op("unreserve",), op(s, "4"))),
        Case("a job meets maintenance", (op("reserve", "1,2"), job(), op(s, "6"), op("unreserve",), op(s, "6"))),
        Case("the swarm", (*(job(x, 1, kind="swarm") for x in "ABCDE"), op("until", "asked", "1,2"), op("boot", "1,2,3"), op(s, "8"), op("cancel", "A"), op(s, "3"))),
    ]  # fmt: skip


WHOLE = {  # what is done to all of Slurm at once, and how long it is away
    "reconfigure": 0.0,
    "restart": 0.0,
    "restart after 6 s": 6.0,
    "restart after 30 s": 30.0,  # past ResumeTimeout, SuspendTimeout and SlurmdTimeout
}
_SLOW = ("down~", "down*", "down")


def whole_cases() -> list[Case]:
    """One a partition, all at the same moment; `late` are the steps to a state that passes quickly."""
    kept = ["idle~", "alloc#", "alloc# half up", "idle#", "idle", "alloc", "alloc drained", "idle~ drained", "alloc!", "idle%", "down~", "down*", "alloc*", "down#"]  # fmt: skip
    return [
        Case(name, REACH[name], late=())
        if name in _SLOW
        else Case(name, _early(REACH[name]), late=REACH[name][len(_early(REACH[name])) :])
        for name in kept
    ]


def _early(steps: tuple[Op, ...]) -> tuple[Op, ...]:
    """The part of the way that lasts."""
    if steps[: len(RUN)] == RUN:
        return RUN
    return IDLE if steps[: len(IDLE)] == IDLE else ()
