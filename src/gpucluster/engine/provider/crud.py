"""Create, read, update and delete of one row: the same order for every type."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from botocore.exceptions import BotoCoreError, ClientError

from gpucluster.engine.provider.calls import (
    Call,
    Cloud,
    FailedError,
    StoppedError,
    TooLateError,
    absent_is_fine,
    is_absent,
    is_in_use,
    is_not_yet,
    nobody_hears,
)
from gpucluster.engine.provider.diff import diff
from gpucluster.engine.provider.observe import Observed, observed
from gpucluster.engine.provider.schema import ResourceType
from gpucluster.engine.provider.values import Values

CLOUD_ERRORS = (ClientError, BotoCoreError, FailedError, TooLateError, StoppedError, RuntimeError)


YOUNG_S = 300.0  # what was just made is known everywhere by then (T20, T36)


class HalfMadeError(Exception):
    """The resource exists, but is not as it should be: the engine keeps it in its state."""

    def __init__(self, identifier: str, seen: Observed, reason: str) -> None:
        super().__init__(reason)
        self.id, self.seen, self.reason = identifier, seen, reason


@dataclass(frozen=True, slots=True)
class Crud:
    """The calls over one account with one set of default tags."""

    cloud: Cloud
    default_tags: Mapping[str, str]

    def create(
        self,
        kind: ResourceType,
        inputs: Values,
        seconds: float,
        tell: Callable[[str], None] = nobody_hears,
    ) -> tuple[str, Values]:
        """Return id and outputs; HalfMadeError when it exists but did not settle."""
        call = Call(self.cloud, kind, "", inputs, seconds or kind.create_minutes * 60, tell=tell)
        identifier = self.cloud.retry(min(call.seconds, YOUNG_S), is_not_yet, lambda: kind.create(call))
        made = replace(call, id=identifier)
        try:
            if kind.settle is not None:
                kind.settle(made)
            return identifier, self._read_young(made).outputs
        except FailedError as error:  # it stands in nobody's way, and the next `up` makes another
            self.delete(kind, identifier, inputs, 0)
            raise RuntimeError(str(error)) from error
        except CLOUD_ERRORS as error:
            raise HalfMadeError(identifier, Observed(inputs, inputs), str(error)) from error

    def read(self, kind: ResourceType, identifier: str, state: Values, inputs: Values) -> Observed | None:
        """Return the resource as it stands; None when it is gone."""
        try:
            seen = kind.read(self.cloud, identifier, state)
        except ClientError as error:
            if is_absent(error):
                return None
            raise
        return None if seen is None else observed(kind, seen, inputs, self.default_tags)

    def update(
        self,
        kind: ResourceType,
        identifier: str,
        olds: Values,
        news: Values,
        seconds: float,
    ) -> Values:
        """Change in place; HalfMadeError when it stopped midway.

        The engine asks without a change only for what was left half made: then what follows its birth is done again.
        """
        call = Call(self.cloud, kind, identifier, news, seconds or kind.update_minutes * 60, olds)
        update, changed = kind.update, frozenset(diff(kind, olds, news).changed)
        try:
            if not changed and kind.settle is not None:
                kind.settle(call)
            if update is not None:
                self.cloud.retry(min(call.seconds, YOUNG_S), is_not_yet, lambda: update(call, changed))
            return self._read_young(call).outputs
        except CLOUD_ERRORS as error:
            seen = self._seen_or(kind, identifier, olds)
            raise HalfMadeError(identifier, seen, str(error)) from error

    def delete(self, kind: ResourceType, identifier: str, state: Values, seconds: float) -> None:
        """Delete, waiting for what still hangs on it (T42, T43)."""
        call = Call(self.cloud, kind, identifier, state, seconds or kind.delete_minutes * 60)
        with absent_is_fine():
            self.cloud.retry(call.seconds, is_in_use, lambda: kind.delete(call))

    def _read_young(self, call: Call) -> Observed:
        """Reads lag behind writes (T20, T36): what was just made is there, if not yet seen."""
        found: list[Observed] = []

        def there() -> bool:
            seen = self.read(call.kind, call.id, call.inputs, call.inputs)
            found.extend([seen] if seen else [])
            return seen is not None

        self.cloud.wait(f"{call.id} readable", min(call.seconds, YOUNG_S), there)
        return found[-1]

    def _seen_or(self, kind: ResourceType, identifier: str, olds: Values) -> Observed:
        try:
            return self.read(kind, identifier, olds, olds) or Observed(olds, olds)
        except CLOUD_ERRORS:
            return Observed(olds, olds)


def unknown_type(token: str) -> str:
    """What Check says of a type that has no row."""
    return (
        f"the stand-in for AWS does not know the resource type {token!r}; "
        "add a row to gpucluster/engine/provider/types and a line to table.py, or use the real provider"
    )
