"""Check what pods reach, from validation's own pods on a node of the pool.

`team` and `peer` run in the namespace of a team, on two nodes if the pool has two. `outsider` runs in a namespace without network
policies; where nodes have GPUs it names all of them by NVIDIA's variable, as CUDA images do, and requests none. `mounts` has the volumes of the team. All answer on port 8080.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gpucluster.checks import json_fields
from gpucluster.checks.check import (
    CheckResult,
    Location,
    ParseError,
    Query,
    QueryOutput,
    failed,
    listed,
    passed,
    unknown,
    warned,
)
from gpucluster.plan import names
from gpucluster.text import short

API_SERVER = "kubernetes.default.svc:443"  # a name that every cluster has
METADATA = f"{names.METADATA.removeprefix('http://')}:80"
GPU = "/dev/nvidiactl"  # in each container that has a GPU
AGENT = f"{names.POD_IDENTITY_AGENT.partition('/')[0]}:80"
_POLICIES = "kubectl describe networkpolicies --namespace {namespace}"
_NO_NODE = "the pool has no node that takes pods now, so no pod ran"


class Role(StrEnum):
    """One of validation's pods."""

    TEAM = "team"
    PEER = "peer"
    OUTSIDER = "outsider"
    MOUNTS = "mounts"


class Awaited(StrEnum):
    """What an attempt waits for. It is repeated for a time, because a network learns of a new pod late."""

    CONNECTED = "connected"
    BLOCKED = "blocked"
    RESOLVED = "resolved"  # the name has an address, whether it answers or not
    MOUNTED = "mounted"
    ABSENT = "absent"  # the file does not exist


class End(StrEnum):
    """How the program of an attempt ended."""

    NOT_RUN = "not run"  # nothing is known of its network or its volume
    HANGS = "hangs"
    EXITED = "exited"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodNetwork:
    """The pool whose nodes run the pods, and the namespace of the team."""

    pool: str
    namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodVolumes:
    """The pool whose node runs the pod, the namespace of the team, and its claims."""

    pool: str
    namespace: str
    claims: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt of a pod. Without a node that takes pods, `pod` is empty. `waits`: why the pod does not run, else empty."""

    pod: str  # research/NAME on NODE
    placed: bool  # has a node
    waits: str
    to: str  # where it went: a pod, an address, the claim of a volume, or a file
    end: End
    met: bool  # what was awaited came
    reached: bool  # the last attempt got through
    words: str  # the last answer


def _query(want: PodNetwork | PodVolumes, role: Role, to: str, awaited: Awaited) -> Query:
    """One attempt. `to` is another pod's role, HOST:PORT, the name of a claim, or a file."""
    return Query(at=Location.POD, argv=(want.pool, role.value, to, awaited.value))


def query_reach(want: PodNetwork) -> tuple[Query, ...]:
    return (_query(want, Role.TEAM, Role.PEER, Awaited.CONNECTED),)


def query_dns(want: PodNetwork) -> tuple[Query, ...]:
    return (_query(want, Role.TEAM, API_SERVER, Awaited.RESOLVED),)


def query_metadata(want: PodNetwork) -> tuple[Query, ...]:
    return tuple(_query(want, Role.TEAM, to, Awaited.BLOCKED) for to in (METADATA, AGENT))


def query_isolation(want: PodNetwork) -> tuple[Query, ...]:
    """First a control: what reaches nothing at all proves no policy."""
    return (
        _query(want, Role.OUTSIDER, API_SERVER, Awaited.CONNECTED),
        _query(want, Role.OUTSIDER, Role.TEAM, Awaited.BLOCKED),
        _query(want, Role.TEAM, Role.OUTSIDER, Awaited.BLOCKED),
    )


def query_gpus(want: PodNetwork) -> tuple[Query, ...]:
    return (_query(want, Role.OUTSIDER, GPU, Awaited.ABSENT),)


def query_volumes(want: PodVolumes) -> tuple[Query, ...]:
    return tuple(_query(want, Role.MOUNTS, claim, Awaited.MOUNTED) for claim in want.claims)


def parse_attempts(outputs: tuple[QueryOutput, ...]) -> tuple[Attempt, ...]:
    return tuple(map(_attempt, outputs))


def evaluate_reach(found: tuple[Attempt, ...], want: PodNetwork) -> CheckResult:
    """Judge that a pod starts, and reaches another of its team. A pod that finds no room is no fault of the network."""
    expected = f"a pod of {want.namespace} on a node of {want.pool} reaches another"
    (one,) = found
    if not one.pod:
        return warned(_NO_NODE, expected)
    if one.waits:
        words = f"{one.pod} does not run: {one.waits}"
        return failed(words, expected, remedy=_describe(want)) if one.placed else unknown(words, expected)
    if one.met:
        return passed(f"{one.pod} reaches {one.to}", expected)
    return _not_run(found, expected) or failed(
        f"{one.pod} does not reach {one.to}: {one.words}", expected, remedy=_policies(want)
    )


def evaluate_dns(found: tuple[Attempt, ...], want: PodNetwork) -> CheckResult:
    """Judge that names have addresses."""
    expected = f"pods of {want.namespace} resolve {API_SERVER.partition(':')[0]}"
    if stopped := _stopped(found, expected):
        return stopped
    (one,) = found
    if one.met:
        return passed(f"{one.pod} resolves it", expected)
    return _not_run(found, expected) or failed(f"{one.pod}: {one.words}", expected)


def evaluate_metadata(found: tuple[Attempt, ...], want: PodNetwork) -> CheckResult:
    """Judge that a pod reaches neither the metadata service nor the agent of EKS Pod Identity."""
    expected = f"pods of {want.namespace} reach no metadata service and no Pod Identity agent"
    if stopped := _stopped(found, expected):
        return stopped
    reached = tuple(one.to for one in found if one.reached)
    if reached:
        words = f"{found[0].pod} reaches {listed(reached)}"
        return failed(words, expected, reached, _policies(want))
    return _unproven(found, expected) or passed(
        f"{found[0].pod} reaches neither {METADATA} nor {AGENT}", expected
    )


def evaluate_isolation(found: tuple[Attempt, ...], want: PodNetwork) -> CheckResult:
    """Judge that the team's network policies are enforced: nobody comes in from another namespace, nobody goes there."""
    expected = f"no connection between {want.namespace} and a namespace without policies"
    if stopped := _stopped(found, expected):
        return stopped
    control, *attempts = found
    if not control.met:
        words = f"{control.pod} does not reach {control.to} either ({control.words}), so nothing is proven"
        return unknown(words, expected)
    open_ways = tuple(f"{one.pod} reaches {one.to}" for one in attempts if one.reached)
    if open_ways:
        return failed(listed(open_ways), expected, remedy=_policies(want))
    return _unproven(attempts, expected) or passed(
        f"{attempts[0].to} and {attempts[1].to} do not reach each other", expected
    )


def evaluate_gpus(found: tuple[Attempt, ...], want: PodNetwork) -> CheckResult:
    """Judge that the runtime of a node gives no GPU to a pod that requests none."""
    expected = f"a pod on a node of {want.pool} has the GPUs that it requests"
    if stopped := _stopped(found, expected):
        return stopped
    (one,) = found
    if one.reached:
        return failed(f"{one.pod} requests no GPU and has {one.to}", expected)
    return _unproven(found, expected) or passed(f"{one.pod} requests no GPU and has none", expected)


def evaluate_volumes(found: tuple[Attempt, ...], want: PodVolumes) -> CheckResult:
    """Judge that a pod has the volumes of its team, and that they answer."""
    expected = f"a pod on a node of {want.pool} mounts {listed(want.claims)}"
    if not found[0].pod:
        return warned(_NO_NODE, expected)
    if found[0].waits:
        words = f"{found[0].pod} does not run: {found[0].waits}"
        return failed(words, expected, remedy=_describe(want))
    silent = [one for one in found if not one.met and one.end is not End.NOT_RUN]
    if silent:
        words = listed([f"{one.to}: {one.words}" for one in silent])
        claims = tuple(one.to for one in silent)
        return failed(f"{found[0].pod}: {words}", expected, claims, _claims(want))
    return _not_run(found, expected) or passed(f"{found[0].pod} mounts {listed(want.claims)}", expected)


def _stopped(found: tuple[Attempt, ...], expected: str) -> CheckResult | None:
    """The result if a pod did not run."""
    waiting = next((one for one in found if one.waits), None)
    if not all(one.pod for one in found):
        return warned(_NO_NODE, expected)
    return None if waiting is None else unknown(f"{waiting.pod} does not run: {waiting.waits}", expected)


def _not_run(found: Sequence[Attempt], expected: str) -> CheckResult | None:
    """The result if a program did not run to its end. A hung one is known only of a volume."""
    bad = next((one for one in found if not one.met and one.end is not End.EXITED), None)
    return None if bad is None else unknown(f"{bad.pod}: {bad.words}", expected)


def _unproven(found: Sequence[Attempt], expected: str) -> CheckResult | None:
    """The result if an attempt neither got through nor was stopped by the network."""
    bad = next((one for one in found if not one.met), None)
    return None if bad is None else unknown(f"{bad.pod} to {bad.to}: {bad.words}", expected)


def _policies(want: PodNetwork | PodVolumes) -> str:
    return _POLICIES.format(namespace=want.namespace)


def _claims(want: PodVolumes) -> str:
    return f"kubectl describe persistentvolumeclaims --namespace {want.namespace}"


def _describe(want: PodNetwork | PodVolumes) -> str:
    return f"kubectl get events --namespace {want.namespace}; kubectl describe nodes --selector {names.LABEL_POOL}={want.pool}"


def _attempt(output: QueryOutput) -> Attempt:
    body = json_fields.table(output.text())
    truths = {key: _truth(body, key) for key in ("placed", "met", "reached")}
    pod, waits, to, words, end = (
        json_fields.text(body, key) for key in ("pod", "waits", "to", "words", "end")
    )
    if end not in {*End}:
        raise ParseError(f"end is {short(repr(end), 40)}, not one of {', '.join(End)}")
    return Attempt(pod=pod, waits=waits, to=to, words=words, end=End(end), **truths)


def _truth(body: Mapping[str, Any], key: str) -> bool:
    value = body.get(key)
    if not isinstance(value, bool):
        raise ParseError(f"{key} is {short(repr(value), 40)}, not true or false")
    return value
