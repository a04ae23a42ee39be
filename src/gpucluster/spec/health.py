"""Health checks of Slurm's nodes."""

from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from gpucluster.spec.fields import (
    DURATION_SCHEMA,
    MAX_NODES,
    Flag,
    UpdateClass,
    duration,
    parse_text,
    refuse,
    spec_field,
)
from gpucluster.spec.part import Part
from gpucluster.text import parse_percent, quoted

SHORTEST_S, LONGEST_S = 60, 65_535  # HealthCheckTimeout is 60 s; HealthCheckInterval has 16 bits (S30)
_FORMS = "a number of nodes, such as 2, or a share of the pool, such as 10%"


def parse_limit(value: object) -> str:
    """Parse the most nodes of a pool: `2` or `10%`. The text stays, because the pool's size decides the number."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= MAX_NODES:
            raise refuse("out-of-range", f"{value} is not between 1 and {MAX_NODES}")
        return str(value)
    text = parse_text(value)
    percent = parse_percent(text)
    if percent is None:
        raise refuse("bad-limit", f"{quoted(text)} is no limit; write {_FORMS}")
    if not 1 <= percent <= 100:
        raise refuse("out-of-range", f"{text} is not between 1% and 100%")
    return f"{percent}%"


Every = Annotated[int, BeforeValidator(duration(SHORTEST_S, LONGEST_S)), WithJsonSchema(DURATION_SCHEMA)]
Limit = Annotated[
    str,
    BeforeValidator(parse_limit),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": MAX_NODES},
                {"type": "string", "pattern": "^[0-9]{1,3}%$", "examples": ["10%"]},
            ]
        }
    ),
]


class Health(Part):
    """Health checks of Slurm's nodes: a node that fails one is drained, and its jobs start elsewhere."""

    prolog: Flag = spec_field(UpdateClass.LIVE, "Checks also run before and after each job.", default=True)
    every: Every | None = spec_field(UpdateClass.LIVE, "Interval of the checks on idle nodes.", default=None)
    at_most: Limit | None = spec_field(
        UpdateClass.LIVE,
        "Most nodes of a pool that checks keep drained at one time: a number, or a share such as `10%`. More failures drain nothing.",
        default=None,
    )
    replace_per_hour: Limit | None = spec_field(
        UpdateClass.LIVE,
        "Most instances of a pool that are replaced in an hour because a check or a GPU failed, or because Slurm drained the node, for example after `Kill task failed`: a number, or a share. The others stay drained.",
        default=None,
    )
