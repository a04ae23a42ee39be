"""What Karpenter says of the machines that pods wait for: node pools, node classes and node claims. Pure.

Sources: Karpenter, pkg/apis/v1 (conditions Launched, Registered, Initialized of NodeClaim; Ready of NodePool), pkg/events/reason.go and
pkg/controllers/nodeclaim/lifecycle/events.go (226646810). A NodeClaim that EC2 has no capacity for is deleted; its event stays for an hour.
"""

import re
from collections.abc import Iterator

from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s_apply.objects import condition, is_true, section
from gpucluster.k8s_apply.why.cause import Cause, CauseKind
from gpucluster.k8s_apply.why.evidence import Evidence, message, name_of, seen_at
from gpucluster.k8s_apply.why.pods import KARPENTER, unschedulable

_STEPS = ("Launched", "Registered", "Initialized")  # of a node claim, in this order
_NOMINATED = re.compile(r"nodeclaim/([a-z0-9.-]+)")
_REFUSED = frozenset({"InsufficientCapacityError", "NodeClassNotReady", "NoCompatibleInstanceTypes"})


def causes(evidence: Evidence) -> Iterator[Cause]:
    """Yield what prevents new machines, if a pod of the subject waits for one."""
    if not any(unschedulable(pod) for pod in evidence.pods):
        return
    for kind in ("NodePool", "EC2NodeClass"):
        for one in evidence.of(kind):
            if not is_true(one, "Ready"):
                row = condition(one, "Ready")
                words = str(row.get("message") or row.get("reason") or "no controller has judged it")
                yield _cause(
                    one, f"not Ready: {words}", f"kubectl describe {kind.lower()} {one['metadata']['name']}"
                )
    nominated = _nominated(evidence)
    for one in evidence.of("NodeClaim"):
        if one["metadata"]["name"] in nominated and (words := _unready(one)):
            yield _cause(one, words)
    yield from _refusals(evidence)


def _nominated(evidence: Evidence) -> frozenset[str]:
    """Return the node claims that Karpenter has made for pods of the subject."""
    said = (message(event) for pod in evidence.pods for event in evidence.events(pod))
    return frozenset(name for words in said for name in _NOMINATED.findall(words))


def _unready(claim: Manifest) -> str:
    """Return the step of a node claim that is not done; empty if it is a node."""
    for step in _STEPS:
        if not is_true(claim, step):
            row = condition(claim, step)
            return f"not {step}: {row.get('message') or row.get('reason') or 'not yet'}"
    return ""


def _refusals(evidence: Evidence) -> Iterator[Cause]:
    """Yield the newest refusal of each node pool that is newer than the newest pod of the subject."""
    since = max((str(pod["metadata"].get("creationTimestamp", "")) for pod in evidence.pods), default="")
    pools = {one["metadata"]["name"]: one for one in evidence.of("NodePool")}
    fresh = (one for one in evidence.of("Event") if one.get("reason") in _REFUSED and seen_at(one) >= since)
    newest = {_pool_of(one, frozenset(pools)): one for one in sorted(fresh, key=seen_at)}
    for pool, event in sorted(newest.items()):
        if pool:
            yield _cause(pools[pool], message(event), "wait for capacity, or add another source to the pool")


def _pool_of(event: Manifest, pools: frozenset[str]) -> str:
    """Return the node pool of an event: Karpenter names a node claim after its pool, with five letters more."""
    about = section(event, "involvedObject")
    name = str(about.get("name", ""))
    pool = name if about.get("kind") == "NodePool" else name.rpartition("-")[0]
    return pool if pool in pools else ""


def _cause(one: Manifest, words: str, step: str = "") -> Cause:
    return Cause(kind=CauseKind.MACHINE, subject=name_of(one), by=KARPENTER, words=words, next_step=step)
