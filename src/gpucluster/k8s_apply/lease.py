"""The Lease `gpucluster-NAME` in kube-system: one `up` or `down` for a cluster at a time.

The holder renews it while it works. A lease that nobody renewed for its duration is taken over. The server decides a race: each write
carries the resourceVersion that it read.
"""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from gpucluster.errors import GpuclusterError, StateError
from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s_apply.clock import Clock, Report, patiently
from gpucluster.k8s_apply.faults import ConflictError, KubernetesError, NotFoundError
from gpucluster.k8s_apply.kubectl import Kubectl
from gpucluster.k8s_apply.objects import section
from gpucluster.k8s_apply.record import NAMESPACE, metadata, name_of

DURATION_S = 60
RENEW_S = 15.0
WATCH_S = 20.0  # longer than RENEW_S: clocks of two machines differ, so an expired lease is watched before it is taken over


@dataclass(slots=True)
class Lease:
    """A lease that this process holds. `require` is called before each change."""

    kubectl: Kubectl
    clock: Clock
    cluster: str
    holder: str
    renewed: float  # monotonic
    manifest: Manifest
    lock: threading.Lock = field(default_factory=threading.Lock)  # of the renewer's thread and ours

    def require(self) -> None:
        """Return if the lease is ours now. It is renewed if that is due: the server refuses that if somebody took it over.

        A call can hang longer than the lease lasts, so its age is measured again after the call.
        """
        with self.lock:
            if self._age() < RENEW_S:
                return
            try:
                self.renew()
            except (ConflictError, NotFoundError) as error:
                raise self._lost() from error
            except KubernetesError as error:
                if self._age() > DURATION_S:
                    raise self._lost() from error
            if self._age() > DURATION_S:
                raise self._lost()

    def renew(self) -> None:
        """Renew it. The server refuses it if somebody else wrote the lease."""
        began = self.clock.monotonic()
        spec = {**self.manifest["spec"], "renewTime": _text(self.clock.now())}
        self.manifest = self.kubectl.replace({**self.manifest, "spec": spec})
        self.renewed = began

    def _age(self) -> float:
        """Return the seconds since the last renewal began."""
        return self.clock.monotonic() - self.renewed

    def _lost(self) -> StateError:
        return StateError(
            f"the lease {name_of(self.cluster)} is not ours any more: it was not renewed for {DURATION_S} s, or somebody took it",
            next_step="repeat the command when the API server answers; it goes on where it ended",
        )

    def release(self) -> None:
        """Give it up, so that the next run does not wait."""
        spec = {**self.manifest["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
        self.kubectl.replace({**self.manifest, "spec": spec})


@contextmanager
def held(kubectl: Kubectl, cluster: str, holder: str, clock: Clock, report: Report) -> Generator[Lease]:
    """Hold the lease while the block runs. StateError names another holder."""
    lease = acquire(kubectl, cluster, holder, clock, report)
    done = threading.Event()

    def keep() -> None:
        while not done.wait(RENEW_S):
            with lease.lock:
                if not done.is_set():
                    _try_renew(lease)

    renewer = threading.Thread(target=keep, daemon=True)
    renewer.start()
    try:
        yield lease
    finally:
        done.set()
        with lease.lock:
            _try_release(lease)
        renewer.join()


def acquire(kubectl: Kubectl, cluster: str, holder: str, clock: Clock, report: Report) -> Lease:
    """Take the lease, or raise a StateError that names the holder. An API server that is away for a moment is asked again."""
    tried = list[str]()
    return patiently(lambda: _take(kubectl, cluster, holder, clock, report, tried=tried), clock, report)


def _take(
    kubectl: Kubectl, cluster: str, holder: str, clock: Clock, report: Report, *, tried: list[str]
) -> Lease:
    """Take the lease once. `tried`: the times that we wrote into it; a write whose answer was lost can be there."""
    wanted, began = _manifest(cluster, holder, clock.now()), clock.monotonic()
    found = kubectl.get([wanted])
    try:
        if found and _is_from(found[0], holder, tried):
            spec = {**found[0]["spec"], "renewTime": _text(clock.now())}
            tried.append(spec["renewTime"])
            made = kubectl.replace({**found[0], "spec": spec})
        elif found:
            _require_free(found[0], cluster, clock)
            if section(found[0], "spec").get("holderIdentity"):
                report(f"the lease of {_holder(found[0])} expired; it is watched for {WATCH_S:g} s")
                clock.sleep(WATCH_S)
            turns = section(found[0], "spec").get("leaseTransitions", 0) + 1
            wanted, began = _manifest(cluster, holder, clock.now()), clock.monotonic()
            spec = {**wanted["spec"], "leaseTransitions": turns}
            tried.append(spec["renewTime"])
            made = kubectl.replace({**found[0], "spec": spec})
        else:
            tried.append(wanted["spec"]["renewTime"])
            made = kubectl.create(wanted)
    except ConflictError as error:
        now = kubectl.get([wanted])
        who = _holder(now[0]) if now else "another run"
        raise _taken(cluster, who) from error
    return Lease(kubectl, clock, cluster, holder, began, made)


def _is_from(there: Manifest, holder: str, tried: list[str]) -> bool:
    spec = section(there, "spec")
    return spec.get("holderIdentity") == holder and spec.get("renewTime") in tried


def _require_free(there: Manifest, cluster: str, clock: Clock) -> None:
    spec = section(there, "spec")
    if not spec.get("holderIdentity") or not spec.get("renewTime"):
        return  # nobody holds it, or nobody has renewed it
    renewed = datetime.fromisoformat(spec["renewTime"])
    if (clock.now() - renewed).total_seconds() <= spec.get("leaseDurationSeconds", DURATION_S):
        raise _taken(cluster, _holder(there))


def _taken(cluster: str, who: str) -> StateError:
    return StateError(
        f"{who} works on {cluster} now: it holds the lease {name_of(cluster)} in {NAMESPACE}",
        next_step=f"wait until it ends; if it was killed, its lease ends {DURATION_S} s after the last renewal",
    )


def _holder(lease: Manifest) -> str:
    return str(section(lease, "spec").get("holderIdentity") or "nobody")


def _try_renew(lease: Lease) -> None:
    try:
        lease.renew()
    except GpuclusterError:
        return  # `require` decides, by the time of the last renewal


def _try_release(lease: Lease) -> None:
    try:
        lease.release()
    except KubernetesError:
        return  # it expires


def _manifest(cluster: str, holder: str, now: datetime) -> Manifest:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": DURATION_S, "leaseTransitions": 0}
    spec |= {"acquireTime": _text(now), "renewTime": _text(now)}
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    return {**kind, "metadata": metadata(cluster), "spec": spec}


def _text(when: datetime) -> str:
    """Return the form of MicroTime in the API."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
