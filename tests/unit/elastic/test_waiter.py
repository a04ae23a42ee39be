"""The waiter over programs that answer from files: it ends when it should, and never for want of an answer."""

import contextlib
import fcntl
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.waiting import BOUND_S

from gpucluster.elastic import waiter
from gpucluster.plan import defaults

ENVIRON = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "a-[1-2]"}


class Slurm:
    """sinfo, squeue and scontrol as shell scripts over files."""

    def __init__(self, root: Path) -> None:
        self.root, self.now, self.polls = root, 0.0, 0
        self.steps: dict[int, Callable[[], None]] = {}
        for name, body in {
            "sinfo": f"echo x >>{root}/looks; cat {root}/waiting",
            "squeue": f"cat {root}/configuring",
            "scontrol": f'case "$2" in hostnames) echo a-1; echo a-2;; config) cat {root}/config;; esac',
        }.items():
            (root / name).write_text(f"#!/bin/sh\n{body}\n")
            (root / name).chmod(0o755)
        self.say("config", "ResumeTimeout           = 40 sec")
        self.say("waiting", "a-1\na-2\nb-9")
        self.say("configuring", "7\n8")

    def say(self, name: str, text: str) -> None:
        (self.root / name).write_text(text + "\n" if text else "")

    def fail(self) -> None:
        (self.root / "waiting").unlink()

    def pause(self, seconds: float) -> None:
        self.polls += 1
        self.now += seconds
        self.steps.pop(self.polls, lambda: None)()

    def wait(self, **environ: str) -> float:
        look = str(self.root / "look")
        waiter.main(
            {**ENVIRON, **environ},
            str(self.root),
            look,
            pause=self.pause,
            clock=lambda: self.now,
            fresh_s=0.0,
        )
        return self.now


@pytest.fixture
def slurm(tmp_path: Path) -> Slurm:
    return Slurm(tmp_path)


def test_ready_nodes_need_no_wait(slurm: Slurm) -> None:
    slurm.say("waiting", "b-9")
    assert slurm.wait() == 0


def test_wait_ends_with_the_poll_that_finds_the_last_node_ready(slurm: Slurm) -> None:
    slurm.steps = {2: lambda: slurm.say("waiting", "a-2\nb-9"), 5: lambda: slurm.say("waiting", "b-9")}
    assert slurm.wait() == 5 * waiter.POLL_S


def test_wait_ends_when_the_job_leaves_configuring(slurm: Slurm) -> None:
    slurm.steps = {20: lambda: slurm.say("configuring", "8")}
    assert slurm.wait() == 20 * waiter.POLL_S


def test_wait_ends_at_the_resume_timeout(slurm: Slurm) -> None:
    assert slurm.wait() == 40


@pytest.mark.parametrize("config", ["", "ResumeTimeout = UNLIMITED"])
def test_without_a_resume_timeout_the_wait_is_shorter_than_any_limit_of_the_prolog(
    slurm: Slurm, config: str
) -> None:
    """It waited an hour. slurmctld requeues a job whose PrologSlurmctld reaches its limit (S42)."""
    slurm.say("config", config)
    assert slurm.wait() < defaults.WAITER_MARGIN_S.value


def test_wait_continues_while_slurmctld_does_not_answer(slurm: Slurm) -> None:
    slurm.steps = {2: slurm.fail, 9: lambda: slurm.say("waiting", "")}
    assert slurm.wait() == 9 * waiter.POLL_S


def test_without_a_job_there_is_no_wait(slurm: Slurm) -> None:
    assert slurm.wait(SLURM_JOB_ID="") == 0
    assert slurm.wait(SLURM_JOB_NODELIST="") == 0


def test_many_waiters_share_one_query(slurm: Slurm) -> None:
    look = str(slurm.root / "look")
    many = [waiter.SharedQuery(look, str(slurm.root), fresh_s=60.0) for _ in range(50)]
    assert {one.read() for one in many} == {(frozenset({"a-1", "a-2", "b-9"}), frozenset({"7", "8"}))}
    assert (slurm.root / "looks").read_text() == "x\n"


def test_result_with_a_future_time_is_not_fresh(slurm: Slurm) -> None:
    """For as long as the clock had been ahead nobody looked anew, and every job waited out its ResumeTimeout."""
    one = waiter.SharedQuery(str(slurm.root / "look"), str(slurm.root), fresh_s=60.0)
    one.read()
    os.utime(slurm.root / "look.at", (0, time.time() + 3600))
    slurm.say("waiting", "b-9")
    assert one.read() == (frozenset({"b-9"}), frozenset({"7", "8"}))


def test_frozen_waiter_does_not_block_the_others(slurm: Slurm) -> None:
    """All others hung in the lock, past each one's ResumeTimeout: no job of the cluster would have started again."""
    look = str(slurm.root / "look")
    with open(f"{look}.at", "w") as frozen:  # noqa: PTH123
        fcntl.flock(frozen, fcntl.LOCK_EX)
        assert waiter.SharedQuery(look, str(slurm.root), fresh_s=0.0, lock_s=0.05).read() is None
    assert waiter.SharedQuery(look, str(slurm.root), fresh_s=0.0, lock_s=0.05).read() is not None


def test_unwritable_spool_only_causes_more_queries(slurm: Slurm) -> None:
    one = waiter.SharedQuery("/proc/nothing/look", str(slurm.root), fresh_s=0.0)
    assert one.read() == (frozenset({"a-1", "a-2", "b-9"}), frozenset({"7", "8"}))


# --- what the way must hold through ---------------------------------------------------------------------
def test_restart_of_slurmctld_only_delays_the_end(slurm: Slurm) -> None:
    slurm.steps = {
        3: lambda: slurm.say("waiting", "a-1\nb-9"),
        4: slurm.fail,
        30: lambda: slurm.say("waiting", "a-1\nb-9"),  # back, and the node still boots
        40: lambda: slurm.say("waiting", "b-9"),
    }
    assert slurm.wait() == 40 * waiter.POLL_S


def test_job_cancelled_while_slurmctld_is_down_needs_no_wait(slurm: Slurm) -> None:
    def back() -> None:
        slurm.say("configuring", "8")
        slurm.say("waiting", "a-1\na-2\nb-9")

    slurm.steps = {4: slurm.fail, 12: back}
    assert slurm.wait() == 12 * waiter.POLL_S


def test_lost_node_is_waited_for_until_the_resume_timeout(slurm: Slurm) -> None:
    """It stays `down*`, so among those that do not respond; its job leaves CONFIGURING, as Slurm requeues it."""
    slurm.steps = {2: lambda: slurm.say("waiting", "a-2\nb-9"), 8: lambda: slurm.say("configuring", "8")}
    assert slurm.wait() == 8 * waiter.POLL_S


def test_fifty_waiters_share_queries_and_all_end(slurm: Slurm) -> None:
    """Real processes, as slurmctld starts them; the one that looks may be killed, and another looks on."""
    text = Path(waiter.__file__).read_text().replace('"/usr/bin"', f'"{slurm.root}"')
    program = slurm.root / "prolog_slurmctld"
    program.write_text(text.replace('"/var/spool/gpucluster/waiter"', f'"{slurm.root}/look"'))
    slurm.say("configuring", "\n".join(str(job) for job in range(1, 51)))
    argv = ["/usr/bin/python3", "-IS", str(program)]
    began = time.monotonic()
    many = [
        subprocess.Popen(argv, env={**ENVIRON, "SLURM_JOB_ID": str(job)}, stderr=subprocess.PIPE)
        for job in range(1, 51)
    ]
    with contextlib.suppress(subprocess.TimeoutExpired):
        many[0].wait(1.5)
    assert all(one.poll() is None for one in many), "nobody ends while the nodes boot"
    many[7].kill()
    slurm.say("waiting", "b-9")
    said = [one.communicate(timeout=BOUND_S)[1] for one in many]
    ends = [one.returncode for one in many]
    assert ends.pop(7) == -9
    assert set(ends) == {0}
    assert not any(said), said
    most = (time.monotonic() - began) / waiter.POLL_S + 2  # one of them was killed while it looked
    assert len((slurm.root / "looks").read_text()) / 2 <= most, "each job looked for itself"


def test_waiter_on_the_second_head_uses_its_own_slurm_conf(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head that is off cost TCPTimeout at each of its two calls."""
    (slurm.root / "sinfo").write_text(f'#!/bin/sh\necho "$SLURM_CONF" >>{slurm.root}/asked\n')
    near = slurm.root / "near.conf"
    monkeypatch.setattr(waiter, "STANDBY_CONF", str(near))
    monkeypatch.delenv("SLURM_CONF", raising=False)
    slurm.wait()
    near.write_text("")
    (slurm.root / "look.at").unlink()
    slurm.wait()
    assert set((slurm.root / "asked").read_text().split("\n")) == {"", str(near)}
