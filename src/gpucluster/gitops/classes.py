"""The eight update classes, from nothing to everything, and what each does to jobs that run."""

from collections.abc import Iterable, Mapping

from gpucluster.spec import UpdateClass

ORDER: Mapping[UpdateClass, int] = {update: place for place, update in enumerate(UpdateClass)}

JOBS: Mapping[UpdateClass, str] = {
    UpdateClass.NONE: "Nothing that runs is touched.",
    UpdateClass.LIVE: "Running jobs go on: the change is taken up while the cluster runs.",
    UpdateClass.NEW_NODES: "Running jobs go on: only nodes that are launched from now on have it.",
    UpdateClass.DRAIN: "Running jobs end in their own time: the nodes concerned take no new ones, then they go.",
    UpdateClass.RESTART: "Running jobs go on: the controller is away for a short while, and commands wait for it.",
    UpdateClass.STOP_FLEET: "No job may run: let the queue end or cancel it, and apply with all nodes down.",
    UpdateClass.REPLACE: "Running jobs are lost: what they or their controller stand on is destroyed and made anew.",
    UpdateClass.DATA_LOSS: "Running jobs and what is stored are lost: save what must stay before it is applied.",
}


def worst(updates: Iterable[UpdateClass]) -> UpdateClass | None:
    """The one that costs most; None of none."""
    return max(updates, key=ORDER.__getitem__, default=None)


def worse(left: UpdateClass | None, right: UpdateClass | None) -> bool:
    """Whether the left costs more; nothing costs less than anything."""
    return _rank(left) > _rank(right)


def _rank(update: UpdateClass | None) -> int:
    return -1 if update is None else ORDER[update]
