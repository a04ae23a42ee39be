"""Values of a diff. Texts are ready to show, but not yet escaped for an output format."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpucluster.artifacts import Artifact
from gpucluster.cost import Amount, Estimate
from gpucluster.plan.model import ClusterPlan
from gpucluster.spec import ClusterSpec, Problem, UpdateClass, WorkloadsSpec
from gpucluster.spec.tree import Node

_ACCESS = re.compile(
    r"(?:users|directory|access|hosts\.ssh|slurm\.node_ssh|aws\.boundary|aws\.jobs"
    r"|partitions\[[^\]]*\]\.(?:accounts|allow_qos|extra\[AllowGroups\])"
    r"|kubernetes\.(?:admins|api_from|teams\[[^\]]*\]\.(?:members|service_accounts)))(?:[.\[]|\Z)"
)
ABSENT = "/dev/null"  # git's word for a file that a revision does not have
ORDER: Mapping[UpdateClass, int] = {update: place for place, update in enumerate(UpdateClass)}

# `agent.boot.held_bundle` does this for the nodes and partitions of `plan.removals`
WAITS = (
    "they take no new jobs, and the head applies the bundle, with all its changes, when their jobs have ended"
)
REFUSES = "the head refuses the bundle, and goes on with the old one"  # `identity.split`


class Kind(StrEnum):
    """The kind of a change."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    REORDERED = "reordered"
    REPLACED = "replaced"  # only resources


WORKLOADS = "workloads."  # begins the path of a change in workloads/NAME.yaml
_ONLY_WORKLOADS = "Only workloads change, and no node"
_APPLIED = f"{_ONLY_WORKLOADS}: the changed manifests are what `kubectl apply` gets."
_RECREATED = (
    f"{_ONLY_WORKLOADS}: `kubectl apply` cannot change all of them, and the old ones are deleted first."
)
_LEFT = f"{_ONLY_WORKLOADS}: what leaves the spec stays until an `up` with --prune deletes it."
_DELETES = "kubectl delete -f "  # begins the step that deletes old manifests


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The bytes of a file that was compared: its path, the commit (None: the file system), and their SHA-256."""

    file: str
    commit: str | None
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """Old or new revision: the spec in all its forms. `label` is the user's name of it."""

    label: str
    spec: ClusterSpec
    document: Node
    plan: ClusterPlan
    artifacts: tuple[Artifact, ...]
    cost: Estimate
    workloads: WorkloadsSpec | None = None  # of workloads/NAME.yaml, in the same revision
    workloads_document: Node | None = None
    origins: tuple[Origin, ...] = ()  # of the spec, then of its workloads


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecChange:
    """One changed spec field: path, name, and values as the user wrote them (None: absent)."""

    path: str
    kind: Kind
    before: str | None
    after: str | None
    update: UpdateClass
    why: str = ""  # the reason, if the class depends on more than the field
    narrows: bool = False  # it is a list that is new, or that lacks an item of before


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """A part of a sentence about jobs. `rows`: its ids in `slurm.request_table`."""

    subject: str  # running, queued or new, which is said of the queue, too
    text: str
    rows: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What all changes together do: one text for each subject, and the commands in their order.

    `refused`: why `pulumi up` cannot apply the edit as it is; empty if it can. `split`: why it needs two edits, each with
    commands of its own. `clauses`: those of the sentences that the table of requests has.
    """

    running: str
    queued: str
    sessions: str
    data: str
    refused: str = ""
    split: str = ""
    steps: tuple[str, ...] = ()
    clauses: tuple[Clause, ...] = ()

    def lines(self) -> tuple[tuple[str, str], ...]:
        """Return subject and text."""
        return (
            ("running jobs", self.running),
            ("queued jobs", self.queued),
            ("sessions", self.sessions),
            ("data", self.data),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequence:
    """A consequence of changes for the cluster that no single change reports."""

    path: str
    update: UpdateClass
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One rendered file. `diff` is unified, without a newline at its end."""

    path: str
    kind: Kind
    diff: str
    lines: int  # added and removed lines


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyChange:
    """One input of a resource. Its values are shortened."""

    name: str
    before: str | None
    after: str | None
    replaces: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceChange:
    """One resource that `pulumi up` would change."""

    type: str
    name: str
    kind: Kind
    update: UpdateClass
    properties: tuple[PropertyChange, ...] = ()
    why: str = ""
    protected: bool = False  # `pulumi up` refuses to delete or replace it


@dataclass(frozen=True, slots=True, kw_only=True)
class RightChange:
    """One policy, or one attachment to a role. Statements are sentences with placeholder names."""

    type: str
    name: str
    kind: Kind
    removed: tuple[str, ...]
    added: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What the programs of both revisions declare. None: not compared; `unseen` has the reasons."""

    resources: tuple[ResourceChange, ...] | None = None
    rights: tuple[RightChange, ...] | None = None
    unseen: tuple[str, ...] = ()  # what could not be looked at, as sentences


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFacts:
    """A pool in one revision."""

    least: int
    most: int
    machines: tuple[str, ...]
    gpus: str  # `8 x h200`, or empty
    cost_least: Amount
    cost_most: Amount
    stays: int = 0  # always-on nodes and spares
    stays_month: Amount = field(default_factory=Amount)  # what they cost


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRow:
    """A pool before and after; None where it is absent."""

    name: str
    before: PoolFacts | None
    after: PoolFacts | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """All contents of a review. Changes are sorted worst first; `resources` is None if they were not compared."""

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
    engine_note: str | None  # if the resources' class is worse than that of the spec's changes
    whole: Kind | None = None  # ADDED: a new spec; REMOVED: a deleted one; None: both revisions have it
    whole_effect: str = ""  # the sentence of a new or deleted spec
    stay: int = 0  # resources of a deleted spec: nobody deletes them yet
    rights: tuple[RightChange, ...] | None = None
    unseen: tuple[str, ...] = ()
    effects: Effects | None = None  # None: nothing changed, or only the sentence of `effect` is true
    old_origins: tuple[Origin, ...] = ()
    new_origins: tuple[Origin, ...] = ()
    warnings: tuple[Problem, ...] = ()  # of `check`, about the new spec
    stays_beside: str = ""  # the old cluster of another name on AWS, which nobody deletes yet

    @property
    def access(self) -> tuple[SpecChange, ...]:
        """The changes of who gets in: people, their keys and networks, who may use partitions, the rights of roles and jobs."""
        if self.whole is Kind.REMOVED:  # nothing is applied
            return ()
        return tuple(one for one in self.spec if _ACCESS.match(one.path) and one.kind is not Kind.REORDERED)

    @property
    def differs(self) -> bool:
        return bool(self.spec or self.consequences or self.files or self.resources or self.rights)

    @property
    def effect(self) -> str | None:
        """The sentence of a new or deleted spec, or of workloads. Else None: `effects` has what happens."""
        if self.whole is not None:
            return self.whole_effect
        if self.spec and all(one.path.startswith(WORKLOADS) for one in (*self.spec, *self.consequences)):
            return self._effect_of_workloads
        return None

    @property
    def _effect_of_workloads(self) -> str:
        if not worse(self.worst, UpdateClass.LIVE):
            return _APPLIED
        steps = () if self.effects is None else self.effects.steps
        return _RECREATED if not steps or any(one.startswith(_DELETES) for one in steps) else _LEFT


def worst(updates: Iterable[UpdateClass]) -> UpdateClass | None:
    """Return the most costly class; None if there is none."""
    return max(updates, key=ORDER.__getitem__, default=None)


def worse(left: UpdateClass | None, right: UpdateClass | None) -> bool:
    """Return whether the left class costs more. None is cheaper than every class."""
    return _rank(left) > _rank(right)


def _rank(update: UpdateClass | None) -> int:
    return -1 if update is None else ORDER[update]
