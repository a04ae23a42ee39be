"""What a diff is made of: plain values, texts ready to show but not yet escaped for any format."""

from dataclasses import dataclass
from enum import StrEnum

from gpucluster.artifacts import Artifact
from gpucluster.cost import Amount, Estimate
from gpucluster.plan.model import ClusterPlan
from gpucluster.spec import ClusterSpec, UpdateClass
from gpucluster.spec.tree import Node


class Kind(StrEnum):
    """What became of something."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    REORDERED = "reordered"
    REPLACED = "replaced"  # of resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Old or new: the spec in all its forms; `label` is how the user named it."""

    label: str
    spec: ClusterSpec
    document: Node
    plan: ClusterPlan
    artifacts: tuple[Artifact, ...]
    cost: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecChange:
    """One wish that changed, by path and name; values as the user wrote them, None where there is none."""

    path: str
    kind: Kind
    before: str | None
    after: str | None
    update: UpdateClass
    why: str = ""  # where the class depends on more than the field


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequence:
    """What follows for the cluster from changes that do not say so by themselves."""

    path: str
    update: UpdateClass
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One rendered file; `diff` is unified, without a newline at its end."""

    path: str
    kind: Kind
    diff: str
    lines: int  # added and removed


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyChange:
    """One input of a resource, its values short."""

    name: str
    before: str | None
    after: str | None
    replaces: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceChange:
    """One resource that `pulumi up` would touch."""

    type: str
    name: str
    kind: Kind
    update: UpdateClass
    properties: tuple[PropertyChange, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFacts:
    """A pool on one side."""

    least: int
    most: int
    machines: tuple[str, ...]
    gpus: str  # `8 x h200`, or empty
    cost_least: Amount
    cost_most: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRow:
    """A pool before and after; None where it is not."""

    name: str
    before: PoolFacts | None
    after: PoolFacts | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """All that a review shows. Changes stand worst first; `resources` is None when nobody asked."""

    name: str
    old: str
    new: str
    spec: tuple[SpecChange, ...]
    consequences: tuple[Consequence, ...]
    files: tuple[FileChange, ...]
    resources: tuple[ResourceChange, ...] | None
    pools: tuple[PoolRow, ...]
    cost_before: Estimate
    cost_after: Estimate
    worst: UpdateClass | None  # None: nothing changed
    engine_says: str | None  # when the resources are worse than the spec's changes

    @property
    def differs(self) -> bool:
        return bool(self.spec or self.consequences or self.files or self.resources)
