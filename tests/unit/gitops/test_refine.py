"""Tests of classes that depend on the direction of a change. Each row of the table has a case."""

from typing import Any

import pytest

from gpucluster.gitops.model import Kind
from gpucluster.gitops.refine import _ROWS, refined
from gpucluster.gitops.walk import Found
from gpucluster.plan import defaults
from gpucluster.spec import UpdateClass
from gpucluster.spec.aws import Image
from gpucluster.spec.operations import Termination
from gpucluster.spec.storage import Efs, Nfs, Nvme, Storage

C = UpdateClass
FIELD = None  # no row matches: the field's own class applies


def _found(pattern: str, kind: Kind, old: Any, new: Any) -> Found:
    return Found(
        path=pattern, pattern=pattern, kind=kind, old=old, new=new, before="", after="", update=C.RESTART
    )


CASES = (
    ("name", Kind.CHANGED, "a", "b", C.DATA_LOSS),
    ("aws", Kind.REMOVED, object(), None, C.DATA_LOSS),
    ("aws", Kind.ADDED, None, object(), FIELD),
    ("slurm", Kind.ADDED, None, object(), C.LIVE),
    ("slurm", Kind.REMOVED, object(), None, C.DATA_LOSS),
    ("slurm.version", Kind.CHANGED, "25.05", "24.11", C.DATA_LOSS),
    ("slurm.version", Kind.CHANGED, "24.11", "25.05", FIELD),
    ("slurm.containers", Kind.ADDED, None, "pyxis", C.DRAIN),
    ("slurm.containers", Kind.CHANGED, "apptainer", "pyxis", C.DRAIN),
    ("slurm.containers", Kind.CHANGED, "pyxis", "apptainer", C.DRAIN),
    ("slurm.containers", Kind.REMOVED, "pyxis", None, C.DRAIN),
    ("slurm.containers", Kind.ADDED, None, "apptainer", C.LIVE),
    ("slurm.containers", Kind.REMOVED, "apptainer", None, C.LIVE),
    ("head", Kind.ADDED, None, object(), C.LIVE),
    ("head", Kind.REMOVED, object(), None, C.REPLACE),
    ("kubernetes", Kind.ADDED, None, object(), C.LIVE),
    ("kubernetes", Kind.REMOVED, object(), None, FIELD),
    ("kubernetes.teams[]", Kind.REMOVED, object(), None, C.DRAIN),
    ("kubernetes.teams[]", Kind.ADDED, None, object(), FIELD),
    ("kubernetes.version", Kind.CHANGED, "1.10", "1.9", C.REPLACE),
    ("kubernetes.version", Kind.CHANGED, "1.9", "1.10", FIELD),
    ("kubernetes.version", Kind.CHANGED, "1.34", "1.36", C.RESTART),
    ("storage", Kind.REORDERED, ("/a", "/b"), ("/b", "/a"), C.NEW_NODES),
    ("storage[].fsx_lustre.size", Kind.CHANGED, 4800, 2400, C.DATA_LOSS),
    ("storage[].fsx_lustre.size", Kind.CHANGED, 2400, 4800, FIELD),
    ("users[].uid", Kind.CHANGED, 5001, 5002, C.DRAIN),
    ("machines[]", Kind.ADDED, None, object(), C.LIVE),
    ("machines[]", Kind.REMOVED, object(), None, FIELD),
    ("pools[]", Kind.REMOVED, object(), None, C.DRAIN),
    ("partitions[]", Kind.REMOVED, object(), None, C.DRAIN),
    ("pools[].hosts", Kind.CHANGED, ("a",), ("a", "b"), C.LIVE),
    ("pools[].hosts", Kind.CHANGED, ("a", "b"), ("b", "a", "c"), FIELD),
    ("pools[].addresses", Kind.CHANGED, ("1",), ("1", "2"), C.LIVE),
    ("pools[].termination", Kind.ADDED, None, Termination(script="/opt/site/leave"), C.NEW_NODES),
    ("pools[].termination", Kind.ADDED, None, Termination(signal="TERM"), FIELD),
    ("pools[].nodes.max", Kind.CHANGED, 4, 3, C.DRAIN),
    ("pools[].nodes.max", Kind.CHANGED, 3, 4, FIELD),
    ("pools[].capacity[].zones", Kind.CHANGED, ("a",), ("a", "b"), C.LIVE),
    ("pools[].capacity[].zones", Kind.REORDERED, ("a", "b"), ("b", "a"), C.NEW_NODES),
    ("pools[].capacity[].zones", Kind.CHANGED, ("a", "b"), ("a",), FIELD),
    ("pools[].capacity[].zones", Kind.REMOVED, ("a",), None, C.LIVE),
    ("aws.network.zones", Kind.CHANGED, ("a",), ("b", "a"), C.LIVE),
    ("aws.network.zones", Kind.REORDERED, ("a", "b"), ("b", "a"), C.NEW_NODES),
    ("aws.network.zones", Kind.CHANGED, ("a", "b"), ("a", "c"), FIELD),
    ("head.state", Kind.CHANGED, 2, 1, C.DATA_LOSS),
    ("head.state", Kind.CHANGED, 1, 2, FIELD),
    ("head.state", Kind.ADDED, None, 1, C.RESTART),
    ("head.state", Kind.REMOVED, 1, None, C.DATA_LOSS),
    ("head.standby", Kind.REMOVED, object(), None, C.STOP_FLEET),
    ("storage[].nfs.size", Kind.CHANGED, 2, 1, C.DATA_LOSS),
    ("storage[].nfs.size", Kind.CHANGED, 1, 2, FIELD),
    ("storage[].nfs.size", Kind.REMOVED, 1, None, C.DATA_LOSS),
    ("storage[]", Kind.REMOVED, Storage(mount="/a", efs=Efs(id="fs-0123456789abcdef0")), None, C.NEW_NODES),
    (
        "storage[]",
        Kind.REMOVED,
        Storage(mount="/a", nfs=Nfs(server="192.0.2.5", export="/a")),
        None,
        C.NEW_NODES,
    ),
    ("storage[]", Kind.REMOVED, Storage(mount="/a", efs=Efs()), None, FIELD),
    ("storage[]", Kind.REMOVED, Storage(mount="/a", nvme=Nvme()), None, FIELD),
    ("storage[].efs", Kind.REMOVED, Efs(id="fs-0123456789abcdef0"), None, C.DRAIN),
    ("storage[].efs", Kind.REMOVED, Efs(), None, FIELD),
    ("storage[].efs", Kind.ADDED, None, Efs(), C.DRAIN),
    ("storage[].efs.id", Kind.CHANGED, "fs-0123456789abcdef0", "fs-0123456789abcdef1", C.DRAIN),
    ("storage[].efs.id", Kind.ADDED, None, "fs-0123456789abcdef0", FIELD),
    ("login", Kind.ADDED, None, object(), C.LIVE),
    ("login", Kind.REMOVED, object(), None, C.RESTART),
    ("login.count", Kind.CHANGED, 1, 2, C.LIVE),
    ("login.count", Kind.CHANGED, 2, 1, FIELD),
    ("aws.network.subnets", Kind.ADDED, None, object(), C.REPLACE),
    ("aws.network.subnets[]", Kind.ADDED, None, "subnet-1", C.LIVE),
    ("aws.network.subnets[]", Kind.CHANGED, "subnet-1", "subnet-2", FIELD),
    ("aws.network.public[]", Kind.ADDED, None, "subnet-1", C.LIVE),
    ("aws.boundary", Kind.ADDED, None, "arn", C.LIVE),
    ("aws.boundary", Kind.REMOVED, "arn", None, FIELD),
    ("pools[].capacity[].id", Kind.CHANGED, "cr-1", "cr-2", C.NEW_NODES),
    ("aws.image", Kind.ADDED, None, Image(os=defaults.IMAGE_OS), C.NONE),
    ("aws.image", Kind.REMOVED, Image(os=defaults.IMAGE_OS), None, C.NONE),
    ("aws.image", Kind.ADDED, None, Image(ami="ami-0123456789abcdef0"), FIELD),
    ("aws.network.nat", Kind.ADDED, None, "one", C.NONE),
    ("aws.network.nat", Kind.ADDED, None, "none", FIELD),
    ("slurm.topology.tree[][]", Kind.CHANGED, ("a",), ("a", "b"), C.LIVE),
    ("slurm.topology.tree[][]", Kind.CHANGED, ("a", "b"), ("a",), FIELD),
)


@pytest.mark.parametrize(("pattern", "kind", "old", "new", "expected"), CASES)
def test_direction_of_change_decides(
    pattern: str, kind: Kind, old: Any, new: Any, expected: UpdateClass | None
) -> None:
    found = refined(_found(pattern, kind, old, new))
    assert found.update is (expected or C.RESTART)
    assert bool(found.why) is (expected is not FIELD)


def test_every_row_of_the_table_has_its_case() -> None:
    told = {refined(_found(*case[:4])).why for case in CASES}
    by_path = ["slurm.extra[]"]  # its condition reads the path: tests/unit/spec/test_extra.py has its cases
    assert [row.pattern for row in _ROWS if row.why not in told] == by_path
