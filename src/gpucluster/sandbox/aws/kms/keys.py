"""What services refuse because of a customer-managed key that is missing, disabled, or not for the caller (T51)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpucluster.cloud.port import LIVING
from gpucluster.sandbox.aws.ec2.call import Ec2Call
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Ec2Instance, Refusal
from gpucluster.sandbox.aws.iam.policies import Context, Need
from gpucluster.sandbox.aws.moto_state import ACCOUNT, Moto
from gpucluster.sandbox.aws.rights import ApiRequest, json_body, need, request_tags, resource_tags

INVALID = "Client.InvalidKMSKey.InvalidState", "The KMS key provided is in an incorrect state"
# a launch without rights on the key: the code and the message differ (aws/karpenter-provider-aws#1407)
DENIED = "Server.InternalError", "Client.InternalError: Client error on launch"
_OF_VOLUMES = (
    "CreateGrant",
    "Decrypt",
    "DescribeKey",
    "GenerateDataKeyWithoutPlaintext",
    "ReEncryptFrom",
    "ReEncryptTo",
)
_OF_OBJECTS: Mapping[str, tuple[str, ...]] = {
    "AbortMultipartUpload": (),
    "GetObject": ("Decrypt",),
    "GetObjectVersion": ("Decrypt",),
    "PutObject": ("GenerateDataKey",),
}
_OF_SECRETS: Mapping[str, tuple[str, ...]] = {
    "GetSecretValue": ("Decrypt",),
    "PutSecretValue": ("Decrypt", "GenerateDataKey"),
}
# "Required" in the key policies that the guides of EFS and FSx give for a customer-managed key
_OF_FILE_SYSTEMS = ("CreateGrant", "Decrypt", "DescribeKey", "GenerateDataKeyWithoutPlaintext")
_OF_CLUSTERS = ("CreateGrant", "DescribeKey")
_NEW = "00000000-0000-4000-8000-000000000000"  # of a key that does not exist yet
Allow = Callable[[Iterable[Need]], None]


def volume_key(moto: Moto, encrypted: object, named: str | None) -> str | None:
    """The customer-managed key of a volume: the named one or the account's default; None for a key of AWS."""
    if str(encrypted).lower() != "true":
        return None
    key = named or moto.ebs_key
    found = moto.key(key)
    return None if key.endswith("alias/aws/ebs") or (found and found.manager == "AWS") else key


def end_refused(call: Ec2Call, made: Iterable[Ec2Instance], model: CloudModel, moto: Moto) -> None:
    """End the instances that cannot use the key of a volume. EC2 has answered by then: the launch itself succeeds."""
    for instance in made:
        for ebs in _volumes(instance.spec.options):
            key = volume_key(moto, ebs.get("Encrypted"), ebs.get("KmsKeyId"))
            end = None if key is None else refused(call, key, model, moto)
            if end is not None and instance.state in LIVING:
                code, text = end
                reason = text if text.startswith("Client.") else f"{code}: {text}"
                model.mark_ended(instance.id, call.now, reason, code)
                break


def system_needs(service: str, encrypted: object, named: str | None, moto: Moto) -> Iterator[Need]:
    """The rights on the key of a new file system of EFS or FSx."""
    yield from _needs(_OF_FILE_SYSTEMS, named if encrypted else None, moto, service, _system_refusal)


def object_needs(operation: str, key: str | None, moto: Moto) -> Iterator[Need]:
    """The rights on the key of a bucket. A key that is not enabled refuses everyone."""
    yield from _needs(_OF_OBJECTS.get(operation, ()), key, moto, "s3", _object_refusal)


def secret_needs(operation: str, key: str | None, moto: Moto) -> Iterator[Need]:
    """The rights on the key of a secret."""
    yield from _needs(_OF_SECRETS.get(operation, ()), key, moto, "secretsmanager", _secret_refusal)


def rights(request: ApiRequest, moto: Moto) -> Iterable[Need]:
    """The action on the named key, and tags at its creation; a direct call has no `kms:ViaService`."""
    asked = json_body(request.body)
    found = moto.key(str(asked.get("KeyId", "")))
    tags = {str(row["TagKey"]): str(row["TagValue"]) for row in asked.get("Tags") or ()}
    arn = "*" if found is None else found.arn
    of_key: Context = _of_key(arn, moto) if found else {}
    yield need(request, arn, {**of_key, **request_tags(tags)})
    if request.operation == "CreateKey" and tags:
        arn = f"arn:aws:kms:{request.region}:{ACCOUNT}:key/{_NEW}"
        yield need(replace(request, operation="TagResource"), arn, request_tags(tags))


def cluster_needs(named: str, moto: Moto) -> Iterator[Need]:
    """The rights of who makes a cluster of EKS with a key for its secrets (EKS user guide, "Encrypt Kubernetes secrets")."""
    found = moto.key(named)
    if found is not None:
        yield from _via("eks", _OF_CLUSTERS, found.arn, moto)


def _of_key(arn: str, moto: Moto) -> Context:
    return {"kms:resourcealiases": moto.aliases(arn), **resource_tags(moto.key_tags(arn))}


def refused(call: Ec2Call, named: str, model: CloudModel, moto: Moto) -> tuple[str, str] | None:
    """Return code and text if the key is bad, or if the caller may not use it for volumes; None if it is good."""
    key = moto.key(named)
    if key is None or key.state != "Enabled":
        return INVALID
    for one in _via("ec2", _OF_VOLUMES, key.arn, moto):
        try:
            call.allow([one])
        except Refusal:
            model.record(one.action, call.now, "AccessDenied", key.arn)  # as CloudTrail shows it
            return DENIED
    return None


def _volumes(options: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for mapping in options.get("BlockDeviceMappings", ()):
        if "Ebs" in mapping:
            yield mapping["Ebs"]


def _needs(
    actions: tuple[str, ...],
    key: str | None,
    moto: Moto,
    service: str,
    refusal: Callable[[str, str], Refusal],
) -> Iterator[Need]:
    if key is None or not actions or "alias/aws/" in key:
        return
    found = moto.key(key)
    if found is not None and found.manager == "AWS":
        return
    if found is None or found.state != "Enabled":
        raise refusal(actions[0], key if found is None else found.arn)
    yield from _via(service, actions, found.arn, moto)


def _via(service: str, actions: Iterable[str], arn: str, moto: Moto) -> Iterator[Need]:
    via = (f"{service}.{moto.region}.amazonaws.com",)
    context = {"kms:viaservice": via, **_of_key(arn, moto)}
    for action in actions:
        granted = {"kms:grantisforawsresource": ("true",)} if action == "CreateGrant" else {}
        yield Need(action=f"kms:{action}", resource=arn, context={**context, **granted})


def _system_refusal(_: str, key: str) -> Refusal:
    """The models of EFS and FSx list `BadRequest` for CreateFileSystem, and no code for keys (T51)."""
    return Refusal("BadRequest", f"The KMS key {key} does not exist or is not enabled.")


def _object_refusal(_: str, key: str) -> Refusal:
    return Refusal("KMS.DisabledException", f"{key} is missing or disabled.")


def _secret_refusal(action: str, key: str) -> Refusal:
    code = "DecryptionFailure" if action == "Decrypt" else "EncryptionFailure"
    return Refusal(code, f"Secrets Manager cannot use the KMS key {key}: it is not available or not enabled.")
