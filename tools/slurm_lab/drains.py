"""Make Slurm drain nodes and set them DOWN, each in its own way, and record the reasons.

Each case has a node of its own, and all run side by side. A row of the record is the text of one part of a reason, with
placeholders, the user that scontrol shows, the program that sent it, and the marks of the node's state.
"""

import json
import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm_lab import fuse_folder
from slurm_lab.lab import HOST, Lab, Machine, Version, sh

MARKS = frozenset({"DOWN", "DRAIN", "FAIL", "FUTURE", "INVALID_REG"})
APPENDED = " : "  # slurmctld appends its own text with it
JOINED = ", "  # of what a registration lacks
LIMIT_S = 60.0  # for one change of a reason; ResumeTimeout of the laboratory is 24 s
QUIET_S = 15.0
TRIES = 3
REBOOTED = "Node unexpectedly rebooted"
HANGS = "hang"  # a file system whose server does not answer
USER = "researcher"
_PROGRAM = """#!/bin/sh
# Prolog, Epilog and HealthCheckProgram: what the case of the node wants
[ -x "/lab/KIND.d/$SLURMD_NODENAME" ] && exec "/lab/KIND.d/$SLURMD_NODENAME"
exit 0
"""
_OTHER_STEPD = """#!/bin/sh
# slurmstepd with a plugin that is missing
[ "$1" = spank ] && exec /usr/sbin/slurmstepd "$@"
exec unshare --mount sh -c 'mount --bind /lab/plugstack.conf /etc/slurm/plugstack.conf && exec /usr/sbin/slurmstepd "$@"' sh "$@"
"""
_SMALL = "CPUs=1 RealMemory=100"
_CHANGED = {
    "proctrack/linuxproc": "proctrack/pgid",  # it sees a process whose parent has ended
    "SlurmdParameters=config_overrides\n": "",  # the hardware of a registration counts
    "ReturnToService=2": "ReturnToService=0",  # a node that boots unasked is DOWN
    "nohold_on_prolog_fail": "nohold_on_prolog_fail,requeue_setup_env_fail",
}
_ADDED = """UnkillableStepTimeout=6
PrologEpilogTimeout=3
Prolog=/lab/prolog
Epilog=/lab/epilog
HealthCheckProgram=/lab/health
HealthCheckInterval=3
HealthCheckNodeState=ANY
RebootProgram=/bin/true
GresTypes=gpu
"""
_GRES = """NodeName=gres-few Name=gpu Count=2
NodeName=gres-typed Name=gpu Type=big Count=1
NodeName=gres-other Name=gpu Type=small Count=2
"""


@dataclass(frozen=True)
class Seen:
    """The reason of a node at one time."""

    reason: str
    user: str
    marks: tuple[str, ...]


class DisturbedError(RuntimeError):
    """A registration reached a busy slurmctld so late that the boot seemed to be after slurmd's last answer."""


class Place:
    """The node of one case: what is done to it, and the rows of what followed."""

    def __init__(self, lab: "DrainLab", case: "DrainCase") -> None:
        self.lab, self.case, self.node = lab, case, case.node
        self.rows: list[dict[str, Any]] = []
        self._last = ""
        self._read = 0  # bytes of slurmd's log

    def job(self, command: str, *options: str) -> str:
        argv = ["sbatch", "--parsable", "-w", self.node, "--no-requeue", *options]
        argv += ["-o", "/dev/null"] if not any(o.startswith("--output") for o in options) else []
        code, said = self.lab.run([*argv, f"--wrap={command}"])
        if code:
            raise RuntimeError(f"{self.case.cause}: sbatch: {said}")
        return said.splitlines()[-1].split(";")[0]

    def running(self, command: str) -> str:
        number = self.job(command)
        self.lab.wait_for(lambda look: "RUNNING" in look.jobs.get(int(number), {"states": []})["states"], 60)
        return number

    def do(self, *argv: str) -> None:
        code, said = self.lab.run(argv)
        if code:
            raise RuntimeError(f"{self.case.cause}: {' '.join(argv)}: {said}")

    def update(self, *words: str) -> None:
        self.do("scontrol", "update", f"nodename={self.node}", *words)

    def program(self, kind: str, text: str) -> None:
        self.lab.write(f"lab/{kind}.d/{self.node}", f"#!/bin/sh\n{text}\n", 0o755)

    @property
    def spool(self) -> Path:
        return self.lab.root / "var/spool/slurmd" / self.node

    def reboot(self) -> None:
        self.lab.kill(self.node)
        self.lab.boot(self.node)

    def until(self, *words: str) -> None:
        """Wait for the next reason with each of the words; all reasons until then are recorded."""
        if self.lab.version.name in self.case.quiet:
            self._stays_quiet()
            return
        for word in words:
            while word not in self._next().reason:
                pass

    def has_reason(self, within: float) -> bool:
        end = time.time() + within
        while not (found := bool(self.lab.seen_of(self.node).reason)) and time.time() < end:
            time.sleep(0.2)
        return found

    def _stays_quiet(self) -> None:
        """Wait for a while in which the node gets no reason."""
        if self.has_reason(within=QUIET_S):
            raise RuntimeError(f"{self.case.cause}: {self.lab.seen_of(self.node)}, where none was expected")

    def _next(self) -> Seen:
        end = time.time() + LIMIT_S
        while (seen := self.lab.seen_of(self.node)).reason in ("", self._last):
            if time.time() > end:
                raise TimeoutError(f"{self.case.cause}: {seen}, after {self._last!r}")
            time.sleep(0.2)
        if seen.reason == REBOOTED and not self.case.reboots:
            raise DisturbedError(self.case.cause)
        self._last = seen.reason
        self.rows += self._rows_of(seen)
        return seen

    def _rows_of(self, seen: Seen) -> list[dict[str, Any]]:
        last = seen.reason.split(APPENDED)[-1]
        texts = last.split(JOINED) if "INVALID_REG" in seen.marks else [last]
        row: dict[str, Any] = {"sender": self._sender(seen), "user": seen.user, "marks": list(seen.marks)}
        if last in self.case.ordered:
            row["ordered"] = True
        return [{"text": self.case.placeholders(t), **row, "causes": [self.case.cause]} for t in texts]

    def _sender(self, seen: Seen) -> str:
        """slurmctld is the only one that is SlurmUser. The log of a node has the line of its daemon that failed."""
        if seen.user == "slurm":
            return "slurmctld"
        errors = [line for line in self.log()[self._read :].splitlines() if " error: " in line]
        if not errors:
            return "scontrol"
        return "slurmstepd" if re.search(r"\] \[\d+\.\w+\] error: ", errors[-1]) else "slurmd"

    def log(self) -> str:
        path = self.lab.root / f"lab/slurmd-{self.node}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def again(self) -> None:
        """Forget what was seen, and return the node."""
        self.rows.clear()
        self.do("scancel", "--nodelist", self.node)
        self.update("state=resume")
        self.lab.until_idle(self.node)

    def begin(self) -> None:
        self._read = len(self.log())
        self._last = (
            self.lab.seen_of(self.node).reason if self.case.boots and self.case.make is not registers else ""
        )


def registers(at: Place) -> None:
    """Nothing is done: its registration, or its configuration, has the fault."""
    at.until("")


def _unkillable(at: Place) -> None:
    """The script ends at SIGTERM, and its child does not. 26.05 waits for ever if the script itself does not end."""
    number = at.job(f"stat --file-system /{HANGS}")
    at.lab.wait_for(lambda _: at.lab.folder.is_asked(fuse_folder.STATFS), 60)
    at.do("scancel", number)
    at.until("")


def _program(kind: str, text: str) -> Callable[[Place], None]:
    def make(at: Place) -> None:
        at.program(kind, text)
        if kind != "health":
            at.job("true")
        at.until("")

    return make


def _full(at: Place) -> None:
    sh("mount", "-t", "tmpfs", "-o", "size=16k", "none", str(at.spool))
    (at.spool / "filler").write_bytes(b"")
    with (at.spool / "filler").open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            pass
    at.job("true")
    at.until("")


def _no_launch(at: Place) -> None:
    """slurmstepd ends before its batch script starts."""
    at.lab.write("lab/plugstack.conf", "required /lab/missing.so\n", 0o644)
    at.lab.write("lab/slurmstepd", _OTHER_STEPD, 0o755)
    slurmd = ["slurmd", "-D", "-N", at.node, "-b", "-d", "/lab/slurmstepd"]
    at.lab.machines[at.node] = Machine(at.lab.later(slurmd))
    at.lab.until_idle(at.node)
    at.job("true")
    at.until("")


def _no_environment(at: Place) -> None:
    at.lab.write(f"home/{USER}/.profile", "exit 1\n", 0o644)
    at.job("true", f"--uid={USER}", "--get-user-env", "--chdir=/")
    at.until("")


def _no_folder(at: Place) -> None:
    shutil.rmtree(at.spool)
    at.job("true")
    at.until("")


def _health_fails(at: Place) -> None:
    at.program("health", "exit 1")
    at.until("")


def _silent(at: Place) -> None:
    at.lab.kill(at.node)
    at.until("")


def _unasked_reboot(at: Place) -> None:
    """Its boot must be later than its last answer, and an answer that is under way still counts."""
    for _ in range(6):
        at.lab.kill(at.node)
        time.sleep(3.0)
        at.lab.boot(at.node)
        if at.has_reason(within=4.0):
            break
    at.until("")


def _reboot_asap(at: Place) -> None:
    number = at.running("exec sleep 300")
    at.do("scontrol", "reboot", "ASAP", at.node)
    at.until("")
    at.do("scancel", number)
    at.until("issued", "timed out")


def _reboot(at: Place) -> None:
    number = at.running("exec sleep 300")
    at.do("scontrol", "reboot", "nextstate=down", at.node)
    at.until("")
    at.do("scancel", number)
    at.until("issued")
    time.sleep(2.0)  # its boot is later than the order
    at.reboot()
    at.until("complete")


def _power_down_asap(at: Place) -> None:
    at.running("exec sleep 300")
    at.update("state=power_down_asap")
    at.until("")


def _late(at: Place) -> None:
    at.update("state=power_up")
    at.until("")


def _in_the_middle(at: Place) -> None:
    at.running("exec sleep 300")
    at.update("state=power_down_force")
    at.until("")


@dataclass(frozen=True)
class DrainCase:
    """One way to a reason. `words` are those of the case that a placeholder stands for."""

    node: str
    cause: str
    make: Callable[[Place], None] = registers
    hardware: str = _SMALL
    boots: bool = True
    state: str = "UNKNOWN"
    quiet: tuple[str, ...] = ()  # the versions in which no reason follows
    ordered: tuple[str, ...] = ()  # the reasons with which slurmctld carries out a person's order
    reboots: bool = False
    words: Mapping[str, str] = field(default_factory=dict[str, str])

    def placeholders(self, text: str) -> str:
        for word, name in {self.node: "node", **self.words}.items():
            text = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", f"{{{name}}}", text)
        text = re.sub(r"JobId=\d+", "JobId={job}", text)
        text = re.sub(r"StepId=[\w+]+", "StepId={step}", text)
        return re.sub(r"\d+(\.\d+)?", "{number}", text)


_BOTH = ("24.11", "26.05")
_ORDERED = ("reboot issued", "reboot complete")
_GPUS = {"gpu": "gres", "big": "type", "small": "type"}
CASES = (
    DrainCase("unkillable", "a step does not end", _unkillable),
    DrainCase("prolog-fails", "the Prolog fails", _program("prolog", "exit 1")),
    DrainCase("prolog-hangs", "the Prolog reaches its time limit", _program("prolog", "sleep 300")),
    DrainCase("epilog-fails", "the Epilog fails", _program("epilog", "exit 1")),
    DrainCase("epilog-hangs", "the Epilog reaches its time limit", _program("epilog", "sleep 300")),
    DrainCase("spool-full", "the spool folder of slurmd is full", _full),
    DrainCase("no-environment", "the environment of a user cannot be read", _no_environment, quiet=("26.05",)),
    DrainCase("no-folder", "the spool folder of slurmd is gone", _no_folder, quiet=_BOTH),
    DrainCase("health-fails", "a health program fails, and drains nothing", _health_fails, quiet=_BOTH),
    DrainCase("no-launch", "slurmstepd cannot start a batch job", _no_launch, boots=False),
    DrainCase("memory", "a registration with less memory", hardware="CPUs=1 RealMemory=99999999"),
    DrainCase("cores", "a registration with fewer CPUs", hardware="CPUs=4096 RealMemory=100"),
    DrainCase("disk", "a registration with a smaller disk", hardware=f"{_SMALL} TmpDisk=999999999"),
    DrainCase("gres-few", "a registration with fewer GPUs", hardware=f"{_SMALL} Gres=gpu:4", words=_GPUS),
    DrainCase("gres-typed", "a registration with fewer GPUs of a type", hardware=f"{_SMALL} Gres=gpu:big:2", words=_GPUS),
    DrainCase("gres-other", "a registration with GPUs of another type", hardware=f"{_SMALL} Gres=gpu:big:2", words=_GPUS),
    DrainCase("silent", "slurmd does not answer", _silent),
    DrainCase("reboots", "a node boots without an order", _unasked_reboot, reboots=True),
    DrainCase("health", "a health program drains its node", _program("health", 'scontrol update nodename="$SLURMD_NODENAME" state=drain reason="fan is loud"'), words={"fan is loud": "words"}),
    DrainCase("reboot-asap", "scontrol reboot ASAP, and the node does not come back", _reboot_asap, ordered=_ORDERED),
    DrainCase("reboot-down", "scontrol reboot nextstate=down", _reboot, ordered=_ORDERED),
    DrainCase("asap", "scontrol update state=power_down_asap", _power_down_asap),
    DrainCase("late", "a node does not boot in time", _late, boots=False, state="CLOUD"),
    DrainCase("middle", "scontrol update state=power_down_force under a job", _in_the_middle, quiet=_BOTH),
    DrainCase("nowhere", "the address of a node is unknown", hardware=f"{_SMALL} NodeAddr=nowhere.invalid", boots=False),
)  # fmt: skip


class DrainLab(Lab):
    """The laboratory with a node for each case."""

    def __init__(self, version: Version, tree: Path, cases: Iterable[DrainCase]) -> None:
        self.cases = tuple(cases)
        super().__init__(version, tree, [case.node for case in self.cases])
        for kind in ("prolog", "epilog", "health"):
            self.write(f"lab/{kind}", _PROGRAM.replace("KIND", kind), 0o755)
        self.write("etc/slurm/gres.conf", _GRES, 0o644)
        self.run(["useradd", "--create-home", USER])

    def conf(self) -> str:
        text = self.common()
        for old, new in _CHANGED.items():
            if old not in text:
                raise RuntimeError(f"slurm.conf of the laboratory has no {old!r}")
            text = text.replace(old, new)
        lines = [
            f"NodeName={case.node} NodeHostName={HOST} Port={port} {case.hardware} State={case.state}"
            for port, case in enumerate(self.cases, 7001)
        ]
        lines.append("PartitionName=all Nodes=ALL Default=YES SuspendTime=3000 MaxTime=60 State=UP")
        return text + _ADDED + "\n".join(lines) + "\n"

    def seen_of(self, node: str) -> Seen:
        code, text = self.run(["scontrol", "--future", "show", "node", node, "--json"])
        if code:
            return Seen("", "", ())
        item = json.loads(text[text.index("{") :])["nodes"][0]
        marks = tuple(sorted(MARKS.intersection(word.upper() for word in item["state"])))
        return Seen(item["reason"], item["reason_set_by_user"], marks)

    def until_idle(self, node: str) -> None:
        self.wait_for(lambda look: _is_idle(look.nodes.get(node, {"states": []})["states"]), 60)

    def record(self) -> dict[str, Any]:
        """The version, the rows of all cases, and the cases without a reason."""
        places = [Place(self, case) for case in self.cases]
        for place in places:
            if place.case.boots:
                self.boot(place.node)
        with fuse_folder.mounted(self.root / HANGS) as self.folder, self.folder.hanging():
            with ThreadPoolExecutor(len(places)) as pool:
                faults = [fault for fault in pool.map(self._make, places) if fault]
            self.run(["scancel", "--partition=all"])
        if faults:
            raise RuntimeError("\n".join(faults))
        return {
            "source": "tools/record_slurm.py --drains, on Debian's packages; `read`: SchedMD's source of 24.11.5 and 26.05.3",
            "slurm": self.version.name,
            "recorded": self.run(["slurmctld", "-V"])[1].split()[-1],
            "rows": merged(row for place in places for row in place.rows),
            "quiet": sorted(case.cause for case in self.cases if self.version.name in case.quiet),
        }

    def _make(self, place: Place) -> str:
        """Return what went wrong, or an empty text."""
        try:
            if place.case.boots and place.case.make is not registers:
                self.until_idle(place.node)
            self._undisturbed(place)
        except (TimeoutError, RuntimeError) as error:
            said = (self.root / "lab/out.log").read_text(errors="replace")[-800:]
            return f"{place.case.cause}: {error!r}: {self.seen_of(place.node)}\n{place.log()[-1500:]}\n{said}"
        print(f"{place.case.cause}: {[row['text'] for row in place.rows]}", flush=True)
        return ""

    def _undisturbed(self, place: Place) -> None:
        for _ in range(TRIES - 1):
            try:
                place.begin()
                return place.case.make(place)
            except DisturbedError:
                place.again()
        place.begin()
        return place.case.make(place)


def merged(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row for each text, sender, user and marks, in the order of the texts."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = (row["text"], row["sender"], row["user"], tuple(row["marks"]))
        known = found.setdefault(key, {**row, "causes": []})
        known["causes"] = sorted({*known["causes"], *row["causes"]})
    return [found[key] for key in sorted(found)]


def _is_idle(states: Iterable[str]) -> bool:
    words = set(states)
    return "IDLE" in words and not {"NOT_RESPONDING", "POWERED_DOWN", "DRAIN"} & words
