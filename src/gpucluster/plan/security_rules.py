"""The rules of a cluster's security groups: one table that follows from the parts of a plan. Pure.

From outside only ssh is open, from the ranges of the spec.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.plan.model import Efs, FsxLustre, InterfaceKind, NfsFromHead, SlurmOnAws
from gpucluster.plan.names import (
    LUSTRE_PORTS,
    NFS_PORT,
    ROLE_HEAD,
    ROLE_LOGIN,
    ROLE_NODE,
    SLURMD_PORT,
    SLURMDBD_PORT,
    SRUN_PORTS,
)

ANYWHERE = "0.0.0.0/0"
SSH_PORT, HTTPS_PORT = 22, 443
ENDPOINTS, EFS, LUSTRE = "endpoints", "efs", "lustre"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Traffic that `group` accepts from `peer`, or sends to it if `out` is set. `peer` is the role of a group, or a range."""

    name: str
    group: str
    peer: str
    why: str
    ports: tuple[int, int] | None = None  # TCP; None: every protocol and port
    out: bool = False


def roles(plan: SlurmOnAws) -> tuple[str, ...]:
    """Return the groups that the plan needs."""
    need = {
        ROLE_HEAD: True,
        ROLE_NODE: True,
        ROLE_LOGIN: plan.login is not None,
        ENDPOINTS: bool(plan.aws.network.endpoints),
        EFS: any(isinstance(m.source, Efs) for m in plan.storage),
        LUSTRE: any(isinstance(m.source, FsxLustre) for m in plan.storage),
    }
    return tuple(role for role, needed in need.items() if needed)


def rules(plan: SlurmOnAws) -> tuple[Rule, ...]:
    """Return every rule of the groups of the plan."""
    parts = (_slurm(plan), _login(plan), _standby(plan), _file_systems(plan), _endpoints(plan), _egress(plan))
    return tuple(rule for part in parts for rule in part)


def _slurm(plan: SlurmOnAws) -> Iterator[Rule]:
    """The ports of the head are open only to its nodes."""
    head = plan.head
    controller, registration = _port(head.controller_port), _port(head.registration_port)
    yield _in("head-controller", ROLE_HEAD, ROLE_NODE, "slurmctld from nodes", controller)
    yield _in("head-registration", ROLE_HEAD, ROLE_NODE, "registration of nodes", registration)
    if plan.slurm.accounting is not None:
        yield _in("head-slurmdbd", ROLE_HEAD, ROLE_NODE, "slurmdbd, for sacct in jobs", _port(SLURMDBD_PORT))
    yield _in("head-srun", ROLE_HEAD, ROLE_NODE, "srun's own ports from nodes", SRUN_PORTS)
    yield _in("node-slurmd", ROLE_NODE, ROLE_HEAD, "slurmd from the head", _port(SLURMD_PORT))
    yield _in("node-node", ROLE_NODE, ROLE_NODE, "nodes among themselves")


def _login(plan: SlurmOnAws) -> Iterator[Rule]:
    if plan.login is None:
        return
    head = plan.head
    controller, registration = _port(head.controller_port), _port(head.registration_port)
    yield _in("head-login-controller", ROLE_HEAD, ROLE_LOGIN, "slurmctld from login", controller)
    yield _in("head-login-registration", ROLE_HEAD, ROLE_LOGIN, "nodes' addresses for login", registration)
    if plan.slurm.accounting is not None:
        yield _in("head-login-slurmdbd", ROLE_HEAD, ROLE_LOGIN, "slurmdbd from login", _port(SLURMDBD_PORT))
    yield _in("node-login-slurmd", ROLE_NODE, ROLE_LOGIN, "slurmd from srun on login", _port(SLURMD_PORT))
    if plan.slurm.node_ssh is not None:
        yield _in("node-login-ssh", ROLE_NODE, ROLE_LOGIN, "ssh to nodes from login", _port(SSH_PORT))
    yield _in("login-head-srun", ROLE_LOGIN, ROLE_HEAD, "srun's own ports from the head", SRUN_PORTS)
    yield _in("login-node-srun", ROLE_LOGIN, ROLE_NODE, "srun's own ports from nodes", SRUN_PORTS)
    for span in plan.access.ssh_from:
        name = f"login-ssh-{span.replace('/', '-')}"
        yield _in(name, ROLE_LOGIN, span, f"ssh from {span}", _port(SSH_PORT))


def _standby(plan: SlurmOnAws) -> Iterator[Rule]:
    head = plan.head
    if head.standby is None:
        return
    yield _in(
        "head-head-controller",
        ROLE_HEAD,
        ROLE_HEAD,
        "slurmctld and its backup",
        _port(head.controller_port),
    )
    yield _in(
        "head-head-registration",
        ROLE_HEAD,
        ROLE_HEAD,
        "both daemons",
        _port(head.registration_port),
    )
    if plan.slurm.accounting is not None:
        yield _in("head-head-slurmdbd", ROLE_HEAD, ROLE_HEAD, "both slurmdbds", _port(SLURMDBD_PORT))


def _file_systems(plan: SlurmOnAws) -> Iterator[Rule]:
    """The ports of each file system, from every role that mounts it."""
    own = roles(plan)
    machines = [role for role in (ROLE_HEAD, ROLE_NODE, ROLE_LOGIN) if role in own]
    if any(isinstance(m.source, NfsFromHead) for m in plan.storage):
        for role in machines[1:]:
            yield _in(f"head-{role}-nfs", ROLE_HEAD, role, f"NFS from {role}", _port(NFS_PORT))
    if EFS in own:
        for role in machines:
            yield _in(f"efs-{role}", EFS, role, f"NFS from {role}", _port(NFS_PORT))
    if LUSTRE in own:
        for ports in LUSTRE_PORTS:  # LNET connects both ways (T45)
            for role in machines:
                yield _in(f"lustre-{role}-{ports[0]}", LUSTRE, role, f"Lustre from {role}", ports)
                yield _in(f"{role}-lustre-{ports[0]}", role, LUSTRE, f"Lustre to {role}", ports)
            yield _in(f"lustre-lustre-{ports[0]}", LUSTRE, LUSTRE, "Lustre's servers", ports)


def _endpoints(plan: SlurmOnAws) -> Iterator[Rule]:
    own = roles(plan)
    if ENDPOINTS in own:
        for role in (ROLE_HEAD, ROLE_NODE, ROLE_LOGIN):
            if role in own:
                yield _in(f"endpoints-{role}", ENDPOINTS, role, f"AWS's APIs from {role}", _port(HTTPS_PORT))


def _egress(plan: SlurmOnAws) -> Iterator[Rule]:
    """Declare the egress rules, because the provider removes the default one. Mount targets and endpoints need none."""
    own = roles(plan)
    for role in (ROLE_HEAD, ROLE_NODE, ROLE_LOGIN, LUSTRE):
        if role in own:
            yield Rule(name=f"{role}-out", group=role, peer=ANYWHERE, why=f"{role} to anywhere", out=True)
    kinds = {i.kind for pool in plan.pools for template in pool.templates for i in template.interfaces}
    if kinds - {InterfaceKind.ENA}:  # EFA requires a rule with the group itself; a range is not enough (T30)
        yield Rule(name="node-node-out", group=ROLE_NODE, peer=ROLE_NODE, why="EFA among nodes", out=True)


def _in(name: str, group: str, peer: str, why: str, ports: tuple[int, int] | None = None) -> Rule:
    return Rule(name=name, group=group, peer=peer, why=why, ports=ports)


def _port(port: int) -> tuple[int, int]:
    return port, port
