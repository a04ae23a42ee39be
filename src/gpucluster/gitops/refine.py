"""Refine the class of a change where the direction of the change matters.

The field's own class is the default. The first row with a matching pattern and condition overrides it.
To refine a field, add a row here and a pair in tests/support/expert_pairs.py.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpucluster.gitops.model import REFUSES, WAITS, Kind, SpecChange
from gpucluster.gitops.walk import Found
from gpucluster.plan import defaults
from gpucluster.plan.model import Containers
from gpucluster.slurm.owned_keys import RESTART
from gpucluster.spec import UpdateClass
from gpucluster.spec.storage import Efs, FsxLustre, Nfs, Other, Storage


@dataclass(frozen=True, slots=True)
class _Row:
    pattern: str
    fits: Callable[[Found], bool]
    update: UpdateClass
    why: str


def refined(found: Found, *, pods: bool = False, hosts: bool = False, eks: bool = False) -> SpecChange:
    """Return the change with its class, and the reason if it differs from the field's own class.

    `pods`: the change is of a pool that Kubernetes runs, or no revision has Slurm: there is neither a head nor a bundle. `hosts`: both revisions have existing hosts.
    `eks`: both revisions have a control plane of EKS.
    """
    rows = (
        *(_ROWS_OF_PODS if pods else ()),
        *(_ROWS_OF_EKS if eks else ()),
        *(_ROWS_OF_HOSTS if hosts else ()),
        *_ROWS,
    )
    row = next((row for row in rows if row.pattern == found.pattern and row.fits(found)), None)
    update, why = (row.update, row.why) if row else (found.update, "")
    if hosts and update is UpdateClass.NEW_NODES:
        update, why = UpdateClass.LIVE, "the playbook applies it on each host: nobody launches one"
    return SpecChange(
        path=found.path,
        kind=found.kind,
        before=found.before,
        after=found.after,
        update=update,
        why=why,
        narrows=_narrows(found),
    )


def _narrows(found: Found) -> bool:
    new: object = found.new
    return (
        isinstance(new, tuple) and new != () and (not found.old or any(one not in new for one in found.old))
    )


def refused(reason: str) -> str:
    """Return a reason of a change whose bundle the head refuses: it waits for no job, and no node follows."""
    for waits in (f"{WAITS}{THEN_REPLACED}", WAITS, _PARTITION_WAITS):
        reason = reason.replace(waits, REFUSES)
    return reason


def _lowered(found: Found) -> bool:
    return found.kind is Kind.CHANGED and found.new < found.old


def _raised(found: Found) -> bool:
    return found.kind is Kind.CHANGED and found.new > found.old


def _without_pyxis(found: Found) -> bool:
    return Containers.PYXIS not in {found.old, found.new}


def _pyxis_arrives(found: Found) -> bool:
    return found.new == Containers.PYXIS


def _pyxis_leaves(found: Found) -> bool:
    return found.old == Containers.PYXIS


def _default_image(found: Found) -> bool:
    image = found.new or found.old
    return found.kind is not Kind.CHANGED and image.ami is None and image.os == defaults.IMAGE_OS


def _default_nat(found: Found) -> bool:
    return found.kind is not Kind.CHANGED and (found.new or found.old) == defaults.NAT


def _older(found: Found) -> bool:
    return found.kind is Kind.CHANGED and release(found.new) < release(found.old)


def release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, for comparisons."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _several_minors(found: Found) -> bool:
    """Return whether the new release is more than one minor version above the old one."""
    if found.kind is not Kind.CHANGED:
        return False
    old, new = release(found.old), release(found.new)
    return old[:1] == new[:1] and new[1] - old[1] > 1


def _reordered(found: Found) -> bool:
    return found.kind is Kind.REORDERED


def _added(found: Found) -> bool:
    return found.kind is Kind.ADDED


def _with_script(found: Found) -> bool:
    return found.kind is Kind.ADDED and found.new.script is not None


def _removed(found: Found) -> bool:
    return found.kind is Kind.REMOVED


def _only_more(found: Found) -> bool:
    """Return whether all old items remain in order and at least one is new."""
    return found.kind is Kind.CHANGED and _kept(found.old, found.new) == found.old


def _any(_found: Found) -> bool:
    return True


def _leaves(found: Found) -> bool:
    """Return whether a zone leaves, and the network stays in its region."""
    if found.kind is not Kind.CHANGED or set(found.old) <= set(found.new):
        return False
    return len({zone[:-1] for zone in (*found.old, *found.new)}) == 1


def _kept(old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(item for item in new if item in old)


def _needs_restart(found: Found) -> bool:
    """Return whether slurmctld reads the key only when it starts."""
    return found.path.rpartition(".")[2].rpartition("[")[2].rstrip("]").lower() in RESTART


def _of_the_site(found: Found) -> bool:
    """Return whether the removed file system is not ours: `pulumi up` deletes nothing."""
    if found.kind is not Kind.REMOVED:
        return False
    storage = found.old
    if isinstance(storage, Storage):
        kinds = [
            one for one in (storage.nfs, storage.efs, storage.fsx_lustre, storage.other) if one is not None
        ]
        return bool(kinds) and all(map(_names_another, kinds))
    return _names_another(storage)


def _names_another(one: Nfs | Efs | FsxLustre | Other) -> bool:
    match one:
        case Nfs(server=server):
            return server is not None
        case Efs(id=identifier) | FsxLustre(id=identifier):
            return identifier is not None
        case Other():
            return True


def _changed(found: Found) -> bool:
    return found.kind is Kind.CHANGED


def _not_removed(found: Found) -> bool:
    return found.kind is not Kind.REMOVED


SHRINKS = "AWS refuses a smaller volume, so `pulumi up` fails: only a new and empty one can have this size"
THEN_REPLACED = "; then running nodes are replaced"
_PARTITION_WAITS = "the head applies the bundle, with all its changes, when it has no jobs"
_KEPT = "machines keep their mount until they start anew; no data is deleted or copied"
_PARTS = "an elastic pool with EFA gets a part in each added zone, and its zones share its max; no NodePool gets another name"
_NODES_OF_EKS = "control plane and nodes of the add-ons of EKS stay in their zones"
_ANEW = "only a new control plane can have it"
_SLOTS = "another zone gets its own subnet and slots; no node address or name changes"

_ROWS_OF_PODS = (
    _Row(
        "pools[]",
        _removed,
        UpdateClass.DRAIN,
        "`pulumi up` deletes its node groups on EKS; Karpenter's nodes go when `gpucluster k8s up NAME --prune` deletes their NodePool",
    ),
    _Row(
        "pools[].nodes.max",
        _lowered,
        UpdateClass.NEW_NODES,
        "Karpenter launches no node above the new max; nodes that run stay until they are idle",
    ),
    *(
        _Row(path, fits, UpdateClass.LIVE, why)
        for path, fits, why in (
            ("aws.network.zones", _only_more, f"{_PARTS}; {_NODES_OF_EKS}"),
            ("aws.network.subnets[]", _added, f"{_PARTS}; {_NODES_OF_EKS}"),
            ("pools[].capacity[].zones", _only_more, _PARTS),
            ("pools[].capacity[].zones", _removed, _PARTS),
        )
    ),
)
_ROWS_OF_EKS = (
    *(
        _Row(f"aws.{key}", _any, UpdateClass.REPLACE, f"EKS keeps {what}, so `pulumi up` fails: {_ANEW}")
        for key, what in (
            ("network.cidr", "a control plane in its VPC"),
            ("kms_key", "the key of the secrets of a control plane"),
        )
    ),
    _Row("aws.network.zones", _only_more, UpdateClass.LIVE, f"{_SLOTS}; {_PARTS}; {_NODES_OF_EKS}"),
    _Row("aws.network.zones", _leaves, UpdateClass.STOP_FLEET, _NODES_OF_EKS),
)

# `playbooks/site.yml` mounts at once, and removes no mount
_ROWS_OF_HOSTS = (
    _Row(
        "name",
        _changed,
        UpdateClass.RESTART,
        "the same hosts get another cluster name, and slurmctld restarts under it",
    ),
    _Row(
        "storage[]",
        _removed,
        UpdateClass.DRAIN,
        "hosts keep their mount and its line of fstab; no data is deleted or copied",
    ),
    *(
        _Row(
            f"storage[].{key}",
            fits,
            UpdateClass.DRAIN,
            "the playbook remounts it on running hosts; no data is deleted or copied",
        )
        for key, fits in (
            *((kind, fits) for kind in ("nfs", "other") for fits in (_added, _removed)),
            *((key, _changed) for key in ("nfs.server", "nfs.from", "nfs.export", "other.source")),
        )
    ),
)

_ROWS = (
    _Row("storage[]", _of_the_site, UpdateClass.NEW_NODES, _KEPT),
    *(
        _Row(f"storage[].{key}", fits, UpdateClass.DRAIN, _KEPT)
        for key, fits in (
            *(
                (kind, fits)
                for kind in ("nfs", "efs", "fsx_lustre", "other")
                for fits in (_added, _of_the_site)
            ),
            *((key, _changed) for key in ("efs.id", "fsx_lustre.id", "other.source", "nfs.export")),
        )
    ),
    _Row(
        "slurm.extra[]",
        _needs_restart,
        UpdateClass.RESTART,
        "a reconfigure changes neither ports nor authentication: slurmctld restarts, jobs continue",
    ),
    _Row(
        "slurm.containers",
        _without_pyxis,
        UpdateClass.LIVE,
        "jobs start Apptainer themselves, and `validate` looks for it: no file of Slurm changes",
    ),
    _Row(
        "slurm.containers",
        _pyxis_leaves,
        UpdateClass.DRAIN,
        "the plugin leaves all machines at once: a queued job then starts outside of its container",
    ),
    _Row(
        "slurm.containers",
        _pyxis_arrives,
        UpdateClass.DRAIN,
        "the plugin comes to all machines at once: on one without Pyxis slurmd ends",
    ),
    _Row("head.state", _lowered, UpdateClass.DATA_LOSS, SHRINKS),
    _Row(
        "head.state",
        _added,
        UpdateClass.RESTART,
        "slurmctld and the elastic daemon stop while the agent copies their state to the volume and verifies the copy; jobs continue",
    ),
    _Row(
        "head.state",
        _removed,
        UpdateClass.DATA_LOSS,
        "the volume with the queue leaves the head; `pulumi up` refuses to delete it while it is protected",
    ),
    _Row(
        "head.standby",
        _removed,
        UpdateClass.STOP_FLEET,
        "nothing copies the state back: the head uses the shared folder until it restarts, and then an older state of its own disk",
    ),
    _Row("storage[].nfs.size", _lowered, UpdateClass.DATA_LOSS, SHRINKS),
    _Row(
        "storage[].nfs.size",
        _removed,
        UpdateClass.DATA_LOSS,
        "the head's volume leaves it; `pulumi up` refuses to delete it while it is protected",
    ),
    _Row(
        "users[].uid",
        _changed,
        UpdateClass.DRAIN,
        "the user's files keep the old uid until `chown` changes it; in a cloud, head and login "
        "keep the old account, and ignore further changes until `usermod` and `groupmod` set the new uid",
    ),
    _Row(
        "pools[].capacity[].id",
        _changed,
        UpdateClass.NEW_NODES,
        "nodes that run stay in the old reservation until they are launched anew: AWS bills both, also the unused one",
    ),
    _Row(
        "aws.boundary",
        _not_removed,
        UpdateClass.LIVE,
        "from now on the roles of the machines have only those rights that it allows, too: `gpucluster plan NAME --operator-policy boundary` writes one that allows what they need",
    ),
    _Row("login", _added, UpdateClass.LIVE, "machines are added; nothing else changes"),
    _Row("login", _removed, UpdateClass.RESTART, "sessions on login machines are lost; jobs continue"),
    _Row("login.count", _raised, UpdateClass.LIVE, "machines are added; existing ones stay"),
    _Row(
        "aws.network.subnets",
        _added,
        UpdateClass.REPLACE,
        "this is another VPC: no resource can move to it",
    ),
    _Row(
        "aws.network.subnets[]",
        _added,
        UpdateClass.LIVE,
        "another zone gets slots; no node name changes",
    ),
    _Row("aws.network.public[]", _added, UpdateClass.LIVE, "login machines can also be in this zone"),
    _Row("aws.image", _default_image, UpdateClass.NONE, "this is the default image"),
    _Row("aws.network.nat", _default_nat, UpdateClass.NONE, "this is the default"),
    _Row(
        "storage",
        _reordered,
        UpdateClass.NEW_NODES,
        "machines mount in this order when they start",
    ),
    _Row(
        "storage[].fsx_lustre.size",
        _lowered,
        UpdateClass.DATA_LOSS,
        "FSx can grow and cannot shrink: a smaller file system is a new and empty one",
    ),
    _Row(
        "slurm.version",
        _older,
        UpdateClass.DATA_LOSS,
        "an older slurmctld cannot read the state of a newer one: the queue is lost",
    ),
    _Row(
        "kubernetes.version",
        _older,
        UpdateClass.REPLACE,
        f"EKS takes no older version, so `pulumi up` fails: {_ANEW}",
    ),
    _Row(
        "kubernetes.version",
        _several_minors,
        UpdateClass.RESTART,
        "a control plane is upgraded one minor version at a time, and its nodes follow: deploy each version between them first",
    ),
    _Row("pools[].hosts", _only_more, UpdateClass.LIVE, "a host is added; no other host changes"),
    _Row("pools[].addresses", _only_more, UpdateClass.LIVE, "the address of an added host"),
    *(
        _Row(
            f"slurm.topology.{place}",
            _only_more,
            UpdateClass.LIVE,
            "a host is added below an existing switch; a reconfigure reads it",
        )
        for place in (*(f"tree{'[]' * depth}" for depth in range(1, 9)), "block.blocks[]")
    ),
    _Row(
        "name",
        _changed,
        UpdateClass.DATA_LOSS,
        "the name is the stack's name: a new cluster is created, and the old one stays until `gpucluster down NAME` deletes it",
    ),
    _Row(
        "aws",
        _removed,
        UpdateClass.DATA_LOSS,
        "the cluster leaves AWS: its resources there stay, and cost, until `gpucluster down NAME` deletes them",
    ),
    _Row("slurm", _added, UpdateClass.LIVE, "a controller is added; nothing else changes"),
    _Row("slurm", _removed, UpdateClass.DATA_LOSS, "slurmctld is removed with its queue and accounting"),
    _Row("head", _added, UpdateClass.LIVE, "a machine is added; nothing else changes"),
    _Row("head", _removed, UpdateClass.REPLACE, "the controller's machine is deleted"),
    _Row(
        "kubernetes.teams[]",
        _removed,
        UpdateClass.DRAIN,
        "its pods, queue and namespace stay until `gpucluster k8s up NAME --prune`, which keeps namespaces and claims",
    ),
    _Row("kubernetes", _added, UpdateClass.LIVE, "a control plane is added; nothing else changes"),
    _Row("machines[]", _added, UpdateClass.LIVE, "a kind of machine that no pool used before"),
    _Row("pools[]", _removed, UpdateClass.DRAIN, f"its nodes are removed: {WAITS}"),
    _Row(
        "partitions[]",
        _removed,
        UpdateClass.DRAIN,
        f"Slurm would end its jobs, also queued ones: {_PARTITION_WAITS}",
    ),
    _Row(
        "aws.network.zones",
        _only_more,
        UpdateClass.LIVE,
        _SLOTS,
    ),
    _Row(
        "aws.network.zones",
        _reordered,
        UpdateClass.NEW_NODES,
        "launches try the zones in this order",
    ),
    _Row(
        "pools[].termination",
        _with_script,
        UpdateClass.NEW_NODES,
        "a node reads the script's name from the bundle when it boots",
    ),
    _Row(
        "pools[].nodes.max",
        _lowered,
        UpdateClass.DRAIN,
        f"the nodes above the new max are removed: {WAITS}",
    ),
    _Row(
        "pools[].capacity[].zones",
        _only_more,
        UpdateClass.LIVE,
        "more zones give more slots; no node name changes",
    ),
    _Row(
        "pools[].capacity[].zones",
        _removed,
        UpdateClass.LIVE,
        "without this key all zones of the network are used; no node name changes",
    ),
    _Row(
        "pools[].capacity[].zones",
        _reordered,
        UpdateClass.NEW_NODES,
        "launches try the zones in this order",
    ),
)
