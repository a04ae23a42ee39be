"""The life of elastic nodes: they come for a job and go when idle, and the cloud keeps nothing of them."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.checks import answers
from gpucluster.checks.model import Answer, Ask, Judgement, Place, failed, listed, passed, short, unknown

OFF, UP, BUSY, ENDING = "POWERED_DOWN", "POWERING_UP", "RUNNING", "COMPLETING"
IDLE, LEAVING = "IDLE", "POWERING_DOWN"
# What may follow what. Others' jobs may have the node between ours and its end.
_NEXT = {
    "": (OFF,),
    OFF: (UP,),
    UP: (BUSY, IDLE),
    BUSY: (ENDING, IDLE, LEAVING),
    ENDING: (BUSY, IDLE, LEAVING),
    IDLE: (BUSY, LEAVING, OFF),  # a look each half second may miss how it leaves
    LEAVING: (OFF,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTrip:
    """How long a node may take from off to running, and from its last job to off."""

    up_s: float
    down_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A node's phases with the seconds since the job was submitted, and what the cloud has at its address now."""

    node: str
    moments: tuple[tuple[float, str], ...]
    instance: str  # "" = no living instance


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """What was watched; the job left its nodes at `left_s`."""

    left_s: float
    lives: tuple[Life, ...]


def ask_lives(want: RoundTrip) -> tuple[Ask, ...]:
    return (Ask(at=Place.WATCH, limit_s=want.down_s),)


def parse_lives(got: tuple[Answer, ...]) -> Lives:
    """What validation itself wrote of its watch."""
    whole = answers.table(got[0].text())
    return Lives(
        left_s=answers.number(whole, "left_s"),
        lives=tuple(
            Life(
                node=answers.text(item, "node"),
                moments=tuple(
                    (answers.number(moment, "at"), answers.text(moment, "phase"))
                    for moment in answers.members(item, "moments")
                ),
                instance=answers.text(item, "instance"),
            )
            for item in answers.members(whole, "lives")
        ),
    )


def judge_lives(found: Lives, want: RoundTrip) -> Judgement:
    """What is ill in one life fails all; a life that others' jobs hide is unknown."""
    expected = f"off, up within {want.up_s:g} s, off within {want.down_s:g} s of its job, no instance left"
    if not found.lives:
        return unknown("no node was watched", expected)
    if ill := [said for life in found.lives if (said := _ill(life, found.left_s, want))]:
        return failed(listed(ill, 3), expected)
    if hidden := [said for life in found.lives if (said := _hidden(life))]:
        return unknown(listed(hidden, 3), expected)
    return passed(listed([_times(life, found.left_s) for life in found.lives]), expected)


def _hidden(life: Life) -> str:
    """Why this life shows no round trip, through nobody's fault."""
    if not life.moments:
        return f"{life.node} was not seen"
    if life.moments[0][1] != OFF:
        return f"{life.node} was {life.moments[0][1]} before the job"
    return f"{life.node} has another job now" if life.moments[-1][1] == BUSY else ""


def _ill(life: Life, left_s: float, want: RoundTrip) -> str:
    if _hidden(life):
        return ""
    phases = [phase for _, phase in life.moments]
    odd = any(now not in _NEXT.get(before, ()) for before, now in zip(["", *phases], phases, strict=False))
    if odd or phases[-1] != OFF or BUSY not in phases:
        return f"{life.node} went {' > '.join(phases)}"
    if _up_s(life) > want.up_s or _down_s(life, left_s) > want.down_s:
        return _times(life, left_s)
    return f"{life.node} is off, but {short(life.instance, 60)} lives at its address" if life.instance else ""


def _times(life: Life, left_s: float) -> str:
    return f"{life.node} up in {_up_s(life):.1f} s, off {_down_s(life, left_s):.1f} s after its job"


def _up_s(life: Life) -> float:
    return next(_at(life, BUSY)) - next(_at(life, UP))


def _down_s(life: Life, left_s: float) -> float:
    """From our job's end, or from the end of the last of others' jobs after it."""
    return life.moments[-1][0] - max(left_s, *_at(life, IDLE))


def _at(life: Life, phase: str) -> Iterator[float]:
    return (at for at, name in life.moments if name == phase)
