"""Updates that were sent to Slurm after its last list was read. The list does not show them, so they are not sent again.

So a second pass may use the same list, and does not requeue a job twice.
"""

from dataclasses import replace
from typing import Any

from gpucluster.elastic.model import (
    Action,
    Block,
    Comment,
    Drain,
    JobRun,
    MarkDown,
    PowerDown,
    PowerUp,
    Requeue,
    ResetDown,
    Signal,
    Undrain,
)

Target = int | str | JobRun
UNDER_WAY = float("inf")
# update of Slurm -> the field with its targets; other actions are sent as often as they are decided
TARGETS: dict[type[Action], str] = {
    **dict.fromkeys((Block, Drain, MarkDown, PowerDown, PowerUp, ResetDown, Undrain), "slots"),
    **dict.fromkeys((Comment, Signal), "jobs"),
    Requeue: "runs",
}


class Recent:
    """The times of sent updates, by action without its targets, and by target."""

    def __init__(self) -> None:
        self._done: dict[Action, dict[Target, float]] = {}

    def left(self, action: Action, seen_at: float, now: float) -> Action | None:
        """Return `action` for the targets without an update since `seen_at`; None without such a target."""
        name = TARGETS.get(type(action))
        done = self._done.get(_kind(action, name)) if name else None
        if name is None or not done:
            return action
        targets: tuple[Target, ...] = getattr(action, name)
        left = tuple(t for t in targets if not _since(done.get(t), seen_at, now))
        return _with(action, name, left) if left else None

    def note(self, action: Action, at: float | None) -> None:
        """Record that the action is UNDER_WAY, was done at `at`, or failed (None)."""
        name = TARGETS.get(type(action))
        if name is None:
            return
        done = self._done.setdefault(_kind(action, name), {})
        for target in getattr(action, name):
            if at is None:
                done.pop(target, None)
            else:
                done[target] = at

    def forget(self, seen_at: float) -> None:
        """Drop the updates that a list of `seen_at` shows."""
        kept = {k: {t: at for t, at in done.items() if at > seen_at} for k, done in self._done.items()}
        self._done = {k: done for k, done in kept.items() if done}


def _since(at: float | None, seen_at: float, now: float) -> bool:
    """Return whether the update is later than the list. A future time (clock set back) is not."""
    return at is not None and at > seen_at and (at == UNDER_WAY or at <= now)


def _kind(action: Action, name: str) -> Action:
    """Return the action without its targets. A job is signalled or requeued once, whatever the notice says by now."""
    kind: Any = _with(action, name, ())
    return replace(kind, instance="", reason="") if isinstance(kind, Signal | Requeue) else kind


def _with(action: Any, name: str, targets: tuple[Target, ...]) -> Action:
    return replace(action, **{name: targets})
