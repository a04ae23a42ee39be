"""Run the cases, and write what changed, change by change."""

import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from slurm_lab.cases import WHOLE, Case, Op, cases, whole_cases
from slurm_lab.lab import GROUPS, QUICK, Lab, Look, names

POWER = {"POWERED_DOWN", "POWERING_UP", "POWERING_DOWN"}
WAITS = POWER | {"NOT_RESPONDING", "POWER_UP", "POWER_DOWN"}
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT"}
Record = dict[str, Any]


class Room:
    """One partition: a case runs in it, and each change of its nodes and jobs is a record."""

    def __init__(self, lab: Lab, group: int, told: Callable[[Record], None]) -> None:
        self.lab, self.group, self.told = lab, group, told
        self.names = names(group)
        self.jobs: dict[str, dict[str, Any]] = {}
        self.power: dict[str, tuple[frozenset[str], float]] = {}
        self.changed: dict[str, float] = {}
        self.words: dict[str, str] = {}
        self.procs: list[subprocess.Popen[bytes]] = []
        self.reserved: list[str] = []
        self.heard = len(lab.hooks())
        self.case = ""
        self.state: Record = {}
        self.at = 0.0

    def begin(self, case: Case) -> None:
        self.case, self.jobs, self.step = case.name, {}, 0
        self.heard = len(self.lab.hooks())
        self.lingers = "lingers" in case.name
        self._take(self.lab.after(time.time()))

    def run(self, steps: Sequence[Op]) -> None:
        for step in steps:
            self.step += 1
            getattr(self, f"_{step[0]}")(*step[1:])

    # --- steps ------------------------------------------------------------------------------------
    def _submit(self, label: str, count: str, kind: str, lasts: str, _: str) -> None:
        known = {"count": int(count), "kind": kind, "lasts": int(lasts)}
        part = ["-p", f"g{self.group:02}", "-J", label]
        whole = [] if kind == "swarm" else ["--exclusive"]
        if kind == "srun":
            argv = ["srun", *part, "-N", count, "--exclusive", "sleep", lasts]
            before = set(self.lab.seen.jobs)
            self.procs.append(self.lab.later(argv))
            look = self.lab.wait_for(lambda s: self._new(s, before), 15)
            self.jobs[label] = {**known, "id": self._new(look, before)[0]}
            self._changed({"do": "submit", "job": label, **known}, time.time())
            return
        argv = ["sbatch", "--parsable", "-o", "/dev/null", *part]
        argv += {"once": ["--no-requeue"], "het": []}.get(kind, ["--requeue"])
        shape = ["-N", count, *whole] if kind != "swarm" else ["-n", "1", "-c", "1"]
        wrap = [f"--wrap=trap '' USR1; sleep {lasts}"]
        if kind == "het":
            one = ["-N", "1", "--exclusive"]
            argv, shape = [*argv, *one, ":", *part, *one], []
        code, said = self.lab.run([*argv, *shape, *wrap])
        ended = time.time()
        if code != 0:
            raise RuntimeError(f"{self.case}: {said}")
        number = int(said.splitlines()[0].split(";")[0])
        self.jobs[label] = {**known, "id": number}
        if kind == "het":
            self.jobs[label + "+1"] = {**known, "id": number + 1}
        self._changed({"do": "submit", "job": label, **known}, ended)

    def _new(self, look: Look, before: set[int]) -> list[int]:
        return [n for n, j in look.jobs.items() if n not in before and j["group"] == f"g{self.group:02}"]

    def _update(self, state: str, nodes: str, reason: str) -> None:
        argv = ["scontrol", "update", f"nodename={self._named(nodes)}", f"state={state}"]
        self._do(
            {"do": state, "nodes": nodes.split(","), "reason": reason},
            [*argv, *([f"reason={reason}"] if reason else [])],
        )

    def _requeue(self, label: str) -> None:
        self._do({"do": "requeue", "job": label}, ["scontrol", "requeue", str(self.jobs[label]["id"])])

    def _cancel(self, label: str) -> None:
        self._do({"do": "cancel", "job": label}, ["scancel", str(self.jobs[label]["id"])])

    def _signal(self, label: str) -> None:
        argv = ["scancel", "--signal=USR1", "--batch", str(self.jobs[label]["id"])]
        self._do({"do": "signal", "job": label}, argv)

    def _reserve(self, nodes: str) -> None:
        argv = ["scontrol", "create", "reservation", f"ReservationName=r{self.group}", "StartTime=now"]
        argv += ["Duration=60", f"Nodes={self._named(nodes)}", "Users=root", "Flags=MAINT,IGNORE_JOBS"]
        self.reserved = nodes.split(",")
        self._do({"do": "reserve", "nodes": nodes.split(",")}, argv)

    def _unreserve(self) -> None:
        self.reserved = []
        argv = ["scontrol", "delete", f"ReservationName=r{self.group}"]
        self._do({"do": "unreserve"}, argv)

    def _boot(self, nodes: str, stale: bool = False) -> None:
        for n in nodes.split(","):
            if not self.lab.machines[self._name(n)].alive:
                self.lab.boot(self._name(n), fresh=not stale)
        time.sleep(1.0)  # its registration belongs to it
        self._changed({"do": "boot_stale" if stale else "boot", "nodes": nodes.split(",")}, time.time())

    def _boot_stale(self, nodes: str) -> None:
        self._boot(nodes, stale=True)

    def _boot_missing(self) -> None:
        """The machines of what is POWERING_UP now."""
        waits = [
            n
            for n, v in self.state["nodes"].items()
            if "POWERING_UP" in v["states"] and v["machine"] == "none"
        ]
        if waits:
            self._boot(",".join(waits))

    def _kill(self, nodes: str) -> None:
        for n in nodes.split(","):
            self.lab.kill(self._name(n))
        self._changed({"do": "kill", "nodes": nodes.split(",")}, time.time())

    def _until(self, what: str, whose: str) -> None:
        self._watch(60.0, lambda: self._holds(what, whose.split(",")))

    def _settle(self, seconds: str) -> None:
        """Watch until nothing changed for so long, and nothing is on its way off."""
        self._watch(float(seconds), None)

    def _holds(self, what: str, whose: list[str]) -> bool:
        nodes = [set(self.state["nodes"][n]["states"]) for n in whose if n in self.state["nodes"]]
        jobs = [set(self.state["jobs"][n]["states"]) for n in whose if n in self.state["jobs"]]
        match what:
            case "asked":
                return all("POWERING_UP" in s for s in nodes)
            case "plain":
                return all(not WAITS & s and not {"DOWN"} & s for s in nodes)
            case "ending":
                return all("POWERING_DOWN" in s for s in nodes)
            case "down":
                return all("DOWN" in s for s in nodes)
            case "runs":
                return all("RUNNING" in s and "CONFIGURING" not in s for s in jobs)
            case "ended":
                return all(bool(ENDED & s) and "COMPLETING" not in s for s in jobs)
        raise AssertionError(what)

    # --- watching ---------------------------------------------------------------------------------
    def whole(self, stimulus: Record, moment: float) -> None:
        """Something was done to all of Slurm, that ended at `moment`."""
        self._changed(stimulus, moment)

    def _do(self, stimulus: Record, argv: list[str]) -> None:
        code, said = self.lab.run(argv)
        self._changed(
            {**stimulus, "code": code, "said": said.splitlines()[0][:160] if said else ""}, time.time()
        )

    def _changed(self, stimulus: Record, moment: float) -> None:
        before, began = self.state, self.at
        self._take(self.lab.after(moment))
        self._tell(before, stimulus, began)

    def _watch(self, limit: float, reached: Callable[[], bool] | None) -> None:
        last = began = time.time()
        while not (reached and reached()):
            before, at = self.state, self.at
            self._take(self.lab.after(time.time()))
            if _plain(before) != _plain(self.state):
                self._tell(before, {"do": "time"}, at)
                last = time.time()
            off = any("POWERING_DOWN" in v["states"] for v in self.state["nodes"].values())
            if reached is None and time.time() - last > limit and not off:
                held = round(time.time() - last, 1)
                self._tell({**before}, {"do": "time", "holds": held}, last)
                return
            if time.time() - began > 90 or (reached and time.time() - began > limit):
                raise TimeoutError(f"{self.case}: {json.dumps(self.state)}")

    def _tell(self, before: Record, stimulus: Record, since: float) -> None:
        seconds = round(self.at - since, 1)
        self.told(
            {
                "version": self.lab.version.name,
                "case": self.case,
                "step": self.step,
                "before": before,
                "stimulus": stimulus,
                "after": self.state,
                "hooks": self._hooks(),
                "seconds": seconds,
            }
        )

    def _hooks(self) -> list[list[Any]]:
        lines = self.lab.hooks()
        fresh, self.heard = lines[self.heard :], len(lines)
        found: list[list[Any]] = []
        for kind, hostlist in fresh:
            ours = [n for n in self.lab.expand_plain(hostlist) if n in self.names]
            if kind != "resume" and not self.lingers:
                self._end(ours)
            if ours:
                found.append([kind, [self._short(n) for n in ours]])
        return found

    def _end(self, nodes: Sequence[str]) -> None:
        """What a suspend hook is for: the machine goes."""
        for name in nodes:
            self.lab.kill(name)
            self.lab.machines[name].ended = 0.0

    def _take(self, look: Look) -> None:
        self.state, self.at = self._view(look), look.began

    def _view(self, look: Look) -> Record:
        now = look.began
        nodes = {self._short(n): self._node(n, look.nodes[n], now) for n in self.names}
        jobs = {k: self._job(k, v, look, now) for k, v in self.jobs.items() if v["id"] in look.jobs}
        return {"nodes": nodes, "jobs": jobs, "reserved": list(self.reserved)}

    def _node(self, name: str, item: Mapping[str, Any], now: float) -> Record:
        power = frozenset(item["states"]) & POWER
        if self.power.get(name, (None, 0.0))[0] != power:
            self.power[name] = (power, now)
        machine = self.lab.machines[name]
        kind = "up" if machine.alive else "dead" if machine.ended else "none"
        found: Record = {"states": item["states"], "reason": item["reason"], "machine": kind}
        found["since"] = round(now - self.power[name][1], 1)
        key = f"{name}{item['states']}"
        if self.words.get(name) != key:
            self.words[name], self.changed[name] = key, now
        found["changed"] = round(now - self.changed[name], 1)
        if kind == "up":
            found["booted"] = round(now - machine.booted, 1)
        if kind == "dead":
            found["silent"] = round(now - machine.ended, 1)
        return found

    def _job(self, label: str, known: Mapping[str, Any], look: Look, now: float) -> Record:
        item = look.jobs[known["id"]]
        key = f"{known['id']}{item['states']}"
        self.changed.setdefault(key, now)
        told = {k: item[k] for k in ("states", "reason", "restarts", "held")}
        nodes = [self._short(n) for n in item["nodes"]]
        rest = {k: known[k] for k in ("count", "kind", "lasts")}
        return {**told, "nodes": nodes, **rest, "since": round(now - self.changed[key], 1)}

    # --- between cases ----------------------------------------------------------------------------
    def clean(self) -> bool:
        """Bring the nodes back to idle~; False: this partition is of no more use."""
        run, all_of = self.lab.run, ",".join(self.names)
        run(["scancel", "-p", f"g{self.group:02}"])
        if self.reserved:
            run(["scontrol", "delete", f"ReservationName=r{self.group}"])
            self.reserved = []
        for proc in self.procs:
            if proc.poll() is None:
                proc.kill()
            proc.wait()
        self.procs.clear()
        for name in self.names:
            self.lab.kill(name)
            self.lab.machines[name].ended = 0.0
        run(["scontrol", "update", f"nodename={all_of}", "state=down", "reason=clean"])
        run(["scontrol", "update", f"nodename={all_of}", "state=power_down"])
        try:
            self.lab.after(time.time() + 1.5)
            self.lab.wait_for(lambda s: all(self._off(s.nodes[n]["states"]) for n in self.names), 40)
            run(["scontrol", "update", f"nodename={all_of}", "state=resume"])
            self.lab.wait_for(self._pristine, 20)
            run(["scontrol", "update", f"nodename={all_of}", "reason="])
        except TimeoutError:
            return False
        return True

    def _off(self, states: Sequence[str]) -> bool:
        return "POWERED_DOWN" in states and not {"POWERING_DOWN", "POWER_DOWN", "POWERING_UP"} & set(states)

    def _pristine(self, look: Look) -> bool:
        want = {"IDLE", "CLOUD", "POWERED_DOWN", "NOT_RESPONDING"}
        states = [set(look.nodes[n]["states"]) for n in self.names]
        jobs = [j for j in look.jobs.values() if j["group"] == f"g{self.group:02}"]
        return all(s <= want for s in states) and all(ENDED & set(j["states"]) for j in jobs)

    def _name(self, short: str) -> str:
        return self.names[int(short) - 1]

    def _named(self, short: str) -> str:
        return ",".join(self._name(n) for n in short.split(","))

    def _short(self, name: str) -> str:
        return name.rsplit("-", 1)[1]


def _plain(state: Record) -> Any:
    """Without the clocks."""
    drop = {"since", "changed", "booted", "silent", "machine"}
    return [
        {k: {f: v for f, v in item.items() if f not in drop} for k, item in state[part].items()}
        for part in ("nodes", "jobs")
    ]


def packed(record: Record) -> Record:
    """Without what says nothing: `after` holds what is otherwise, clocks in whole tenths where they matter."""
    before, after = record["before"], record["after"]
    changed = {
        part: {
            k: v
            for k, v in after[part].items()
            if v != before[part].get(k) and not _ticked(before[part].get(k), v)
        }
        for part in ("nodes", "jobs")
    }
    return {**record, "after": {k: v for k, v in changed.items() if v}}


def _ticked(before: Record | None, after: Record) -> bool:
    """Only the clocks went on."""
    clocks = {"since", "changed", "booted", "silent"}
    return before is not None and {k: v for k, v in before.items() if k not in clocks} == {
        k: v for k, v in after.items() if k not in clocks
    }


class Recorder:
    """All cases, side by side; records to a file as they come."""

    def __init__(self, lab: Lab, out: Path) -> None:
        self.lab, self.out = lab, out
        self.lock = threading.Lock()
        self.known: set[str] = set()
        self.written = 0

    def told(self, record: Record) -> None:
        key = json.dumps(
            [_plain(record["before"]), record["stimulus"], _plain(record["after"]), record["hooks"]]
        )
        if "holds" in record["stimulus"]:
            key = json.dumps([_plain(record["before"]), "holds"])
        with self.lock:
            if key in self.known or (
                _plain(record["before"]) == _plain(record["after"]) and record["stimulus"] == {"do": "time"}
            ):
                return
            self.known.add(key)
            self.written += 1
            with self.out.open("a") as file:
                file.write(json.dumps(packed(record), separators=(",", ":")) + "\n")

    def run(self, wanted: str) -> None:
        rooms = [Room(self.lab, g, self.told) for g in range(GROUPS)]
        left: dict[bool, queue.Queue[Case]] = {True: queue.Queue(), False: queue.Queue()}
        for case in cases():
            if wanted in case.name:
                left[case.quick].put(case)
        threads = [
            threading.Thread(target=self._work, args=(r, left[r.group >= GROUPS - QUICK])) for r in rooms
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self, room: Room, left: "queue.Queue[Case]") -> None:
        while True:
            try:
                case = left.get_nowait()
            except queue.Empty:
                return
            self._case(room, case)
            if not room.clean():
                print(f"room {room.group} is stuck after {case.name}", flush=True)
                return

    def _case(self, room: Room, case: Case) -> None:
        try:
            room.begin(case)
            room.run(case.steps)
            print(f"{self.written:5} {case.name}", flush=True)
        except (TimeoutError, RuntimeError, KeyError, AssertionError) as error:
            print(f"  broke off: {case.name}: {error!r}", flush=True)

    def run_whole(self, wanted: str) -> None:
        """What is done to all of Slurm at once, in every state."""
        for what, away in WHOLE.items():
            if wanted in what:
                self._whole(what, away)

    def _whole(self, what: str, away: float) -> None:
        rooms = [Room(self.lab, g, self.told) for g in range(GROUPS - QUICK)]
        todo = list(zip(rooms, whole_cases(), strict=False))
        ready, go = threading.Barrier(len(todo) + 1), threading.Event()
        reached = threading.Barrier(len(todo) + 1)
        threads = [
            threading.Thread(target=self._part, args=(r, c, what, ready, reached, go)) for r, c in todo
        ]
        self.moment = 0.0
        for thread in threads:
            thread.start()
        ready.wait(200)
        reached.wait(100)
        self._do_whole(what, away)
        self.moment = time.time()
        go.set()
        for thread in threads:
            thread.join()

    def _do_whole(self, what: str, away: float) -> None:
        if what == "reconfigure":
            self.lab.run(["scontrol", "reconfigure"])
            return
        self.lab.kill_controller()
        time.sleep(away)
        self.lab.start_controller()
        time.sleep(1.5)

    def _part(  # noqa: PLR0917 -- a thread's arguments
        self,
        room: Room,
        case: Case,
        what: str,
        ready: threading.Barrier,
        reached: threading.Barrier,
        go: threading.Event,
    ) -> None:
        fine = True
        try:
            room.begin(Case(f"{case.name}: {what}", ()))
            room.run(case.steps)
        except (TimeoutError, RuntimeError, KeyError) as error:
            fine = False
            print(f"  broke off: {what}: {case.name}: {error!r}", flush=True)
        ready.wait(200)
        try:
            room.run(case.late if fine else ())
        except (TimeoutError, RuntimeError, KeyError) as error:
            fine = False
            print(f"  broke off: {what}: {case.name}: {error!r}", flush=True)
        reached.wait(100)
        go.wait(200)
        try:
            if fine:
                room.whole({"do": what}, self.moment)
                room.run((("settle", "8"), ("boot_missing",), ("settle", "8")))
                print(f"{self.written:5} {room.case}", flush=True)
        except (TimeoutError, RuntimeError, KeyError) as error:
            print(f"  broke off: {what}: {case.name}: {error!r}", flush=True)
        room.clean()
