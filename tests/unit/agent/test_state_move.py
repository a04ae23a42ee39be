"""Slurm's state moves to the volume: whole or not at all, after a kill at any point, and never over other state."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpucluster.agent.disks import state_move
from gpucluster.agent.disks.state_move import Daemons, Folders, Marker, Phase, digests, prepare
from gpucluster.agent.machine import StepError
from gpucluster.plan import codec


class Killed(BaseException):
    """The agent was killed."""


@dataclass
class Head:
    """A head with state on its root disk, and a volume."""

    base: Path
    active: bool = True
    stops: int = 0
    events: list[str] = field(default_factory=list)
    kill_at: int = -1

    @property
    def folders(self) -> Folders:
        local = {"slurmctld": self.base / "spool/slurmctld", "elastic": self.base / "lib/elastic"}
        return Folders(cluster="trial", root=self.base / "srv/state", local=local)

    @property
    def daemons(self) -> Daemons:
        return Daemons(running=lambda: self.active, stop=self._stop)

    def prepare(self) -> None:
        prepare(self.folders, self.daemons, self._at)

    def in_use(self) -> Path:
        """The folder of slurmctld that is in use: the daemons start with it."""
        found = state_move.read_marker(self.folders)
        stored = found is not None and found.phase is Phase.IN_USE
        return self.folders.root / "slurmctld" if stored else self.folders.local["slurmctld"]

    def _stop(self) -> None:
        self.active, self.stops = False, self.stops + 1

    def _at(self, event: str) -> None:
        self.events.append(event)
        if len(self.events) == self.kill_at:
            raise Killed


def a_head(base: Path, *, local: bool = True) -> Head:
    head = Head(base)
    for path in (head.folders.root, *head.folders.local.values()):
        path.mkdir(parents=True)
    if local:
        fill(head.folders.local["slurmctld"], head.folders.local["elastic"])
    return head


def fill(slurmctld: Path, elastic: Path, *, jobs: bytes = b"jobs" * 100_000) -> None:
    for folder in (slurmctld / "hash.1/job.12", elastic):
        folder.mkdir(parents=True, exist_ok=True)
    (slurmctld / "job_state").write_bytes(jobs)
    (slurmctld / "clustername").write_text("trial")
    (slurmctld / "hash.1/job.12/script").write_text("#!/bin/sh\n")
    (slurmctld / "hash.1/job.12/script").chmod(0o600)
    (slurmctld / "link").symlink_to("job_state")
    (elastic / "journal.sqlite").write_bytes(os.urandom(5000))
    slurmctld.chmod(0o700)


def mark(head: Head, phase: Phase, *, cluster: str = "trial") -> None:
    text = codec.dumps(Marker(cluster=cluster, phase=phase))
    (head.folders.root / state_move.MARKER).write_text(text)


def stored(head: Head) -> dict[str, Path]:
    return {name: head.folders.root / name for name in head.folders.local}


def test_the_state_is_stopped_copied_verified_and_set_aside(tmp_path):
    """Regression: an empty volume was mounted over the queue and the journal."""
    head = a_head(tmp_path)
    script = head.folders.local["slurmctld"] / "hash.1/job.12/script"
    os.chown(script, 12, 34)
    before = digests(head.folders.local)
    head.prepare()
    assert head.stops == 1
    assert head.events[0] == "stopped"
    assert digests(stored(head)) == before
    found = (head.folders.root / "slurmctld/hash.1/job.12/script").stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (12, 34, 0o600)
    assert (head.folders.root / "slurmctld/link").readlink() == Path("job_state")
    for name, path in head.folders.local.items():
        assert list(path.iterdir()) == [], name
        assert path.with_name(f"{path.name}{state_move.ASIDE}").is_dir()
    assert not (head.folders.root / state_move.INCOMING).exists()
    assert state_move.in_use(head.folders)


def test_old_state_that_cannot_be_set_aside_stays_below_the_mount(tmp_path):
    """The storage is in use: a failure after this point must not start the daemons on the old state."""
    head = a_head(tmp_path)
    spool = head.folders.local["slurmctld"]
    spool.with_name(f"{spool.name}{state_move.ASIDE}").write_text("in the way")
    head.prepare()
    assert state_move.in_use(head.folders)
    head.prepare()
    assert head.stops == 1


def test_a_second_run_does_nothing(tmp_path):
    head = a_head(tmp_path)
    head.prepare()
    head.prepare()
    assert head.stops == 1


def test_after_a_kill_at_any_point_either_the_old_or_the_new_state_is_whole(tmp_path):
    whole = a_head(tmp_path / "whole")
    whole.prepare()
    reached = set[str]()
    for turn in range(1, len(whole.events) + 1):
        head = a_head(tmp_path / str(turn))
        before = digests(head.folders.local)
        head.kill_at = turn
        with pytest.raises(Killed):
            head.prepare()
        reached.add(head.events[-1])
        used = head.in_use()
        names = head.folders.local if used == head.folders.local["slurmctld"] else stored(head)
        assert digests(names) == before, head.events[-1]
        head.kill_at = -1
        head.prepare()
        assert digests(stored(head)) == before, head.events
        assert state_move.in_use(head.folders)
        assert not any(list(path.iterdir()) for path in head.folders.local.values())
    assert reached == set(whole.events)


def test_old_state_that_changed_after_the_copy_is_copied_again(tmp_path):
    """A person started slurmctld between the copy and its first use."""
    head = a_head(tmp_path)
    head.kill_at = next(n for n, e in enumerate(events_of_a_move(tmp_path / "other"), 1) if e == "complete")
    with pytest.raises(Killed):
        head.prepare()
    (head.folders.local["slurmctld"] / "job_state").write_bytes(b"newer")
    head.kill_at = -1
    head.prepare()
    assert (head.folders.root / "slurmctld/job_state").read_bytes() == b"newer"


def events_of_a_move(base: Path) -> list[str]:
    head = a_head(base)
    head.prepare()
    return head.events


def untouched(head: Head) -> Callable[[], bool]:
    before = digests({**head.folders.local, "root": head.folders.root})
    return lambda: (
        digests({**head.folders.local, "root": head.folders.root}) == before
        and head.stops == 0
        and head.active
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("elsewhere", "has state of the cluster 'elsewhere', expected 'trial'"),
        ("trial", "one of them is lost"),
    ],
)
def test_unmarked_state_on_the_volume_is_not_overwritten(tmp_path, name, said):
    head = a_head(tmp_path)
    fill(*stored(head).values())
    (head.folders.root / "slurmctld/clustername").write_text(name)
    same = untouched(head)
    with pytest.raises(StepError, match=said):
        head.prepare()
    assert same()


@pytest.mark.parametrize("local", [True, False])
def test_a_volume_of_another_cluster_is_refused(tmp_path, local):
    head = a_head(tmp_path, local=local)
    mark(head, Phase.IN_USE, cluster="elsewhere")
    same = untouched(head)
    with pytest.raises(StepError, match="has state of the cluster 'elsewhere'"):
        head.prepare()
    assert same()


def test_a_replaced_head_uses_the_state_of_its_cluster(tmp_path):
    for number, marked in enumerate((True, False)):
        head = a_head(tmp_path / str(number), local=False)
        fill(*stored(head).values())
        if marked:
            mark(head, Phase.IN_USE)
        before = digests(stored(head))
        head.prepare()
        assert (digests(stored(head)), head.stops) == (before, 0)
        assert state_move.in_use(head.folders)


def test_a_new_cluster_begins_with_an_empty_volume(tmp_path):
    head = a_head(tmp_path, local=False)
    head.prepare()
    assert state_move.in_use(head.folders)
    assert head.stops == 0


@pytest.mark.parametrize(
    ("active", "newer", "refused"), [(True, False, True), (False, True, True), (False, False, False)]
)
def test_a_volume_in_use_is_mounted_only_over_older_state(tmp_path, active, newer, refused):
    head = a_head(tmp_path)
    head.active = active
    fill(*stored(head).values(), jobs=b"of the volume")
    mark(head, Phase.IN_USE)
    at = 2_000_000_000.0 if newer else 1_000_000_000.0
    for folder in head.folders.local.values():
        for path in (folder, *folder.rglob("*")):
            os.utime(path, (at, at), follow_symlinks=False)
    if refused:
        with pytest.raises(StepError, match="has older state of this cluster"):
            head.prepare()
        assert head.stops == 0
    else:
        head.prepare()
        assert (head.folders.root / "slurmctld/job_state").read_bytes() == b"of the volume"


def test_a_copy_without_its_source_is_not_started(tmp_path):
    head = a_head(tmp_path, local=False)
    mark(head, Phase.COPYING)
    with pytest.raises(StepError, match="is not complete, and this machine does not have its source"):
        head.prepare()


def test_a_damaged_marker_is_refused(tmp_path):
    head = a_head(tmp_path)
    (head.folders.root / state_move.MARKER).write_text("{")
    same = untouched(head)
    with pytest.raises(StepError, match="cannot be read"):
        head.prepare()
    assert same()


def test_a_file_that_is_neither_file_nor_folder_ends_the_copy(tmp_path):
    """The state stays on the root disk. A socket is left out: its daemon makes it again."""
    head = a_head(tmp_path)
    os.mkfifo(head.folders.local["elastic"] / "pipe")
    before = digests(head.folders.local)
    with pytest.raises(OSError, match="pipe is neither a file nor a folder"):
        head.prepare()
    assert (digests(head.folders.local), state_move.in_use(head.folders)) == (before, False)
