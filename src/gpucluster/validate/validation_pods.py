"""Run validation's own pods on Kubernetes: started with the first check that asks for one, deleted on every exit."""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from gpucluster.checks.kubernetes.pods import Awaited, End, Role
from gpucluster.errors import GpuclusterError
from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s_apply import record
from gpucluster.k8s_apply.access import Access
from gpucluster.k8s_apply.clock import T, patiently
from gpucluster.k8s_apply.faults import (
    HungError,
    KubernetesError,
    NotFoundError,
    RefusedError,
    TransientError,
)
from gpucluster.k8s_apply.objects import ref_of, section
from gpucluster.k8s_apply.why.evidence import Evidence, name_of
from gpucluster.k8s_apply.why.pods import causes
from gpucluster.k8s_apply.why.read import readable
from gpucluster.plan import names
from gpucluster.text import short
from gpucluster.validate import pod_manifests
from gpucluster.validate.pod_manifests import PROGRAM, PodRun, PodSet

START_S = 180.0  # an image is pulled, a volume mounted
SETTLE_S = 30.0  # the policies of a new pod reach its node late
LEAST_TRIES = 2  # also later: one lost packet decides nothing
EXEC_S = 45.0  # longer than an API server tries to reach a kubelet (30 s), which is not the program's fault
_POLL_S = 1.0
_POD, _NAMESPACE, _NODE = ("v1", "Pod"), ("v1", "Namespace"), ("v1", "Node")
_KEEPER = ("apps/v1", "Deployment")
_BESIDE = (("v1", "Event"), ("v1", "PersistentVolumeClaim"))  # what says why a pod does not run
_REACHES = ("TIMEOUT", "REFUSED", "OTHER")  # words of `agnhost connect`: the name had an address
_ABSENT = "no such file or directory"  # words of `agnhost mounttest`
_LONGEST = 200  # characters of an answer


class ValidationPods:
    """The pods of a run. Not safe for two threads."""

    def __init__(self, access: Access, cluster: str, image: str, sets: Sequence[PodSet]) -> None:
        self._access, self._sets = access, {one.pool: one for one in sets}
        self._run = PodRun(cluster=cluster, word=secrets.token_hex(4), image=image, pools=len(sets))
        self._made: list[Manifest] = []  # what may exist: also what was asked for without an answer
        self._pods: dict[tuple[str, Role], Manifest] = {}
        self._waits: dict[tuple[str, Role], str] = {}
        self._started = False
        self._settled = 0.0  # on the clock: then every policy has reached its node
        self._broken: GpuclusterError | None = None  # why the start failed

    def answer(self, argv: Sequence[str]) -> Mapping[str, Any]:
        """The answer to a query at `Location.POD`, in the form that `checks.kubernetes.pods` parses."""
        pool, role, to, awaited = argv
        self._start_once()
        key = (pool, Role(role))
        if (pool, Role.TEAM) not in self._pods:
            return _answer("", to=to)
        destination = to
        if to in {*Role}:
            other = (pool, Role(to))
            to = _shown(self._pods[other])
            if other in self._waits:
                return self._waiting(other, to)
            destination = pod_manifests.address(self._pods[other])
        if key in self._waits:
            return self._waiting(key, to)
        last = self._attempt(key, destination, Awaited(awaited))
        words = short(last.words, _LONGEST) or ("connected" if last.code == 0 else f"exit {last.code}")
        return _answer(
            _shown(self._pods[key]),
            to=to,
            words=words,
            placed=True,
            end=last.end,
            met=_met(last, Awaited(awaited)),
            reached=last.code == 0,
        )

    def close(self) -> None:
        """Ask for the deletion of what this run made. What it could not delete is told, and ends by its deadline."""
        if not self._made:
            return
        try:
            self._patiently(lambda: self._access.kubectl.delete(self._made))
        except KubernetesError as error:
            label = f"{names.LABEL_VALIDATION_RUN}={self._run.word}"
            self._access.report(f"validation's pods are not deleted: {short(error.message)}")
            self._access.report(
                f"delete them: kubectl delete pods,deployments,namespaces --all-namespaces --selector {label}"
            )
        self._made = []

    # --- start -----------------------------------------------------------------------------------------
    def _start_once(self) -> None:
        """Start the pods; a start that failed fails again, or the next question would find no pod and no reason."""
        if self._broken is not None:
            raise self._broken
        if self._started:
            return
        self._started = True
        try:
            self._start()
        except GpuclusterError as error:
            self._broken = error
            raise

    def _start(self) -> None:
        self._require_same()
        self._delete_leftovers()
        nodes = self._nodes()
        wanted = {
            (one.pool, role): pod
            for one in self._sets.values()
            if (there := pod_manifests.nodes_of(nodes, one.pool))
            for role, pod in pod_manifests.pods(self._run, one, there)
        }
        if not wanted:
            return
        self._access.report(f"starts {len(wanted)} pods of validation, image {self._run.image}")
        self._create(pod_manifests.namespace(self._run))
        places = sorted({self._sets[pool].namespace for pool, _ in wanted})
        keepers = {place: self._create(pod_manifests.keeper(self._run, place)) for place in places}
        for key, pod in wanted.items():
            self._pods[key] = pod
            keeper = keepers.get(pod["metadata"]["namespace"])
            try:
                self._create(pod if keeper is None else pod_manifests.kept(pod, keeper))
            except RefusedError as error:
                self._waits[key] = short(error.message, _LONGEST)
        self._await_pods()

    def _delete_leftovers(self) -> None:
        """Delete what a killed run of this cluster left. Pods of a run that goes on are younger."""
        kubectl, label = self._access.kubectl, f"{names.LABEL_VALIDATION}={self._run.cluster}"
        found = self._patiently(lambda: kubectl.find((_POD, _NAMESPACE, _KEEPER), label))
        limits = dict[str, int]()
        for one in found:
            own = section(one, "spec").get("activeDeadlineSeconds", 0)
            limits[_run_of(one)] = max(limits.get(_run_of(one), pod_manifests.DEADLINE_S), own)
        now = self._access.clock.now()
        old = [
            ref_of(one).manifest()
            for one in found
            if _born(one) + timedelta(seconds=limits[_run_of(one)]) < now
        ]
        self._patiently(lambda: kubectl.delete(old))

    def _nodes(self) -> list[Manifest]:
        return self._patiently(lambda: self._access.kubectl.find((_NODE,), names.LABEL_POOL))

    def _require_same(self) -> None:
        self._patiently(
            lambda: record.require_same(self._access.kubectl, self._run.cluster, self._access.account)
        )

    def _patiently(self, call: Callable[[], T]) -> T:
        return patiently(call, self._access.clock, self._access.report)

    def _create(self, manifest: Manifest) -> Manifest:
        """Create an object. One that a lost answer hid is there already, and it is ours: its name is random."""
        ref = ref_of(manifest)
        self._made.append(ref.manifest())
        kubectl = self._access.kubectl

        def create() -> Manifest:
            try:
                return kubectl.create(manifest)
            except RefusedError as error:
                if "(AlreadyExists)" not in error.text:
                    raise
            kind = (manifest["apiVersion"], manifest["kind"])
            (there,) = kubectl.find((kind,), namespace=ref.namespace, name=ref.name)
            return there

        return self._patiently(create)

    def _await_pods(self) -> None:
        clock = self._access.clock
        end = clock.monotonic() + START_S
        while True:
            self._pods |= self._read()
            left = [key for key, pod in self._pods.items() if not pod_manifests.running(pod)]
            left = [key for key in left if key not in self._waits]
            if clock.monotonic() >= end or all(pod_manifests.ended(self._pods[key]) for key in left):
                break
            clock.sleep(_POLL_S)
        self._settled = clock.monotonic() + SETTLE_S
        self._waits |= dict(self._reasons(left))

    def _reasons(self, left: Sequence[tuple[str, Role]]) -> Iterator[tuple[tuple[str, Role], str]]:
        """Yield why each of these pods does not run."""
        kubectl = self._access.kubectl
        nodes = self._nodes() if left else []
        for namespace in sorted({self._pods[key]["metadata"]["namespace"] for key in left}):
            beside, unread = self._patiently(partial(readable, kubectl, _BESIDE, namespace))
            for key in left:
                pod = self._pods[key]
                if pod["metadata"]["namespace"] == namespace:
                    yield key, self._why(pod, (*nodes, *beside), unread)

    def _read(self) -> dict[tuple[str, Role], Manifest]:
        """Return our pods as they are now; nothing while the API server is away."""
        try:
            found = self._access.kubectl.find((_POD,), f"{names.LABEL_VALIDATION_RUN}={self._run.word}")
        except TransientError as error:
            self._access.report(f"the API server is away: {short(error.message)}")
            return {}
        by_name = {one["metadata"]["name"]: one for one in found}
        return {
            key: by_name[pod["metadata"]["name"]]
            for key, pod in self._pods.items()
            if pod["metadata"]["name"] in by_name
        }

    def _why(self, pod: Manifest, beside: Sequence[Manifest], unread: tuple[str, ...]) -> str:
        """Why a pod does not run, in the words of the scheduler or the kubelet."""
        if "uid" not in pod["metadata"]:
            return "it does not exist"
        found = next(causes(Evidence(pod, (pod, *beside), unread)), None)
        return "it has ended" if found is None else short(f"{found.by}: {found.words}", _LONGEST)

    # --- attempts --------------------------------------------------------------------------------------
    def _attempt(self, key: tuple[str, Role], to: str, awaited: Awaited) -> "_Last":
        """Try until what is awaited comes, or the pods have settled. Return the last attempt."""
        clock = self._access.clock
        argv = self._argv(key[0], to, awaited)
        tries = 0
        while True:
            last = self._execute(self._pods[key]["metadata"], argv)
            tries += 1
            is_last = tries >= LEAST_TRIES and clock.monotonic() >= self._settled
            if last.end is End.HANGS or _met(last, awaited) or is_last:
                return last
            clock.sleep(_POLL_S)

    def _execute(self, pod: Mapping[str, Any], argv: Sequence[str]) -> "_Last":
        try:
            code, words = self._access.kubectl.execute(pod["namespace"], pod["name"], argv, EXEC_S)
        except NotFoundError:
            return _Last(End.NOT_RUN, "the pod is gone: somebody deleted it")
        except HungError:
            return _Last(End.HANGS, f"no answer after {EXEC_S:g} s")
        except TransientError as error:
            return _Last(End.NOT_RUN, error.message)
        return _Last(End.EXITED, words, code)

    def _argv(self, pool: str, to: str, awaited: Awaited) -> tuple[str, ...]:
        if awaited is Awaited.MOUNTED:
            return (PROGRAM, "mounttest", f"--fs_type={pod_manifests.folder(self._sets[pool], to)}")
        if awaited is Awaited.ABSENT:
            return (PROGRAM, "mounttest", f"--file_mode={to}")
        return (PROGRAM, "connect", to, "--timeout=3s", "--protocol=tcp")

    def _waiting(self, key: tuple[str, Role], to: str) -> Mapping[str, Any]:
        pod = self._pods[key]
        placed = bool(section(pod, "spec").get("nodeName"))
        return _answer(_shown(pod), placed=placed, waits=self._waits[key], to=to)


@dataclass(frozen=True, slots=True)
class _Last:
    """The last attempt. `code`: of a program that has exited."""

    end: End
    words: str
    code: int | None = None


def _met(last: _Last, awaited: Awaited) -> bool:
    blocked = last.code == 1 and last.words.startswith(_REACHES)
    match awaited:
        case Awaited.CONNECTED | Awaited.MOUNTED:
            return last.code == 0
        case Awaited.BLOCKED:
            return blocked
        case Awaited.ABSENT:
            return last.code == 1 and last.words.endswith(_ABSENT)
        case Awaited.RESOLVED:
            return last.code == 0 or blocked


def _answer(
    pod: str, *, to: str, waits: str = "", words: str = "", end: End = End.NOT_RUN, **truths: bool
) -> Mapping[str, Any]:
    truths = {"placed": False, "met": False, "reached": False, **truths}
    return {"pod": pod, "to": to, "waits": waits, "words": words, "end": end, **truths}


def _shown(pod: Manifest) -> str:
    node = section(pod, "spec").get("nodeName")
    return name_of(pod) + (f" on {node}" if node else "")


def _run_of(one: Manifest) -> str:
    return str(one["metadata"]["labels"].get(names.LABEL_VALIDATION_RUN, ""))


def _born(one: Manifest) -> datetime:
    return datetime.fromisoformat(one["metadata"]["creationTimestamp"])
