"""The changed fields of `workloads/NAME.yaml`. Pure."""

from collections.abc import Iterator

from gpucluster.gitops.model import WORKLOADS, Kind, Revision, SpecChange
from gpucluster.gitops.walk import flow, walk
from gpucluster.spec import UpdateClass
from gpucluster.spec.tree import Node, plain


def workload_changes(old: Revision, new: Revision) -> Iterator[SpecChange]:
    """Yield the changes with paths that begin with `workloads.`; a whole file is one change."""
    was, now = old.workloads_document, new.workloads_document
    if old.workloads is not None and new.workloads is not None and was is not None and now is not None:
        for found in walk(old.workloads, new.workloads, was, now):
            yield SpecChange(
                path=f"{WORKLOADS}{found.path}",
                kind=found.kind,
                before=found.before,
                after=found.after,
                update=found.update,
            )
    elif was is not None or now is not None:
        kind, update = (Kind.ADDED, UpdateClass.LIVE) if was is None else (Kind.REMOVED, UpdateClass.REPLACE)
        path = f"{WORKLOADS}{new.spec.name}"
        yield SpecChange(path=path, kind=kind, before=_shown(was), after=_shown(now), update=update)


def _shown(document: Node | None) -> str | None:
    return None if document is None else flow(plain(document))
