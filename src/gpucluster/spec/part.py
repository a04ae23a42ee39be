"""The base class of every mapping of a spec, and the absent fields that rules read."""

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema

T = TypeVar("T")


class AbsentError(Exception):
    """A rule read a field that did not parse, or an optional part that is missing. The rule ends."""


def require(part: T | None) -> T:
    """Return an optional part. AbsentError if the spec does not have it."""
    if part is None:
        raise AbsentError
    return part


class Part(BaseModel):
    """A mapping of the spec. If the file has errors, some fields may be missing: reading them raises AbsentError."""

    instead: ClassVar[str] = ""  # another form that the file may use, for messages: `a whole number or `

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Refuse null: an optional field is a missing key, and a key without a value is a mistake."""
        schema = handler(source)
        inner: Any = handler.resolve_ref_schema(schema)
        while inner["type"] != "model-fields":
            inner = inner["schema"]
        for field in inner["fields"].values():
            default = field["schema"]
            if default["type"] == "default" and default["schema"]["type"] == "nullable":
                default["schema"] = default["schema"]["schema"]
        return schema

    if not TYPE_CHECKING:  # otherwise the type checker would accept any name

        def __getattr__(self, name: str) -> NoReturn:
            if name in type(self).model_fields:
                raise AbsentError(name)
            raise AttributeError(f"{type(self).__name__} has no field {name!r}")
