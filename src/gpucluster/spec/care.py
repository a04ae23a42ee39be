"""How a pool takes care of its jobs and of itself: the farewell from a machine, hung jobs, the breaker."""

from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from gpucluster.spec.fields import (
    DURATION_SCHEMA,
    AbsolutePath,
    Flag,
    UpdateClass,
    duration,
    parse_text,
    refuse,
    wish,
)
from gpucluster.spec.host_fields import number
from gpucluster.spec.part import Part
from gpucluster.spec.problem import quoted

SIGNALS = ("USR1", "USR2", "TERM", "INT", "HUP")  # what a batch script can trap, and people use for it
SPOT_NOTICE_S = 120  # between EC2's notice and the end of a spot machine, at best (aws-traps T34)
LONGEST_LEAD_S = SPOT_NOTICE_S // 2  # of a notice the daemon leaves half to the script, whatever the lead
MOST_BOOTS = 100


def parse_signal(value: object) -> str:
    """A signal by its name, as `kill -l` writes it."""
    if isinstance(value, int) and not isinstance(value, bool):
        raise refuse("bad-signal", f"{value} is a signal's number; write its name: {', '.join(SIGNALS)}")
    text = parse_text(value)
    if text.upper().removeprefix("SIG") in SIGNALS and text not in SIGNALS:
        raise refuse(
            "bad-signal",
            f"{quoted(text)} is not written as a signal; did you mean '{text.upper().removeprefix('SIG')}'?",
        )
    if text not in SIGNALS:
        raise refuse(
            "bad-signal", f"{quoted(text)} is not a signal for a batch script; one of {', '.join(SIGNALS)}"
        )
    return text


def parse_lead(value: object) -> int:
    """At most half of a spot notice: a longer one would not be kept."""
    seconds = duration(1, 3600)(value)
    if seconds > LONGEST_LEAD_S:
        says = f"{value} is too long: a spot notice comes {SPOT_NOTICE_S} s before the end, and half of it is the script's, between signal and requeue; at most {LONGEST_LEAD_S}s"
        raise refuse("lead-too-long", says)
    return seconds


_DURATION = WithJsonSchema(DURATION_SCHEMA)

Signal = Annotated[str, BeforeValidator(parse_signal), WithJsonSchema({"enum": list(SIGNALS)})]
Lead = Annotated[int, BeforeValidator(parse_lead), _DURATION]
Grace = Annotated[int, BeforeValidator(duration(1, 3600)), _DURATION]
Silence = Annotated[int, BeforeValidator(duration(60, 30 * 86400)), _DURATION]
Boots = Annotated[
    int,
    BeforeValidator(number(1, MOST_BOOTS)),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MOST_BOOTS}),
]
Cooldown = Annotated[int, BeforeValidator(duration(60, 86400)), _DURATION]


class Farewell(Part):
    """What a job gets when its machine is about to go: a spot notice, maintenance, a broken GPU."""

    signal: Signal | None = wish(UpdateClass.LIVE, "Sent to the batch script at once.", default=None)
    lead: Lead | None = wish(
        UpdateClass.LIVE, "The job is requeued so long before the machine's end.", default=None
    )
    grace: Grace | None = wish(
        UpdateClass.LIVE,
        "Where the machine sets no end itself: requeued so long after the signal.",
        default=None,
    )
    script: AbsolutePath | None = wish(
        UpdateClass.NEW_NODES,
        "The site's own program, which is on the node's image and root's alone; run as root with the kind and the end.",
        default=None,
    )


class Hung(Part):
    """Jobs that opted in by a heartbeat file, and stopped touching it."""

    after: Silence = wish(UpdateClass.LIVE, "Without a touch for so long a job is told as hung.")
    requeue: Flag = wish(UpdateClass.LIVE, "It is requeued, too.", default=False)


class Breaker(Part):
    """A pool that cannot boot stops trying for a while."""

    boots: Boots | None = wish(UpdateClass.LIVE, "After so many failed boots in a row.", default=None)
    cooldown: Cooldown | None = wish(UpdateClass.LIVE, "Nothing is launched for so long.", default=None)
