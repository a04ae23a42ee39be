"""The tokens of EKS: GetCallerIdentity of STS, presigned for one cluster, as `aws eks get-token` makes it.

Source: awscli, `customizations/eks/get_token.py`; aws-iam-authenticator, `pkg/token`.
"""

import base64
import binascii
import hmac
from urllib.parse import parse_qsl, urlsplit

from gpucluster.sandbox.aws.credentials import KeyRing, Principal
from gpucluster.sandbox.aws.eks.state import STANDARD, Eks, Entry
from gpucluster.sandbox.aws.signature import BadSignature, Flaw, Scope, SignedRequest, signature, signed_at

PREFIX = "k8s-aws-v1."
_HEADER = "x-k8s-aws-id"  # signed: the name of the cluster
_LASTS_S = 900.0  # the authenticator takes a token so long after its signature, whatever X-Amz-Expires says


def caller(token: str, cluster: str, ring: KeyRing, *, now: float, wall: float) -> Principal:
    """Return who made the token for this cluster; raise BadSignature. `now` and `wall` as in `signature.verify`."""
    url = urlsplit(_url(token))
    asked = dict(parse_qsl(url.query, keep_blank_values=True))
    if asked.get("Action") != "GetCallerIdentity":
        raise BadSignature(Flaw.WRONG)
    named = asked.get("X-Amz-Credential", "").split("/")
    key = ring.find(named[0])
    if key is None:
        raise BadSignature(Flaw.UNKNOWN)
    stamp, signed = asked.get("X-Amz-Date", ""), tuple(asked.get("X-Amz-SignedHeaders", "").split(";"))
    if not signed_at(stamp) - 300 <= wall < signed_at(stamp) + _LASTS_S:
        raise BadSignature(Flaw.EXPIRED)
    if len(named) != 5 or named[3] != "sts" or not {"host", _HEADER} <= {*signed}:
        raise BadSignature(Flaw.WRONG)
    scope = Scope(access_key=named[0], region=named[2], service="sts", signed=signed, signature="")
    left = "&".join(one for one in url.query.split("&") if not one.startswith("X-Amz-Signature="))
    request = SignedRequest(
        method="GET",
        target=f"{url.path or '/'}?{left}",
        headers={"host": url.netloc, _HEADER: cluster},
        body=b"",
    )
    if not hmac.compare_digest(signature(request, scope, key, stamp), asked.get("X-Amz-Signature", "")):
        raise BadSignature(Flaw.WRONG)
    if key.token and not hmac.compare_digest(asked.get("X-Amz-Security-Token", ""), key.token):
        raise BadSignature(Flaw.UNKNOWN)
    if key.expires is not None and key.expires <= now:
        raise BadSignature(Flaw.EXPIRED)
    return key.principal


def identity(eks: Eks, cluster: str, who: Principal, role_arn: str) -> tuple[str, list[str]] | None:
    """Return the user name and the groups of a caller in a cluster; None if the cluster does not admit him.

    `role_arn` is the ARN of the role of an assumed role, empty for a user.
    """
    entry: Entry | None = eks.entries.get((cluster, role_arn or who.arn))
    if entry is None or entry.kind != STANDARD:
        return None
    session = who.arn.rpartition("/")[2]
    # a policy for namespaces gives nothing here
    whole = [arn for arn, granted in sorted(entry.policies.items()) if granted.kind == "cluster"]
    groups = [*entry.groups, *map(policy_group, whole)]
    return entry.username.replace("{{SessionName}}", session), groups


def policy_group(policy: str) -> str:
    """The group that stands for an access policy of EKS, which has an authorizer of its own."""
    return f"eks:{policy.rpartition('/')[2]}"


def _url(token: str) -> str:
    if not token.startswith(PREFIX):
        raise BadSignature(Flaw.MISSING)
    text = token.removeprefix(PREFIX)
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise BadSignature(Flaw.WRONG) from error
