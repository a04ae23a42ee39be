"""The rights that a request needs: action, resource and condition keys, as IAM evaluates them.

Each service's rights are in its folder. A service without any needs its action on `*`.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from gpucluster.sandbox.aws.iam.policies import Context, Need
from gpucluster.sandbox.aws.moto_state import ACCOUNT


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """A request by service and operation. `parameters` holds EC2's query; other services have `body`."""

    service: str
    operation: str
    region: str
    target: str
    body: bytes = b""
    tagged: bool = False  # S3: the request sets tags in a header
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])


def need(request: ApiRequest, resource: str, context: Context) -> Need:
    """The request's own action on `resource`."""
    full = {"aws:requestedregion": (request.region,), **context}
    return Need(action=f"{request.service}:{request.operation}", resource=resource, context=full)


def on_anything(request: ApiRequest, _moto: object) -> Iterable[Need]:
    """The action on `*`."""
    yield need(request, "*", {})


def linked_role(service: str, role: str) -> Iterable[Need]:
    """The right to create the role of a service, which the first resource of an account needs. The sandbox always asks for it."""
    arn = f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/{service}/{role}"
    yield Need(action="iam:CreateServiceLinkedRole", resource=arn, context={"iam:awsservicename": (service,)})


def json_body(body: bytes) -> Mapping[str, Any]:
    """The object in the body of a JSON protocol; {} if there is none."""
    try:
        found: object = json.loads(body or b"{}")
    except ValueError:
        return {}
    return cast(Mapping[str, Any], found) if isinstance(found, dict) else {}


def resource_tags(tags: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The condition keys for the tags that a resource has."""
    found: dict[str, tuple[str, ...]] = {}
    for key, value in tags.items():
        found[f"aws:resourcetag/{key}"] = (value,)
        found[f"ec2:resourcetag/{key}"] = (value,)
    return found


def request_tags(tags: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The condition keys for the tags that a request sets."""
    if not tags:
        return {}
    return {"aws:tagkeys": tuple(sorted(tags)), **{f"aws:requesttag/{k}": (v,) for k, v in tags.items()}}


def asked_needs(body: bytes, region: str) -> list[Need]:
    """The rights of a question: rows of action, resource and tags of the resource."""
    rows = cast(Iterable[Mapping[str, Any]], json_body(body).get("needs", ()))
    return [
        Need(
            action=str(row["action"]),
            resource=str(row["resource"]),
            context={"aws:requestedregion": (region,), **resource_tags(row.get("tags") or {})},
        )
        for row in rows
    ]
