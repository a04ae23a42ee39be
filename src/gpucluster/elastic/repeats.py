"""Acts that the daemon decides pass after pass, because they fail or show no effect: since when, how often, and the last error."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpucluster.elastic.model import Action, Comment, LaunchGang, Repeat, Requeue, Terminate
from gpucluster.elastic.sent_updates import TARGETS

KEPT_S = 60.0  # a failed act that no pass decides for so long is over; a pass without a view of EC2 decides few acts


class Repeats:
    """Owned by the daemon's thread."""

    def __init__(self, passes_s: float) -> None:
        """`passes_s`: in this time there are two passes, or more."""
        self._known: dict[tuple[str, str], Repeat] = {}
        self._passes_s = passes_s

    def decided(self, actions: Iterable[Action], now: float) -> None:
        """Note what a pass decides, and forget what no pass decides any more."""
        self._known = {key: one for key, one in self._known.items() if self._goes_on(one, now)}
        for key in (key for action in actions for key in _keys(action)):
            old = self._known.get(key)
            if old is None:
                self._known[key] = Repeat(act=key[0], target=key[1], since=now, last=now)
            else:
                self._known[key] = replace(old, last=now, times=old.times + 1)

    def tried(self, action: Action, error: str) -> None:
        """Note the result of a try; an empty error is a success, after which its effect is awaited anew."""
        for key in _keys(action):
            old = self._known.get(key)
            if old is not None and old.error and not error:
                self._known[key] = replace(old, since=old.last, times=1, error="")
            elif old is not None:
                self._known[key] = replace(old, error=error)

    def shown(self, now: float) -> tuple[Repeat, ...]:
        """Return the acts that fail, and those that all passes decide for longer than two passes take."""
        known = (one for one in self._known.values() if self._goes_on(one, now))
        return tuple(one for one in known if one.error or one.last - one.since > self._passes_s)

    def _goes_on(self, one: Repeat, now: float) -> bool:
        """Whether the next decision is the same act again. With a pause it is another act, for example for the next job."""
        set_back = one.since > now  # the clock
        return not set_back and now - one.last <= (KEPT_S if one.error else self._passes_s)


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
