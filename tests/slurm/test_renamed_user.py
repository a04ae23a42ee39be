"""A user is renamed in the spec, with the same uid: the agent refuses, and the command that `diff` prints heals it."""

import dataclasses

import pytest
from accounting import HeadMachine
from real_slurm import VERSIONS, RealSlurm
from support.builders import a_lab_plan

from gpucluster.agent.boot import accounts
from gpucluster.agent.machine import StepError
from gpucluster.gitops.events import Renamed
from gpucluster.gitops.steps import rename
from gpucluster.plan.model import SlurmPlan, User

EXPIRES, OPEN = "Account expires", "never"


def _plan(name: str) -> SlurmPlan:
    return dataclasses.replace(a_lab_plan(), users=(User(name=name, uid=5002, keys=("ssh-ed25519 AAAA",)),))


def test_account_of_a_removed_user_is_renamed() -> None:
    with RealSlurm(VERSIONS[-1], _plan("speech")) as slurm:
        head = HeadMachine(slurm)
        accounts.apply(head.machine(), head.state(_plan("speech")))
        with pytest.raises(StepError, match="has the user speech:5002, but the plan has sound:5002"):
            accounts.apply(head.machine(), head.state(_plan("sound")))
        assert _expires(slurm, "speech") != OPEN
        slurm.must("sh", "-c", rename(Renamed(was="speech", now="sound")))
        accounts.apply(head.machine(), head.state(_plan("sound")))
        assert slurm.must("id", "sound").strip() == "uid=5002(sound) gid=5002(sound) groups=5002(sound)"
        assert _expires(slurm, "sound") == OPEN
        assert slurm.run("id", "speech").code != 0


def _expires(slurm: RealSlurm, user: str) -> str:
    lines = slurm.must("chage", "--list", user).splitlines()
    return next(line.partition(":")[2].strip() for line in lines if line.startswith(EXPIRES))
