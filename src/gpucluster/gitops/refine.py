"""Where a class depends on the direction of a change, not on its field alone.

The field's own class is the base; the first row whose pattern and question fit takes its place.
To refine a field: one row, and a pair in tests/unit/gitops/test_pairs.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpucluster.gitops.model import Kind, SpecChange
from gpucluster.gitops.walk import Found
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


_ROWS = (
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
    _Row(
        "aws.network.zones",
        _only_more,
        UpdateClass.LIVE,
        "a further zone gets its own subnet and slots; no address and no name moves",
    ),
    _Row(
        "aws.network.zones",
        _only_order,
        UpdateClass.NEW_NODES,
        "the order is the order in which zones are tried",
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
