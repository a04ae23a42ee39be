"""A sandbox of a stack with EKS, by the words that a person types."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.machine_locks import Ledger, one_of, room

from gpucluster.sandbox import state_dir

ROOT = Path(__file__).parents[2]


def run(*argv: str, check: bool = True, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "gpucluster.cli", *argv],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1800, cwd=cwd, check=False,
    )  # fmt: skip
    assert done.returncode == 0 or not check, f"{argv}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@dataclass
class Rehearsal:
    """A sandbox of a stack and its workloads, under another name."""

    name: str
    folder: Path  # with Pulumi.yaml, stacks/ and workloads/

    @property
    def spec(self) -> Path:
        return self.folder / "stacks" / f"{self.name}.yaml"

    def typed(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A command in the shell of the sandbox."""
        return run("sandbox", "shell", self.name, "--", *words, check=check, cwd=self.folder)

    def objects(self, kind: str, namespace: str = "") -> list[dict[str, Any]]:
        place = ("-n", namespace) if namespace else ("--all-namespaces",)
        return json.loads(self.typed("kubectl", "get", kind, *place, "-o", "json").stdout)["items"]

    def instances(self) -> list[dict[str, Any]]:
        found = json.loads(run("sandbox", "status", self.name, "--output", "json").stdout)["instances"]
        return [one for one in found if one["state"] in ("pending", "running")]

    def running(self, namespace: str) -> list[dict[str, Any]]:
        return [one for one in self.objects("pods", namespace) if one["status"].get("phase") == "Running"]

    def wrong(self) -> dict[str, dict[str, Any]]:
        """The results of `gpucluster validate NAME` outside the sandbox's shell that do not pass, by id."""
        done = run("validate", self.name, "--output", "json", check=False, cwd=self.folder)
        answer = json.loads(done.stdout)
        assert "results" in answer, done.stdout + done.stderr
        assert done.returncode == (0 if answer["ok"] else 1)
        assert {"kube.api[cluster]", "kube.offer[tune]", "kube.instances[cluster]"} <= {
            one["id"] for one in answer["results"]
        }
        return {one["id"]: one for one in answer["results"] if one["verdict"] != "pass"}


@contextmanager
def rehearsed(stack: str, name: str, folder: Path) -> Iterator[Rehearsal]:
    """A sandbox of stacks/STACK.yaml with this name. Nothing is left of it after the block."""
    for file in ("Pulumi.yaml", "__main__.py"):
        (folder / file).write_text((ROOT / file).read_text())
    for part, line in (("stacks", "name: {}\n"), ("workloads", "cluster: {}\n")):
        (folder / part).mkdir()
        text = (ROOT / part / f"{stack}.yaml").read_text()
        (folder / part / f"{name}.yaml").write_text(text.replace(line.format(stack), line.format(name), 1))
    with one_of([f"kubernetes-{name}"], f"the sandbox {name}"), room(f"the sandbox {name}"):
        ledger = Ledger(f"kubernetes-{name}")
        if any(home.name == name for home in state_dir.homes()):
            assert name in ledger.names(), f"a sandbox {name} is here, and not of these tests"
            run("sandbox", "down", name)  # of a run that was killed: no other run has the lock
        ledger.add(name)
        made = Rehearsal(name, folder)
        done = run("sandbox", "up", str(made.spec), "--output", "json")
        try:
            assert json.loads(done.stdout)["ok"]
            yield made
        finally:
            run("sandbox", "down", name)
            assert not Path("/var/lib/gpucluster-sandbox", name).exists()
            ledger.clear()
