"""`extra` and `remove`: keys of slurm.conf that the spec does not model, as text. Rules check them by the Slurm version."""

from collections.abc import Mapping
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, WithJsonSchema

from gpucluster.spec.fields import UpdateClass, refuse, spec_field
from gpucluster.spec.tree import WrittenFloat
from gpucluster.text import Form, quoted

LONGEST = 1000  # characters of one value
_KEY = Form(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_VALUE = Form(
    r"[!-~]{1,1000}"
)  # printable ASCII without blanks: a value can end neither its line nor its key
_FORBIDDEN = "#\"'\\`"
_WORDS_EXAMPLE = "SchedulerParameters: {bf_continue: null, bf_max_job_user: 50}"


def parse_key(value: object) -> str:
    """Parse the name of a key; the version decides whether it exists."""
    if not isinstance(value, str) or not _KEY.fullmatch(value):
        raise refuse("extra-key", f"{quoted(str(value))} is not written as a key of slurm.conf")
    return value


def parse_value(value: object) -> str:
    """Parse a value: text, number, yes or no, a list, or a mapping of words, whose null is a bare word."""
    if value is None:
        what = "Slurm refuses a key without a value; null is a bare word of a list"
        raise refuse("extra-value", f"{what}, as in {_WORDS_EXAMPLE}")
    if isinstance(value, Mapping):
        words = cast(Mapping[str, object], value).items()
        return ",".join(parse_key(k) if v is None else f"{parse_key(k)}={_plain(v)}" for k, v in words)
    if isinstance(value, list | tuple):
        return ",".join(_plain(one) for one in cast(list[object], value))
    return _plain(value)


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "YES" if value else "NO"
    text = value.text if isinstance(value, WrittenFloat) else str(value)
    if isinstance(value, list | tuple | Mapping) or not _VALUE.fullmatch(text) or set(text) & set(_FORBIDDEN):
        rule = f"at most {LONGEST} printable ASCII characters without blanks, quotes, '#' and backslashes"
        raise refuse("extra-value", f"{quoted(text[:80])} cannot be a value here: use {rule}")
    return text


def _schema(**more: Any) -> WithJsonSchema:
    return WithJsonSchema({**more})


ExtraKey = Annotated[str, BeforeValidator(parse_key), _schema(type="string")]
ExtraValue = Annotated[
    str, BeforeValidator(parse_value), _schema(type=["string", "number", "boolean", "object", "array"])
]


def extra_field(what: str) -> Any:
    return spec_field(
        UpdateClass.LIVE,
        f"Keys of {what} that the spec does not model. The Slurm version must know them.",
        default_factory=dict,
    )


def remove_field(what: str) -> Any:
    return spec_field(
        UpdateClass.LIVE, f"Keys of {what} that gpucluster would write and that are left out.", default=()
    )
