"""A stand-in for Karpenter's controller: it launches nodes for pods that fit nowhere, and ends empty ones.

Its calls of AWS go through the API with the role of Karpenter's service account, so the policy of that role decides as on AWS. Only
the scheduling is simple: one pod after the other, onto nodes that are under way, then onto a new one of the first pool that fits.
Source of objects, tags and conditions: karpenter.sh/docs, version 1.14.
"""

import datetime
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from gpucluster.k8s_apply.objects import condition, is_true, labels, section
from gpucluster.plan.model.values import KNOWN_TO_KARPENTER
from gpucluster.plan.names import KARPENTER
from gpucluster.sandbox.kubernetes import pod_fit
from gpucluster.sandbox.kubernetes.client import Client, RefusedError
from gpucluster.sandbox.kubernetes.karpenter_ec2 import POOL_LABEL, KarpenterEc2, Offering
from gpucluster.sandbox.kubernetes.pod_fit import Amounts

log = logging.getLogger(__name__)

Object = dict[str, Any]
Ec2 = Callable[[], Any | None]  # a client with the controller's role; None while no pod identity gives it one
Offers = Callable[[str, str], Mapping[str, int]]  # machine and pool of the spec -> what the kubelet offers
CLASS = ("karpenter.k8s.aws/v1", "EC2NodeClass")
POOL = ("karpenter.sh/v1", "NodePool")
CLAIM = ("karpenter.sh/v1", "NodeClaim")
OVERLAY = ("karpenter.sh/v1alpha1", "NodeOverlay")
FINALIZER = "karpenter.sh/termination"
NO_ROLE = "the controller has no credentials: no pod identity for its service account"
POOL_OF_SPEC = "gpucluster/pool"  # a label of our NodePools' nodes
TYPE, MARKET, ZONE = (
    "node.kubernetes.io/instance-type",
    "karpenter.sh/capacity-type",
    "topology.kubernetes.io/zone",
)
_AFTER_REFUSAL_S = 20.0  # Karpenter forgets that an offering has no capacity after three minutes


class Karpenter:
    """One cluster's controller; `step` is called about twice a second. `clock` is the cloud's."""

    def __init__(
        self,
        client: Client,
        cluster: str,
        region: str,
        *,
        ec2: Ec2,
        offers: Offers,
        joins: Callable[[str], bool],
        clock: Callable[[], float],
    ) -> None:
        """`joins`: whether the role of an instance lets its node become ready."""
        self._client, self._cluster, self._region = client, cluster, region
        self._ec2, self._offers, self._joins, self._clock = ec2, offers, joins, clock
        self._refused: dict[Offering, float] = {}
        self._overlays: Sequence[Object] = ()
        self._empty_since: dict[str, float] = {}

    def step(self) -> None:
        """Look at everything once, if the controller's pod is available."""
        own = self._client.get("apps/v1", "Deployment", KARPENTER, KARPENTER)
        if own is None or not section(own, "status").get("availableReplicas"):
            return
        try:
            pools, claims = self._client.list(*POOL), self._client.list(*CLAIM)
            classes = {one["metadata"]["name"]: one for one in self._client.list(*CLASS)}
        except RefusedError as refused:
            if refused.status == 404:  # its chart is not installed
                return
            raise
        client = self._ec2()
        cloud = None if client is None else KarpenterEc2(client, self._cluster)
        ready = {name: self._judge_class(one, cloud) for name, one in classes.items()}
        for pool in pools:
            self._judge_pool(pool, ready)
        if cloud is None:
            return
        instances = cloud.instances()
        for claim in claims:
            self._follow(claim, instances, cloud)
        living = [one for one in claims if not one["metadata"].get("deletionTimestamp")]
        pods = self._client.list("v1", "Pod")
        self._end_empty(pools, living, pods)
        able = [
            one for one in pools if ready.get(_class_of(one)) and not one["metadata"].get("deletionTimestamp")
        ]
        self._overlays = self._client.list(*OVERLAY)
        self._provision(able, classes, living, pods, cloud)

    def nodes(self) -> Iterator[Object]:
        """The nodes of launched claims, as their kubelets register them."""
        try:
            claims = self._client.list(*CLAIM)
        except RefusedError:
            return
        for claim in claims:
            status = section(claim, "status")
            if status.get("nodeName") and status.get("capacity"):
                yield _node(claim, status)

    # --- conditions -------------------------------------------------------------------------------

    def _judge_class(self, one: Object, cloud: KarpenterEc2 | None) -> bool:
        problem = NO_ROLE if cloud is None else cloud.problem(one["spec"])
        self._set_ready(one, problem)
        return not problem

    def _judge_pool(self, pool: Object, ready: Mapping[str, bool]) -> None:
        name = _class_of(pool)
        known = f"NodeClass {name} is not ready" if name in ready else f"there is no NodeClass {name}"
        self._set_ready(pool, "" if ready.get(name) else known)

    def _set_ready(self, one: Object, problem: str) -> None:
        before, word = condition(one, "Ready"), "False" if problem else "True"
        if (before.get("status"), before.get("message", "")) == (word, problem):
            return
        now = {
            "type": "Ready", "status": word, "reason": "NotReady" if problem else "Ready", "message": problem,
            "lastTransitionTime": _time(self._clock()), "observedGeneration": one["metadata"].get("generation", 1),
        }  # fmt: skip
        self._patch_status(one, {"conditions": [now]})

    def _patch_status(self, one: Object, status: Mapping[str, Any]) -> None:
        names = {"name": one["metadata"]["name"]}
        self._client.patch_status(
            {"apiVersion": one["apiVersion"], "kind": one["kind"], "metadata": names, "status": dict(status)}
        )

    # --- provisioning -----------------------------------------------------------------------------

    def _provision(
        self,
        pools: Sequence[Object],
        classes: Mapping[str, Object],
        claims: Sequence[Object],
        pods: Sequence[Object],
        cloud: KarpenterEc2,
    ) -> None:
        """Put each waiting pod onto a node that is under way, or launch one for it."""
        waiting = [one for one in pods if pod_fit.waits(one)]
        under_way = [
            (one, pod_fit.whole_node(section(section(one, "status"), "capacity")))
            for one in claims
            if not is_true(one, "Initialized")
        ]
        for pod in sorted(
            waiting, key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"])
        ):
            if self._onto(pod, under_way):
                continue
            for pool in sorted(pools, key=lambda one: -int(one["spec"].get("weight") or 0)):
                made = self._claim_for(pod, pool, classes[_class_of(pool)], claims, cloud)
                if made is not None:
                    claims = [*claims, made]
                    left = pod_fit.whole_node(made["status"]["capacity"])
                    under_way.append((made, pod_fit.minus(left, pod_fit.requests(pod))))
                    break

    def _onto(self, pod: Object, under_way: list[tuple[Object, Amounts]]) -> bool:
        for number, (claim, left) in enumerate(under_way):
            if pod_fit.fits(pod, labels(claim), claim["spec"].get("taints") or (), left):
                under_way[number] = (claim, pod_fit.minus(left, pod_fit.requests(pod)))
                return True
        return False

    def _claim_for(
        self, pod: Object, pool: Object, node_class: Object, claims: Sequence[Object], cloud: KarpenterEc2
    ) -> Object | None:
        template: Mapping[str, Any] = pool["spec"]["template"]
        own: dict[str, str] = {
            **template["metadata"].get("labels", {}),
            POOL_LABEL: pool["metadata"]["name"],
        }
        taints: Sequence[Mapping[str, str]] = template["spec"].get("taints") or ()
        for offering in _offerings(template["spec"]["requirements"]):
            if self._refused.get(offering, 0.0) > self._clock():
                continue
            offer = dict(self._offers(offering.machine, own.get(POOL_OF_SPEC, "")))
            whole = {**own, TYPE: offering.machine, MARKET: offering.market, ZONE: offering.zone}
            capacity = pod_fit.of_plan(self._known(offer, whole))
            if not pod_fit.fits(pod, whole, taints, capacity) or not _within(pool, claims, capacity):
                continue
            name = f"{pool['metadata']['name']}-{secrets.token_hex(3)[:5]}"
            try:
                instance = cloud.launch(name, pool, node_class, offering)
            except ClientError as error:
                log.warning("%s: %s", pool["metadata"]["name"], error)
                self._refused[offering] = self._clock() + _AFTER_REFUSAL_S
                continue
            if instance is None:
                self._refused[offering] = self._clock() + _AFTER_REFUSAL_S
                continue
            return self._record(name, pool, marks=whole, offer=offer, instance=instance)
        return None

    def _known(self, offer: Mapping[str, int], marks: Mapping[str, str]) -> Mapping[str, int]:
        """Return what Karpenter knows of a machine: its own facts, and what a NodeOverlay adds. Others it takes for missing."""
        added = {
            name
            for one in self._overlays
            if all(_holds(row, marks) for row in one["spec"].get("requirements") or ())
            for name in one["spec"].get("capacity") or ()
        }
        return {name: amount for name, amount in offer.items() if name in KNOWN_TO_KARPENTER or name in added}

    def _record(
        self,
        name: str,
        pool: Object,
        *,
        marks: Mapping[str, str],
        offer: Mapping[str, int],
        instance: Mapping[str, str],
    ) -> Object:
        """Make the NodeClaim of a launched instance."""
        owner = {
            "apiVersion": POOL[0], "kind": POOL[1], "name": pool["metadata"]["name"], "uid": pool["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }  # fmt: skip
        template = pool["spec"]["template"]["spec"]
        spec = {"nodeClassRef": template["nodeClassRef"], "taints": template.get("taints") or [],
                "requirements": [{"key": TYPE, "operator": "In", "values": [marks[TYPE]]}]}  # fmt: skip
        metadata = {
            "name": name,
            "labels": dict(marks),
            "finalizers": [FINALIZER],
            "ownerReferences": [owner],
        }
        made = self._client.apply(
            {"apiVersion": CLAIM[0], "kind": CLAIM[1], "metadata": metadata, "spec": spec}
        )
        status = {
            "providerID": f"aws:///{marks[ZONE]}/{instance['id']}",
            "capacity": pod_fit.shown(offer),
            "allocatable": pod_fit.shown(offer),
            "conditions": [self._condition("Launched")],
        }
        self._patch_status(made, status)
        return {**made, "status": status}

    def _condition(self, kind: str) -> Object:
        return {
            "type": kind,
            "status": "True",
            "reason": kind,
            "message": "",
            "lastTransitionTime": _time(self._clock()),
        }

    # --- the life of a claim ------------------------------------------------------------------------

    def _follow(self, claim: Object, instances: Mapping[str, Mapping[str, Any]], cloud: KarpenterEc2) -> None:
        """Register a claim whose instance runs, and let one end whose instance ends."""
        name = claim["metadata"]["name"]
        instance = instances.get(name)
        state = "terminated" if instance is None else str(instance["State"]["Name"])
        if claim["metadata"].get("deletionTimestamp"):
            if state in ("pending", "running"):
                cloud.terminate(str(instance["InstanceId"]) if instance else "")
            elif state == "terminated":
                self._release(claim)
            return
        if state in ("shutting-down", "terminated", "stopped"):
            if instance is not None or is_true(claim, "Registered"):
                self._client.delete(*CLAIM, name)
            return
        if instance is None or state != "running" or is_true(claim, "Initialized"):
            return
        if self._joins(str(instance["InstanceId"])):
            known = section(claim, "status")
            address = str(instance["PrivateIpAddress"]).replace(".", "-")
            conditions = [
                self._condition(kind) for kind in ("Launched", "Registered", "Initialized", "Ready")
            ]
            status = {
                "providerID": known.get("providerID"), "capacity": known.get("capacity"), "allocatable": known.get("allocatable"),
                "nodeName": f"ip-{address}.{self._region}.compute.internal", "conditions": conditions,
            }  # fmt: skip
            self._patch_status(claim, status)

    def _release(self, claim: Object) -> None:
        """Remove the finalizer: the instance has ended."""
        metadata = {k: v for k, v in claim["metadata"].items() if k in ("name", "labels", "ownerReferences")}
        self._client.apply(
            {"apiVersion": CLAIM[0], "kind": CLAIM[1], "metadata": metadata, "spec": claim["spec"]}
        )

    def _end_empty(self, pools: Sequence[Object], claims: Sequence[Object], pods: Sequence[Object]) -> None:
        """Delete claims whose node has been empty for the time of its pool."""
        busy = {one["spec"].get("nodeName") for one in pods if pod_fit.holds_a_node(one)}
        after = {
            one["metadata"]["name"]: _seconds(one["spec"].get("disruption", {}).get("consolidateAfter"))
            for one in pools
        }
        now = self._clock()
        for claim in claims:
            name, node = claim["metadata"]["name"], section(claim, "status").get("nodeName")
            if node is None or node in busy:
                self._empty_since.pop(name, None)
                continue
            since = self._empty_since.setdefault(name, now)
            limit = after.get(claim["metadata"]["labels"].get(POOL_LABEL, ""))
            if limit is not None and now - since >= limit:
                self._client.delete(*CLAIM, name)


def _class_of(pool: Object) -> str:
    return str(pool["spec"]["template"]["spec"]["nodeClassRef"]["name"])


def _holds(requirement: Mapping[str, Any], marks: Mapping[str, str]) -> bool:
    """Say whether a NodeOverlay's requirement holds; rendered ones have `In` alone."""
    if requirement["operator"] != "In":
        raise ValueError(
            f"the stand-in of Karpenter knows no operator {requirement['operator']} of a NodeOverlay"
        )
    return marks.get(requirement["key"]) in requirement["values"]


def _offerings(requirements: Sequence[Mapping[str, Any]]) -> Iterator[Offering]:
    """Every way that the requirements allow, in their order."""
    values = {one["key"]: one["values"] for one in requirements if one["operator"] == "In"}
    for market in values[MARKET]:
        for machine in values[TYPE]:
            for zone in values[ZONE]:
                yield Offering(machine, market, zone)


def _within(pool: Object, claims: Sequence[Object], more: Amounts) -> bool:
    """Say whether another node keeps the limits of the pool."""
    name = pool["metadata"]["name"]
    mine = [one for one in claims if one["metadata"]["labels"].get(POOL_LABEL) == name]
    used = [pod_fit.amounts(section(section(one, "status"), "capacity")) for one in mine]
    return pod_fit.within(pod_fit.amounts(section(pool["spec"], "limits")), [*used, more])


def _seconds(text: object) -> float | None:
    """The seconds of `1800s`; None for `Never` or nothing."""
    words = str(text)
    return float(words.removesuffix("s")) if words.endswith("s") and words[:-1].isdecimal() else None


def _time(now: float) -> str:
    return datetime.datetime.fromtimestamp(now, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _node(claim: Object, status: Mapping[str, Any]) -> Object:
    name = status["nodeName"]
    marks = {**labels(claim), "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    amounts = {**status["capacity"], "pods": "250"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": marks},
        "spec": {"providerID": status["providerID"], "taints": claim["spec"].get("taints") or []},
        "status": {"allocatable": amounts, "capacity": amounts},
    }
