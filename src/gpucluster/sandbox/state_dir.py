"""The files of a sandbox on disk, and whether it runs: by the lock of its supervisor, never by PID alone.

`STATE_ROOT/NAME/`: `lock`, `capsule.json` (PIDs), `endpoint.json` and `operator.json` (endpoint and
keys), `plan.json`, `console/`, `i/` (machines' disks), `supervisor.log`, `pulumi/` (the engine's state).
A dead sandbox leaves only these files and empty control groups; `clean` removes both.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gpucluster.errors import StateError
from gpucluster.plan import codec, plan_json
from gpucluster.plan.model import AwsPlan, ClusterPlan, SlurmOnHosts, SlurmPlan, eks_of
from gpucluster.sandbox import paths
from gpucluster.sandbox.capsule import cgroups
from gpucluster.sandbox.host_checks import CgroupTree

if TYPE_CHECKING:
    from gpucluster.engine.target import Target

_Plan = TypeVar("_Plan")

ENGINE_PLUGINS = {  # program on PATH that the engine starts -> module that it runs in a rehearsal
    "pulumi-resource-aws": "gpucluster.sandbox.provider",
    "pulumi-language-python": "gpucluster.sandbox.language",  # for the CLI; the Automation API has its own
}
_NAME = re.compile(r"[a-z][a-z0-9-]*")  # the form that the spec allows; never a path
_PATIENCE_S = 60.0  # a killed capsule ends within 0.2 s; a busy machine takes longer


class OtherVersionError(StateError):
    """Another version of gpucluster made the sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsuleRecord:
    """The content of `capsule.json` of a living sandbox. PIDs are the host's; `started` detects a reused PID."""

    init: int
    started: int
    port: int
    layers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxDir:
    """The folder of one sandbox."""

    name: str
    root: Path = paths.STATE_ROOT

    def __post_init__(self) -> None:
        # `down` removes this folder, so it must not be `..`, `.` or `/etc`
        if not _NAME.fullmatch(self.name):
            raise StateError(
                f"{self.name!r} is not the name of a sandbox", next_step="gpucluster sandbox status"
            )

    @property
    def path(self) -> Path:
        return self.root / self.name

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def capsule(self) -> Path:
        return self.path / "capsule.json"

    @property
    def endpoint(self) -> Path:
        return self.path / "endpoint.json"

    @property
    def operator(self) -> Path:
        return self.path / "operator.json"

    @property
    def plan(self) -> Path:
        return self.path / "plan.json"

    @property
    def console(self) -> Path:
        return self.path / "console"

    @property
    def instances(self) -> Path:
        return self.path / "i"

    @property
    def site(self) -> Path:
        """For plain machines: Ansible's input, the key of its user, and the shared folders."""
        return self.path / "site"

    @property
    def log(self) -> Path:
        return self.path / "supervisor.log"

    @property
    def pulumi(self) -> Path:
        return self.path / "pulumi"

    @property
    def kubeconfig(self) -> Path:
        """For kubectl: the context of its EKS cluster, as `aws eks update-kubeconfig` writes it."""
        return self.path / "kubeconfig"

    @property
    def rehearsal(self) -> Path:
        """The spec and the options of its `up`."""
        return self.path / "rehearsal.json"

    def begin(self, plan: ClusterPlan, spec: Path, *, real_times: bool) -> None:
        """Record the plan, the file that it was made from, and the options of its `up`."""
        self.plan.write_text(codec.dumps(plan))
        found = {"spec": str(spec.resolve()), "real_times": real_times}
        self.rehearsal.write_text(json.dumps(found) + "\n")

    @property
    def spec(self) -> Path:
        """The spec of its `up`. StateError if it is not recorded."""
        found = self.read_json(self.rehearsal).get("spec")
        if found is None:
            raise StateError(
                f"the sandbox '{self.name}' was made by another version of gpucluster: its spec is not recorded",
                next_step=f"end it, and start it again: gpucluster sandbox down {self.name}",
            )
        return Path(found)

    @property
    def real_times(self) -> bool:
        """Whether all times are AWS's own."""
        return self.rehearsal.exists() and self.read_json(self.rehearsal).get("real_times") == "True"

    def read_capsule(self) -> CapsuleRecord | None:
        """The record of the living capsule; None before it is written, or when it is incomplete."""
        try:
            return codec.loads(CapsuleRecord, self.capsule.read_text())
        except (OSError, ValueError):
            return None

    def read_json(self, path: Path) -> dict[str, str]:
        """One of the small JSON files of strings."""
        try:
            return {str(k): str(v) for k, v in json.loads(path.read_text()).items()}
        except (OSError, ValueError) as error:
            raise StateError(
                f"the sandbox '{self.name}' is not ready: {path.name} cannot be read",
                next_step="gpucluster sandbox status",
            ) from error

    def read_plan(self) -> ClusterPlan:
        """The plan of its `up`, with the differences of a rehearsal. OtherVersionError if it does not fit."""
        return self._read_plan(plan_json.load)

    def read_slurm_plan(self) -> SlurmPlan:
        """The same, of a sandbox with Slurm."""
        return self._read_plan(plan_json.load_slurm)

    def read_plan_on_hosts(self) -> SlurmOnHosts:
        """The same, of a sandbox of hosts."""
        return self._read_plan(lambda text: codec.loads(SlurmOnHosts, text))

    def has_kubernetes(self) -> bool:
        """Whether its plan has a cluster of EKS. False for a plan of another version."""
        try:
            plan = plan_json.load(self.plan.read_text())
        except (OSError, ValueError):
            return False
        return isinstance(plan, AwsPlan) and eks_of(plan) is not None

    def _read_plan(self, parse: Callable[[str], _Plan]) -> _Plan:
        try:
            return parse(self.plan.read_text())
        except ValueError as error:
            raise OtherVersionError(
                f"the sandbox '{self.name}' was made by another version of gpucluster: its plan cannot be read",
                next_step=f"use that version, or end the sandbox: gpucluster sandbox down {self.name}",
            ) from error

    def environment(self) -> dict[str, str]:
        """What boto3 or the engine needs to call this sandbox as its operator."""
        where, keys = self.read_json(self.endpoint), self.read_json(self.operator)
        return {
            "AWS_ENDPOINT_URL": where["endpoint"],
            "AWS_REGION": where["region"],
            "AWS_ACCESS_KEY_ID": keys["access_key"],
            "AWS_SECRET_ACCESS_KEY": keys["secret"],
        }

    def target(self, pulumi: Path) -> "Target":
        """Its stack, as the engine needs it."""
        from gpucluster.engine.target import Target  # noqa: PLC0415  most verbs do without

        environment = self.environment()
        return Target(
            stack=self.name,
            state_dir=self.pulumi,
            pulumi=pulumi,
            environment=environment,
            plugins=ENGINE_PLUGINS,
        )

    def client(self, service: str) -> Any:
        """A boto3 client of this sandbox's API, as its operator."""
        import boto3  # noqa: PLC0415  half a second; most verbs do without

        found = self.environment()
        session: Any = boto3.Session(
            aws_access_key_id=found["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=found["AWS_SECRET_ACCESS_KEY"],
            region_name=found["AWS_REGION"],
        )
        return session.client(service, endpoint_url=found["AWS_ENDPOINT_URL"])


def homes(root: Path = paths.STATE_ROOT) -> tuple[SandboxDir, ...]:
    """Every sandbox with files on disk, by name."""
    if not root.is_dir():
        return ()
    named = (p.name for p in sorted(root.iterdir()) if p.is_dir() and _NAME.fullmatch(p.name))
    return tuple(SandboxDir(name=name, root=root) for name in named)


def existing(name: str, root: Path = paths.STATE_ROOT) -> SandboxDir:
    """The sandbox of that name, living or dead; StateError if there is none."""
    home = SandboxDir(name=name, root=root)
    if not home.path.is_dir():
        raise StateError(
            f"there is no sandbox '{name}' on this machine", next_step="gpucluster sandbox status"
        )
    return home


def exists(name: str) -> bool:
    """Return whether a sandbox of that name is there, running or not. Only root can read its folder."""
    try:
        return SandboxDir(name=name).path.is_dir()
    except (StateError, PermissionError):  # StateError: no sandbox has such a name
        return False


def living(name: str, root: Path = paths.STATE_ROOT) -> SandboxDir:
    """The sandbox of that name, if it is up; StateError otherwise."""
    home = existing(name, root)
    if not alive(home):
        raise StateError(f"the sandbox '{name}' is not up", next_step=f"gpucluster sandbox down {name}")
    if home.read_capsule() is None:  # never `down` here: it would end a start that somebody waits for
        raise StateError(
            f"the sandbox '{name}' is still starting", next_step=f"gpucluster sandbox status {name}"
        )
    return home


def claim(home: SandboxDir) -> int:
    """Take the sandbox's lock and return its descriptor for the capsule; refuse if another process holds it."""
    home.path.mkdir(parents=True, exist_ok=True)
    home.root.chmod(0o700)
    while True:
        descriptor = os.open(home.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise StateError(
                f"a sandbox named '{home.name}' is up, or on its way up or down",
                next_step=f"gpucluster sandbox status {home.name}; to end it: gpucluster sandbox down {home.name}",
            ) from None
        if _is_still(descriptor, home.lock):
            return descriptor
        os.close(descriptor)  # another process removed the folder between our open and our lock


def alive(home: SandboxDir) -> bool:
    """Whether a supervisor or a running `up` holds the lock."""
    try:
        descriptor = os.open(home.lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def end(home: SandboxDir, *, patience_s: float = _PATIENCE_S) -> None:
    """Kill the capsule's PID 1, which ends everything in it, and wait until the lock is free."""
    deadline = time.monotonic() + patience_s
    while alive(home):
        capsule = home.read_capsule()
        if capsule is not None:
            _kill(capsule)
        if time.monotonic() > deadline:
            raise StateError(
                f"the sandbox '{home.name}' is still held by another command after {patience_s:g} s",
                next_step="wait for the `gpucluster sandbox up` that is running, or end it with Ctrl-C",
            )
        time.sleep(0.02)


def _kill(capsule: CapsuleRecord) -> None:
    """Kill PID 1 of the capsule, unless it has ended: then its number may be another process's."""
    # it ends before the signal; Linux 6.18 answers ENOENT for one that is being reaped
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        handle = os.pidfd_open(capsule.init)
        try:
            if started_at(capsule.init) == capsule.started:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def clean(home: SandboxDir, trees: Iterable[CgroupTree]) -> None:
    """Remove the remains of a dead sandbox: control groups and files. The caller holds the lock, or it is free."""
    empty(home, trees)
    shutil.rmtree(home.path, ignore_errors=True)


def empty(home: SandboxDir, trees: Iterable[CgroupTree]) -> None:
    """Remove the remains but for the lock's file, which its holder still uses."""
    groups = cgroups.sandbox_groups(trees, home.name)
    if groups:
        cgroups.end(groups[-1])  # empty, unless the kernel is slow to reap
    cgroups.remove(groups)
    for left in home.path.iterdir() if home.path.is_dir() else ():
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        elif left != home.lock:
            left.unlink()


def started_at(pid: int) -> int | None:
    """The start time of a process in the kernel's ticks; None if it does not exist."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[19])  # field 22; the name before it may contain anything


def child_of(pid: int) -> int | None:
    """The first child of a process, by the host's PIDs."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            return int(stat.parent.name)
    return None


def _is_still(descriptor: int, path: Path) -> bool:
    try:
        return os.fstat(descriptor).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False
