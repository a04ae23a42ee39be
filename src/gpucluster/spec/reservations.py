"""Site reservations of Slurm: nodes that are kept for people, for a course, or for maintenance."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from gpucluster.plan.names import BLOCK_RESERVATION_MARK
from gpucluster.spec.aws_fields import word_of
from gpucluster.spec.fields import (
    DURATION_SCHEMA,
    Flag,
    Text,
    UpdateClass,
    duration,
    parse_name,
    parse_text,
    refuse,
    spec_field,
)
from gpucluster.spec.host_fields import Hostlist, UserName
from gpucluster.spec.part import Part
from gpucluster.text import quoted

PERIODS = {"daily": 86400, "weekly": 7 * 86400}  # seconds
_START = "%Y-%m-%dT%H:%MZ"


def parse_start(value: object) -> int:
    """Parse a time in UTC; the result is in seconds of Unix time."""
    text = parse_text(value)
    try:
        return int(datetime.strptime(text, _START).replace(tzinfo=UTC).timestamp())
    except ValueError:
        form = "a date and time in UTC such as 2026-12-01T08:00Z"
        raise refuse("bad-start", f"{quoted(text)} is not {form}") from None


def parse_reservation_name(value: object) -> str:
    """Parse a name that no reservation of a capacity block can have."""
    name = parse_name(value)
    if name.startswith(BLOCK_RESERVATION_MARK):
        message = f"{quoted(name)} is taken: reservations of capacity blocks begin with '{BLOCK_RESERVATION_MARK}'; take another name"
        raise refuse("reserved-name", message)
    return name


ReservationName = Annotated[
    str,
    BeforeValidator(parse_reservation_name),
    WithJsonSchema({"type": "string", "pattern": "^(?!cr-)[a-z](?:[a-z0-9-]*[a-z0-9])?$", "maxLength": 24}),
]
Start = Annotated[
    int,
    BeforeValidator(parse_start),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}Z$",
            "examples": ["2026-12-01T08:00Z"],
        }
    ),
]
Length = Annotated[int, BeforeValidator(duration(60, 365 * 86400)), WithJsonSchema(DURATION_SCHEMA)]
Repeat = Annotated[
    str,
    BeforeValidator(word_of(tuple(PERIODS), "bad-repeat", "how often a reservation repeats")),
    WithJsonSchema({"enum": list(PERIODS)}),
]


class Reservation(Part):
    """A reservation: other jobs do not start on its nodes if they could run into it. It launches no node."""

    name: ReservationName = spec_field(
        UpdateClass.LIVE, "Name. Jobs use it by `sbatch --reservation=gpucluster-NAME`."
    )
    pools: tuple[Text, ...] = spec_field(
        UpdateClass.LIVE, "Pools whose nodes it holds, all of them.", default=(), min_length=1
    )
    nodes: Hostlist | None = spec_field(
        UpdateClass.LIVE, "Nodes that it holds, instead of `pools`: `gpu[01-04]`.", default=None
    )
    start: Start = spec_field(UpdateClass.LIVE, "Its first start, in UTC.")
    duration: Length = spec_field(UpdateClass.LIVE, "How long it lasts.")
    repeat: Repeat | None = spec_field(
        UpdateClass.LIVE, "Begin again each day or each week at the same time.", default=None
    )
    users: tuple[UserName, ...] = spec_field(
        UpdateClass.LIVE, "Users who may use it.", default=(), min_length=1
    )
    accounts: tuple[Text, ...] = spec_field(
        UpdateClass.LIVE, "Accounts whose jobs may use it.", default=(), min_length=1
    )
    partition: Text | None = spec_field(
        UpdateClass.LIVE, "The partition of the jobs that use it.", default=None
    )
    maint: Flag = spec_field(
        UpdateClass.LIVE,
        "Maintenance: it may overlap other reservations, and only root uses it if it names no users or accounts.",
        default=False,
    )
