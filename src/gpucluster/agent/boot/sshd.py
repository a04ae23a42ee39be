"""sshd of a machine: its settings, its host keys, and on compute nodes the PAM stack that admits only users with a job there.

pam_slurm_adopt refuses a user without a job on the node, and moves the session of all others into the job's control groups
and namespaces (docs/facts/slurm.md). It begins the account stack: SchedMD's page puts it last, but with sssd the stack of
Debian and Ubuntu has `sufficient pam_localuser.so`, and no module behind it is asked for a local user. pam_systemd would move
the session out of the job again, so a harmless module takes its place. All other services keep their stacks.
"""

import re

from gpucluster.agent.boot import systemd
from gpucluster.agent.boot.boot_state import BootState, require
from gpucluster.agent.machine import Machine, StepError
from gpucluster.plan import names
from gpucluster.plan.model import NodeSsh
from gpucluster.plan.node_ssh import ACCOUNT_STACK, MODULE, OPERATORS, operators

SETTINGS = "/etc/ssh/sshd_config.d/10-gpucluster.conf"
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
PAM_DIR = "/etc/pam.d"
PAM = f"{PAM_DIR}/sshd"
PAM_ORIGINAL = f"{names.STATE_DIR}/pam-sshd.original"  # the distribution's file, to put back
MODULE_PLACES = ("lib/*/security", "lib/security", "lib64/security", "usr/lib/*/security")
MARK = "# Made by gpucluster from the distribution's file"
SCHEDULERS = ("/etc/cron.allow", "/etc/at.allow")  # what they start belongs to no job

_INCLUDE = re.compile(r"^@include\s+(common-session(?:-noninteractive)?)\s*$")
_SYSTEMD = re.compile(r"^\s*-?session\s+(?:\[[^]]*\]|\S+)\s+\S*pam_systemd(?:_home)?\.so\b")
_ACCOUNT = re.compile(r"^\s*(?:-?account\s|@include\s+common-account\b)")


def run(machine: Machine, *, ldap: bool) -> None:
    """Run sshd with our settings. Host keys are created once, on this machine."""
    if not machine.path(HOST_KEY).exists():
        machine.run(["ssh-keygen", "-A"])
    changed = machine.write(SETTINGS, settings(ldap=ldap))
    systemd.ensure(machine, "ssh", restart=changed)


def settings(*, ldap: bool) -> str:
    """Return the settings: login by key only, never as root, keys only from a folder of root. sshd takes the first value it reads."""
    keys = f"AuthorizedKeysFile {names.KEY_FOLDER}/%u\n"
    if ldap:
        keys += "AuthorizedKeysCommand /usr/bin/sss_ssh_authorizedkeys\nAuthorizedKeysCommandUser nobody\n"
    return (
        "# Made by gpucluster: users of the spec log in with their keys.\n"
        "PermitRootLogin no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        "AuthenticationMethods publickey\nUsePAM yes\nX11Forwarding no\nMaxAuthTries 3\nLoginGraceTime 30\n"
        f"ClientAliveInterval 120\nClientAliveCountMax 3\n{keys}"
    )


def run_on_node(machine: Machine, state: BootState) -> BootState:
    """Run sshd on a cloud node, for users with a job there. Without it, or without the module, no sshd runs."""
    plan = require(state.bundle).plan
    for file in SCHEDULERS:
        machine.write(file, "root\n")
    if plan.slurm.node_ssh is None:
        return state
    admit_only_jobs(machine, plan.slurm.node_ssh)
    run(machine, ldap=plan.directory is not None)
    return state


def guard_on_host(machine: Machine, state: BootState) -> BootState:
    """Let sshd of an existing node admit only users with a job there, or put the distribution's file back."""
    access = require(state.bundle).plan.slurm.node_ssh
    if access is None:
        restore(machine)
        return state
    if "usepam yes" not in machine.run(["/usr/sbin/sshd", "-T"]).stdout.splitlines():
        raise StepError("sshd of this host has `UsePAM no`, so it asks no PAM module: set `UsePAM yes`")
    admit_only_jobs(machine, access)
    return state


def admit_only_jobs(machine: Machine, access: NodeSsh) -> None:
    """Write the PAM stack of sshd. sshd reads it for each connection: sessions stay."""
    if not any(True for place in MODULE_PLACES for _ in machine.path("/").glob(f"{place}/{MODULE}")):
        raise StepError(f"this machine has no {MODULE}: install the package libpam-slurm-adopt")
    text = machine.read(PAM)
    if not text.startswith(MARK):
        machine.write(PAM_ORIGINAL, text)
    original = machine.read(PAM_ORIGINAL)
    if not original:
        raise StepError(f"{PAM} is empty or missing; its session stack cannot be kept")
    machine.write(OPERATORS, "".join(f"{name}\n" for name in operators(access)))
    machine.write(PAM, pam_stack(machine, original))


def restore(machine: Machine) -> None:
    """Put the distribution's PAM stack of sshd back, if ours is there."""
    if machine.read(PAM).startswith(MARK):
        machine.write(PAM, machine.read(PAM_ORIGINAL))


def pam_stack(machine: Machine, original: str) -> str:
    """Return the distribution's stack with our account modules first, and without pam_systemd."""
    lines: list[str] = []
    for line in original.splitlines():
        included = _INCLUDE.match(line)
        lines += machine.read(f"{PAM_DIR}/{included[1]}").splitlines() if included else [line]
    lines = ["session optional pam_permit.so" if _SYSTEMD.match(line) else line for line in lines]
    first = next((at for at, line in enumerate(lines) if _ACCOUNT.match(line)), None)
    if first is None:
        raise StepError(f"{PAM} has no account stack")
    ours = (
        "# First in the account stack: accounts of the list need no job; all others need one on this node, and join it.",
        *ACCOUNT_STACK,
    )
    return "\n".join((MARK, *lines[:first], *ours, *lines[first:])) + "\n"
