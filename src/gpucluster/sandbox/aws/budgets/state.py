"""The budgets of the account. They are stored and never produce a bill."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpucluster.sandbox.aws.ec2.state.values import Refusal


@dataclass(slots=True)
class Budget:
    """One budget; `notices` are notifications with their subscribers."""

    content: Mapping[str, Any]
    notices: list[tuple[Mapping[str, Any], list[Mapping[str, Any]]]] = field(
        default_factory=list[tuple[Mapping[str, Any], list[Mapping[str, Any]]]]
    )
    tags: dict[str, str] = field(default_factory=dict[str, str])


class Budgets:
    """All budgets of the account by name."""

    def __init__(self) -> None:
        self._known: dict[str, Budget] = {}

    def add(self, name: str, budget: Budget) -> None:
        """Create a budget; a used name is refused."""
        if name in self._known:
            raise Refusal(
                "DuplicateRecordException", f"Error creating budget: {name} - the budget already exists."
            )
        self._known[name] = budget

    def get(self, name: str) -> Budget:
        """One budget by name."""
        found = self._known.get(name)
        if found is None:
            raise Refusal("NotFoundException", f"Unable to get budget: {name} - the budget doesn't exist.")
        return found

    def all(self) -> Sequence[Budget]:
        """All budgets, sorted."""
        return [self._known[name] for name in sorted(self._known)]

    def remove(self, name: str) -> None:
        """Delete one."""
        self.get(name)
        del self._known[name]
