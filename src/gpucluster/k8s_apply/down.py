"""Delete what a spec made, in the order in which each thing can go: pods, then Karpenter's machines while Karpenter runs, then the rest.

Claims and volumes stay unless their deletion is asked for, and a namespace stays as long as it has a claim. Each wait is bounded, and a
second run goes on where the first one ended.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpucluster import k8s
from gpucluster.errors import StateError
from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s.waves import ACCESS, MONITORING, NODES, QUEUES, RUNTIMES, SERVICES, TRAINING, Wave
from gpucluster.k8s_apply import record
from gpucluster.k8s_apply.access import Access
from gpucluster.k8s_apply.charts_removal import installed, uninstall
from gpucluster.k8s_apply.clock import patiently, some, until
from gpucluster.k8s_apply.lease import Lease, held
from gpucluster.k8s_apply.objects import condition, ref_of, rows, section
from gpucluster.k8s_apply.others import KINDS, OF_ADMINS, others, refused
from gpucluster.k8s_apply.ownership import ours
from gpucluster.k8s_apply.steps import Steps
from gpucluster.plan import names

CLAIM = ("v1", "PersistentVolumeClaim")
MACHINE = ("karpenter.sh/v1", "NodeClaim")
POD = ("v1", "Pod")
GONE_S = 600.0
GRACE_S = 30  # of a pod that says none, by Kubernetes' API reference
MARGIN_S = 120.0  # the kubelet kills what is left, unmounts the volumes and reports it
MACHINES_S = 1800.0  # GPU machines terminate slowly


@dataclass(frozen=True, slots=True)
class Emptied:
    """What a `down` did."""

    deleted: int
    charts: tuple[str, ...]  # uninstalled
    charts_left: tuple[str, ...]  # with what needs them
    retained: tuple[str, ...]  # claims, volumes, and the namespaces of claims


@dataclass(slots=True)
class _Run:
    """A run of `down`: its access, and what it has deleted."""

    access: Access
    steps: Steps
    lease: Lease
    limit_s: float | None
    deleted: int = 0
    namespaces: frozenset[str] = frozenset()  # ours, when it began
    grace_s: float = 0.0  # the longest that a pod may take to end

    @property
    def cluster(self) -> str:
        return self.steps.cluster

    def wait_for_pods(self) -> None:
        """From now on each wait is as long as the pods that are there may take to end."""
        self.namespaces = frozenset(self.spaces())
        pods = [one for space in sorted(self.namespaces) for one in self.find(POD, namespace=space)]
        self.grace_s = max((_grace(one) for one in pods), default=0.0)

    def spaces(self) -> list[str]:
        """Return the names of our namespaces."""
        return [one["metadata"]["name"] for one in self.ours() if one["kind"] == "Namespace"]

    def find(self, *kinds: tuple[str, str], selector: str = "", namespace: str = "") -> list[Manifest]:
        access = self.access
        return patiently(lambda: access.kubectl.find(kinds, selector, namespace), access.clock, access.report)

    def ours(self) -> list[Manifest]:
        return patiently(lambda: ours(self.access.kubectl, self.steps), self.access.clock, self.access.report)

    def of(self, *waves: Wave) -> list[Manifest]:
        """Return our objects of these waves, the last wave first."""
        kinds = k8s.kinds()
        return [one for one in self.ours() if kinds[one["apiVersion"], one["kind"]] in waves]

    def delete(self, found: Sequence[Manifest], what: str, limit_s: float = GONE_S) -> None:
        """Delete the objects and wait until they are gone."""
        if not found:
            return
        access, wanted = self.access, [ref_of(one).manifest() for one in found]
        self.lease.require()
        access.report(f"deleting {what}: {some([str(ref_of(one)) for one in found])}")
        patiently(lambda: access.kubectl.delete(wanted), access.clock, access.report)
        self.wait(what, lambda: [_held(one) for one in access.kubectl.get(wanted)], limit_s)
        self.deleted += len(found)

    def wait(self, what: str, left: Callable[[], list[str]], limit_s: float) -> None:
        limit = max(limit_s, self.grace_s + MARGIN_S) if self.limit_s is None else self.limit_s
        step = f"when it can go: `gpucluster k8s down {self.cluster}`, which goes on here"
        until(
            f"the end of {what}", left, self.access.clock, self.access.report, limit_s=limit, next_step=step
        )


def down(
    access: Access,
    steps: Steps,
    *,
    holder: str,
    delete_data: bool = False,
    delete_others: bool = False,
    limit_s: float | None = None,
) -> Emptied:
    """Delete everything of the cluster except its data. `limit_s` replaces the limit of each wait."""
    with held(access.kubectl, steps.cluster, holder, access.clock, access.report) as lease:
        run = _Run(access, steps, lease, limit_s)
        patiently(
            lambda: record.require_same(access.kubectl, steps.cluster, access.account),
            access.clock,
            access.report,
        )
        _require_karpenter(run)
        run.wait_for_pods()
        found = _others(run)
        if found and not delete_others:
            raise refused(found)
        run.delete(run.of(TRAINING, SERVICES), "gangs and services")
        run.delete(found, "what is not in the spec")
        run.wait("pods", lambda: _pods(run), GONE_S)
        run.delete(run.of(RUNTIMES), "training runtimes")
        _machines(run)
        if delete_data:
            run.delete(_data(run), "claims and volumes")
        run.delete(run.of(MONITORING), "alerts and the dashboard")
        run.delete(run.of(QUEUES), "queues")
        run.delete(run.of(ACCESS), "roles, limits and policies")
        run.delete(_free_namespaces(run), "namespaces")
        retained = tuple(str(ref_of(one)) for one in run.ours())
        gone, left = uninstall(access, installed(access), lease)
        lease.require()
        patiently(lambda: record.delete(access.kubectl, steps.cluster), access.clock, access.report)
        patiently(lambda: access.kubectl.delete([lease.manifest]), access.clock, access.report)
    return Emptied(run.deleted, gone, left, retained)


def _require_karpenter(run: _Run) -> None:
    """StateError if there are machines of Karpenter's and no Karpenter: nobody would end them."""
    machines = run.find(MACHINE, selector=f"{names.LABEL_CLUSTER}={run.cluster}")
    pools = [one for one in run.of(NODES) if one["kind"] == "NodePool"]
    if not machines and not pools:
        return
    selector = "app.kubernetes.io/name=karpenter"
    running = (
        section(one, "status").get("availableReplicas", 0)
        for one in run.find(("apps/v1", "Deployment"), selector=selector)
    )
    if not any(running):
        raise StateError(
            f"{len(machines)} NodeClaims and {len(pools)} NodePools are there, and no Deployment with the label {selector} is available:"
            " nobody would end the machines, and nothing was deleted",
            next_step=f"`gpucluster k8s up {run.cluster}` installs Karpenter again; then repeat `gpucluster k8s down {run.cluster}`",
        )


def _others(run: _Run) -> list[Manifest]:
    """Return what is in our namespaces and not of the spec."""
    mine = {ref_of(one) for one in run.ours()}
    there = [one for space in sorted(run.namespaces) for one in run.find(*KINDS, *OF_ADMINS, namespace=space)]
    return others(there, mine, run.steps)


def _pods(run: _Run) -> list[str]:
    """Return the pods of the spec that are still there. A copy of them may run in another namespace."""
    found = run.access.kubectl.find([POD], f"{names.LABEL_CLUSTER}={run.cluster}")
    mine = [one for one in found if one["metadata"]["namespace"] in run.namespaces]
    return [f"{ref_of(one)} on {section(one, 'spec').get('nodeName', 'no node')}" for one in mine]


def _grace(pod: Manifest) -> float:
    """Return how long a pod may take to end, in seconds. A checkpoint may take hours."""
    own = section(pod, "spec").get("terminationGracePeriodSeconds", GRACE_S)
    return float(max(own, pod["metadata"].get("deletionGracePeriodSeconds", 0)))


def _machines(run: _Run) -> None:
    """Delete the NodePools, wait until Karpenter has ended every machine, then delete what the machines needed."""
    nodes = run.of(NODES)
    run.delete(
        [one for one in nodes if one["kind"] == "NodePool"], "node pools and their machines", MACHINES_S
    )
    selector = f"{names.LABEL_CLUSTER}={run.cluster}"
    run.wait(
        "machines", lambda: [_held(one) for one in run.access.kubectl.find([MACHINE], selector)], MACHINES_S
    )
    run.delete([one for one in nodes if one["kind"] != "NodePool"], "node classes")


def _data(run: _Run) -> list[Manifest]:
    """Return our claims and volumes; the claims first, because a claim protects its volume."""
    return [one for one in run.ours() if one["kind"] in ("PersistentVolumeClaim", "PersistentVolume")]


def _free_namespaces(run: _Run) -> list[Manifest]:
    """Return our namespaces without a claim of anybody."""
    spaces = [one for one in run.ours() if one["kind"] == "Namespace"]
    return [one for one in spaces if not run.find(CLAIM, namespace=one["metadata"]["name"])]


def _held(one: Manifest) -> str:
    """Return what keeps an object that is being deleted."""
    reasons = [str(row["message"]) for row in _refusals(one)] or rows(one["metadata"], "finalizers")
    return f"{ref_of(one)}" + (f" ({some([str(reason) for reason in reasons])})" if reasons else "")


def _refusals(one: Manifest) -> Iterable[dict[str, str]]:
    """Return conditions of Karpenter that say why a machine does not go, such as a budget that forbids an eviction."""
    for name in ("Drained", "VolumesDetached", "InstanceTerminating"):
        row = condition(one, name)
        if row.get("status") == "False" and row.get("message"):
            yield {"message": row["message"]}
