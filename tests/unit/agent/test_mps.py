"""MPS on a node: a control daemon for each GPU before slurmd, and none where the pool has no MPS."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_machine import UNITS, FakeMachine, a_small_plan

from gpucluster.agent.boot import boot_state, mps
from gpucluster.agent.boot.boot_state import BootState, Bundle
from gpucluster.agent.machine import NotYetError
from gpucluster.plan import names
from gpucluster.plan.messages import NodeAnswer
from gpucluster.plan.model import Mps, SlurmOnAws

NODE = "h200-1a-1"


def a_plan(sharing: Mps | None) -> SlurmOnAws:
    plan = a_small_plan(gpus=2)
    pool = plan.pools[0]
    return replace(plan, pools=(replace(pool, shape=replace(pool.shape, sharing=sharing)),))


def start(fake: FakeMachine, sharing: Mps | None) -> None:
    answer = NodeAnswer(node=NODE, incarnation=3, controller="", heartbeat_s=0.0)
    bundle = Bundle(digest="", etag="", tree=Path("/"), plan=a_plan(sharing), bindings=None)
    mps.start_daemons(fake.machine(), BootState(bundle=bundle, answer=answer))


def test_each_gpu_has_a_daemon_which_answers(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    boot_state.save(fake.machine(), boot_state.load(fake.machine()))
    start(fake, Mps(each=50))
    units = [f"gpucluster-mps@{gpu}.service" for gpu in range(2)]
    assert [call[2] for call in fake.calls if call[0] == "systemctl"] == units
    assert fake.calls[-2:] == [(mps.CONTROL,)] * 2


def test_a_daemon_that_does_not_answer_keeps_slurmd_from_starting(tmp_path: Path) -> None:
    """Regression: CUDA runs a program with the whole GPU if there is no daemon, and says nothing."""
    fake = FakeMachine(tmp_path)
    boot_state.save(fake.machine(), boot_state.load(fake.machine()))
    fake.refuses[mps.CONTROL] = "Cannot find MPS control daemon process"
    with pytest.raises(NotYetError, match="daemon of GPU 0 does not answer: Cannot find MPS control"):
        start(fake, Mps(each=50))


def test_after_the_start_of_slurmd_nothing_is_asked(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    boot_state.save(fake.machine(), boot_state.load(fake.machine()))
    boot_state.update(fake.machine(), slurmd_node=NODE, incarnation=3)
    start(fake, Mps(each=50))
    assert fake.calls == []


@pytest.mark.parametrize("left", [False, True])
def test_daemons_of_a_pool_that_had_mps_are_ended(tmp_path: Path, left: bool) -> None:
    fake = FakeMachine(tmp_path)
    if left:
        fake.put(f"{names.MPS_DIR}/0/control", "")
    start(fake, None)
    assert fake.calls == [("systemctl", "stop", "gpucluster-mps@*")] * left


def test_unit_and_task_prolog_have_the_folder_of_the_plan() -> None:
    unit = (UNITS / f"etc/systemd/system/{names.MPS_UNIT}.service").read_text()
    assert f"CUDA_MPS_PIPE_DIRECTORY={names.MPS_DIR}/%i " in unit
    assert f"RuntimeDirectory={names.MPS_DIR.removeprefix('/run/')}/%i\n" in unit
    assert f"ExecStart={mps.CONTROL} -f\n" in unit
    assert f"\nmps={names.MPS_DIR}\n" in (UNITS / names.TASK_PROLOG.lstrip("/")).read_text()
