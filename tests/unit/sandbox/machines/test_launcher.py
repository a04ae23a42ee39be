"""The launcher of the cloud's model: it boots machines for instances, and reports how they end."""

import random
from pathlib import Path
from typing import ClassVar

import pytest

from gpucluster.cloud.port import InstanceState
from gpucluster.plan.model import Market
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import InstanceLaunch, SubnetRef, Timing
from gpucluster.sandbox.machines.launcher import Launcher
from gpucluster.sandbox.machines.machine import MachineHost

NOW = 1000.0
GROUND = MachineHost(name="t", layers=(), trees=(), instances=Path("/none"), console=Path("/none"))


class FakeMachine:
    """A machine that the test can stop, and that can fail to start."""

    made: ClassVar[list["FakeMachine"]] = []
    broken: ClassVar[bool] = False

    def __init__(self, spec, ground):
        self.spec, self.did = spec, []
        self.code: int | None = None
        FakeMachine.made.append(self)

    def start(self):
        if FakeMachine.broken:
            raise OSError(28, "No space left on device")
        self.did.append("start")

    def boot(self):
        self.code = None
        self.did.append("boot")

    def ended(self):
        return self.code

    def end(self, *, keep_disk=False):
        self.did.append("stop" if keep_disk else "end")


@pytest.fixture
def cloud():
    FakeMachine.made, FakeMachine.broken = [], False
    return CloudModel(random.Random(7), timing=Timing(pending_s=None, ending_s=None))  # noqa: S311


def launcher(cloud, room=9):
    return Launcher(cloud, GROUND, gpus={"p5": 8}, room=room, clock=lambda: NOW, build=FakeMachine)


def run(cloud, count=1, on_shutdown="terminate"):
    place = SubnetRef(id="subnet-1", zone="us-east-1a", cidr="10.0.0.0/24")
    spec = InstanceLaunch(
        machine="p5",
        market=Market.SPOT,
        subnet=place,
        min_count=count,
        max_count=count,
        token=None,
        fingerprint="x",
        on_shutdown=on_shutdown,
    )
    return [i.id for i in cloud.run(spec, NOW)]


def state(cloud, instance):
    return cloud.instance(instance, NOW).state


def test_pending_instance_is_booted_once_and_then_runs(cloud):
    (one,) = run(cloud)
    ours = launcher(cloud)
    ours.step()
    ours.step()
    assert [(m.spec.id, m.spec.gpus, m.did) for m in FakeMachine.made] == [(one, 8, ["start"])]
    assert state(cloud, one) is InstanceState.RUNNING


def test_terminated_instance_is_removed_and_not_booted_again(cloud):
    (one,) = run(cloud)
    ours = launcher(cloud)
    ours.step()
    cloud.terminate([one], NOW)
    ours.step()
    ours.step()
    assert [m.did for m in FakeMachine.made] == [["start", "end"]]
    assert state(cloud, one) is InstanceState.TERMINATED


def test_instance_terminated_before_boot_never_boots(cloud):
    (one,) = run(cloud)
    cloud.terminate([one], NOW)
    launcher(cloud).step()
    assert FakeMachine.made == []
    assert state(cloud, one) is InstanceState.TERMINATED


def test_reboot_keeps_the_machine(cloud):
    (one,) = run(cloud)
    ours = launcher(cloud)
    ours.step()
    FakeMachine.made[0].code = 133
    ours.step()
    assert [m.did for m in FakeMachine.made] == [["start", "boot"]]
    assert state(cloud, one) is InstanceState.RUNNING


def test_stopped_instance_keeps_its_disk_and_starts_again(cloud):
    (one,) = run(cloud)
    ours = launcher(cloud)
    ours.step()
    cloud.stop([one], NOW)
    ours.step()
    assert FakeMachine.made[0].did == ["start", "stop"]
    cloud.start([one], NOW)
    ours.step()
    assert state(cloud, one) is InstanceState.RUNNING


ENDS = {
    "a machine that powers off ends its instance": (0, "Client.InstanceInitiatedShutdown"),
    "a machine that fails is the cloud's fault": (1, "Server.InternalError"),
    "a machine that was killed too": (-9, "Server.InternalError"),
}


@pytest.mark.parametrize(("code", "reason"), ENDS.values(), ids=ENDS)
def test_crashed_machine_has_a_reason_and_leaves_nothing(cloud, code, reason):
    (one,) = run(cloud)
    ours = launcher(cloud)
    ours.step()
    FakeMachine.made[0].code = code
    ours.step()
    ours.step()
    seen = cloud.instance(one, NOW)
    assert (seen.state, seen.reason_code) == (InstanceState.TERMINATED, reason)
    assert [m.did for m in FakeMachine.made] == [["start", "end"]]


def test_machine_that_cannot_start_terminates_only_its_instance(cloud):
    run(cloud, 2)
    FakeMachine.broken = True
    ours = launcher(cloud)
    ours.step()
    assert [m.did for m in FakeMachine.made] == [["end"], ["end"]]
    FakeMachine.broken = False
    (two,) = run(cloud)
    ours.step()
    assert state(cloud, two) is InstanceState.RUNNING


def test_more_than_the_host_has_room_for_ends_as_ec2_ends_it(cloud):
    ids = run(cloud, 3)
    launcher(cloud, room=2).step()
    seen = [cloud.instance(i, NOW) for i in sorted(ids)]
    assert [i.state for i in seen] == [InstanceState.RUNNING, InstanceState.RUNNING, InstanceState.TERMINATED]
    assert seen[2].reason_code == "Server.InsufficientInstanceCapacity"
    assert len(FakeMachine.made) == 2
