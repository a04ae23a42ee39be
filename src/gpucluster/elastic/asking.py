"""The call that an Ask stands for, and which of what came is of use. All of it comes from the journal: a repeat is identical."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gpucluster.cloud.port import CloudPort, FleetError, FleetOverride, FleetRequest, LaunchRequest
from gpucluster.elastic.events import Ask
from gpucluster.elastic.memory.launches import served
from gpucluster.plan.names import (
    ROLE_NODE,
    TAG_ACCOUNT,
    TAG_CLUSTER,
    TAG_JOB,
    TAG_POOL,
    TAG_REQUEST,
    TAG_ROLE,
)

_LONGEST = 256  # of a tag's value
_FORBIDDEN = re.compile(r"[^\w+\-=.:/@]", re.ASCII)  # EC2's own set is wider, other services' is this


@dataclass(frozen=True, slots=True)
class Got:
    """Instances with their machine, in an order that a repeat has too (T21); and what a fleet said beside them."""

    instances: tuple[tuple[str, str], ...]
    errors: tuple[FleetError, ...] = ()


def call(cloud: CloudPort, cluster: str, ask: Ask) -> Got:
    """Make the call."""
    if ask.alternatives:
        answer = cloud.fleet(fleet_request(cluster, ask))
        return Got(tuple(sorted(answer.instances)), answer.errors)
    return Got(tuple((i, ask.machine) for i in sorted(cloud.launch(request(cluster, ask)))))


def serving(ask: Ask, got: Got) -> tuple[tuple[str, str], ...]:
    """The first of them, as many as serve gangs whole."""
    return got.instances[: len(served(ask, len(got.instances)))]


def request(cluster: str, ask: Ask) -> LaunchRequest:
    """RunInstances."""
    return LaunchRequest(
        token=ask.token,
        count=len(ask.slots),
        template_id=ask.template_id,
        template_version=ask.template_version,
        subnet_id=ask.subnet_id,
        zone=ask.zone,
        machine=ask.machine,
        market=ask.market,
        tags=_tags(cluster, ask),
        at_least=ask.at_least if ask.at_least < len(ask.slots) else None,
        reservation=ask.reservation,
        max_price=ask.max_price,
        placement_group=ask.placement_group,
        interfaces=ask.interfaces,
        group=ask.group,
    )


def fleet_request(cluster: str, ask: Ask) -> FleetRequest:
    """CreateFleet over the Ask's machine and its alternatives."""
    first = FleetOverride(
        machine=ask.machine, template_id=ask.template_id, template_version=ask.template_version
    )
    others = tuple(
        FleetOverride(
            machine=other.machine, template_id=other.template_id, template_version=other.template_version
        )
        for other in ask.alternatives
    )
    return FleetRequest(
        token=ask.token,
        count=len(ask.slots),
        subnet_id=ask.subnet_id,
        zone=ask.zone,
        overrides=(first, *others),
        market=ask.market,
        tags=_tags(cluster, ask),
        at_least=ask.at_least,
        max_price=ask.max_price,
        placement_group=ask.placement_group,
    )


def _tags(cluster: str, ask: Ask) -> dict[str, str]:
    """At launch, for cost: the jobs it was for, and their accounts. Other jobs may run on it later."""
    tags = {TAG_CLUSTER: cluster, TAG_ROLE: ROLE_NODE, TAG_POOL: ask.pool, TAG_REQUEST: ask.request}
    for key, words in ((TAG_JOB, map(str, ask.jobs)), (TAG_ACCOUNT, ask.accounts)):
        if text := _listed(words):
            tags[key] = text
    return tags


def _listed(words: Iterable[str]) -> str:
    """As many as a tag's value takes; what it takes not is replaced: an account is named by a person."""
    text = ""
    for word in words:
        more = _FORBIDDEN.sub("_", word)[:_LONGEST]
        if len(text) + len(more) + 1 > _LONGEST:
            return text
        text = f"{text} {more}" if text else more
    return text
