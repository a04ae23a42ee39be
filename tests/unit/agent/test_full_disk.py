"""Full root disk, full /run, and hostile links: the agent continues, and root follows no link."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.fake_machine import FakeMachine, a_bundle, a_small_plan, an_answer, answers

from gpucluster import agent
from gpucluster.agent.boot import boot_state, run_folders
from gpucluster.agent.boot.boot_state import BootState
from gpucluster.agent.boot.runner import run_steps
from gpucluster.agent.machine import Machine, UnsavedState
from gpucluster.agent.monitors import job_heartbeats
from gpucluster.agent.roles import login
from gpucluster.agent.roles import node as node_role
from gpucluster.plan import names

KEY, LATE = b"K" * 128, 50_000.0
PROLOG = Path(agent.__file__).parent / "units" / names.PROLOG.lstrip("/")
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts and gives files away")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["/usr/bin/mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=False)
    if done.returncode:
        pytest.skip("this machine may not mount")
    try:
        yield place
    finally:
        subprocess.run(["/usr/bin/umount", "--lazy", place], check=True)


def fill(place: Path) -> None:
    left = os.statvfs(place)
    (place / "a-jobs-output").write_bytes(b"x" * (left.f_bavail * left.f_frsize))
    with pytest.raises(OSError, match="No space left"):
        (place / "more").write_bytes(b"x")


def a_booted_node(root: Path) -> tuple[FakeMachine, Machine, BootState]:
    node = FakeMachine(root, controller=answers(an_answer()))
    node.services.objects[names.BUNDLE_KEY] = a_bundle(a_small_plan())
    node.services.value = KEY
    machine = node.machine()
    return node, machine, run_steps(machine, node_role.BOOT, BootState(), until=lambda _: LATE)


@ROOT_ONLY
def test_node_with_a_full_disk_sends_heartbeats_and_keeps_its_state(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: OSError ended the agent. systemd restarted it every two seconds, and heartbeats and credentials stopped."""
    node, machine, state = a_booted_node(small_disk)
    fill(small_disk)
    node.posts.clear()
    for _ in range(3):
        node.clock += 10
        state = node_role.heartbeat(machine, state)
        assert not node_role.power_off_if_due(machine, state)
    assert len(node.posts) == 3
    assert boot_state.load(machine).last_contact_at == node.clock, "the state stays in memory"
    lines = [r.message for r in caplog.records if r.message.startswith("the agent's state is not in")]
    assert len(lines) == 1, "one line, not one a heartbeat"
    (small_disk / "a-jobs-output").unlink()
    node.clock += 10
    node_role.heartbeat(machine, state)
    assert boot_state.load(replace(machine, unsaved=UnsavedState())).last_contact_at == node.clock, (
        "and is written later"
    )


def refuse_writes(monkeypatch: pytest.MonkeyPatch, folder: str = "/") -> None:
    real = Machine.write

    def write(self: Machine, path: str, content: Any, **more: Any) -> bool:
        if path.startswith(folder):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return real(self, path, content, **more)

    monkeypatch.setattr(Machine, "write", write)


def test_state_that_cannot_be_written_is_read_from_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = FakeMachine(tmp_path).machine()
    boot_state.save(machine, boot_state.load(machine))
    refuse_writes(monkeypatch)
    boot_state.update(machine, node="h200-1a-2", termination_scripts=("spot",))
    saved = boot_state.load(machine)
    assert (saved.node, saved.termination_scripts) == ("h200-1a-2", ("spot",))


def test_restarted_agent_reads_its_state_although_the_root_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = FakeMachine(tmp_path)
    boot_state.save(node.machine(), boot_state.load(node.machine()))
    refuse_writes(monkeypatch, names.STATE_DIR)
    boot_state.update(node.machine(), node="h200-1a-2", incarnation=3)
    saved = boot_state.load(node.machine())
    assert (saved.node, saved.incarnation) == ("h200-1a-2", 3)


def test_newer_state_of_the_disk_is_read_if_the_run_folder_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = FakeMachine(tmp_path)
    boot_state.save(node.machine(), boot_state.load(node.machine()))
    refuse_writes(monkeypatch, names.AGENT_RUN)
    boot_state.update(node.machine(), incarnation=3)
    assert boot_state.load(node.machine()).incarnation == 3


def test_each_refused_write_leaves_the_agent_of_a_node_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, machine, state = a_booted_node(tmp_path)
    refuse_writes(monkeypatch)
    for _ in range(3):
        state = node_role.heartbeat(machine, state)
    assert not node_role.power_off_if_due(machine, state)


def test_login_machine_goes_on_if_old_bundles_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = FakeMachine(tmp_path)
    node.services.objects[names.BUNDLE_KEY] = a_bundle(a_small_plan())
    _, _, state = a_booted_node(tmp_path)

    def prune(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("gpucluster.agent.boot.bundles.prune", prune)
    assert login.run_once(node.machine(), (), state) == (state, True)


# --- folders of /run -------------------------------------------------------------------------------
def test_folders_of_run_are_small_file_systems_without_programs_and_devices(tmp_path: Path) -> None:
    node = FakeMachine(tmp_path)
    run_folders.mount_at_start(node.machine())
    mounted = {argv[-1]: argv[4] for argv in node.commands("mount")}
    assert set(mounted) == {names.AGENT_RUN, names.JOB_HEARTBEAT_DIR}
    for options in mounted.values():
        assert {"nosuid", "nodev", "noexec", "mode=0755"} <= set(options.split(","))
        assert "size=" in options
        assert "nr_inodes=" in options


def test_mounted_folder_of_run_is_not_mounted_again(tmp_path: Path) -> None:
    node = FakeMachine(tmp_path)
    node.put("/proc/self/mountinfo", f"1 0 0:1 / {names.AGENT_RUN} rw - tmpfs tmpfs rw\n")
    run_folders.mount(node.machine(), names.AGENT_RUN)
    assert not node.commands("mount")


def test_folder_of_run_that_cannot_be_mounted_is_used_without(tmp_path: Path) -> None:
    node = FakeMachine(tmp_path, refuses={"mount": "Operation not permitted"})
    run_folders.mount_at_start(node.machine())
    assert (tmp_path / names.AGENT_RUN.lstrip("/")).is_dir()


# --- the heartbeat file of a job -------------------------------------------------------------------
def run_prolog(root: Path, job: int, uid: int) -> Path:
    folder = root / names.JOB_HEARTBEAT_DIR.lstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    environment = {"SLURM_JOB_ID": str(job), "SLURM_JOB_UID": str(uid), "GPUCLUSTER_HEARTBEATS": str(folder),
                   "GPUCLUSTER_JOBS": str(root / "none"), "GPUCLUSTER_PROLOG_SOCKET": str(root / "none")}  # fmt: skip
    subprocess.run([PROLOG], env=environment, check=True)
    return folder / str(job)


@ROOT_ONLY
def test_prolog_creates_the_heartbeat_file_of_the_jobs_owner(tmp_path: Path) -> None:
    """In a folder of mode 1777 any user could create another job's file first, or enough files to hide it from the 128 that are read."""
    file = run_prolog(tmp_path, 17, 1234)
    found = file.stat()
    assert (found.st_uid, found.st_mode & 0o777, found.st_size) == (1234, 0o600, 0)
    machine = FakeMachine(tmp_path).machine()
    assert job_heartbeats.read(machine) == (), "a job that does not touch it is not watched"
    os.utime(file)
    assert [(b.job, b.uid) for b in job_heartbeats.read(machine)] == [(17, 1234)]


@ROOT_ONLY
def test_prolog_replaces_a_link_in_place_of_the_heartbeat_file(tmp_path: Path) -> None:
    victim = tmp_path / "shadow"
    victim.write_text("root's")
    folder = tmp_path / names.JOB_HEARTBEAT_DIR.lstrip("/")
    folder.mkdir(parents=True)
    (folder / "17").symlink_to(victim)
    assert not run_prolog(tmp_path, 17, 1234).is_symlink()
    assert victim.stat().st_uid == 0


@pytest.mark.parametrize("kind", [names.JOB_HEARTBEAT_DIR, names.JOB_RESTARTS_DIR])
def test_files_of_ended_jobs_are_removed(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / kind.lstrip("/")
    folder.mkdir(parents=True)
    (folder / "17").touch()
    changed = (folder / "17").stat().st_ctime
    machine = FakeMachine(tmp_path).machine()
    job_heartbeats.sweep(replace(machine, clock=lambda: changed + job_heartbeats.STARTING_S - 1))
    assert (folder / "17").exists(), "its first step has not started"
    job_heartbeats.sweep(replace(machine, clock=lambda: changed + job_heartbeats.STARTING_S + 1))
    assert not (folder / "17").exists()


RESTARTS = """
import os, socket, subprocess, sys
path, prolog, reply = sys.argv[1:]
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
    agent.bind(path)
    started = subprocess.Popen([prolog], env={**os.environ, "GPUCLUSTER_PROLOG_SOCKET": path})
    request, caller = agent.recvfrom(65536)
    print(request.decode())
    agent.sendto(reply.encode(), caller)
    sys.exit(started.wait())
"""


@pytest.mark.parametrize(
    ("reply", "left"), [("ok 2", "2\n"), ("ok", None), ("ok 2; reboot", None), ("ok 0", "0\n")]
)
def test_prolog_leaves_the_runs_that_began_for_the_task(tmp_path: Path, reply: str, left: str | None) -> None:
    """The file of an earlier run of the job goes in each case."""
    folder = tmp_path / names.JOB_RESTARTS_DIR.lstrip("/")
    folder.mkdir(parents=True)
    (folder / "17").write_text("9\n")
    variables = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "gpu-[1-2]", "SLURM_JOB_RESTART_COUNT": "3"}
    folders = {
        "GPUCLUSTER_RESTARTS": str(folder),
        "GPUCLUSTER_HEARTBEATS": "/none",
        "GPUCLUSTER_JOBS": "/none",
    }
    argv = [sys.executable, "-c", RESTARTS, str(tmp_path / "socket"), PROLOG, reply]
    done = subprocess.run(argv, env={**variables, **folders}, check=True, capture_output=True, text=True)
    assert done.stdout == "gpu-[1-2]\n17\n3\n"
    file = folder / "17"
    assert (file.read_text() if file.exists() else None) == left
    assert left is None or file.stat().st_mode & 0o777 == 0o644


# --- links -----------------------------------------------------------------------------------------
def test_write_replaces_a_link_and_leaves_its_target(tmp_path: Path) -> None:
    machine, victim = FakeMachine(tmp_path).machine(), tmp_path / "victim"
    victim.write_text("same")
    victim.chmod(0o600)
    (tmp_path / "file").symlink_to(victim)
    assert machine.write("/file", "same", mode=0o600, owner="vision"), (
        "a link to the same text is not the file"
    )
    assert not (tmp_path / "file").is_symlink()
    (tmp_path / ".file.new").symlink_to(victim)
    machine.write("/file", "other")
    assert victim.read_text() == "same"


def test_write_follows_no_link_that_a_user_puts_in_place_in_the_last_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: a user with a race in his own folder got a file of root chowned to himself after 209 tries."""
    machine, victim = FakeMachine(tmp_path).machine(), tmp_path / "victim"
    victim.write_text("root's")
    real = Path.unlink

    def lose_the_race(self: Path, missing_ok: bool = False) -> None:
        real(self, missing_ok=missing_ok)
        if self.name == ".file.new":
            self.symlink_to(victim)

    monkeypatch.setattr(Path, "unlink", lose_the_race)
    with pytest.raises(FileExistsError):
        machine.write("/file", "text", owner="vision")
    assert victim.read_text() == "root's"


def test_owner_is_set_on_the_open_file(tmp_path: Path) -> None:
    """In the meantime a path could name another file."""
    owned: list[tuple[int, str]] = []
    machine = replace(
        FakeMachine(tmp_path).machine(),
        chown=lambda descriptor, user: owned.append((os.fstat(descriptor).st_ino, user)),
    )
    machine.write("/file", "text", owner="vision")
    assert owned == [((tmp_path / "file").stat().st_ino, "vision")]
