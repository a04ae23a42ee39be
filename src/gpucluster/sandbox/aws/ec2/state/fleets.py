"""One instant fleet over its overrides: how many instances each gets, and which errors are returned (T13, T14)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpucluster.sandbox.aws.ec2.state.values import CapacitySource, FleetSpec, InstanceLaunch, Refusal

# (spec, most, planned) -> count that can be launched
Take = Callable[[InstanceLaunch, int, int], tuple[CapacitySource, ...]]

_ECHO = "UnfulfillableCapacity"
# After these refusals a fleet tries no other override; the others get the echo code.
_STOPS = frozenset({"RequestLimitExceeded", "VcpuLimitExceeded", "MaxSpotInstanceCountExceeded"})
# The codes of a fleet where they differ from those of RunInstances.
_OTHERWISE = {
    "Unsupported": "InvalidFleetConfiguration",
    "ReservationCapacityExceeded": _ECHO,
}


@dataclass(slots=True)
class FleetPlan:
    """The number of instances of each override, before anything is created."""

    taken: list[tuple[int, InstanceLaunch, tuple[CapacitySource, ...]]] = field(
        default_factory=list[tuple[int, InstanceLaunch, tuple[CapacitySource, ...]]]
    )
    refused: dict[int, Refusal] = field(default_factory=dict[int, Refusal])
    untried: list[int] = field(default_factory=list[int])

    @property
    def draws(self) -> Sequence[CapacitySource]:
        return [draw for _, _, drawn in self.taken for draw in drawn]

    @property
    def count(self) -> int:
        return len(self.draws)


def plan(asked: FleetSpec, take: Take) -> FleetPlan:
    """Take each override in order until nothing is missing."""
    found, stopped = FleetPlan(), False
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


def errors(asked: FleetSpec, plan: FleetPlan, *, launched: bool) -> tuple[tuple[int, str, str], ...]:
    """Errors by position of the override; an override that gives too few instances is short of capacity."""
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
