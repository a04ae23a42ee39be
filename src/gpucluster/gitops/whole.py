"""The diff of a cluster that only one revision has: a new spec, or a deleted one. Pure."""

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from gpucluster.artifacts import Artifact
from gpucluster.cost import Estimate, pools_of
from gpucluster.gitops.diff import compare_files, facts_of
from gpucluster.gitops.model import ABSENT, Compared, Diff, Kind, PoolRow, Revision, SpecChange
from gpucluster.gitops.rights import with_rights
from gpucluster.gitops.walk import flow
from gpucluster.plan import names
from gpucluster.plan.model import SlurmOnAws, SlurmOnHosts
from gpucluster.spec import UpdateClass
from gpucluster.spec.tree import plain

_NEW = "The spec is new: it adds a cluster and changes no other."


def created(new: Revision, compared: Compared) -> Diff:
    """Return what a new spec brings."""
    empty = replace(new.cost, lines=())
    return _whole(new, Kind.ADDED, compared, (empty, new.cost))


def deleted(old: Revision, compared: Compared) -> Diff:
    """Return what a deleted spec described. Nothing is applied, so no resource and no right changes."""
    empty = replace(old.cost, lines=())
    kept = None if compared.resources is None else ()
    found = _whole(old, Kind.REMOVED, replace(compared, resources=kept, rights=kept), (old.cost, empty))
    return replace(found, stay=len(compared.resources or ()))


def _whole(revision: Revision, kind: Kind, compared: Compared, cost: tuple[Estimate, Estimate]) -> Diff:
    is_new = kind is Kind.ADDED
    update = UpdateClass.LIVE if is_new else UpdateClass.DATA_LOSS
    files = tuple(one for one in revision.artifacts if one.path != names.PLAN_FILE)
    nothing: tuple[Artifact, ...] = ()
    resources, rights = compared.resources, compared.rights or ()
    return Diff(
        name=revision.spec.name,
        old=ABSENT if is_new else revision.label,
        new=revision.label if is_new else ABSENT,
        whole=kind,
        whole_effect=_NEW if is_new else f"The spec is deleted, and nothing else: {_left(revision)}.",
        spec=tuple(_fields(revision, kind, update)),
        consequences=(),
        files=compare_files(nothing, files) if is_new else compare_files(files, nothing),
        resources=None if resources is None else with_rights(resources, rights),
        rights=compared.rights,
        unseen=compared.unseen,
        pools=tuple(_rows(revision, is_new=is_new)),
        cost_before=cost[0],
        cost_after=cost[1],
        worst=update,
        engine_note=None,
        old_origins=() if is_new else revision.origins,
        new_origins=revision.origins if is_new else (),
    )


def _left(revision: Revision) -> str:
    """Return what stays, and what deletes it."""
    if isinstance(revision.plan, SlurmOnAws):
        name = revision.spec.name
        return f"the cluster, its jobs and its cost stay until `gpucluster down {name}` deletes them"
    if isinstance(revision.plan, SlurmOnHosts):
        return "the hosts, their jobs and their data stay as they are"
    return "the cluster, its pods and its cost stay until it is deleted by hand"


def _fields(revision: Revision, kind: Kind, update: UpdateClass) -> Iterator[SpecChange]:
    """Return the top-level fields as written."""
    document = cast("dict[str, object]", plain(revision.document))
    for key, value in document.items():
        if not key.startswith("x-") and key not in {"schema", "name"}:
            before, after = (None, flow(value)) if kind is Kind.ADDED else (flow(value), None)
            yield SpecChange(path=key, kind=kind, before=before, after=after, update=update)


def _rows(revision: Revision, *, is_new: bool) -> Iterator[PoolRow]:
    for pool in pools_of(revision.plan):
        found = facts_of(pool, revision)
        yield PoolRow(name=pool.name, before=None if is_new else found, after=found if is_new else None)
