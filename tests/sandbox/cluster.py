"""A real cluster in the sandbox, used through the command line, as an ordinary user and an operator do."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from support.machine_locks import Ledger
from support.waiting import BOUND_S, eventually

from gpucluster.sandbox import host_checks
from gpucluster.sandbox import state_dir as ledger
from gpucluster.sandbox.aws.scenario_client import SandboxControl
from gpucluster.sandbox.machines.inside import enter_argv, find
from gpucluster.sandbox.status import control, status
from gpucluster.slurm.states import JOB_ENDED, JobState

ROOT = Path(__file__).parents[2]
USER = "researcher"
EMPTY = 4  # so many empty lists of a slurmctld that answers pings
UNTIL_LET_GO = f"until test -e /home/{USER}/go-$SLURM_JOB_ID; do sleep 1; done"  # a state that lasts until the test saw it


ledgers: list[Ledger] = []  # of the test file that runs, if pytest runs it


def note(sandbox: str) -> None:
    """Write down that this sandbox may come up, before it does: a killed run cannot take it down."""
    if any(home.name == sandbox for home in ledger.homes()) and not is_ours(sandbox):
        raise AssertionError(
            f"a sandbox {sandbox} is here, and not of these tests; next: gpucluster sandbox down {sandbox}"
        )
    for one in ledgers:
        one.add(sandbox)


def is_ours(sandbox: str) -> bool:
    """Whether a test of this file brought it up."""
    return any(sandbox in one.names() for one in ledgers)


def gpucluster(
    *argv: str, stdin: str | None = None, check: bool = True, timeout: float = BOUND_S
) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user would."""
    if argv[:2] == ("sandbox", "up"):
        note(next(re.finditer(r"^name: *(\S+)", (ROOT / argv[2]).read_text(), re.MULTILINE))[1])
    done = subprocess.run(
        [sys.executable, "-m", "gpucluster.cli", *argv],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=ROOT,
        check=False,
    )
    if check and done.returncode != 0:
        raise AssertionError(
            f"gpucluster {' '.join(argv)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
    return done


@dataclass
class Cluster:
    """One sandbox that is up. `spec` is its file: commands that get it reach the machines as on AWS."""

    name: str
    spec: Path | None = None

    def exec(
        self, machine: str, *argv: str, user: str | None = None, stdin: str | None = None, check: bool = True
    ) -> str:
        """Run a program on a machine as `sandbox exec` does, without a start of Python; return its standard output."""
        home = ledger.living(self.name)
        there = find(home, host_checks.cgroup_trees(Path("/proc/self/mountinfo").read_text()), machine)
        enter = enter_argv(there.leader, argv, user=user, term="dumb")
        done = subprocess.run(
            enter, input=(stdin or "").encode(), capture_output=True, timeout=BOUND_S, check=False
        )
        out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        assert done.returncode == 0 or not check, f"{machine}: {argv}: {done.returncode}\n{out}\n{err}"
        return out

    def sbatch(self, *options: str, script: str) -> int:
        """Submit as an ordinary user and return the job's id."""
        answer = self.exec(
            "head", "sbatch", "--parsable", *options, user=USER, stdin=f"#!/bin/bash\n{script}\n"
        )
        return int(answer.strip().split(";")[0])

    def let_go(self, job: int) -> None:
        """End the script UNTIL_LET_GO of a running job."""
        self.exec(self.job(job)["batch_host"], "touch", f"/home/{USER}/go-{job}", user=USER)

    def job(self, job: int) -> dict[str, Any]:
        """The job in slurmctld's answer, when there is one."""
        return self._answered("jobs", "job", str(job))[0]

    def state(self, job: int) -> str:
        """The job's state now; UNANSWERED if slurmctld does not answer."""
        return "+".join(self._state(job))

    def ended(self, job: int) -> bool:
        """Whether the job has ended, and its processes too. A running job can have flags: RUNNING+CONFIGURING while its Prolog runs."""
        states = self._state(job)
        return not JOB_ENDED.isdisjoint(states) and JobState.COMPLETING not in states

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Slurm's nodes by name in slurmctld's answer, when there is one."""
        return {n["name"]: n for n in self._answered("nodes", "nodes")}

    def _state(self, job: int) -> list[str]:
        jobs = self._asked("jobs", "job", str(job))
        return jobs[0]["job_state"] if jobs else ["UNANSWERED"]

    def _answered(self, key: str, *what: str) -> list[dict[str, Any]]:
        """LookupError if slurmctld answers and knows nothing of it.

        A busy slurmctld may answer the ping and not the question, so one empty list proves nothing.
        """
        pinged = count(1)

        def seen() -> list[dict[str, Any]]:
            if found := self._asked(key, *what):
                return found
            if "is UP" in self.exec("head", "scontrol", "ping", check=False) and next(pinged) == EMPTY:
                raise LookupError(f"slurmctld shows nothing for `{' '.join(what)}`")
            return []

        return eventually(f"slurmctld answers `show {' '.join(what)}`", seen, poll=0.3)

    def _asked(self, key: str, *what: str) -> list[dict[str, Any]]:
        """Ask slurmctld once. Without an answer the list is empty, and scontrol's exit code is 0."""
        return json.loads(self.exec("head", "scontrol", "show", *what, "--json"))[key]

    def instances(self) -> list[dict[str, Any]]:
        """The pending and running instances of burst nodes."""
        (seen,) = status(self.name).sandboxes  # without a start of Python for each look
        return [i for i in seen.instances if i["role"] == "node" and i["state"] in {"pending", "running"}]

    def capacity(self, free: int | None, *, machine: str = "*", zone: str = "*", market: str = "*") -> None:
        """Set the number of instances that the cloud can still launch (0: none). None removes the limit."""
        word = "unlimited" if free is None else str(free)
        gpucluster(
            "sandbox",
            "capacity",
            self.name,
            "--machine",
            machine,
            "--zone",
            zone,
            "--market",
            market,
            "--free",
            word,
        )

    def saved(self, job: int) -> None:
        """Wait until slurmctld has saved the job: a killed slurmctld loses unsaved jobs. The job's comment marks the save.

        The time of the file proves nothing: a save that began before the submission may end after it.
        """
        self.exec("head", "scontrol", "update", f"jobid={job}", f"comment=job-{job}-is-saved")
        self.wait("slurmctld has saved the job", lambda: self.has_saved(f"job-{job}-is-saved"))

    def has_saved(self, words: str) -> bool:
        """Whether the file of slurmctld's jobs has the words."""
        return self.succeeds("head", "grep", "-qa", words, "/var/spool/slurmctld/job_state")

    def succeeds(self, machine: str, *argv: str) -> bool:
        """Run a program on a machine; return whether its exit code is 0."""
        return self.exec(machine, "sh", "-c", '"$@" && echo yes', "sh", *argv, check=False).strip() == "yes"

    def power_down(self) -> None:
        """Power down all nodes now, as an operator does, before the pool's idle time ends."""
        up = [
            name
            for name, node in self.nodes().items()
            if not {"POWERED_DOWN", "POWERING_DOWN"} & set(node["state"])
        ]
        if up:
            self.exec(
                "head", "scontrol", "update", f"nodename={','.join(up)}", "state=power_down", "reason=done"
            )

    def everything(self) -> list[dict[str, Any]]:
        """Every instance that the cloud shows, also terminated ones."""
        return [{**i, "role": i["tags"].get("gpucluster:role", "")} for i in self.control().instances()]

    def timeline(self, job: int) -> list[str]:
        """The kinds of the job's events, in order."""
        script = (
            "/opt/gpucluster/venv/bin/python",
            "-m",
            "gpucluster.elastic.inspect.timeline",
            str(job),
            "--json",
        )
        return [moment["what"] for moment in json.loads(self.exec("head", *script))]

    def control(self) -> SandboxControl:
        """The client that makes the cloud lose replies and return errors."""
        return control(ledger.living(self.name))

    def client(self, service: str) -> Any:
        """A boto3 client with the operator's keys."""
        return ledger.living(self.name).client(service)

    def ec2(self) -> Any:
        return self.client("ec2")

    def state_dir(self) -> Path:
        return ledger.living(self.name).path

    def wait(
        self, what: str, seen: Callable[[], bool], *, within: float = BOUND_S, poll: float = 0.5
    ) -> None:
        """Wait until `seen()` is true. After `within` seconds an AssertionError shows the state of the cluster."""
        eventually(what, seen, within=within, poll=poll, picture=self.picture)

    def picture(self) -> str:
        """The queue, the nodes, the daemon's log and the instances."""
        parts: Sequence[Sequence[str]] = (
            ("squeue", "-a", "-o", "%i %T %N %r %k"),
            ("sinfo", "-N", "-o", "%N %T %E"),
            ("journalctl", "-u", "gpucluster-elastic", "-n", "40", "--no-pager", "-o", "cat"),
        )
        return "\n".join(self.exec("head", *p, check=False) for p in parts) + json.dumps(
            self.instances(), indent=1
        )

    def all_gone(self) -> bool:
        """Whether there is no instance, and every node is powered down and not drained."""
        return not self.instances() and all(
            "POWERED_DOWN" in n["state"] and not {"DRAIN", "POWER_UP"} & set(n["state"])
            for n in self.nodes().values()
        )
