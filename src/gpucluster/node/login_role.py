"""A login machine: people, file systems, Slurm's commands without a slurmd, and sshd. It launches and schedules nothing."""

import logging
import re

from gpucluster.node import (
    accounts,
    bundles,
    directory,
    guard,
    head_role,
    identity,
    key,
    mounts,
    naming,
    state,
    systemd,
)
from gpucluster.node.controller import link_files
from gpucluster.node.known import Known, of
from gpucluster.node.machine import Machine
from gpucluster.node.walk import StoppedError, Table, one_line, walk
from gpucluster.plan import names
from gpucluster.plan.model import there

SACKD_SINCE = (23, 11)  # older clients need the files themselves
SACKD = f"{names.AGENT_RUN}/sackd.env"
SSHD = "/etc/ssh/sshd_config.d/10-gpucluster.conf"
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"

log = logging.getLogger(__name__)


def slurm(machine: Machine, known: Known) -> Known:
    """Slurm's commands find the controller: by sackd, which keeps its files fresh, or by the bundle's own files."""
    plan = of(known.bundle).plan
    if version(there(plan.slurm).version) < SACKD_SINCE:
        link_files(machine, of(known.bundle))
        return known
    servers = ",".join(f"{a}:{there(plan.head).controller_port}" for a in there(plan.head).addresses)
    changed = machine.write(SACKD, f'SACKD_OPTIONS="--conf-server {servers}"\n')
    systemd.ensure(machine, "sackd", restart=changed)
    return known


def version(text: str) -> tuple[int, ...]:
    """`24.11` as numbers."""
    return tuple(int(word) for word in re.findall(r"[0-9]+", text)[:2])


def sshd(machine: Machine, known: Known) -> Known:
    """sshd with our rules; host keys are made once, on this machine."""
    if not machine.place(HOST_KEY).exists():
        machine.run(["ssh-keygen", "-A"])
    text = sshd_rules(ldap=of(known.bundle).plan.directory is not None)
    changed = machine.write(SSHD, text)
    systemd.ensure(machine, "ssh", restart=changed)
    return known


def sshd_rules(*, ldap: bool) -> str:
    """Keys only, never root, keys only from where root alone writes; the first rule that sshd reads holds."""
    keys = f"AuthorizedKeysFile {names.KEY_FOLDER}/%u\n"
    if ldap:
        keys += "AuthorizedKeysCommand /usr/bin/sss_ssh_authorizedkeys\nAuthorizedKeysCommandUser nobody\n"
    return (
        "# Made by gpucluster: people of the spec log in by their keys.\n"
        "PermitRootLogin no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        "AuthenticationMethods publickey\nUsePAM yes\nX11Forwarding no\nMaxAuthTries 3\nLoginGraceTime 30\n"
        f"ClientAliveInterval 120\nClientAliveCountMax 3\n{keys}"
    )


FOLLOW: Table = (  # again at each look: each does nothing if all is so already
    ("bundle", bundles.fetch_and_apply),
    ("hostname", naming.login),
    ("mounts", mounts.attached),
    ("directory", directory.joined),
    ("users", accounts.settled),
    ("slurm", slurm),
    ("sshd", sshd),
)
BOOT: Table = (
    ("guard", guard.strict),
    ("machine", identity.find),
    ("bundle", bundles.fetch_and_apply),
    ("key", key.take),
    *FOLLOW[1:],
)


def live(machine: Machine) -> None:
    """Never returns."""
    follow(machine, BOOT, FOLLOW)


def follow(machine: Machine, boot: Table, again: Table) -> None:
    """Boot until it succeeds, then follow the bundle. What is said stands on the console."""
    state.save(machine, state.load(machine))
    known, table = Known(), boot
    while True:
        known, done = look(machine, table, known)
        table = again if done else table
        machine.pause(known.bundle.plan.times.reconcile_s if known.bundle else head_role.LOOK_S)


def look(machine: Machine, table: Table, known: Known) -> tuple[Known, bool]:
    """Walk once; return what is known, and whether all steps were done."""
    deadline = machine.now() + head_role.TELL_S
    try:
        known = walk(machine, table, known, until=lambda _: deadline)
        bundles.prune(machine, (of(known.bundle).digest,))
    except StoppedError as failure:
        log.warning("this machine is not ready: %s", one_line(failure))
        return failure.known, False
    return known, True
