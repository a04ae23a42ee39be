"""What the steps have found out so far. Each step returns it with more in it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gpucluster.node.machine import StepError
from gpucluster.plan.messages import NodeAnswer
from gpucluster.plan.model import Bindings, ClusterPlan

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who this machine is, and where its bundle is.

    A host that exists has its own name for an id, no region, and a folder of its own for a bucket.
    """

    instance_id: str
    address: str
    cluster: str
    region: str
    bucket: str
    key: str
    role: str
    name: str = ""  # a login machine's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A bundle that was fetched, checked and written below `tree`."""

    digest: str
    etag: str
    tree: Path
    plan: ClusterPlan
    bindings: Bindings | None  # what only a cloud knows; hosts that exist have none


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """None: the step that finds it out has not run."""

    identity: Identity | None = None
    bundle: Bundle | None = None  # the one to run
    offered: Bundle | None = None  # the last one that the bucket had
    refused: str = ""  # why `offered` is not `bundle`
    answer: NodeAnswer | None = None


def of(value: T | None) -> T:
    """What an earlier step found out."""
    if value is None:
        raise StepError("the steps ran out of order: what an earlier one finds out is not known")
    return value
