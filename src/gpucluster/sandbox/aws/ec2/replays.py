"""Answers of calls with a client token: a repeated call gets the same answer, other parameters are refused.

Launches and fleets keep their own tokens, by zone, also after their instances ended (T01 to T04).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpucluster.sandbox.aws.ec2.state.values import Refusal
from gpucluster.sandbox.aws.protocols import Answer

_KEPT_S = 24 * 3600.0  # AWS keeps a token for at least a day
_NOT_OF_THE_CALL = frozenset({"ClientToken", "DryRun"})


@dataclass(slots=True)
class Replays:
    """Answers by operation and token."""

    _known: dict[tuple[str, str], tuple[float, str, Answer]] = field(
        default_factory=dict[tuple[str, str], tuple[float, str, Answer]]
    )

    def find(self, operation: str, asked: Mapping[str, Any], now: float) -> Answer | None:
        """The earlier answer to this identical call; a Refusal if the token was used with other parameters."""
        key = _key(operation, asked)
        at, fingerprint, answer = self._known.get(key, (0.0, "", None)) if key else (0.0, "", None)
        if answer is None or now > at + _KEPT_S:
            return None
        if fingerprint != _fingerprint(asked):
            raise Refusal(
                "IdempotentParameterMismatch",
                "The client token was already used, with other parameters.",
            )
        return answer

    def keep(self, operation: str, asked: Mapping[str, Any], answer: Answer, now: float) -> None:
        """Store an answer; a refusal is not stored."""
        key = _key(operation, asked)
        if key is not None and answer.status == 200:
            self._known[key] = (now, _fingerprint(asked), answer)


def _key(operation: str, asked: Mapping[str, Any]) -> tuple[str, str] | None:
    token = asked.get("ClientToken")
    return (operation, str(token)) if token and operation.startswith("Create") else None


def _fingerprint(asked: Mapping[str, Any]) -> str:
    return json.dumps(
        {k: v for k, v in asked.items() if k not in _NOT_OF_THE_CALL}, sort_keys=True, default=str
    )
