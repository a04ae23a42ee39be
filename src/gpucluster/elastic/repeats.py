"""Acts that the daemon decides pass after pass, because they fail or show no effect: since when, how often, and the last error."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpucluster.elastic.model import Action, Comment, LaunchGang, Repeat, Requeue, Terminate
from gpucluster.elastic.sent_updates import TARGETS

KEPT_S = (
    60.0  # an act that no pass decides for so long is over; a pass without a view of EC2 decides few acts
)


class Repeats:
    """Owned by the daemon's thread."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Repeat] = {}

    def decided(self, actions: Iterable[Action], now: float) -> None:
        """Note what a pass decides, and forget what no pass decides any more."""
        for key in (key for action in actions for key in _keys(action)):
            old = self._known.get(key)
            if old is None or not old.since <= now:  # the clock was set back
                self._known[key] = Repeat(act=key[0], target=key[1], since=now, last=now)
            else:
                self._known[key] = replace(old, last=now, times=old.times + 1)
        self._known = {key: one for key, one in self._known.items() if now - one.last <= KEPT_S}

    def tried(self, action: Action, error: str) -> None:
        """Note the result of a try; an empty error is a success."""
        for key in _keys(action):
            if key in self._known:
                self._known[key] = replace(self._known[key], error=error)

    def shown(self, now: float, after_s: float) -> tuple[Repeat, ...]:
        """Return the acts that fail, or that were first decided more than `after_s` seconds ago and still are decided."""
        return tuple(one for one in self._known.values() if one.error or now - one.since > after_s)


def _keys(action: Action) -> Iterator[tuple[str, str]]:
    """Return the class and the target of each act; none for a comment, which is set again without harm."""
    name, acts = type(action).__name__, () if isinstance(action, Comment) else targets(action)
    return ((name, str(target)) for target in acts)


def targets(action: Action) -> tuple[str | int, ...]:
    """Return the slots, instances or jobs that the act changes; none for other acts."""
    if isinstance(action, LaunchGang):
        return action.request.slots
    if isinstance(action, Terminate):
        return action.instances
    if isinstance(action, Requeue):
        return action.jobs
    field = TARGETS.get(type(action))
    return getattr(action, field) if field else ()
