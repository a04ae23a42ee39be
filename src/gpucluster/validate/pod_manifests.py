"""Validation's own pods on Kubernetes, and the nodes that they run on. Pure.

Each runs agnhost of Kubernetes' own tests (test/images/agnhost of v1.36.2), and meets the level "restricted" of Pod Security.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpucluster.checks.kubernetes.pods import PodNetwork, PodVolumes, Role
from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s_apply.objects import is_true, ref_of, rows, section
from gpucluster.k8s_apply.steps import Steps
from gpucluster.plan import names
from gpucluster.plan.model.eks import Taint
from gpucluster.plan.model.kubernetes import Kubernetes
from gpucluster.validate.expectation import Expectation

PORT = 8080
PROGRAM = "/agnhost"
NAME = "gpucluster-validate"
DEADLINE_S = 1200  # at least; the kubelet ends the pods of a run that was killed
OF_A_POOL_S = 120  # what a pool whose pods or volumes do not answer takes of a run
_USER = 65534  # nobody
_UNPRIVILEGED = {
    "runAsNonRoot": True,
    "runAsUser": _USER,
    "runAsGroup": _USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}
# As CUDA images set it. No namespace of a team admits it.
_ALL_GPUS: Manifest = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
_RESOURCES = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSet:
    """The pods of one pool: whose namespace they run in, and the claims of the one that mounts. `gpus`: its nodes have some."""

    pool: str
    taints: tuple[Taint, ...]
    namespace: str
    claims: tuple[str, ...]
    gpus: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRun:
    """One run of validation. Its pods and its namespace have names that no other run has."""

    cluster: str
    word: str  # random
    image: str
    pools: int

    @property
    def deadline_s(self) -> int:
        """How long its pods run at most: longer than a run in which no pool answers."""
        return DEADLINE_S + OF_A_POOL_S * self.pools

    @property
    def namespace(self) -> str:
        """Of the outsider."""
        return f"{NAME}-{self.word}"

    @property
    def labels(self) -> dict[str, str]:
        return {names.LABEL_VALIDATION: self.cluster, names.LABEL_VALIDATION_RUN: self.word}


def pod_sets(part: Kubernetes, steps: Steps) -> Iterator[PodSet]:
    """Yield a set for each pool in which a team has a share: the first of these teams."""
    claims = _claims(steps)
    for pool in part.pools:
        team = next((one for one in part.teams if any(s.pool == pool.name for s in one.shares)), None)
        if team is not None:
            yield PodSet(
                pool=pool.name,
                taints=pool.taints,
                namespace=team.namespace,
                claims=tuple(claims.get(team.namespace, ())),
                gpus=pool.gpu_count > 0,
            )


def chosen_sets(sets: Sequence[PodSet], chosen: Sequence[Expectation]) -> tuple[PodSet, ...]:
    """Return the sets that the chosen checks need."""
    pools = {one.want.pool for one in chosen if isinstance(one.want, PodNetwork | PodVolumes)}
    return tuple(one for one in sets if one.pool in pools)


def nodes_of(found: Sequence[Manifest], pool: str) -> tuple[str, ...]:
    """Return the nodes of a pool that take pods, by name."""
    return tuple(sorted(one["metadata"]["name"] for one in found if _takes_pods(one, pool)))


def namespace(run: PodRun) -> Manifest:
    """The namespace of the outsider. It has no network policy."""
    metadata = {"name": run.namespace, "labels": run.labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def keeper(run: PodRun, place: str) -> Manifest:
    """The controller of the pods in a team's namespace: a Deployment without replicas.

    Kueue leaves a pod alone whose controller is of a kind that it queues (FindAncestorJobManagedByKueue, v0.19.2). So these pods take no
    quota of the team, evict no gang and start while the quota is full. A Deployment does nothing with pods that no ReplicaSet of it has made.
    """
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"{NAME}-{run.word}", "namespace": place, "labels": run.labels},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {**run.labels, "app": NAME}},
            "template": {
                "metadata": {"labels": {**run.labels, "app": NAME}},
                "spec": {
                    "automountServiceAccountToken": False,
                    "securityContext": _UNPRIVILEGED,
                    "containers": [_container(run, ())],
                },
            },
        },
    }


def kept(pod: Manifest, by: Manifest) -> Manifest:
    """The pod with its controller."""
    owner = {"apiVersion": by["apiVersion"], "kind": by["kind"], "controller": True}
    owner |= {"name": by["metadata"]["name"], "uid": by["metadata"]["uid"]}
    return {**pod, "metadata": {**pod["metadata"], "ownerReferences": [owner]}}


def pods(run: PodRun, of: PodSet, nodes: Sequence[str]) -> Iterator[tuple[Role, Manifest]]:
    """Yield the pods of a set. All but the first run on the second node, if there is one."""
    first, second = nodes[0], nodes[min(1, len(nodes) - 1)]
    roles = {Role.TEAM: first, Role.PEER: second, Role.OUTSIDER: second}
    if of.claims:
        roles[Role.MOUNTS] = first
    for role, node in roles.items():
        yield role, _pod(run, of, role, node)


def folder(of: PodSet, claim: str) -> str:
    """Where the pod that mounts has the volume of a claim."""
    return f"/mnt/{of.claims.index(claim)}"


def _takes_pods(node: Manifest, pool: str) -> bool:
    metadata, spec = node["metadata"], section(node, "spec")
    mine = section(metadata, "labels").get(names.LABEL_POOL) == pool
    return (
        mine
        and is_true(node, "Ready")
        and not spec.get("unschedulable")
        and "deletionTimestamp" not in metadata
    )


def _claims(steps: Steps) -> dict[str, list[str]]:
    """Namespace -> the claims whose volumes are known."""
    unbound, found = steps.unbound, dict[str, list[str]]()
    for one in steps.objects:
        if one["kind"] == "PersistentVolumeClaim" and (ref := ref_of(one)) not in unbound:
            found.setdefault(ref.namespace, []).append(ref.name)
    return found


def _pod(run: PodRun, of: PodSet, role: Role, node: str) -> Manifest:
    claims = of.claims if role is Role.MOUNTS else ()
    volumes = [
        {"name": f"claim-{i}", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
        for i, claim in enumerate(claims)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{NAME}-{run.word}-{of.pool.replace('.', '-')}-{role.value}",
            "namespace": run.namespace if role is Role.OUTSIDER else of.namespace,
            "labels": run.labels,
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": run.deadline_s,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "affinity": {"nodeAffinity": _on(node)},
            "tolerations": [
                {"key": one.key, "operator": "Equal", "value": one.value, "effect": one.effect}
                for one in of.taints
            ],
            "securityContext": _UNPRIVILEGED,
            "containers": [
                {**_container(run, claims), **(_ALL_GPUS if role is Role.OUTSIDER and of.gpus else {})}
            ],
            "volumes": volumes,
        },
    }


def _container(run: PodRun, claims: Sequence[str]) -> Manifest:
    return {
        "name": "agnhost",
        "image": run.image,
        # not `netexec`, which runs commands of others
        "command": [PROGRAM, "serve-hostname", f"--port={PORT}"],
        "resources": _RESOURCES,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": f"claim-{i}", "mountPath": f"/mnt/{i}", "readOnly": True} for i in range(len(claims))
        ],
    }


def _on(node: str) -> Manifest:
    """The scheduler places the pod on this node or nowhere, and Karpenter launches none for it."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = [{"matchFields": [field]}]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}


def running(pod: Manifest) -> bool:
    """Whether its container runs, and it has an address."""
    status = section(pod, "status")
    states = [section(row, "state") for row in rows(status, "containerStatuses")]
    return status.get("phase") == "Running" and "podIP" in status and all("running" in one for one in states)


def ended(pod: Manifest) -> bool:
    return section(pod, "status").get("phase") in ("Failed", "Succeeded")


def address(pod: Manifest) -> str:
    """HOST:PORT of a pod that runs."""
    found = pod["status"]["podIP"]
    return f"[{found}]:{PORT}" if ":" in found else f"{found}:{PORT}"
