"""ssh to compute nodes: PAM admits only users with a job, operators and root; nothing else of the host changes."""

from dataclasses import replace

import pytest
from support.fake_machine import FakeMachine, a_small_plan

from gpucluster.agent.boot import sshd
from gpucluster.agent.boot.boot_state import BootState, Bundle
from gpucluster.agent.machine import StepError
from gpucluster.agent.roles import node
from gpucluster.plan.model import NodeSsh

DEBIAN = """\
@include common-auth
account    required     pam_nologin.so
# account  required     pam_access.so
@include common-account
session    required     pam_loginuid.so
@include common-session
session    required     pam_limits.so
@include common-password
"""
COMMON_SESSION = """\
session\t[default=1]\tpam_permit.so
session\trequired\tpam_unix.so
session\toptional\tpam_systemd.so
-session   optional   pam_systemd_home.so
# session optional pam_systemd.so
"""


@pytest.fixture
def fake(tmp_path):
    machine = FakeMachine(tmp_path)
    machine.put("/etc/pam.d/sshd", DEBIAN)
    machine.put("/etc/pam.d/common-session", COMMON_SESSION)
    machine.put("/usr/lib/x86_64-linux-gnu/security/pam_slurm_adopt.so", "")
    return machine


def rules(machine):
    lines = machine.text(sshd.PAM).splitlines()
    return [line.split() for line in lines if line.strip() and not line.startswith("#")]


def bundled(fake, **slurm):
    plan = a_small_plan()
    plan = replace(plan, slurm=replace(plan.slurm, **slurm))
    return BootState(bundle=Bundle(tree=fake.root, plan=plan, bindings=None, digest="d", etag="e"))


def test_module_comes_before_every_account_module_that_may_end_the_stack(fake):
    """With sssd, common-account has `sufficient pam_localuser.so`: a local user was let in without a job."""
    sshd.admit_only_jobs(fake.machine(), NodeSsh(operators=("ops",)))
    account = [rule for rule in rules(fake) if rule[0] == "account" or rule[-1] == "common-account"]
    assert account[0][:3] == ["account", "[success=1", "default=ignore]"]  # skips one module, ends nothing
    assert account[1][:3] == ["account", "required", "pam_slurm_adopt.so"]
    assert {"action_no_jobs=deny", "action_adopt_failure=deny", "action_generic_failure=deny"} <= set(
        account[1]
    )
    assert fake.text(sshd.OPERATORS).split() == ["root", "ops"]


def test_pam_systemd_leaves_the_session_stack_of_sshd_alone(fake):
    sshd.admit_only_jobs(fake.machine(), NodeSsh())
    session = [rule for rule in rules(fake) if rule[0].lstrip("-") == "session"]
    assert not any("pam_systemd" in word for rule in session for word in rule)
    assert len(session) == 6  # as many as before, so that a jump over modules still reaches the same one
    assert fake.text("/etc/pam.d/common-session") == COMMON_SESSION


def test_second_run_changes_nothing_and_restore_puts_the_file_back(fake):
    machine = fake.machine()
    sshd.admit_only_jobs(machine, NodeSsh())
    before = fake.snapshot()
    sshd.admit_only_jobs(machine, NodeSsh())
    assert fake.snapshot() == before
    sshd.restore(machine)
    assert fake.text(sshd.PAM) == DEBIAN


def test_host_without_node_ssh_gets_its_own_file_back(fake):
    sshd.admit_only_jobs(fake.machine(), NodeSsh())
    sshd.guard_on_host(fake.machine(), bundled(fake))
    assert fake.text(sshd.PAM) == DEBIAN


@pytest.mark.parametrize("missing", ["/usr/lib/x86_64-linux-gnu/security/pam_slurm_adopt.so", sshd.PAM])
def test_nothing_changes_without_the_module_or_the_file(fake, missing):
    fake.machine().path(missing).unlink()
    before = fake.text(sshd.PAM) if missing != sshd.PAM else ""
    with pytest.raises(StepError):
        sshd.admit_only_jobs(fake.machine(), NodeSsh())
    assert (fake.text(sshd.PAM) if missing != sshd.PAM else "") == before


def test_cloud_node_without_the_module_runs_jobs_and_no_sshd(fake):
    fake.machine().path("/usr/lib/x86_64-linux-gnu/security/pam_slurm_adopt.so").unlink()
    node.start_sshd(fake.machine(), bundled(fake, node_ssh=NodeSsh()))
    assert "ssh.service" not in fake.active


def test_cloud_node_runs_sshd_only_if_the_plan_says_so(fake):
    node.start_sshd(fake.machine(), bundled(fake))
    assert "ssh.service" not in fake.active
    node.start_sshd(fake.machine(), bundled(fake, node_ssh=NodeSsh()))
    assert "ssh.service" in fake.active
    assert "PermitRootLogin no" in fake.text(sshd.SETTINGS)
    assert fake.text("/etc/cron.allow") == "root\n"
