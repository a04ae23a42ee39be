"""A real cluster in the sandbox, as an ordinary user and an operator see it: through the command line only."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpucluster.sandbox import host, ledger
from gpucluster.sandbox.control import SandboxControl
from gpucluster.sandbox.inside import enter_argv, find
from gpucluster.sandbox.status import control

ROOT = Path(__file__).parents[2]
USER = "researcher"


def gpucluster(
    *argv: str, stdin: str | None = None, check: bool = True, timeout: float = 600
) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user would."""
    done = subprocess.run(
        [sys.executable, "-m", "gpucluster.cli.start", *argv],
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
    """One sandbox that is up."""

    name: str

    def exec(
        self, machine: str, *argv: str, user: str | None = None, stdin: str | None = None, check: bool = True
    ) -> str:
        """Run a program on a machine as `sandbox exec` does, less Python's start; its standard output."""
        home = ledger.living(self.name)
        there = find(home, host.cgroup_trees(Path("/proc/self/mountinfo").read_text()), machine)
        enter = enter_argv(there.leader, argv, user=user, term="dumb")
        done = subprocess.run(
            enter, input=(stdin or "").encode(), capture_output=True, timeout=120, check=False
        )
        out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        assert done.returncode == 0 or not check, f"{machine}: {argv}: {done.returncode}\n{out}\n{err}"
        return out

    def sbatch(self, *options: str, script: str) -> int:
        """Submit as an ordinary user; the job's id."""
        answer = self.exec(
            "head", "sbatch", "--parsable", *options, user=USER, stdin=f"#!/bin/bash\n{script}\n"
        )
        return int(answer.strip().split(";")[0])

    def job(self, job: int) -> dict[str, Any]:
        """The job as the controller knows it."""
        jobs = json.loads(self.exec("head", "scontrol", "show", "job", str(job), "--json"))["jobs"]
        return (
            jobs[0] if jobs else {"job_state": ["UNANSWERED"]}
        )  # scontrol's exit code is 0 without a controller

    def state(self, job: int) -> str:
        return "+".join(self.job(job)["job_state"])

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Slurm's nodes by name."""
        return {
            n["name"]: n
            for n in json.loads(self.exec("head", "scontrol", "show", "nodes", "--json"))["nodes"]
        }

    def instances(self) -> list[dict[str, Any]]:
        """The living instances that the cloud has for burst nodes."""
        status = json.loads(gpucluster("sandbox", "status", self.name, "--output", "json").stdout)
        return [
            i for i in status["instances"] if i["role"] == "node" and i["state"] in {"pending", "running"}
        ]

    def capacity(self, free: int | None, *, machine: str = "*", zone: str = "*", market: str = "*") -> None:
        """Let the cloud have `free` instances left of these (0 refuses all); None lifts the limit."""
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

    def power_down(self) -> None:
        """Let the idle nodes go now, as an operator would, rather than after the pool's idle time."""
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
        """Every instance that the cloud still shows, ended ones too."""
        return [{**i, "role": i["tags"].get("gpucluster:role", "")} for i in self.control().instances()]

    def told(self, job: int) -> list[str]:
        """What the daemon's journal says of the job, in order."""
        script = ("/opt/gpucluster/venv/bin/python", "-m", "gpucluster.elastic.timeline", str(job), "--json")
        return [moment["what"] for moment in json.loads(self.exec("head", *script))]

    def control(self) -> SandboxControl:
        """Orders to the cloud: lost replies, errors."""
        return control(ledger.living(self.name))

    def client(self, service: str) -> Any:
        """A boto3 client with the operator's keys."""
        return ledger.living(self.name).client(service)

    def ec2(self) -> Any:
        return self.client("ec2")

    def state_dir(self) -> Path:
        return ledger.living(self.name).path

    def wait(self, what: str, seen: Callable[[], bool], *, within: float = 90, poll: float = 0.3) -> None:
        """Wait until `seen()`; a deadline that passes shows what the cluster was doing."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            if seen():
                return
            time.sleep(poll)
        raise AssertionError(f"not within {within:g} s: {what}\n{self.picture()}")

    def picture(self) -> str:
        """What an operator would look at first."""
        parts: Sequence[Sequence[str]] = (
            ("squeue", "-a", "-o", "%i %T %N %r %k"),
            ("sinfo", "-N", "-o", "%N %T %E"),
            ("journalctl", "-u", "gpucluster-elastic", "-n", "40", "--no-pager", "-o", "cat"),
        )
        return "\n".join(self.exec("head", *p, check=False) for p in parts) + json.dumps(
            self.instances(), indent=1
        )

    def all_gone(self) -> bool:
        """No instance, and every node powered down and free of a reason."""
        return not self.instances() and all(
            "POWERED_DOWN" in n["state"] and "DRAIN" not in n["state"] for n in self.nodes().values()
        )
