"""Field types of a spec: one parser each, with its error message.

A parser takes what YAML gave and returns the typed value, or raises `refuse(id, message)`.
"""

import ipaddress
from collections.abc import Callable
from datetime import date
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from gpucluster.plan.model.values import Market
from gpucluster.spec.tree import WrittenFloat
from gpucluster.text import (
    DATE,
    DURATION_FORMS,
    SIZE_FORMS,
    Form,
    format_duration,
    format_size,
    parse_date,
    parse_duration,
    parse_size,
    quoted,
)

MAX_NODES = 10_000  # of one pool; `decide` is measured up to this number
MAX_NAME = 24  # so that `NAME-1a-10000` is a valid host name, and tags and role names have room for suffixes

_NAME = Form(r"[a-z](?:[a-z0-9-]*[a-z0-9])?")
MAX_SLURM_NAME = 64
_SLURM_NAME = Form(rf"[A-Za-z0-9](?:[A-Za-z0-9._-]{{0,{MAX_SLURM_NAME - 2}}}[A-Za-z0-9])?")
_FEATURE = Form(
    rf"[A-Za-z0-9_][A-Za-z0-9._:+@/=-]{{0,{MAX_SLURM_NAME - 1}}}"
)  # no sign of a constraint: & | [ ] ( ) *
_LICENSE = Form(rf"[A-Za-z0-9_][A-Za-z0-9._+@-]{{0,{MAX_SLURM_NAME - 1}}}")  # a colon is before its count
_PATH = Form(r"(?:/[A-Za-z0-9._-]{1,64}){1,16}")
_RESERVATION = Form(r"cr-[0-9a-f]{8}(?:[0-9a-f]{9})?")
_WORD = Form(r"[A-Za-z0-9][A-Za-z0-9._:/=@%+-]{0,199}")
_SLURM_TIME = Form(r"(?:([0-9]{1,3})-)?([0-9]{1,4}):([0-9]{2}):([0-9]{2})")
_DECIMAL_SIZE = Form(r"([0-9]{1,9}) ?([mgtMGT])i?[bB]?")
_FLAGS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"  # patterns of the JSON Schema; the parsers use `ipaddress`
NETWORK = f"{IPV4}/(?:3[0-2]|[12]?[0-9])"
_PRIVATE = tuple(ipaddress.IPv4Network(n) for n in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))


class UpdateClass(StrEnum):
    """The effect of a field change on a running cluster, from the smallest to the largest."""

    NONE = "none"
    LIVE = "live"
    NEW_NODES = "new-nodes"
    DRAIN = "drain"
    RESTART = "restart"
    STOP_FLEET = "stop-fleet"
    REPLACE = "replace"
    DATA_LOSS = "data-loss"


def spec_field(update: UpdateClass, description: str, **more: Any) -> Any:
    """Declare a field with its update class, which the schema and `diff` read."""
    return Field(description=description, json_schema_extra={"x-update-class": update.value}, **more)


def refuse(problem: str, message: str) -> PydanticCustomError:
    """Return the error of a parser. The message is used unchanged."""
    return PydanticCustomError(problem, "{message}", {"message": message})  # type: ignore[arg-type]


def parse_name(value: object) -> str:
    text = _text(value)
    if not _NAME.fullmatch(text) or len(text) > MAX_NAME:
        rule = (
            f"a-z, 0-9 and '-', beginning with a letter, not ending with '-', at most {MAX_NAME} characters"
        )
        raise refuse("bad-name", f"{quoted(text)} is not a name: use {rule}")
    return text


def parse_partition_name(value: object) -> str:
    text = _text(value)
    if text.lower() == "default":
        raise refuse(
            "reserved-name",
            f"{quoted(text)} means the defaults of all partitions to Slurm; take another name",
        )
    return _slurm_name(text)


def parse_slurm_name(value: object) -> str:
    """Parse a name that only Slurm's files have: of a switch, a block, a topology or a type of GPU."""
    return _slurm_name(_text(value))


def _slurm_name(text: str) -> str:
    if not _SLURM_NAME.fullmatch(text):
        rule = f"A-Z, a-z, 0-9, '.', '_' and '-', beginning and ending with a letter or digit, at most {MAX_SLURM_NAME} characters"
        raise refuse("bad-name", f"{quoted(text)} is not a name: use {rule}")
    return text


def parse_text(value: object) -> str:
    return _text(value)


def parse_version(value: object) -> str:
    if isinstance(value, WrittenFloat):
        shown = f"{float(value):g}"
        lost = f", {shown}" if shown != value.text else ""
        raise refuse(
            "unquoted-version",
            f'{value.text} without quotes is a number in YAML{lost}; write it in quotes: "{value.text}"',
        )
    return _text(value)


def parse_schema(value: object) -> int:
    if value != 1 or isinstance(value, bool):
        raise refuse("schema-version", f"this gpucluster reads schema 1, found {_shown(value)}")
    return 1


def parse_cidr(value: object) -> str:
    text = _text(value)
    try:
        network = ipaddress.IPv4Network(text, strict=False)
    except ValueError:
        raise refuse("bad-cidr", f"{quoted(text)} is not an IPv4 network such as 10.42.0.0/16") from None
    if "/" in text and network.prefixlen < 16:  # first: other corrections would still be too large
        first = f"{text.partition('/')[0]}/16"
        fit = ipaddress.IPv4Network(first, strict=False)
        raise refuse(
            "cidr-size", f"{quoted(text)} is too large: AWS takes no larger VPC than a /16; write {fit}"
        )
    if "/" not in text or str(network) != text:
        raise refuse("bad-cidr", f"{quoted(text)} is not written as a network; did you mean '{network}'?")
    if not any(network.subnet_of(block) for block in _PRIVATE):
        blocks = ", ".join(str(block) for block in _PRIVATE)
        raise refuse("cidr-not-private", f"'{network}' is not inside {blocks}")
    if network.prefixlen > 25:
        why = "it is cut in eight, and AWS's least subnet is a /28"
        raise refuse("cidr-size", f"'{network}' must be a /16 to a /25: {why}")
    return text


def parse_market(value: object) -> Market:
    text = _text(value)
    if text not in tuple(Market):
        known = ", ".join(Market)
        raise refuse("bad-source", f"{quoted(text)} is not a source of machines; expected one of {known}")
    return Market(text)


def parse_reservation(value: object) -> str:
    """Parse the id of a capacity reservation or of a capacity block."""
    text = _text(value)
    if not _RESERVATION.fullmatch(text):
        form = "cr- and 17 digits of 0-9 and a-f, such as cr-0123456789abcdef0"
        raise refuse("bad-reservation", f"{quoted(text)} is not the id of a reservation: {form}")
    return text


def parse_flag(value: object) -> bool:
    if not isinstance(value, bool):
        meant = _FLAGS.get(value.lower()) if isinstance(value, str) else None
        hint = f"; write {meant}" if meant else ""
        raise refuse("bad-type", f"expected true or false, found {_shown(value)}{hint}")
    return value


def count(least: int) -> Callable[[object], int]:
    """Return a parser of whole numbers from `least` to the most nodes of a pool."""

    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise refuse("bad-type", f"expected a whole number, found {_shown(value)}")
        if not least <= value <= MAX_NODES:
            raise refuse("out-of-range", f"{value} is not between {least} and {MAX_NODES}")
        return value

    return parse


def duration(least_s: int, most_s: int) -> Callable[[object], int]:
    """Return a parser of times with a unit; the result is in seconds."""

    def parse(value: object) -> int:
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise refuse("no-unit", f"{_shown(value)} has no unit; write {DURATION_FORMS}")
        seconds = parse_duration(_text(value))
        if seconds is None:
            hint = _of_slurm(str(value))
            raise refuse("bad-duration", f"{quoted(value)} is not a time; write {DURATION_FORMS}{hint}")
        if not least_s <= seconds <= most_s:
            limits = f"{format_duration(least_s)} and {format_duration(most_s)}"
            raise refuse("out-of-range", f"{value} is not between {limits}")
        return seconds

    return parse


def size(least_mib: int, most_mib: int) -> Callable[[object], int]:
    """Return a parser of sizes with a unit; the result is in MiB."""

    def parse(value: object) -> int:
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise refuse("no-unit", f"{_shown(value)} has no unit; write {SIZE_FORMS}")
        mib = parse_size(_text(value))
        if mib is None:
            raise refuse(
                "bad-size", f"{quoted(value)} is not a size; write {SIZE_FORMS}{_binary(str(value))}"
            )
        if not least_mib <= mib <= most_mib:
            limits = f"{format_size(least_mib)} and {format_size(most_mib)}"
            raise refuse("out-of-range", f"{value} is not between {limits}")
        return mib

    return parse


def _of_slurm(text: str) -> str:
    """Return `; Slurm's 1-00:00:00 is 1d here` for one of Slurm's forms of a time, else an empty text."""
    found = _SLURM_TIME.fullmatch(text)
    if found is None:
        return ""
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return f"; Slurm's {text} is {format_duration(((days * 24 + hours) * 60 + minutes) * 60 + seconds)} here"


def _binary(text: str) -> str:
    """Return `; did you mean 100GiB?` for `100GB` or `100G`, else an empty text."""
    found = _DECIMAL_SIZE.fullmatch(text)
    return f"; did you mean {found[1]}{found[2].upper()}iB?" if found else ""


def parse_path(value: object) -> str:
    """Parse an absolute path that needs no quotes and has no `..`."""
    text = _text(value)
    if not _PATH.fullmatch(text) or {".", ".."} & set(text.split("/")):
        raise refuse(
            "bad-path",
            f"{quoted(text)} is not an absolute path of A-Z, a-z, 0-9, '.', '_' and '-', such as /data",
        )
    return text


def matching(pattern: Form, problem: str, what: str) -> Callable[[object], str]:
    """Return a parser of texts of one form. `what` names the form with an example."""

    def parse(value: object) -> str:
        text = _text(value)
        if not pattern.fullmatch(text):
            raise refuse(problem, f"{quoted(text)} is not {what}")
        return text

    return parse


def parse_day(value: object) -> date:
    text = _text(value)
    found = parse_date(text)
    if found is None:
        raise refuse("bad-date", f"{quoted(text)} is not a date such as 2027-05-31")
    return found


def parse_address(value: object) -> str:
    """Parse an IPv4 address."""
    text = _text(value)
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise refuse("bad-address", f"{quoted(text)} is not an IPv4 address such as 192.0.2.10") from None


def parse_word(value: object) -> str:
    """Parse a word for a command line or a config file: no blank, quote or character that a shell or mount interprets."""
    text = _text(value)
    if not _WORD.fullmatch(text):
        raise refuse("bad-word", f"{quoted(text)} is not one word of A-Z, a-z, 0-9 and '._:/=@%+-'")
    return text


def _text(value: object) -> str:
    if not isinstance(value, str):
        hint = "; quote it if it is meant as text" if isinstance(value, int | float) else ""
        raise refuse("bad-type", f"expected text, found {_shown(value)}{hint}")
    return value


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, WrittenFloat):
        return value.text[:60]
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, int):
        return str(value)
    return "a mapping" if isinstance(value, dict) else "a list"


def _schema(**properties: Any) -> WithJsonSchema:
    return WithJsonSchema(properties)


NAME_SCHEMA = {"type": "string", "pattern": f"^{_NAME.pattern}$", "maxLength": MAX_NAME}
DURATION_SCHEMA = {"type": "string", "pattern": "^[0-9]{1,9}[smhd]$", "examples": ["30s", "5m", "2h", "7d"]}

Name = Annotated[str, BeforeValidator(parse_name), _schema(**NAME_SCHEMA)]
_SLURM_NAME_SCHEMA = {"type": "string", "pattern": f"^{_SLURM_NAME.pattern}$"}
PartitionName = Annotated[
    str,
    BeforeValidator(parse_partition_name),
    _schema(**_SLURM_NAME_SCHEMA, **{"not": {"pattern": "^[Dd][Ee][Ff][Aa][Uu][Ll][Tt]$"}}),
]
SlurmName = Annotated[str, BeforeValidator(parse_slurm_name), _schema(**_SLURM_NAME_SCHEMA)]
Feature = Annotated[
    str,
    BeforeValidator(
        matching(
            _FEATURE,
            "bad-name",
            f"a feature: A-Z, a-z, 0-9 and '._:+@/=-', beginning with a letter, digit or '_', at most {MAX_SLURM_NAME} characters",
        )
    ),
    _schema(type="string", pattern=f"^{_FEATURE.pattern}$"),
]
LicenseName = Annotated[
    str,
    BeforeValidator(
        matching(
            _LICENSE,
            "bad-name",
            f"the name of a licence: A-Z, a-z, 0-9 and '._+@-', beginning with a letter, digit or '_', at most {MAX_SLURM_NAME} characters",
        )
    ),
    _schema(type="string", pattern=f"^{_LICENSE.pattern}$"),
]
Text = Annotated[str, BeforeValidator(parse_text), _schema(type="string")]
Day = Annotated[
    date,
    BeforeValidator(parse_day),
    _schema(type="string", pattern=f"^{DATE.pattern}$", examples=["2027-05-31"]),
]
Version = Annotated[str, BeforeValidator(parse_version), _schema(type="string", examples=["24.11"])]
SchemaVersion = Annotated[int, BeforeValidator(parse_schema), _schema(const=1)]
Cidr = Annotated[
    str,
    BeforeValidator(parse_cidr),
    _schema(
        type="string",
        pattern=rf"^(?=10\.|172\.(?:1[6-9]|2[0-9]|3[01])\.|192\.168\.){IPV4}/(?:1[6-9]|2[0-5])$",
        examples=["10.42.0.0/16"],
    ),
]
Source = Annotated[Market, BeforeValidator(parse_market), _schema(enum=[market.value for market in Market])]
ReservationId = Annotated[
    str, BeforeValidator(parse_reservation), _schema(type="string", pattern=f"^{_RESERVATION.pattern}$")
]
Flag = Annotated[bool, BeforeValidator(parse_flag), _schema(type="boolean")]
Count = Annotated[int, BeforeValidator(count(0)), _schema(type="integer", minimum=0, maximum=MAX_NODES)]
PositiveCount = Annotated[
    int, BeforeValidator(count(1)), _schema(type="integer", minimum=1, maximum=MAX_NODES)
]
Idle = Annotated[int, BeforeValidator(duration(1, 30 * 86400)), _schema(**DURATION_SCHEMA)]
BootTimeout = Annotated[int, BeforeValidator(duration(60, 12 * 3600)), _schema(**DURATION_SCHEMA)]
MaxTime = Annotated[int, BeforeValidator(duration(60, 365 * 86400)), _schema(**DURATION_SCHEMA)]
Tier = Annotated[
    int, BeforeValidator(count(1)), _schema(type="integer", minimum=1, maximum=MAX_NODES)
]  # Slurm takes 0 to 65533
Size = Annotated[
    int,
    BeforeValidator(size(1, 64 * 1024**3)),
    _schema(type="string", pattern="^[0-9]{1,9}(MiB|GiB|TiB)$", examples=["4800GiB"]),
]
AbsolutePath = Annotated[
    str, BeforeValidator(parse_path), _schema(type="string", pattern=f"^{_PATH.pattern}$", examples=["/data"])
]
Address = Annotated[
    str,
    BeforeValidator(parse_address),
    _schema(type="string", format="ipv4", pattern=f"^{IPV4}$", examples=["192.0.2.10"]),
]
Word = Annotated[str, BeforeValidator(parse_word), _schema(type="string", pattern=f"^{_WORD.pattern}$")]
