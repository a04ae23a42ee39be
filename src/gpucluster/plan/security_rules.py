"""The rules of a cluster's security groups: one table that follows from the parts of a plan. Pure.

From outside only ssh is open, from the ranges of the spec.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.plan.model import AwsPlan, Efs, FsxLustre, InterfaceKind, NfsFromHead, SlurmOnAws, eks_of
from gpucluster.plan.model.values import EFA as EFA_RESOURCE
from gpucluster.plan.names import (
    LUSTRE_PORTS,
    NFS_PORT,
    ROLE_HEAD,
    ROLE_KUBERNETES,
    ROLE_LOGIN,
    ROLE_NODE,
    SLURMD_PORT,
    SLURMDBD_PORT,
    SRUN_PORTS,
)

ANYWHERE = "0.0.0.0/0"
SSH_PORT, HTTPS_PORT = 22, 443
ENDPOINTS, EFS, LUSTRE = "endpoints", "efs", "lustre"
CONTROL_PLANE = "control-plane"  # of EKS
KUBELET_PORT = 10250
# Ports on which webhooks and extension API servers of the usual charts listen: those of the node group in
# https://github.com/terraform-aws-modules/terraform-aws-eks/blob/master/node_groups.tf, and Kueue's visibility server on 8082.
# A namespace cannot end while an extension API server is not reached. A test compares them with the charts.
WEBHOOK_PORTS = (443, 4443, 6443, 8082, 8443, 9443)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Traffic that `group` accepts from `peer`, or sends to it if `out` is set. `peer` is the role of a group, or a range."""

    name: str
    group: str
    peer: str
    why: str
    ports: tuple[int, int] | None = None  # TCP; None: every protocol and port
    out: bool = False


def roles(plan: AwsPlan) -> tuple[str, ...]:
    """Return the groups that the plan needs."""
    slurm, eks = plan.slurm is not None, eks_of(plan) is not None
    need = {
        ROLE_HEAD: slurm,
        ROLE_NODE: slurm,
        CONTROL_PLANE: eks,
        ROLE_KUBERNETES: eks,
        ROLE_LOGIN: plan.login is not None,
        ENDPOINTS: bool(plan.aws.network.endpoints),
        EFS: any(isinstance(m.source, Efs) for m in plan.storage),
        LUSTRE: any(isinstance(m.source, FsxLustre) for m in plan.storage),
    }
    return tuple(role for role, needed in need.items() if needed)


def rules(plan: AwsPlan) -> tuple[Rule, ...]:
    """Return every rule of the groups of the plan."""
    slurm = (_slurm(plan), _login(plan), _standby(plan)) if isinstance(plan, SlurmOnAws) else ()
    parts = (*slurm, _kubernetes(plan), _file_systems(plan), _endpoints(plan), _egress(plan))
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


def _kubernetes(plan: AwsPlan) -> Iterator[Rule]:
    """EKS puts its own group beside ours on its interfaces, so that traffic from the control plane counts as from ours."""
    plane = eks_of(plan)
    if plane is None:
        return
    yield _in("control-plane-nodes", CONTROL_PLANE, ROLE_KUBERNETES, "the API server from nodes", _port(HTTPS_PORT))  # fmt: skip
    for span in plane.private_from:
        name = f"control-plane-{span.replace('/', '-')}"
        yield _in(name, CONTROL_PLANE, span, f"the API server from {span}", _port(HTTPS_PORT))
    for port in (*WEBHOOK_PORTS, KUBELET_PORT):
        why = "the kubelet" if port == KUBELET_PORT else f"webhooks on {port}"
        yield _in(f"{ROLE_KUBERNETES}-control-plane-{port}", ROLE_KUBERNETES, CONTROL_PLANE, f"{why} from the control plane", _port(port))  # fmt: skip
    yield _in(f"{ROLE_KUBERNETES}-self", ROLE_KUBERNETES, ROLE_KUBERNETES, "nodes and pods among themselves")


MACHINES = (ROLE_HEAD, ROLE_NODE, ROLE_KUBERNETES, ROLE_LOGIN)


def _file_systems(plan: AwsPlan) -> Iterator[Rule]:
    """The ports of each file system, from every role that mounts it."""
    own = roles(plan)
    machines = [role for role in MACHINES if role in own]
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


def _endpoints(plan: AwsPlan) -> Iterator[Rule]:
    own = roles(plan)
    if ENDPOINTS in own:
        for role in MACHINES:
            if role in own:
                yield _in(f"endpoints-{role}", ENDPOINTS, role, f"AWS's APIs from {role}", _port(HTTPS_PORT))


def _egress(plan: AwsPlan) -> Iterator[Rule]:
    """Declare the egress rules, because the provider removes the default one. Mount targets and endpoints need none."""
    own = roles(plan)
    for role in (*MACHINES, LUSTRE):
        if role in own:
            yield Rule(name=f"{role}-out", group=role, peer=ANYWHERE, why=f"{role} to anywhere", out=True)
    kinds = {i.kind for pool in plan.pools for template in pool.templates for i in template.interfaces}
    if kinds - {InterfaceKind.ENA}:  # EFA requires a rule with the group itself; a range is not enough (T30)
        yield Rule(name="node-node-out", group=ROLE_NODE, peer=ROLE_NODE, why="EFA among nodes", out=True)
    if ROLE_KUBERNETES in own and _pods_have_efa(plan):
        name = f"{ROLE_KUBERNETES}-self-out"
        yield Rule(name=name, group=ROLE_KUBERNETES, peer=ROLE_KUBERNETES, why="EFA among nodes", out=True)


def _pods_have_efa(plan: AwsPlan) -> bool:
    part = plan.kubernetes
    return part is not None and any(EFA_RESOURCE in pool.allocatable for pool in part.pools)


def _in(name: str, group: str, peer: str, why: str, ports: tuple[int, int] | None = None) -> Rule:
    return Rule(name=name, group=group, peer=peer, why=why, ports=ports)


def _port(port: int) -> tuple[int, int]:
    return port, port
