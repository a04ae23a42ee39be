"""A lock shows that a sandbox runs. The remains of an ended sandbox are found and removed."""

import errno
import json
import os
import subprocess
from pathlib import Path

import pytest

from gpucluster.errors import StateError
from gpucluster.plan import codec
from gpucluster.sandbox import state_dir, status
from gpucluster.sandbox.host_checks import CgroupTree
from gpucluster.sandbox.state_dir import CapsuleRecord, SandboxDir
from gpucluster.sandbox.status import Status


@pytest.fixture
def home(tmp_path):
    return SandboxDir(name="one", root=tmp_path)


def test_name_is_locked_until_its_holder_ends(home):
    first = state_dir.claim(home)
    assert state_dir.alive(home)
    with pytest.raises(StateError, match="a sandbox named 'one' is up, or on its way up or down"):
        state_dir.claim(home)
    os.close(first)
    assert not state_dir.alive(home)
    os.close(state_dir.claim(home))


@pytest.mark.parametrize("name", ["..", ".", "", "/etc", "a/b", "../one", "One", "one\n"])
def test_invalid_name_is_never_a_folder_to_remove(tmp_path, name):
    """Regression: `gpucluster sandbox down ..` would have removed the folder above the state."""
    with pytest.raises(StateError, match="is not the name of a sandbox"):
        SandboxDir(name=name, root=tmp_path)


def test_two_names_are_independent(tmp_path):
    locks = [state_dir.claim(SandboxDir(name=name, root=tmp_path)) for name in ("one", "two")]
    assert [h.name for h in state_dir.homes(tmp_path)] == ["one", "two"]
    for lock in locks:
        os.close(lock)


def test_lock_of_a_removed_file_is_not_valid(home):
    first = state_dir.claim(home)
    state_dir.clean(home, ())
    second = state_dir.claim(home)  # a new file: it must not wait for the old one
    assert state_dir.alive(home)
    os.close(first)
    os.close(second)


def test_emptying_spares_the_lock_that_the_holder_goes_on_with(home):
    lock = state_dir.claim(home)
    home.instances.mkdir()
    (home.instances / "i-1").write_text("disk")
    home.operator.write_text("{}")
    state_dir.empty(home, ())
    assert [p.name for p in home.path.iterdir()] == ["lock"]
    assert state_dir.alive(home)
    os.close(lock)


def test_cleaning_removes_files_and_empty_groups(home, tmp_path):
    tree = CgroupTree(mount=tmp_path / "cg", controllers=frozenset({"devices"}))
    v2 = CgroupTree(mount=tmp_path / "v2", controllers=frozenset())
    groups = [
        tree.mount / "gpc-one" / "i-1" / "payload",
        v2.mount / "gpc-one" / "i-1",
        v2.mount / "gpc-onemore",
    ]
    for group in (*groups, home.path):
        group.mkdir(parents=True)
    state_dir.clean(home, (tree, v2))
    assert not home.path.exists()
    assert not (tree.mount / "gpc-one").exists()
    assert not (v2.mount / "gpc-one").exists()
    assert (v2.mount / "gpc-onemore").exists()


def test_incomplete_record_is_ignored(home):
    home.path.mkdir()
    home.capsule.write_text('{"init": 1, "star')
    assert home.read_capsule() is None


def test_pid_is_valid_only_with_its_start_time(home):
    """The kernel reuses PIDs. A kill by PID alone could end another process."""
    lock = state_dir.claim(home)
    unknown = CapsuleRecord(init=os.getpid(), started=1, port=1, layers=())
    home.capsule.write_text(codec.dumps(unknown))
    assert state_dir.started_at(os.getpid()) not in (None, 1)
    with pytest.raises(StateError, match="still held by another command"):
        state_dir.end(home, patience_s=0.05)
    os.close(lock)


def test_kill_of_an_ended_process_is_no_error(home):
    home.path.mkdir()
    state_dir.end(home)


def test_kill_of_a_process_that_ends_in_between_is_no_error(home, monkeypatch):
    """PID 1 of the capsule ended between the look at its start time and the signal, and `down` broke off."""
    lock = state_dir.claim(home)
    ended = subprocess.Popen(["/bin/true"])
    ended.wait()
    home.capsule.write_text(codec.dumps(CapsuleRecord(init=ended.pid, started=7, port=1, layers=())))
    monkeypatch.setattr(state_dir, "started_at", lambda pid: 7)
    with pytest.raises(StateError, match="still held by another command"):
        state_dir.end(home, patience_s=0.05)
    os.close(lock)


@pytest.mark.parametrize("code", [errno.ESRCH, errno.ENOENT])
def test_kill_of_a_process_that_is_being_reaped_is_no_error(home, monkeypatch, code):
    """Linux 6.18 answered ENOENT, and `down` broke off."""
    lock = state_dir.claim(home)
    home.capsule.write_text(codec.dumps(CapsuleRecord(init=1, started=7, port=1, layers=())))

    def reaped(pid: int) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "pidfd_open", reaped)
    with pytest.raises(StateError, match="still held by another command"):
        state_dir.end(home, patience_s=0.05)
    os.close(lock)


def test_missing_process_has_no_start_time():
    assert state_dir.started_at(2**22 + 1) is None


def test_api_environment_comes_from_two_files(home):
    home.path.mkdir()
    home.endpoint.write_text(json.dumps({"endpoint": "http://127.0.0.1:1", "region": "us-east-1"}))
    home.operator.write_text(json.dumps({"access_key": "AKIA", "secret": "s"}))
    assert home.environment() == {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "AKIA",
        "AWS_SECRET_ACCESS_KEY": "s",
    }


def _with_an_older_plan(home: SandboxDir) -> None:
    home.path.mkdir()
    home.plan.write_text('{"kind": "slurm-on-hosts", "name": "one"}')


def _read_plan(name: str, root: Path) -> object:
    return SandboxDir(name=name, root=root).read_plan()


NOT_UP = {
    "a name that never was": (lambda home: None, state_dir.existing, "there is no sandbox 'one'"),
    "one that died": (lambda home: home.path.mkdir(), state_dir.living, "the sandbox 'one' is not up"),
    "one of another version": (
        _with_an_older_plan,
        _read_plan,
        "the sandbox 'one' was made by another version",
    ),
}


@pytest.mark.parametrize(("make", "ask", "said"), NOT_UP.values(), ids=NOT_UP)
def test_command_without_a_running_sandbox_reports_its_state(
    home: SandboxDir, tmp_path: Path, make, ask, said
):
    make(home)
    with pytest.raises(StateError, match=said) as refused:
        ask("one", tmp_path)
    assert "gpucluster sandbox " in (refused.value.next_step or "")


def test_status_shows_a_sandbox_of_another_version(home: SandboxDir, tmp_path: Path) -> None:
    """Regression: one such sandbox ended `sandbox status` in a traceback."""
    tree = CgroupTree(mount=tmp_path / "cg", controllers=frozenset({"devices"}))
    lock = state_dir.claim(home)
    home.site.mkdir()
    home.plan.write_text('{"kind": "slurm-on-hosts", "name": "one"}')
    home.capsule.write_text(codec.dumps(CapsuleRecord(init=1, started=1, port=1, layers=())))
    found = status._seen(home, (tree,))
    os.close(lock)
    assert Status(sandboxes=(found,), caches=()).as_text() == (
        "one: up, made by another version of gpucluster; next: use that version, or gpucluster sandbox down one"
    )


def test_starting_sandbox_is_never_offered_to_be_ended(home: SandboxDir, tmp_path: Path) -> None:
    """Regression: the next step was `sandbox down`, which ends a start that the reader did not name."""
    lock = state_dir.claim(home)
    with pytest.raises(StateError, match="the sandbox 'one' is still starting") as refused:
        state_dir.living("one", tmp_path)
    assert refused.value.next_step == "gpucluster sandbox status one"
    os.close(lock)
