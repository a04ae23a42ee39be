"""Make the call of a LaunchRequest. All arguments come from the journal, so a repeat is identical."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gpucluster.cloud.port import CloudPort, FleetCall, FleetError, LaunchCall, LaunchSpec
from gpucluster.elastic.events import LaunchRequest
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

_LONGEST = 256  # length of a tag's value
# EC2 permits more characters; other services permit these.
_FORBIDDEN = re.compile(r"[^\w+\-=.:/@]", re.ASCII)


@dataclass(frozen=True, slots=True)
class Launched:
    """The launched instances with their machine types, sorted by id so that a repeat has the same order (T21), and the errors of a fleet."""

    instances: tuple[tuple[str, str], ...]
    errors: tuple[FleetError, ...] = ()


def call(cloud: CloudPort, cluster: str, request: LaunchRequest) -> Launched:
    """Make the call."""
    if request.alternatives:
        answer = cloud.fleet(fleet_call(cluster, request))
        return Launched(tuple(sorted(answer.instances)), answer.errors)
    ids = cloud.launch(launch_call(cluster, request))
    return Launched(tuple((instance, request.spec.machine) for instance in sorted(ids)))


def serving(request: LaunchRequest, launched: Launched) -> tuple[tuple[str, str], ...]:
    """Return the first instances: as many as fill whole gangs."""
    return launched.instances[: len(served(request, len(launched.instances)))]


def launch_call(cluster: str, request: LaunchRequest) -> LaunchCall:
    """Return the RunInstances of a request."""
    count = len(request.slots)
    return LaunchCall(
        token=request.token,
        count=count,
        spec=request.spec,
        tags=_tags(cluster, request),
        at_least=request.smallest_gang if request.smallest_gang < count else None,
    )


def fleet_call(cluster: str, request: LaunchRequest) -> FleetCall:
    """Return the CreateFleet over the request's spec and its alternatives."""
    return FleetCall(
        token=request.token,
        count=len(request.slots),
        specs=request.specs,
        tags=_tags(cluster, request),
        at_least=request.smallest_gang,
    )


def trial_call(cluster: str, pool: str, spec: LaunchSpec) -> LaunchCall:
    """Return the RunInstances of one instance for nobody, to be tried only."""
    return LaunchCall(token="", count=1, spec=spec, tags=_own_tags(cluster, pool, "trial"))


def _own_tags(cluster: str, pool: str, request: str) -> dict[str, str]:
    return {TAG_CLUSTER: cluster, TAG_ROLE: ROLE_NODE, TAG_POOL: pool, TAG_REQUEST: request}


def _tags(cluster: str, request: LaunchRequest) -> dict[str, str]:
    """Return the tags for cost reports: the jobs of the launch and their accounts. Other jobs may run on it later."""
    tags = _own_tags(cluster, request.pool, request.id)
    for key, words in ((TAG_JOB, map(str, request.jobs)), (TAG_ACCOUNT, request.accounts)):
        if text := _listed(words):
            tags[key] = text
    return tags


def _listed(words: Iterable[str]) -> str:
    """Return the text shortened to a tag's length. Forbidden characters are replaced, as people choose account names."""
    text = ""
    for word in words:
        more = _FORBIDDEN.sub("_", word)[:_LONGEST]
        if len(text) + len(more) + 1 > _LONGEST:
            return text
        text = f"{text} {more}" if text else more
    return text
