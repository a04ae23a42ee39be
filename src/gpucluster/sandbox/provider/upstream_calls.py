"""Ask the rights of the reads of the upstream provider, which makes more of them than this one.

The table is `catalog/data/aws-calls.json`. Calls of this provider itself are checked by the API when they arrive.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import botocore.session
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError
from botocore.httpsession import URLLib3Session

from gpucluster.catalog.calls import call_facts
from gpucluster.engine.values import Values
from gpucluster.sandbox.aws import ASKED
from gpucluster.sandbox.provider.cloud import Cloud

_CODE, _MESSAGE = re.compile(rb"<Code>([^<]*)</Code>"), re.compile(rb"<Message>([^<]*)</Message>")
# each action with a resource is one of this provider's calls, too
_BY_CALL = ("ec2", "eks", "elasticfilesystem", "fsx", "kms", "logs")
_READS = ("Describe", "Get", "List", "View")
_OBJECTS = ("Object", "ObjectVersion", "ObjectTagging")


def ask(cloud: Cloud, token: str, operation: str, identifier: str, inputs: Values) -> None:
    """Raise ClientError with AccessDenied if the caller lacks a right of the operation: create, read, update or delete."""
    row = call_facts().types.get(token)
    if row is None:
        return
    actions = {
        "create": (*row.create, *row.read),
        "read": row.read,
        "update": row.read,  # the calls of an update depend on what changes
        "delete": row.delete,
    }[operation]
    reads = sorted({one for one in actions if one.partition(":")[2].startswith(_READS)})
    _send(cloud, list(_needs(cloud, token, reads, identifier, inputs)))


def ask_lookup(cloud: Cloud, token: str) -> None:
    """Raise ClientError if the caller lacks a right of the data source that names no resource."""
    facts = call_facts()
    actions = [one for one in facts.lookups.get(token, ()) if not facts.kinds[one]]
    _send(cloud, [{"action": one, "resource": "*"} for one in actions])


def _needs(
    cloud: Cloud, token: str, actions: Sequence[str], identifier: str, inputs: Values
) -> Iterator[Mapping[str, Any]]:
    facts = call_facts()
    for action in actions:
        if action in facts.inside:
            continue
        if not facts.kinds[action]:
            tags: Values = inputs.get("tagsAll") or {}
            if not action.startswith(
                "elasticfilesystem:"
            ):  # its creation has a condition on the tags of the request
                yield {"action": action, "resource": "*", "tags": tags}
        elif action.partition(":")[0] not in _BY_CALL:
            arn = _arn(cloud, token, action, identifier, inputs)
            if arn:
                yield {"action": action, "resource": arn, "tags": inputs.get("tagsAll") or {}}


def _arn(cloud: Cloud, token: str, action: str, identifier: str, inputs: Values) -> str:
    """Return the ARN on which AWS checks an action of this resource; empty if another call already has it."""
    service, _, name = action.partition(":")
    kind = token.rpartition(":")[2]
    named = identifier or str(inputs.get("name") or inputs.get("bucket") or "")
    if service == "iam":
        return _iam_arn(cloud, kind, name, named, inputs)
    base = f"{cloud.region}:{cloud.account}"
    bucket = f"arn:aws:s3:::{inputs.get('bucket') or named}"
    queue = str(inputs.get("queueUrl") or named).rpartition("/")[2]
    budget = inputs.get("name") or named.rpartition(":")[2]
    return {
        "billing": f"arn:aws:billing::{cloud.account}:billingview/primary",
        "budgets": f"arn:aws:budgets::{cloud.account}:budget/{budget}",
        "events": f"arn:aws:events:{base}:rule/{inputs.get('rule') or named}",
        "s3": f"{bucket}/{inputs.get('key', '*')}" if name.endswith(_OBJECTS) else bucket,
        "secretsmanager": identifier or f"arn:aws:secretsmanager:{base}:secret:{named}-??????",
        "sqs": f"arn:aws:sqs:{base}:{queue}",
    }[service]


def _iam_arn(cloud: Cloud, kind: str, name: str, named: str, inputs: Values) -> str:
    base = f"arn:aws:iam::{cloud.account}"
    if "InstanceProfile" in name and name != "ListInstanceProfilesForRole":
        return f"{base}:instance-profile/{named}" if kind == "InstanceProfile" else ""
    role = named if kind == "Role" else str(inputs.get("role") or "")
    return f"{base}:role/{role}" if role else ""


@cache  # the engine starts this process anew for each run
def _credentials() -> Any:
    return botocore.session.get_session().get_credentials()


@cache
def _http() -> URLLib3Session:
    return URLLib3Session()


def _send(cloud: Cloud, needs: Sequence[Mapping[str, Any]]) -> None:
    if not needs:
        return
    url = str(cloud.client("sts").meta.endpoint_url).rstrip("/") + ASKED
    request: Any = AWSRequest(method="POST", url=url, data=json.dumps({"needs": needs}).encode())
    SigV4Auth(_credentials(), "sts", cloud.region).add_auth(request)
    answer = _http().send(request.prepare())
    if answer.status_code != 200:
        code, message = _CODE.search(answer.content), _MESSAGE.search(answer.content)
        error = {
            "Code": code[1].decode() if code else str(answer.status_code),
            "Message": message[1].decode() if message else "no reason given",
        }
        raise ClientError({"Error": error}, "upstream")  # pyright: ignore[reportArgumentType]
