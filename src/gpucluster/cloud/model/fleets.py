"""One instant fleet over its overrides: who is asked for how many, and which errors come back (T13, T14)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpucluster.cloud.model.values import Draw, FleetSpec, LaunchSpec, Refusal

# asked: spec, at most, and how many are planned already
Take = Callable[[LaunchSpec, int, int], tuple[Draw, ...]]

_ECHO = "UnfulfillableCapacity"
# Refusals after which a fleet tries no other override: those get the echo.
_STOPS = frozenset({"RequestLimitExceeded", "VcpuLimitExceeded", "MaxSpotInstanceCountExceeded"})
# A fleet's own words for what RunInstances calls otherwise.
_OTHERWISE = {
    "Unsupported": "InvalidFleetConfiguration",
    "ReservationCapacityExceeded": _ECHO,
}


@dataclass(slots=True)
class Plan:
    """What each override can give, before anything is made."""

    taken: list[tuple[int, LaunchSpec, tuple[Draw, ...]]] = field(
        default_factory=list[tuple[int, LaunchSpec, tuple[Draw, ...]]]
    )
    refused: dict[int, Refusal] = field(default_factory=dict[int, Refusal])
    untried: list[int] = field(default_factory=list[int])

    @property
    def draws(self) -> Sequence[Draw]:
        return [draw for _, _, drawn in self.taken for draw in drawn]

    @property
    def count(self) -> int:
        return len(self.draws)


def plan(asked: FleetSpec, take: Take) -> Plan:
    """Ask each override in order for what is still missing."""
    found, stopped = Plan(), False
    for position, override in enumerate(asked.overrides):
        left = asked.count - found.count
        if isinstance(override, Refusal):
            found.refused[position] = override
        elif stopped:
            found.untried.append(position)
        elif left > 0:
            try:
                found.taken.append((position, override, take(override, left, found.count)))
            except Refusal as refusal:
                found.refused[position] = refusal
                stopped = refusal.code in _STOPS
    return found


def errors(asked: FleetSpec, plan: Plan, *, launched: bool) -> tuple[tuple[int, str, str], ...]:
    """By position of the override; one that could give some, but too few, is short of capacity."""
    found = {p: (_OTHERWISE.get(r.code, r.code), _text(r)) for p, r in plan.refused.items()}
    found |= dict.fromkeys(
        plan.untried, (_ECHO, "Unable to fulfill capacity due to the errors of the other overrides.")
    )
    if not launched:
        for position, spec, drawn in plan.taken:
            text = f"There is capacity for {len(drawn)} {spec.machine}, which is below the target."
            found[position] = ("InsufficientInstanceCapacity", text)
    return tuple((position, *found[position]) for position in sorted(found))


def _text(refusal: Refusal) -> str:
    return f"{refusal.code}: {refusal.message}" if refusal.code in _OTHERWISE else refusal.message
