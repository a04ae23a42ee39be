"""The operation settings of a pool: termination, job heartbeat, breaker."""

from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from gpucluster.spec.aws_fields import S3Object, Sha256
from gpucluster.spec.fields import (
    DURATION_SCHEMA,
    AbsolutePath,
    Flag,
    UpdateClass,
    duration,
    parse_text,
    refuse,
    spec_field,
)
from gpucluster.spec.host_fields import number
from gpucluster.spec.part import Part
from gpucluster.text import quoted

SIGNALS = ("USR1", "USR2", "TERM", "INT", "HUP")  # signals that a batch script can trap and that users expect
SPOT_NOTICE_S = (
    120  # the most seconds between EC2's notice and the end of a spot machine (docs/facts/aws.md T34)
)
LONGEST_LEAD_S = SPOT_NOTICE_S // 2  # the daemon leaves half of a notice to the script, for any lead
MOST_BOOTS = 100


def parse_signal(value: object) -> str:
    """Parse a signal name, as `kill -l` prints it."""
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
    """Parse a lead time of at most half of a spot notice."""
    seconds = duration(1, 3600)(value)
    if seconds > LONGEST_LEAD_S:
        message = f"{value} is too long: a spot notice comes {SPOT_NOTICE_S} s before the end, and the script has half of this time; write at most {LONGEST_LEAD_S}s"
        raise refuse("lead-too-long", message)
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


class Termination(Part):
    """What a job gets before its machine ends: after a spot notice, before maintenance, with a broken GPU."""

    signal: Signal | None = spec_field(
        UpdateClass.LIVE, "The signal that the batch script gets at once.", default=None
    )
    lead: Lead | None = spec_field(
        UpdateClass.LIVE, "The job is requeued this long before the machine ends.", default=None
    )
    grace: Grace | None = spec_field(
        UpdateClass.LIVE,
        "The job is requeued this long after the signal, if the machine has no fixed end.",
        default=None,
    )
    script: AbsolutePath | None = spec_field(
        UpdateClass.NEW_NODES,
        "A program on the node's image that only root may change. It runs as root, with the kind of interruption and the end.",
        default=None,
    )


class JobHeartbeat(Part):
    """The watchdog of jobs that touch a heartbeat file: a job that stops touching it counts as hung."""

    after: Silence = spec_field(
        UpdateClass.LIVE, "A job that does not touch its file for this long is reported as hung."
    )
    requeue: Flag = spec_field(UpdateClass.LIVE, "A hung job is requeued, too.", default=False)


class BootScript(Part):
    """A script that each node runs as root at its boot, before its first job. A script with another hash never runs."""

    script: S3Object = spec_field(UpdateClass.NEW_NODES, "The script, an object in S3.")
    sha256: Sha256 = spec_field(UpdateClass.NEW_NODES, "Its SHA-256: `sha256sum boot.sh`.")


class Breaker(Part):
    """A pool whose boots fail stops launches for some time."""

    boots: Boots | None = spec_field(
        UpdateClass.LIVE, "This many failed boots in a row stop the pool.", default=None
    )
    cooldown: Cooldown | None = spec_field(
        UpdateClass.LIVE, "The pool launches nothing for this long.", default=None
    )
