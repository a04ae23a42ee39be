"""Where SQS differs from moto.

A long poll blocks no other call, the name of a deleted queue is kept (T41), and SetQueueAttributes changes nothing but what it names.
"""

import json
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, cast

from gpucluster.sandbox.aws.ec2.state.values import Refusal
from gpucluster.sandbox.aws.iam.policies import Need
from gpucluster.sandbox.aws.moto_state import ACCOUNT
from gpucluster.sandbox.aws.protocols import Answer
from gpucluster.sandbox.aws.rights import ApiRequest, json_body, need, request_tags

_NAME_KEPT_S = 60.0  # a deleted queue keeps its name so long
_STEP_S = 0.25  # a spot notice has 120 s; each read costs moto some milliseconds
_HOST = re.compile(r"[A-Za-z0-9.\-\[\]:]{1,255}")
_GIVES_URLS = frozenset({"CreateQueue", "GetQueueUrl", "ListDeadLetterSourceQueues", "ListQueues"})
_OF_MOTO = b'"http://127.0.0.1/'  # wsgi.Forward gives moto this host
_WAIT_MAX_S = 20.0  # the limit of SQS
Forward = Callable[[bytes], Answer]


class Queues:
    """What moto forgets of queues; the front end passes every SQS call through `answer`."""

    def __init__(self) -> None:
        self._deleted: dict[str, float] = {}  # name -> when
        self._policies: dict[str, str] = {}  # name -> the last policy that was set

    def answer(self, operation: str, body: bytes, now: float, forward: Forward) -> Answer:
        """Forward the request to moto, unless AWS refuses it."""
        asked = _document(body)
        if operation == "ReceiveMessage":
            return _receive(asked, forward)
        if operation == "CreateQueue":
            self._check_name(str(asked.get("QueueName", "")), now)
        if operation == "SetQueueAttributes":
            return self._set(asked, forward)
        answer = forward(body)
        if operation == "DeleteQueue" and answer.status == 200:
            self._deleted[_name(asked)] = now
            self._policies.pop(_name(asked), None)
        if operation == "CreateQueue" and answer.status == 200:
            self._policies.setdefault(str(asked.get("QueueName", "")), _attributes(asked).get("Policy", ""))
        return answer

    def _set(self, asked: dict[str, Any], forward: Forward) -> Answer:
        """Set the attributes with the present policy: moto removes a policy that the request does not name."""
        known = self._policies.get(_name(asked))
        attributes = ({"Policy": known} if known else {}) | _attributes(asked)
        answer = forward(json.dumps({**asked, "Attributes": attributes}).encode())
        if answer.status == 200:
            self._policies[_name(asked)] = attributes.get("Policy", "")
        return answer

    def _check_name(self, name: str, now: float) -> None:
        if now < self._deleted.get(name, -_NAME_KEPT_S) + _NAME_KEPT_S:
            raise Refusal(
                "AWS.SimpleQueueService.QueueDeletedRecently",
                "You must wait 60 seconds after deleting a queue before you can create another with the same name.",
            )


def _name(asked: dict[str, Any]) -> str:
    return str(asked.get("QueueUrl", "")).rpartition("/")[2]


def _attributes(asked: dict[str, Any]) -> dict[str, str]:
    return cast(dict[str, str], asked.get("Attributes") or {})


def _receive(asked: dict[str, Any], forward: Forward) -> Answer:
    """Poll moto without a wait until a message arrives: moto waits with its lock held, which would block every other call."""
    wait_s = min(float(asked.get("WaitTimeSeconds") or 0.0), _WAIT_MAX_S)
    until = time.monotonic() + wait_s
    now_only = json.dumps({**asked, "WaitTimeSeconds": 0}).encode()
    while True:
        answer = forward(now_only)
        if answer.status != 200 or b'"Messages"' in answer.body or time.monotonic() >= until:
            return answer
        time.sleep(_STEP_S)


def at_host(operation: str, answer: Answer, host: str) -> Answer:
    """The answer with the client's host and port in the URLs of queues: moto's lack the port."""
    if operation not in _GIVES_URLS or not _HOST.fullmatch(host):
        return answer
    body = answer.body.replace(_OF_MOTO, f'"http://{host}/'.encode())
    headers = {name: text for name, text in answer.headers.items() if name.lower() != "content-length"}
    return replace(answer, body=body, headers=headers)


def _document(body: bytes) -> dict[str, Any]:
    try:
        found: object = json.loads(body or b"{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Refusal("SerializationException", "the body is no JSON object")
    return cast(dict[str, Any], found)


def rights(request: ApiRequest, _moto: object) -> Iterable[Need]:
    """The action on the queue of the URL; a batch needs the right of the single action."""
    asked = json_body(request.body)
    if request.operation == "CreateQueue":
        arn = f"arn:aws:sqs:{request.region}:{ACCOUNT}:{asked.get('QueueName', '')}"
        yield need(request, arn, request_tags(asked.get("tags") or {}))
        if asked.get("tags"):
            yield need(replace(request, operation="TagQueue"), arn, request_tags(asked["tags"]))
        return
    url = str(asked.get("QueueUrl", ""))
    _, account, name = f"//{url}".rsplit("/", 2)
    resource = f"arn:aws:sqs:{request.region}:{account}:{name}" if url else "*"
    yield need(replace(request, operation=request.operation.removesuffix("Batch")), resource, {})
