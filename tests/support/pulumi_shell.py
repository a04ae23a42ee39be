"""`pulumi` on the command line, in a project folder like the checkout's, against a test's stack."""

import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gpucluster.aws.program import declare
from gpucluster.engine import run
from gpucluster.engine.spec_source import source_of
from gpucluster.engine.target import typed_environment
from support.builders import SPEC
from support.engine_stack import Cluster

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Shell:
    """A project folder and the environment of `gpucluster sandbox shell`."""

    cluster: Cluster
    folder: Path
    environment: Mapping[str, str]

    @property
    def spec(self) -> Path:
        return self.folder / "stacks" / f"{self.cluster.target.stack}.yaml"

    @property
    def program(self) -> Callable[[], None]:
        """What `__main__.py` runs: the bundle names the spec."""
        plan = self.cluster.plan
        return partial(declare, plan, source_of(self.spec, plan))

    def __call__(self, *argv: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            argv,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0 or not check, f"{argv}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def start(self, *argv: str) -> "subprocess.Popen[str]":
        """Run in a new session, like the foreground group of a terminal."""
        return subprocess.Popen(
            argv,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


def a_shell(cluster: Cluster, folder: Path, **more: str) -> Shell:
    """The checkout's own `Pulumi.yaml` and `__main__.py` beside the spec; the stack is made and selected."""
    (folder / "stacks").mkdir(parents=True)
    for name in ("Pulumi.yaml", "__main__.py"):
        shutil.copy(ROOT / name, folder / name)
    run.make_stack(cluster.target)
    shell = Shell(cluster, folder, {**typed_environment(cluster.target), **more})
    shell.spec.write_text(SPEC)
    shell("pulumi", "stack", "select", cluster.target.stack)
    return shell
