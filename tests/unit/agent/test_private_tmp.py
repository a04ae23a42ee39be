"""The folder of the /tmp of each job: made by root, and never through a link or a folder of a user."""

import os
from dataclasses import replace

import pytest
from support.fake_machine import FakeMachine, a_small_plan

from gpucluster.agent.boot import slurmd
from gpucluster.agent.boot.boot_state import BootState, Bundle
from gpucluster.agent.machine import StepError


def create(fake, path):
    plan = a_small_plan()
    plan = replace(plan, slurm=replace(plan.slurm, private_tmp=path))
    state = BootState(bundle=Bundle(tree=fake.root, plan=plan, bindings=None, digest="d", etag="e"))
    assert slurmd.create_private_tmp(fake.machine(), state) is state


def test_folder_is_created_for_root_alone_to_write(tmp_path):
    fake = FakeMachine(tmp_path)
    fake.machine().path("/scratch").mkdir()
    fake.machine().path("/scratch").chmod(
        0o1777
    )  # the machine's own disks: the sticky bit protects the folder
    for _ in range(2):
        create(fake, "/scratch/.gpucluster-tmp")
        assert fake.machine().path("/scratch/.gpucluster-tmp").stat().st_mode & 0o7777 == 0o755


def test_nothing_is_created_if_the_plan_has_none(tmp_path):
    fake = FakeMachine(tmp_path)
    before = fake.snapshot()
    create(fake, None)
    assert fake.snapshot() == before


def test_link_on_the_way_is_refused(tmp_path):
    fake = FakeMachine(tmp_path)
    fake.machine().path("/elsewhere").mkdir()
    fake.machine().path("/local").symlink_to(fake.machine().path("/elsewhere"))
    with pytest.raises(StepError, match="no plain folder"):
        create(fake, "/local/tmp")
    assert list(fake.machine().path("/elsewhere").iterdir()) == []


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_folder_that_others_can_replace_is_refused(tmp_path, mode):
    fake = FakeMachine(tmp_path)
    fake.machine().path("/local").mkdir()
    fake.machine().path("/local").chmod(mode)
    with pytest.raises(StepError, match="others may replace"):
        create(fake, "/local/tmp")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders to other users")
def test_folder_of_another_user_is_refused(tmp_path):
    fake = FakeMachine(tmp_path)
    fake.machine().path("/local").mkdir()
    os.chown(fake.machine().path("/local"), 5001, 5001)
    with pytest.raises(StepError, match="another user"):
        create(fake, "/local/tmp")
