"""What every mapping of a spec is made of, and what a part that is absent does to a rule."""

from typing import TYPE_CHECKING, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict

T = TypeVar("T")


class AbsentError(AttributeError):
    """A rule read a part that did not parse, or that nobody wrote: the rule has nothing to say."""


def written(part: T | None) -> T:
    """A part that is optional; AbsentError if it was not written."""
    if part is None:
        raise AbsentError
    return part


class Part(BaseModel):
    """A mapping of the spec. One made by `decode` may lack fields: reading those raises AbsentError."""

    # The validator is built when it is first used: `check` decodes by itself and needs only the fields.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    if not TYPE_CHECKING:  # else the type checker would believe any name

        def __getattr__(self, name: str) -> NoReturn:
            raise AbsentError(name)
