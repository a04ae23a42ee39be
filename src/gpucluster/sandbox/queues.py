"""SQS where moto is not as AWS: long polls that hold nobody up, and names that a deleted queue keeps (T41)."""

import json
import time
from collections.abc import Callable
from typing import Any, cast

from gpucluster.cloud.model import Refusal
from gpucluster.sandbox.wire import Answer

_KEPT_S = 60.0  # a name after its queue
_STEP_S = 0.25  # a notice has 120 s; each look costs moto some ms
_WAIT_MAX_S = 20.0  # SQS's own
Forward = Callable[[bytes], Answer]


class Queues:
    """What is asked of SQS, between the face and moto."""

    def __init__(self) -> None:
        self._deleted: dict[str, float] = {}  # name -> when

    def answer(self, operation: str, body: bytes, now: float, forward: Forward) -> Answer:
        """Let moto answer, where it would as AWS does."""
        asked = _document(body)
        if operation == "ReceiveMessage":
            return _receive(asked, forward)
        if operation == "CreateQueue":
            self._check_name(str(asked.get("QueueName", "")), now)
        answer = forward(body)
        if operation == "DeleteQueue" and answer.status == 200:
            self._deleted[str(asked.get("QueueUrl", "")).rpartition("/")[2]] = now
        return answer

    def _check_name(self, name: str, now: float) -> None:
        if now < self._deleted.get(name, -_KEPT_S) + _KEPT_S:
            raise Refusal(
                "AWS.SimpleQueueService.QueueDeletedRecently",
                "You must wait 60 seconds after deleting a queue before you can create another with the same name.",
            )


def _receive(asked: dict[str, Any], forward: Forward) -> Answer:
    """moto waits with its lock held, and with it the whole cloud: so it is asked for what is there, again and again."""
    wait_s = min(float(asked.get("WaitTimeSeconds") or 0.0), _WAIT_MAX_S)
    until = time.monotonic() + wait_s
    now_only = json.dumps({**asked, "WaitTimeSeconds": 0}).encode()
    while True:
        answer = forward(now_only)
        if answer.status != 200 or b'"Messages"' in answer.body or time.monotonic() >= until:
            return answer
        time.sleep(_STEP_S)


def _document(body: bytes) -> dict[str, Any]:
    try:
        found: object = json.loads(body or b"{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Refusal("SerializationException", "the body is no JSON object")
    return cast(dict[str, Any], found)
