"""Create, read, update and delete a resource, with the same steps for every type."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from botocore.exceptions import BotoCoreError, ClientError

from gpucluster.engine.aws_account import is_absent
from gpucluster.engine.values import Values
from gpucluster.sandbox.provider.cloud import (
    Cloud,
    FailedError,
    StoppedError,
    TooLateError,
    absent_is_fine,
    is_in_use,
    is_not_yet,
)
from gpucluster.sandbox.provider.diff import diff
from gpucluster.sandbox.provider.observe import Observed, observed
from gpucluster.sandbox.provider.schema import Call, ResourceType, no_progress

CLOUD_ERRORS = (ClientError, BotoCoreError, FailedError, TooLateError, StoppedError, RuntimeError)


YOUNG_S = 300.0  # all services know a new resource after this time (T20, T36)


class HalfMadeError(Exception):
    """The resource exists, but is incomplete. The engine keeps it in its state."""

    def __init__(self, identifier: str, seen: Observed, reason: str) -> None:
        super().__init__(reason)
        self.id, self.seen, self.reason = identifier, seen, reason


@dataclass(frozen=True, slots=True)
class Crud:
    """The operations over one account with one set of default tags."""

    cloud: Cloud

    @property
    def default_tags(self) -> Mapping[str, str]:
        return self.cloud.default_tags

    def create(
        self,
        kind: ResourceType,
        inputs: Values,
        seconds: float,
        report_progress: Callable[[str], None] = no_progress,
    ) -> tuple[str, Values]:
        """Return id and outputs. HalfMadeError if the resource exists but is not complete."""
        call = Call(
            self.cloud, kind, "", inputs, seconds or kind.create_minutes * 60, report_progress=report_progress
        )
        identifier = self.cloud.retry(min(call.seconds, YOUNG_S), is_not_yet, lambda: kind.create(call))
        made = replace(call, id=identifier)
        try:
            if kind.complete is not None:
                kind.complete(made)
            return identifier, self._read_young(made).outputs
        except FailedError as error:
            if kind.keeps_failed:
                raise HalfMadeError(identifier, Observed(inputs, inputs), str(error)) from error
            self.delete(kind, identifier, inputs, 0)  # the next `up` creates another one
            raise RuntimeError(str(error)) from error
        except CLOUD_ERRORS as error:
            raise HalfMadeError(identifier, Observed(inputs, inputs), str(error)) from error

    def read(self, kind: ResourceType, identifier: str, state: Values, inputs: Values) -> Observed | None:
        """Return the observed resource; None if it does not exist."""
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
        """Update in place. HalfMadeError if the update stopped midway.

        The engine calls this without a change only for an incomplete resource. Then the steps after its creation run again.
        """
        call = Call(self.cloud, kind, identifier, news, seconds or kind.update_minutes * 60, olds)
        update, changed = kind.update, frozenset(diff(kind, olds, news).changed)
        try:
            if not changed and kind.complete is not None:
                kind.complete(call)
            if update is not None:
                self.cloud.retry(min(call.seconds, YOUNG_S), is_not_yet, lambda: update(call, changed))
            return self._read_young(call).outputs
        except CLOUD_ERRORS as error:
            seen = self._seen_or(kind, identifier, olds)
            raise HalfMadeError(identifier, seen, str(error)) from error

    def delete(self, kind: ResourceType, identifier: str, state: Values, seconds: float) -> None:
        """Delete the resource. Wait while other resources depend on it (T42, T43)."""
        call = Call(self.cloud, kind, identifier, state, seconds or kind.delete_minutes * 60)
        with absent_is_fine():
            self.cloud.retry(call.seconds, is_in_use, lambda: kind.delete(call))

    def _read_young(self, call: Call) -> Observed:
        """Read a new resource. Wait until it is visible, because reads lag behind writes (T20, T36)."""
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
    """Return the error message of Check for an unknown type."""
    return (
        f"the stand-in for AWS does not know the resource type {token!r}; "
        "add a row to src/gpucluster/sandbox/provider/types and a line to table.py, or use the real provider"
    )
