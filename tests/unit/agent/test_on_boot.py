"""The site's boot scripts: order, hash, failures with their own words, and one run in each boot."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from support.fake_machine import FakeMachine, a_bundle, a_small_plan, an_answer, answers

from gpucluster.agent.boot import boot_state
from gpucluster.agent.boot.boot_state import BootState
from gpucluster.agent.boot.runner import StepFailedError, run_steps
from gpucluster.agent.roles import node as node_role
from gpucluster.plan import names
from gpucluster.plan.model import BootScript

FIRST, SECOND = b"#!/bin/sh\necho first\n", b"#!/bin/sh\necho second\n"
DONE = "LoadState=loaded\nActiveState=active\nResult=success\nExecMainStatus=0\n"
ABSENT = "LoadState=not-found\nActiveState=inactive\nResult=success\nExecMainStatus=0\n"


@dataclass
class Systemd(FakeMachine):
    """It also keeps transient units: `show` has what the test says for a started unit."""

    shows: Mapping[str, list[str]] = field(
        default_factory=dict
    )  # unit -> answers after its start, the last stays
    started: list[str] = field(default_factory=list)
    log: str = "disk is full"

    def _outcome(self, argv, stdin, env):
        if argv[0] == "systemd-run":
            unit = argv[1].removeprefix("--unit=")
            assert unit not in self.started, "systemd refuses a second unit of this name"
            self.started.append(unit)
            return 0, ""
        if argv[:2] == ("systemctl", "show") and "on-boot" in argv[-1]:
            unit = argv[-1].removesuffix(".service")
            if unit not in self.started:
                return 0, ABSENT
            answers_left = self.shows.get(unit, [DONE])
            return 0, answers_left.pop(0) if len(answers_left) > 1 else answers_left[0]
        if argv[0] == "journalctl":
            return 0, self.log
        return super()._outcome(argv, stdin, env)


def a_script(body: bytes, key: str) -> BootScript:
    return BootScript(bucket="site", key=key, sha256=hashlib.sha256(body).hexdigest())


def a_node(root: Path, *scripts: BootScript, **change: object) -> Systemd:
    plan = a_small_plan()
    plan = replace(plan, pools=(replace(plan.pools[0], on_boot=scripts),))
    node = Systemd(root, controller=answers(an_answer()), **change)  # type: ignore[arg-type]
    node.services.objects |= {names.BUNDLE_KEY: a_bundle(plan), "a.sh": FIRST, "b.sh": SECOND}
    node.services.value = b"K" * 128
    return node


def boot(node: FakeMachine) -> BootState:
    return run_steps(node.machine(), node_role.BOOT, BootState(), until=lambda _: 50_000.0)


def failure(node: FakeMachine) -> str:
    with pytest.raises(StepFailedError) as failed:
        boot(node)
    assert ("systemctl", "restart", "slurmd.service") not in node.calls, "no job comes to this node"
    return str(failed.value)


def test_scripts_run_in_order_as_root_before_slurmd(tmp_path: Path) -> None:
    node = a_node(tmp_path, a_script(FIRST, "a.sh"), a_script(SECOND, "b.sh"))
    boot(node)
    runs = node.commands("systemd-run")
    assert [argv[-1] for argv in runs] == [f"{names.STATE_DIR}/on-boot/{n}" for n in (1, 2)]
    assert [node.text(argv[-1]).encode() for argv in runs] == [FIRST, SECOND]
    assert (tmp_path / runs[0][-1].lstrip("/")).stat().st_mode & 0o777 == 0o700
    assert "--setenv=GPUCLUSTER_NODE=h200-1a-1" in runs[0]
    assert "--setenv=GPUCLUSTER_POOL=h200" in runs[0]
    assert "--property=TimeoutStartSec=600" in runs[0]
    assert not [word for word in runs[0] if word.startswith(("--uid", "--property=User"))]
    assert node.calls.index(runs[1]) < node.calls.index(("systemctl", "restart", "slurmd.service"))


def test_script_with_another_hash_never_runs(tmp_path: Path) -> None:
    node = a_node(tmp_path, replace(a_script(FIRST, "a.sh"), key="b.sh"))
    said = failure(node)
    first, second = (hashlib.sha256(body).hexdigest() for body in (FIRST, SECOND))
    assert said == f"on-boot: s3://site/b.sh is not run: its SHA-256 is {second}, the spec has {first}"
    assert node.commands("systemd-run") == []
    assert not (tmp_path / f"{names.STATE_DIR}/on-boot/1".lstrip("/")).exists()


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("Result=exit-code\nExecMainStatus=3", "ended with exit code 3"),
        ("Result=timeout\nExecMainStatus=15", "was ended after 600 s"),
        ("Result=signal\nExecMainStatus=9", "was ended by signal 9"),
        (
            "Result=exit-code\nExecMainStatus=203",
            "cannot be started: its first line must name an interpreter, such as #!/bin/bash",
        ),
    ],
)
def test_failed_script_is_a_failed_boot_with_its_own_words(tmp_path: Path, shown: str, said: str) -> None:
    shows = {"gpucluster-on-boot-1": [f"LoadState=loaded\nActiveState=failed\n{shown}\n"]}
    node = a_node(tmp_path, a_script(FIRST, "a.sh"), a_script(SECOND, "b.sh"), shows=shows)
    assert failure(node) == f"on-boot: s3://site/a.sh {said}: disk is full"
    assert node.started == ["gpucluster-on-boot-1"], "the second script does not run"
    step = boot_state.load(node.machine()).steps[-1]
    assert (step.name, step.ok) == ("on-boot", False), "the report to the controller has the reason"


def test_agent_that_starts_again_waits_for_the_same_run(tmp_path: Path) -> None:
    busy = "LoadState=loaded\nActiveState=activating\nResult=success\nExecMainStatus=0\n"
    node = a_node(tmp_path, a_script(FIRST, "a.sh"), shows={"gpucluster-on-boot-1": [busy, busy, DONE]})
    boot(node)
    boot(node)
    assert node.started == ["gpucluster-on-boot-1"]


def test_missing_object_fails_the_boot_in_bounded_time(tmp_path: Path) -> None:
    node = a_node(tmp_path, a_script(FIRST, "missing.sh"))
    began = node.clock
    assert failure(node) == "on-boot: the boot script s3://site/missing.sh: NoSuchKey"
    assert node.clock - began < 400


def test_pool_without_scripts_starts_no_unit(tmp_path: Path) -> None:
    node = a_node(tmp_path)
    boot(node)
    assert node.commands("systemd-run") == []
