"""Where Secrets Manager differs from moto: a deleted secret keeps its name for a time, also after a forced deletion (T38)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from gpucluster.sandbox.aws.ec2.state.values import Refusal
from gpucluster.sandbox.aws.iam.policies import Need
from gpucluster.sandbox.aws.kms import keys
from gpucluster.sandbox.aws.moto_state import ACCOUNT, Moto
from gpucluster.sandbox.aws.protocols import Answer
from gpucluster.sandbox.aws.rights import ApiRequest, json_body, need, request_tags, resource_tags
from gpucluster.sandbox.aws.signature import SignedRequest

_SUFFIX = 7  # length of the random suffix of an ARN: a dash and six letters
Forward = Callable[[bytes], Answer]


class DeletedNames:
    """The names of secrets that were deleted by force; each is free again after `secret_s` seconds."""

    def __init__(self, moto: Moto, secret_s: float) -> None:
        self._moto, self._secret_s = moto, secret_s
        self._forced: dict[str, float] = {}  # name -> when

    def answer(self, operation: str, body: bytes, now: float, forward: Forward) -> Answer:
        """Forward the request to moto, unless AWS refuses it."""
        asked = json_body(body)
        if operation == "CreateSecret":
            self._check_name(str(asked.get("Name", "")), now)
        gone = self._name(asked) if operation == "DeleteSecret" else ""
        answer = forward(body)
        if gone and answer.status == 200:
            self._forced[gone] = now
        return answer

    def _name(self, asked: Mapping[str, Any]) -> str:
        """The name of a secret that the request deletes by force; empty for a recovery window, which moto handles."""
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


def check(moto: Moto, operation: str, request: SignedRequest) -> None:
    """Refuse a new value for a secret that is scheduled for deletion."""
    if operation == "PutSecretValue" and moto.secret_leaves(str(json_body(request.body).get("SecretId", ""))):
        text = "You can't perform this operation on the secret because it was marked for deletion."
        raise Refusal("InvalidRequestException", text)


def rights(request: ApiRequest, moto: Moto) -> Iterable[Need]:
    """The action on the named secret, with its tags; and those on its KMS key."""
    asked = json_body(request.body)
    named = str(asked.get("SecretId", ""))
    if request.operation == "CreateSecret":
        arn = f"arn:aws:secretsmanager:{request.region}:{ACCOUNT}:secret:{asked.get('Name', '')}-??????"
        requested = request_tags({str(t["Key"]): str(t.get("Value", "")) for t in asked.get("Tags") or ()})
        yield need(request, arn, requested)
        if requested:
            yield need(replace(request, operation="TagResource"), arn, requested)
        return
    arn, tags = moto.secret(named)
    yield need(request, arn, resource_tags(tags))
    yield from keys.secret_needs(request.operation, moto.secret_key(named), moto)
