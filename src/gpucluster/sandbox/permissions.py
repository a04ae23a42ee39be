"""What a request must be allowed: its actions, resources and condition keys, as IAM sees them.

Only what a role's key may ever be used for is spelt out; anything else needs its action on `*`.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast
from urllib.parse import parse_qsl

from gpucluster.cloud.model import LaunchSpec
from gpucluster.sandbox import wire
from gpucluster.sandbox.backends import ACCOUNT, Moto
from gpucluster.sandbox.policies import Context, Need

_FLEET = "ec2:CreateFleet"
_SPOT_ROLE = "role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
Tags = Mapping[str, Mapping[str, str]]  # by kind of resource
_RESOURCE_KINDS: Mapping[str, str] = {
    "i": "instance",
    "vol": "volume",
    "eni": "network-interface",
    "subnet": "subnet",
    "sg": "security-group",
    "vpc": "vpc",
    "lt": "launch-template",
    "ami": "image",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request, told apart: `fields` of EC2's query, the raw rest for others."""

    service: str
    operation: str
    target: str
    body: bytes = b""
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Permissions:
    """Makes needs from requests; reads tags from the instances' model and from moto."""

    def __init__(
        self,
        moto: Moto,
        tags_of_instance: Callable[[str], Mapping[str, str]],
        tags_of_group: Callable[[str], Mapping[str, str]],
    ) -> None:
        self._moto = moto
        self._tags_of_instance = tags_of_instance
        self._tags_of_group = tags_of_group

    def needs(self, asked: Asked) -> list[Need]:
        """What must be allowed before `asked` is done; RunInstances is asked apart, by `launch`."""
        if asked.service == "s3":
            return [self._s3(asked)]
        if asked.service == "secretsmanager":
            return [self._secret(asked)]
        if asked.service == "ec2":
            return self._ec2(asked)
        if asked.service == "sqs":
            return [self._queue(asked)]
        return [self._need(asked, "*", {})]

    def launch(
        self, spec: LaunchSpec, role_arn: str | None, request_tags: Mapping[str, Mapping[str, str]]
    ) -> list[Need]:
        """RunInstances on each resource that it makes or uses, CreateTags, and PassRole (T37)."""
        common = self._launch_context(spec)
        needs = [
            Need(action="ec2:RunInstances", resource=r, context={**common, **c}) for r, c in self._used(spec)
        ]
        for kind, tags in sorted(request_tags.items()):
            requested = {**common, **_requested(tags)}
            arn = self._arn(kind, "*")
            needs.append(Need(action="ec2:RunInstances", resource=arn, context=requested))
            if tags:
                created = {**requested, "ec2:createaction": ("RunInstances",)}
                needs.append(Need(action="ec2:CreateTags", resource=arn, context=created))
        if role_arn is not None:
            passed = {"iam:passedtoservice": ("ec2.amazonaws.com",)}
            needs.append(Need(action="iam:PassRole", resource=role_arn, context=passed))
        return needs

    def fleet(
        self, specs: Iterable[LaunchSpec], fleet_tags: Mapping[str, str], tags: Callable[[LaunchSpec], Tags]
    ) -> list[Need]:
        """CreateFleet on the fleet and on all that its launches use and make; each launch is asked apart."""
        requested, arn = _requested(fleet_tags), self._arn("fleet", "*")
        needs = [Need(action=_FLEET, resource=arn, context=requested)]
        if fleet_tags:
            created = {**requested, "ec2:createaction": ("CreateFleet",)}
            needs.append(Need(action="ec2:CreateTags", resource=arn, context=created))
        for spec in specs:
            needs += [Need(action=_FLEET, resource=r, context=c) for r, c in self._used(spec)]
            made = sorted(tags(spec).items())
            needs += [Need(action=_FLEET, resource=self._arn(k, "*"), context=_requested(t)) for k, t in made]
        return needs

    def spot_role(self) -> Need:
        """What the account's first spot request asks of whoever makes it."""
        return Need(action="iam:CreateServiceLinkedRole", resource=f"arn:aws:iam::{ACCOUNT}:{_SPOT_ROLE}")

    def _used(self, spec: LaunchSpec) -> list[tuple[str, Context]]:
        ids = [spec.subnet.id, *spec.groups, spec.image]
        if spec.template is not None:
            ids.append(spec.template[0])
        used: list[tuple[str, Context]] = [(self._arn_of(one), _tagged(self._moto.tags(one))) for one in ids]
        if spec.reservation is not None:
            used.append((self._arn("capacity-reservation", spec.reservation), {}))
        if spec.placement_group is not None:
            tags = _tagged(self._tags_of_group(spec.placement_group))
            used.append((self._arn("placement-group", spec.placement_group), tags))
        if spec.key_name is not None:
            used.append((self._arn("key-pair", spec.key_name), {}))
        return used

    def _launch_context(self, spec: LaunchSpec) -> dict[str, tuple[str, ...]]:
        context = {
            "ec2:instancetype": (spec.machine,),
            "ec2:instancemarkettype": (spec.market.value,),
            "ec2:subnet": (self._arn_of(spec.subnet.id),),
            "ec2:vpc": (self._arn("vpc", spec.subnet.vpc),),
            "ec2:region": (self._moto.region,),
            "aws:requestedregion": (self._moto.region,),
            "ec2:metadatahttptokens": (spec.metadata.get("HttpTokens", "optional"),),
        }
        if spec.template is not None:
            context["ec2:launchtemplate"] = (self._arn_of(spec.template[0]),)
            context["ec2:islaunchtemplateresource"] = ("true",)
        if spec.profile is not None:
            context["ec2:instanceprofile"] = (spec.profile,)
        return context

    def _ec2(self, asked: Asked) -> list[Need]:
        ids = _named(asked)
        if asked.operation.startswith("Describe") or not ids:
            return [self._need(asked, "*", {})]
        extra = _requested(tags_in(asked.parameters.get("Tags", ()))) if "Tags" in asked.operation else {}
        return [self._need(asked, self._arn_of(one), {**_tagged(self._tags(one)), **extra}) for one in ids]

    def _s3(self, asked: Asked) -> Need:
        query = dict(parse_qsl(asked.target.partition("?")[2], keep_blank_values=True))
        context = {"s3:prefix": (query["prefix"],)} if "prefix" in query else {}
        return self._need(asked, wire.s3_resource(asked.target), context)

    def _secret(self, asked: Asked) -> Need:
        document = _document(asked.body)
        arn, tags = self._moto.secret(str(document.get("SecretId", "")))
        return self._need(asked, arn, _tagged(tags))

    def _queue(self, asked: Asked) -> Need:
        """By the last two parts of the queue's URL; a batch is judged as its single action."""
        url = str(_document(asked.body).get("QueueUrl", ""))
        _, account, name = f"//{url}".rsplit("/", 2)
        resource = f"arn:aws:sqs:{self._moto.region}:{account}:{name}" if url else "*"
        single = replace(asked, operation=asked.operation.removesuffix("Batch"))
        return self._need(single, resource, {})

    def _need(self, asked: Asked, resource: str, context: Context) -> Need:
        full = {"aws:requestedregion": (self._moto.region,), **context}
        return Need(action=f"{asked.service}:{asked.operation}", resource=resource, context=full)

    def _tags(self, resource_id: str) -> Mapping[str, str]:
        if resource_id.startswith("i-"):
            return self._tags_of_instance(resource_id)
        return self._moto.tags(resource_id)

    def _arn_of(self, resource_id: str) -> str:
        kind = _RESOURCE_KINDS.get(resource_id.partition("-")[0], "unknown")
        return self._arn(kind, resource_id)

    def _arn(self, kind: str, name: str) -> str:
        account = "" if kind == "image" else ACCOUNT
        return f"arn:aws:ec2:{self._moto.region}:{account}:{kind}/{name}"


def _document(body: bytes) -> Mapping[str, Any]:
    """A JSON protocol's body; {} for what is none."""
    try:
        found: object = json.loads(body or b"{}")
    except ValueError:
        return {}
    return cast(Mapping[str, Any], found) if isinstance(found, dict) else {}


def tags_in(tags: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """EC2's list of tags as a mapping."""
    return {str(t.get("Key", "")): str(t.get("Value", "")) for t in tags}


def _named(asked: Asked) -> Sequence[str]:
    for name in ("InstanceIds", "Resources"):
        if name in asked.parameters:
            return cast(Sequence[str], asked.parameters[name])
    one = asked.parameters.get("InstanceId")
    return () if one is None else (str(one),)


def _tagged(tags: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for key, value in tags.items():
        found[f"aws:resourcetag/{key}"] = (value,)
        found[f"ec2:resourcetag/{key}"] = (value,)
    return found


def _requested(tags: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    if not tags:
        return {}
    return {"aws:tagkeys": tuple(sorted(tags)), **{f"aws:requesttag/{k}": (v,) for k, v in tags.items()}}
