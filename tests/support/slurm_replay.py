"""Set the model of Slurm to a recorded state, apply the recorded stimulus, and compare the result with the record."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpucluster.slurm.values import SlurmReservation
from support.slurm_model import CPUS, NEVER, POWER, TOLD_S, Clocks, Job, Node, SlurmModel, SlurmRefusalError

FOLDER = Path(__file__).parents[1] / "recorded/transitions"
VERSIONS = ("22.05", "24.11", "26.05")
NOW = 1_000_000.0
PATIENCE_S = 45.0  # Slurm does some checks only each 30 s; a longer delay is a difference
CLOCKS = Clocks(
    resume_s=24, suspend_s=8, silent_s=26, expire_s=5, ping_s=10
)  # as recorded; a silent node is detected after two pings
QUICK = Clocks(resume_s=24, suspend_s=8, silent_s=26, expire_s=5, ping_s=10, idle_s=6)
UNSEEN = {
    "CLOUD",
    "PLANNED",
}  # not compared: flags without effect, and the changing plan of the backfill scheduler
_NOT_LOOKED = ("None", "BeginTime", "Priority")  # not compared: the scheduler has not tried to place the job
Record = Mapping[str, Any]
_PLAIN = ({"IDLE", "POWERED_DOWN"}, {"IDLE"}, {"ALLOCATED"})
FORGOTTEN: tuple[object, ...] = (  # after kill -9: the last changes were not yet on disk
    *((frozenset(words), reason) for words in _PLAIN for reason in ("", "clean")),
    ("PENDING", (), 0),
)
ODD = {
    ("22.05", "maintenance ends", 4): "the reservation's words come late to a node with a job",
    ("24.11", "maint: down then power_down", 8): "the reservation's words come at any moment",
    (
        "24.11",
        "alloc*: reconfigure",
        7,
    ): "the host was busy: a living node was taken for silent, and its job started anew",
    (
        "24.11",
        "alloc: reconfigure",
        6,
    ): "the host was busy: a living node was taken for silent, and its job started anew",
    ("24.11", "alloc: restart", 7): "the step of the job's first run was still there: Duplicate jobid",
    ("26.05", "alloc#: power_down_force", 4): "no machine, and not waited for any more: silent for a moment",
    ("26.05", "idle drained: undrain", 9): "a job's words before its node's",
    ("26.05", "alloc!: down then power_down", 10): "three changes in one look",
}
View = dict[str, object]


@dataclass(frozen=True)
class Mismatch:
    """The model's result differs from the record."""

    record: Record
    wanted: View
    got: View

    def __str__(self) -> str:
        r = self.record
        keys = sorted(
            k for k in self.wanted.keys() | self.got.keys() if self.wanted.get(k) != self.got.get(k)
        )
        differences = "\n".join(
            f"  {k}: real {self.wanted.get(k)}\n     model {self.got.get(k)}" for k in keys
        )
        return f"{r['version']} {r['case']} step {r['step']} {r['stimulus']}\n{differences}\n  before {shown(r['before'])}"


def records(version: str) -> Iterator[Record]:
    """Return every transition recorded from that version."""
    with (FOLDER / f"{version}.jsonl").open() as file:
        yield from (unpacked(json.loads(line)) for line in file)


def unpacked(record: dict[str, Any]) -> Record:
    """`after` contains only differences from `before`."""
    before, after = record["before"], record["after"]
    whole = {part: {**before.get(part, {}), **after.get(part, {})} for part in ("nodes", "jobs")}
    return {**record, "after": whole}


def excluded(record: Record) -> str:
    """Return why this record is not compared; '' for almost all."""
    if (odd := ODD.get((record["version"], record["case"], record["step"]))) is not None:
        return odd
    before, after = record["before"], record["after"]
    alive = [(v, after["nodes"][n]) for n, v in before["nodes"].items() if v["machine"] == "up"]
    new = [set(v["states"]) - set(b["states"]) for b, v in alive]
    reported = any("Not responding" in v["reason"] and v["reason"] != b["reason"] for b, v in alive)
    asked = record["stimulus"]["do"] in ("undrain", "resume", "restart after 30 s")
    if not asked and (reported or any("NOT_RESPONDING" in words for words in new)):
        return "a living slurmd was too slow for its SlurmdTimeout of 12 s: the host was busy"
    if any("NonZeroExitCode" in j["reason"] for j in after["jobs"].values()):
        return "the job's script failed by itself"
    if record["case"] in ("srun: a node dies under it", "boots again under a job", "slurmd only restarts"):
        return "slurmstepd outlives a killed slurmd: no machine really died"
    coming = POWER | {"NOT_RESPONDING"}
    waits = [j for j in before["jobs"].values() if "CONFIGURING" in j["states"]]
    ready = [j for j in waits if not any(coming & set(before["nodes"][n]["states"]) for n in j["nodes"])]
    if ready and "holds" in record["stimulus"]:
        return "CONFIGURING ends when the waiter does, or each 30 s"
    return ""


def replay(record: Record, kind: type[SlurmModel] = SlurmModel) -> Mismatch | None:
    """Return None if the model agrees. No record has the time of the last ping, so both a recent and an old one are tried."""
    return _replay(record, kind, pinged=NOW) and _replay(record, kind, pinged=NOW - PATIENCE_S)


def _replay(record: Record, kind: type[SlurmModel], pinged: float) -> Mismatch | None:
    model = model_at(record, kind)
    for node in model.nodes.values():
        node.pinged = pinged
    wanted = shown(record["after"])
    if "holds" in record["stimulus"]:
        return _holds(model, record, wanted)
    _does(model, record)
    moved = _moved(record) if record["stimulus"]["do"] == "time" else wanted.keys()
    first = seen(model)
    if record["stimulus"]["do"].startswith("restart"):
        moved = [k for k in _moved(record) if wanted[k] not in FORGOTTEN]
    left = {k for k in moved if first.get(k) != wanted[k]}
    for _ in range(int(PATIENCE_S)):
        if not left:
            return _hooked(model, record)
        model.tick(model.now + 1.0)
        got = seen(model)  # an observation takes time: each state must occur, not all at one tick
        left = (
            set()
            if all(got.get(k) == wanted[k] for k in moved)
            else {k for k in left if got.get(k) != wanted[k]}
        )
    return Mismatch(record, {k: wanted[k] for k in left}, {k: first.get(k) for k in left})


def _holds(model: SlurmModel, record: Record, wanted: View) -> Mismatch | None:
    for label, job in record["before"]["jobs"].items():
        if job["reason"] in _NOT_LOOKED:
            model.jobs[_id(label)].begins = NEVER
    model.now = NOW - int(record["stimulus"]["holds"])  # the clocks are those of its end
    for _ in range(int(record["stimulus"]["holds"])):
        model.tick(model.now + 1.0)
        if (got := seen(model)) != wanted:
            return Mismatch(record, wanted, got)
    return None


def _hooked(model: SlurmModel, record: Record) -> Mismatch | None:
    """Each recorded hook call must be a call of the model, or belong to the state just before."""
    for _ in range(5):  # the hook's record may precede the observation
        model.tick(model.now + 1.0)
    called = {(kind, name) for _, kind, names in model.hooks for name in names}
    late = {"resume": "POWERING_UP", "suspend": "POWERING_DOWN", "resume_fail": "DOWN"}
    real = {(kind, name) for kind, names in record["hooks"] for name in names}
    before = record["before"]["nodes"]
    if record["stimulus"]["do"].startswith("restart"):
        return None
    missing = {(k, n) for k, n in real - called if late[k] not in before[n]["states"]}
    return Mismatch(record, {"hooks": sorted(missing)}, {"hooks": sorted(called)}) if missing else None


def _moved(record: Record) -> list[str]:
    """Return the nodes and jobs that the record changes."""
    before, after = shown(record["before"]), shown(record["after"])
    return [key for key in after if before.get(key) != after[key]]


def shown(state: Record) -> View:
    """Return a recorded state in the model's form."""
    nodes = {n: (_words(v), v["reason"]) for n, v in state["nodes"].items()}
    dead = {n for n, v in state["nodes"].items() if v["machine"] != "up"}
    return {**nodes, **{k: _shown_job(v, dead) for k, v in state["jobs"].items()}}


def seen(model: SlurmModel) -> View:
    """Return the model's state in the same form."""
    nodes = {n.name: (_seen_words(model, n), n.reason) for n in model.nodes.values()}
    return {**nodes, **{_label(j.id): _seen_job(model, j) for j in model.jobs.values()}}


def _seen_words(model: SlurmModel, node: Node) -> frozenset[str]:
    return model.states(node) - UNSEEN - ({"COMPLETING"} if node.slurmd is not None else set())


def _seen_job(model: SlurmModel, job: Job) -> tuple[object, ...]:
    if any(model.nodes[n].slurmd is None for n in model.completing(job)):
        return "COMPLETING", (), job.restarts
    word = job.state if job.state in ("CONFIGURING", "RUNNING", "PENDING") else "ended"
    return word, job.nodes if job.placed else (), job.restarts


def _words(node: Record) -> frozenset[str]:
    brief = {"COMPLETING"} if node["machine"] == "up" else set[str]()
    return frozenset(node["states"]) - UNSEEN - brief


def _id(label: str) -> int:
    """Return the job id of a label: A is 1, its het component A+1 is 101."""
    return ord(label[0]) - 64 + (100 if "+" in label else 0)


def _label(number: int) -> str:
    return chr(64 + number % 100) + ("+1" if number > 100 else "")


def _shown_job(job: Record, dead: set[str]) -> tuple[object, ...]:
    word = "COMPLETING" if "COMPLETING" in job["states"] and dead & set(job["nodes"]) else _job_word(job)
    return word, tuple(job["nodes"]) if word in ("CONFIGURING", "RUNNING") else (), job["restarts"]


def _job_word(job: Record) -> str:
    words = set(job["states"])
    if words == {"COMPLETING"}:  # 22.05 reports no more
        return "PENDING" if job["restarts"] else "ended"
    return next((w for w in ("CONFIGURING", "RUNNING", "PENDING") if w in words), "ended")


def model_at(record: Record, kind: type[SlurmModel] = SlurmModel) -> SlurmModel:
    """Return a model in the recorded state before the stimulus."""
    state, quick = record["before"], "Slurm suspends" in record["case"] or "for nothing" in record["case"]
    nodes = {n: _node(n, v) for n, v in state["nodes"].items()}
    model = kind.of(nodes, QUICK if quick else CLOCKS, record["version"])
    model.now = NOW
    for label, recorded in state["jobs"].items():
        job = _job(label, recorded)
        model.jobs[job.id] = job
        for name in job.nodes if job.placed else ():
            nodes[name].used += job.cpus
        for name in recorded["nodes"] if "COMPLETING" in recorded["states"] else ():
            nodes[name].closing[job.id] = NOW + TOLD_S if nodes[name].slurmd else NEVER
    model._next = len(model.jobs) + 1
    for label, recorded in record["after"]["jobs"].items():
        model.prefers[_id(label)] = tuple(recorded["nodes"])
    held = tuple(state.get("reserved", ()))
    if held:
        model.reservations["r"] = SlurmReservation(name="r", nodes=held, starts_at=0.0, ends_at=NOW + 3600)
    waits = any(v["reason"] not in _NOT_LOOKED for v in state["jobs"].values() if "PENDING" in v["states"])
    for node in nodes.values():  # no state of a node shows it, but the reason of a job does
        node.shut = waits and "POWERING_UP" in node.flags and not node.used
    return model


def _node(name: str, recorded: Record) -> Node:
    words = set(recorded["states"])
    base = "ALLOCATED" if {"ALLOCATED", "MIXED"} & words else "DOWN" if "DOWN" in words else "IDLE"
    node = Node(
        name, "a", base, words - {"ALLOCATED", "MIXED", "DOWN", "IDLE", "COMPLETING"}, recorded["reason"]
    )
    node.since = node.last_busy = NOW - recorded["since"]
    if recorded["machine"] == "up":
        node.slurmd = NOW - recorded["booted"]
        node.answered_at = NOW
        node.boot_time = NOW - recorded["booted"]
    elif not POWER & node.flags:
        seen = recorded.get("silent", 0.0)
        due = CLOCKS.silent_s / (1 if "NOT_RESPONDING" in node.flags else 2)  # it was not detected until now
        node.answered_at = NOW - min(seen, recorded.get("changed", NEVER), due - 1)
    return node


def _job(label: str, recorded: Record) -> Job:
    word = _job_word(recorded)
    job = Job(
        _id(label),
        1 if recorded["kind"] == "het" else recorded["count"],
        recorded["lasts"],
        NOW,
        batch=recorded["kind"] != "srun",
        requeue=recorded["kind"] != "once",
        het=1 if recorded["kind"] == "het" else 0,
        state=word if word != "ended" else "COMPLETED",
        nodes=tuple(recorded["nodes"]) if word != "PENDING" else (),
        restarts=recorded["restarts"],
        cpus=1 if recorded["kind"] == "swarm" else CPUS,
    )
    job.started = NOW - recorded["since"]
    if recorded["restarts"] and word == "PENDING":
        job.begins = NOW + CLOCKS.expire_s + 1 - recorded["since"]
    return job


def _does(model: SlurmModel, record: Record) -> None:
    """Apply the recorded stimulus to the model."""
    stimulus = record["stimulus"]
    what, nodes, label = stimulus["do"], stimulus.get("nodes", []), stimulus.get("job", "")
    if what == "submit":
        _submit(model, record)
    elif what in _ON_NODES:
        for name in nodes:
            _ON_NODES[what](model, name)
    elif what in _ON_JOBS:
        _ON_JOBS[what](model, model.jobs[_id(label)])
    elif what == "reserve":
        model.set_reservation(
            SlurmReservation(name="r", nodes=tuple(nodes), starts_at=model.now, ends_at=model.now + 3600)
        )
    elif what in _WHOLE:
        _WHOLE[what](model)
    else:
        _update(model, record)


def _submit(model: SlurmModel, record: Record) -> None:
    stimulus = record["stimulus"]
    for one in [k for k in record["after"]["jobs"] if k.startswith(stimulus["job"])]:
        model._next = _id(one)
        made = model.submit(stimulus["count"], stimulus["lasts"], batch=stimulus["kind"] != "srun")
        made.cpus = 1 if stimulus["kind"] == "swarm" else CPUS
        made.requeue, made.het = stimulus["kind"] != "once", 1 if stimulus["kind"] == "het" else 0
        made.count = 1 if made.het else made.count


def _update(model: SlurmModel, record: Record) -> None:
    stimulus = record["stimulus"]
    refused = 0
    try:
        model.update_nodes(stimulus["nodes"], stimulus["do"], stimulus["reason"] or None)
    except SlurmRefusalError:
        refused = 1
    assert refused == stimulus["code"], f"scontrol ended with {stimulus['code']}, the model with {refused}"


def _restart(model: SlurmModel, away: float) -> None:
    model.tick(model.now + away)
    model.restart(forgetting=False, after=away)


_ON_NODES: dict[str, Callable[[SlurmModel, str], object]] = {
    "boot": lambda model, node: model.registers(node, model.now, "10.42.0.1"),
    "boot_stale": lambda model, node: model.registers(node, 0.0, "10.42.0.1"),
    "kill": lambda model, node: model.lost(node),
}
_ON_JOBS: dict[str, Callable[[SlurmModel, Job], object]] = {
    "cancel": lambda model, job: model.cancel(job),
    "requeue": lambda model, job: model.requeue([job.id], ""),
    "signal": lambda model, job: model.signal([job.id], "USR1"),
}
_WHOLE: dict[str, Callable[[SlurmModel], object]] = {
    "time": lambda model: None,
    "unreserve": lambda model: model.delete_reservation("r"),
    "reconfigure": lambda model: None,
    "restart": lambda model: _restart(model, 0.0),
    "restart after 6 s": lambda model: _restart(model, 6.0),
    "restart after 30 s": lambda model: _restart(model, 30.0),
}
