"""What Secrets Manager does and moto does not: a name is taken until its secret is gone, forced or not (T38)."""

import json
from collections.abc import Callable
from typing import Any, cast

from gpucluster.cloud.model import Refusal
from gpucluster.sandbox.backends import Moto
from gpucluster.sandbox.wire import Answer

_SUFFIX = 7  # of an ARN behind the name: a dash and six letters
Forward = Callable[[bytes], Answer]


class Vault:
    """Remembers which secrets were deleted at once; that ends `secret_s` later."""

    def __init__(self, moto: Moto, secret_s: float) -> None:
        self._moto, self._secret_s = moto, secret_s
        self._forced: dict[str, float] = {}  # name -> when

    def answer(self, operation: str, body: bytes, now: float, forward: Forward) -> Answer:
        """Let moto answer, where it would as AWS does."""
        asked = _document(body)
        if operation == "CreateSecret":
            self._check_name(str(asked.get("Name", "")), now)
        gone = self._name(asked) if operation == "DeleteSecret" else ""
        answer = forward(body)
        if gone and answer.status == 200:
            self._forced[gone] = now
        return answer

    def _name(self, asked: dict[str, Any]) -> str:
        """Of a secret that is to go at once; empty for one that waits in its window, which moto knows."""
        if not asked.get("ForceDeleteWithoutRecovery"):
            return ""
        arn, _ = self._moto.secret(str(asked.get("SecretId", "")))
        return arn.rpartition(":secret:")[2][:-_SUFFIX]

    def _check_name(self, name: str, now: float) -> None:
        forced = now < self._forced.get(name, -self._secret_s) + self._secret_s
        if forced or self._moto.secret_leaves(name):
            raise Refusal(
                "InvalidRequestException",
                "You can't create this secret because a secret with this name is already scheduled for deletion.",
            )


def _document(body: bytes) -> dict[str, Any]:
    """Moto says what is wrong with one that is none."""
    try:
        found: object = json.loads(body or b"{}")
    except ValueError:
        return {}
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}
