"""Where a class depends on the direction of a change, not on its field alone.

The field's own class is the base; the first row whose pattern and question fit takes its place.
To refine a field: one row, and a pair in tests/expert_pairs.py.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpucluster.gitops.model import Kind, SpecChange
from gpucluster.gitops.walk import Found
from gpucluster.plan import defaults
from gpucluster.spec import UpdateClass


@dataclass(frozen=True, slots=True)
class _Row:
    pattern: str
    fits: Callable[[Found], bool]
    update: UpdateClass
    why: str


def refined(found: Found) -> SpecChange:
    """The change with its class, and the reason where the field's own class does not hold."""
    row = next((row for row in _ROWS if row.pattern == found.pattern and row.fits(found)), None)
    return SpecChange(
        path=found.path,
        kind=found.kind,
        before=found.before,
        after=found.after,
        update=row.update if row else found.update,
        why=row.why if row else "",
    )


def _lowered(found: Found) -> bool:
    return found.kind is Kind.CHANGED and found.new < found.old


def _raised(found: Found) -> bool:
    return found.kind is Kind.CHANGED and found.new > found.old


def _default_image(found: Found) -> bool:
    image = found.new or found.old
    return found.kind is not Kind.CHANGED and image.ami is None and image.os == defaults.IMAGE_OS


def _default_nat(found: Found) -> bool:
    return found.kind is not Kind.CHANGED and (found.new or found.old) == defaults.NAT


def _older(found: Found) -> bool:
    return found.kind is Kind.CHANGED and _release(found.new) < _release(found.old)


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _reordered(found: Found) -> bool:
    return found.kind is Kind.REORDERED


def _added(found: Found) -> bool:
    return found.kind is Kind.ADDED


def _with_script(found: Found) -> bool:
    return found.kind is Kind.ADDED and found.new.script is not None


def _removed(found: Found) -> bool:
    return found.kind is Kind.REMOVED


def _only_more(found: Found) -> bool:
    """Everything that was there still is, in its order; something joined it."""
    return found.kind is Kind.CHANGED and _kept(found.old, found.new) == found.old


def _only_order(found: Found) -> bool:
    return found.kind is Kind.CHANGED and sorted(found.old) == sorted(found.new)


def _kept(old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(item for item in new if item in old)


def _changed(found: Found) -> bool:
    return found.kind is Kind.CHANGED


_SHRINKS = "a volume grows and never shrinks: a smaller one is another one, and empty"

_ROWS = (
    _Row("head.state", _lowered, UpdateClass.DATA_LOSS, _SHRINKS),
    _Row(
        "head.state",
        _added,
        UpdateClass.RESTART,
        "slurmctld stops while its state moves onto the volume; jobs run on",
    ),
    _Row(
        "head.state",
        _removed,
        UpdateClass.DATA_LOSS,
        "the volume goes, and with it the queue that lies on it",
    ),
    _Row("head.standby", _removed, UpdateClass.STOP_FLEET, "the state moves back to the head alone"),
    _Row("storage[].nfs.size", _lowered, UpdateClass.DATA_LOSS, _SHRINKS),
    _Row("storage[].nfs.size", _removed, UpdateClass.DATA_LOSS, "the head's volume goes, and what is on it"),
    _Row(
        "users[].uid",
        _changed,
        UpdateClass.DRAIN,
        "the person's files keep the old uid until `chown` gives them the new one; in a cloud, head and login "
        "keep the old account, and follow no further change until `usermod` and `groupmod` gave it the new one",
    ),
    _Row("login", _added, UpdateClass.LIVE, "machines come beside what runs"),
    _Row("login", _removed, UpdateClass.RESTART, "whoever is logged in is thrown off; jobs run on"),
    _Row("login.count", _raised, UpdateClass.LIVE, "machines come beside those that are there"),
    _Row(
        "aws.network.subnets",
        _added,
        UpdateClass.REPLACE,
        "another VPC: nothing moves between them",
    ),
    _Row(
        "aws.network.subnets[]",
        _added,
        UpdateClass.LIVE,
        "a further zone gets slots; no name of a node moves",
    ),
    _Row("aws.network.public[]", _added, UpdateClass.LIVE, "a further place for login machines"),
    _Row("aws.image", _default_image, UpdateClass.NONE, "that is the default image"),
    _Row("aws.network.nat", _default_nat, UpdateClass.NONE, "that is the default"),
    _Row(
        "storage",
        _reordered,
        UpdateClass.NEW_NODES,
        "the order is the order of mounting, as a machine starts",
    ),
    _Row(
        "storage[].fsx_lustre.size",
        _lowered,
        UpdateClass.DATA_LOSS,
        "FSx grows and never shrinks: a smaller file system is another one, and empty",
    ),
    _Row(
        "slurm.version",
        _older,
        UpdateClass.DATA_LOSS,
        "an older slurmctld does not read the state of a newer one: the queue is lost",
    ),
    _Row(
        "kubernetes.version",
        _older,
        UpdateClass.REPLACE,
        "a control plane does not go back to an older release: it is made anew",
    ),
    _Row("pools[].hosts", _only_more, UpdateClass.LIVE, "a further host joins; no other is touched"),
    _Row("pools[].addresses", _only_more, UpdateClass.LIVE, "the address of a further host"),
    _Row(
        "slurm.topology.tree[][]",
        _only_more,
        UpdateClass.LIVE,
        "a further host below a switch that is there: read at a reconfigure",
    ),
    _Row(
        "name",
        _changed,
        UpdateClass.DATA_LOSS,
        "the name is the stack's: a new cluster is made, and the old one stays until `gpucluster down` takes it",
    ),
    _Row("aws", _removed, UpdateClass.DATA_LOSS, "the cluster leaves AWS: everything there is destroyed"),
    _Row("slurm", _added, UpdateClass.LIVE, "a controller comes beside what runs"),
    _Row(
        "slurm", _removed, UpdateClass.DATA_LOSS, "slurmctld goes, and with it the queue and its accounting"
    ),
    _Row("head", _added, UpdateClass.LIVE, "a machine comes beside what runs"),
    _Row("head", _removed, UpdateClass.REPLACE, "the controller's machine is destroyed"),
    _Row("kubernetes", _added, UpdateClass.LIVE, "a control plane comes beside what runs"),
    _Row("machines[]", _added, UpdateClass.LIVE, "a kind of machine that no pool had"),
    _Row("pools[]", _removed, UpdateClass.DRAIN, "its nodes take no new jobs, then they go"),
    _Row(
        "aws.network.zones",
        _only_more,
        UpdateClass.LIVE,
        "a further zone gets its own subnet and slots; no address and no name of a node moves",
    ),
    _Row(
        "aws.network.zones",
        _only_order,
        UpdateClass.NEW_NODES,
        "the order is the order in which zones are tried",
    ),
    _Row(
        "pools[].farewell",
        _with_script,
        UpdateClass.NEW_NODES,
        "a node takes the script's name from the bundle with which it boots",
    ),
    _Row(
        "pools[].nodes.max",
        _lowered,
        UpdateClass.DRAIN,
        "the nodes above the new max are given up: what runs there must end first",
    ),
    _Row(
        "pools[].capacity[].zones",
        _only_more,
        UpdateClass.LIVE,
        "more zones give more slots; no name moves",
    ),
    _Row(
        "pools[].capacity[].zones",
        _removed,
        UpdateClass.LIVE,
        "without a choice all zones of the network are used; no name moves",
    ),
    _Row(
        "pools[].capacity[].zones",
        _only_order,
        UpdateClass.NEW_NODES,
        "the order is the order in which zones are tried",
    ),
)
