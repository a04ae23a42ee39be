"""The number of instances that each (machine, zone, market) can still launch: unlimited until a scenario sets it.

A rule is a pool shared by all that it matches; the last rule that matches decides. Setting a rule makes a
new pool: what was launched from the old one gives nothing back to the new, so 0 stays 0.
"""

from dataclasses import dataclass

from gpucluster.plan.model import Market
from gpucluster.sandbox.aws.ec2.state.values import ANY, Refusal


@dataclass(slots=True)
class _Rule:
    id: int
    pattern: tuple[str, str, str]
    free: int | None

    def matches(self, key: tuple[str, str, str]) -> bool:
        return all(want in (ANY, have) for want, have in zip(self.pattern, key, strict=True))


class Capacity:
    """The table of rules. Refusals name `zones`, as EC2 does."""

    def __init__(self) -> None:
        self._rules: list[_Rule] = []
        self._next_id = 1
        self._withdrawn: set[tuple[str, str]] = set()
        self.zones: set[str] = set()
        self.room: int | None = (
            None  # the number of machines that the host can still run; it bounds all rules
        )

    def clear(self) -> None:
        """Remove the rules of scenarios; the limit of the host stays."""
        self._rules.clear()
        self._withdrawn.clear()

    def set(self, machine: str, zone: str, market: str, free: int | None) -> None:
        """Set the number of instances that can still be launched (None: any number). `*` matches all."""
        pattern = (machine, zone, market)
        self._rules = [r for r in self._rules if r.pattern != pattern]
        self._rules.append(_Rule(self._next_id, pattern, free))
        self._next_id += 1

    def withdraw(self, machine: str, zone: str) -> None:
        """Declare that the zone does not offer the machine type (T07)."""
        self._withdrawn.add((machine, zone))

    def free(self, machine: str, zone: str, market: Market) -> int | None:
        """The number of instances that can still be launched; None is any number."""
        rule = self._rule(machine, zone, market)
        return None if rule is None else rule.free

    def take(
        self, machine: str, zone: str, market: Market, at_least: int, at_most: int
    ) -> tuple[int, int | None]:
        """Take as many as possible (T05) and return (count, rule); refuse when it is below `at_least` (T06)."""
        rule = self._rule(machine, zone, market)
        bounds = [n for n in (self.room, None if rule is None else rule.free) if n is not None]
        count = min([*bounds, at_most])
        if count < at_least:
            raise self.insufficient(machine, zone, market)
        self.take_room(count)
        if rule is None or rule.free is None:
            return count, None
        rule.free -= count
        return count, rule.id

    def take_room(self, count: int) -> None:
        """Take from the host's limit alone: a reservation's capacity counts against no rule."""
        if self.room is not None:
            self.room -= count

    def give_back(self, rule_id: int | None, count: int = 1) -> None:
        """Return capacity to the host, and to the rule if it still exists."""
        self.take_room(-count)
        for rule in self._rules:
            if rule.id == rule_id and rule.free is not None:
                rule.free += count

    def _rule(self, machine: str, zone: str, market: Market) -> _Rule | None:
        key = (machine, zone, market.value)
        return next((r for r in reversed(self._rules) if r.matches(key)), None)

    def check_offered(self, machine: str, zone: str) -> None:
        """Refuse a machine type that the zone does not offer (T07)."""
        self.zones.add(zone)
        if (machine, zone) not in self._withdrawn and (machine, ANY) not in self._withdrawn:
            return
        others = [z for z in sorted(self.zones - {zone}) if (machine, z) not in self._withdrawn]
        raise Refusal(
            "Unsupported",
            f"Your requested instance type ({machine}) is not supported in your requested Availability Zone "
            f"({zone}). Please retry your request by not specifying an Availability Zone or choosing "
            f"{', '.join(others) or 'another'}.",
        )

    def insufficient(self, machine: str, zone: str, market: Market) -> Refusal:
        """The refusal for lack of capacity; it names the zones that have some."""
        others = [z for z in sorted(self.zones - {zone}) if self.free(machine, z, market) != 0]
        if market is Market.SPOT:
            text = "There is no Spot capacity available that matches your request."
        else:
            text = (
                f"We currently do not have sufficient {machine} capacity in the Availability Zone you requested "
                f"({zone}). Our system will be working on provisioning additional capacity."
            )
        if others:
            text += (
                f" You can currently get {machine} capacity by not specifying an Availability Zone in your "
                f"request or choosing {', '.join(others)}."
            )
        return Refusal("InsufficientInstanceCapacity", text, status=500)
