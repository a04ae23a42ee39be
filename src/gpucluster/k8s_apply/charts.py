"""Install the charts with helm: each at its pinned version, with our values, and only if something differs."""

from collections.abc import Callable, Container, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpucluster.errors import GpuclusterError, StateError
from gpucluster.k8s.manifest import documents
from gpucluster.k8s.releases import Release, has_definitions
from gpucluster.k8s_apply.clock import Clock, Report, patiently, some
from gpucluster.k8s_apply.faults import KubernetesError, NotFoundError
from gpucluster.k8s_apply.helm import Helm, Installed
from gpucluster.k8s_apply.steps import CHART_S
from gpucluster.plan import names

DEPLOYED = "deployed"
UNINSTALLING = "uninstalling"
_POLL_S = 10.0


Found = Mapping[tuple[str, str], Installed]  # by namespace and name
NONE: Found = {}


def require_ours(helm: Helm, releases: tuple[Release, ...]) -> Found:
    """Return what is installed. StateError names the releases that are there and not of this cluster. Nothing is changed."""
    there = helm.installed()
    found = [
        one
        for one in releases
        if (one.namespace, one.name) in there and not there[one.namespace, one.name].ours
    ]
    if found:
        named = ", ".join(f"{one.name} in {one.namespace}" for one in found)
        raise StateError(
            f"these releases exist and have no label {names.LABEL_CLUSTER}={helm.cluster}: {named}",
            next_step="if others maintain the charts: --no-charts. To give them to this cluster: `helm upgrade` with --labels",
        )
    return there


def install(
    helm: Helm,
    release: Release,
    found: Found,
    folder: Path,
    *,
    users: Callable[[Installed], list[str]],
    lacks: Callable[[Release], Sequence[str]],
    define: Callable[[str], None],
    clock: Clock,
    report: Report,
    limit_s: float,
) -> bool:
    """Install or upgrade the release if it differs from `found`, or if the cluster lacks a part of it. Return whether something changed.

    `users` returns the objects of the chart's kinds: an uninstall that also deletes their definitions deletes them. `lacks`
    returns what somebody deleted of it or stopped. `define` applies definitions.
    """
    known = [found.get((release.namespace, release.name))]

    def attempt() -> bool:
        there = known.pop() if known else _there(helm, release)  # a repeat reads it again
        there = _settled(helm, release, there, users, clock=clock, report=report)
        if there is not None and there.status == UNINSTALLING:
            report(f"the release {release.name} is {there.status}: it is uninstalled, then installed")
            there = _uninstalled(helm, release, users(there), there, "an uninstall of it")
        if there is not None and same(release, there, helm.values(release), folder):
            missing = list(lacks(release))
            if not missing:
                return False
            report(f"of the chart {release.name}: {some(missing)}")
        verb = "installing" if there is None else "upgrading"
        report(f"{verb} the chart {release.name} {release.version}")
        _define(helm, release, define)
        helm.upgrade(release, folder, limit_s)
        return True

    with _named(helm, release, "the chart", "is not installed"):
        return patiently(attempt, clock, report)


def renew(
    helm: Helm, release: Release, *, define: Callable[[str], None], clock: Clock, report: Report
) -> None:
    """Apply the definitions of a release that is as the spec wants. Somebody may have upgraded it by hand: helm leaves old ones."""
    report(f"applying the definitions of the chart {release.name} {release.version}")
    with _named(helm, release, "the definitions of the chart", "are not applied"):
        patiently(lambda: _define(helm, release, define), clock, report)


def undefined(release: Release, defined: Container[str]) -> bool:
    """Return whether the chart has definitions that no `up` has applied. `defined`: the charts, NAME-VERSION, of the record."""
    return has_definitions(release) and release.full_name not in defined


def _define(helm: Helm, release: Release, define: Callable[[str], None]) -> None:
    if text := helm.definitions(release).strip():
        define(text)


@contextmanager
def _named(helm: Helm, release: Release, what: str, problem: str) -> Generator[None]:
    try:
        yield
    except KubernetesError as error:
        raise GpuclusterError(
            f"{what} {release.name} {release.version} of {release.repository} {problem}: {error.message}",
            next_step=f"correct this, then repeat `gpucluster k8s up {helm.cluster}`; it goes on here. State: helm status {release.name} --namespace {release.namespace}",
        ) from error


def same(release: Release, there: Installed, values: Any, folder: Path) -> bool:
    """Return whether the release is what the spec wants."""
    spellings = {f"{release.name}-{v}" for v in (release.version, release.version.removeprefix("v"))}
    return there.chart in spellings and there.status == DEPLOYED and values == wanted_values(release, folder)


def wanted_values(release: Release, folder: Path) -> dict[str, Any]:
    if release.values is None:
        return {}
    (found,) = documents((folder / release.values).read_text(encoding="utf-8"))
    return found


def _settled(
    helm: Helm,
    release: Release,
    there: Installed | None,
    users: Callable[[Installed], list[str]],
    *,
    clock: Clock,
    report: Report,
) -> Installed | None:
    """Return the release without an operation in progress: helm refuses another one until it ends.

    We hold the lease, so an operation that goes on is of another person, or its helm was killed. Nobody can see which: `helm --wait` by
    hand says nothing for minutes. It gets as long as ours after its begin before it is ended.
    """
    first = clock.now()
    while there is not None and there.pending:
        left_s = CHART_S - (clock.now() - (there.changed or first)).total_seconds()
        if left_s <= 0:
            return _ended(helm, release, there, users, report)
        report(
            f"waiting for the release {release.name}, at most {left_s:.0f} s: it is {there.status}, by another helm"
        )
        clock.sleep(min(_POLL_S, left_s))
        there = _there(helm, release)
    return there


def _ended(
    helm: Helm, release: Release, there: Installed, users: Callable[[Installed], list[str]], report: Report
) -> Installed | None:
    how = "uninstalled, then installed" if there.revision == 1 else "rolled back"
    report(f"the release {release.name} is {there.status} for {CHART_S:g} s or longer: it is {how}")
    if there.revision == 1:
        return _uninstalled(helm, release, users(there), there, "its installation")
    try:
        helm.rollback(release, CHART_S)
    except NotFoundError:
        return None
    return _there(helm, release)


def _uninstalled(
    helm: Helm, release: Release, users: list[str], there: Installed, what: str
) -> Installed | None:
    """Uninstall a release that helm refuses to upgrade: `what` was killed or failed. StateError: its kinds have objects."""
    if users:
        place = f"{release.name} {there.revision} --namespace {release.namespace}"
        raise StateError(
            f"the release {there.place} is {there.status}: {what} did not end, and objects of its kinds are there: {some(users)}."
            " An uninstall deletes them, if the chart's definitions go with it",
            next_step=f"to keep them: helm rollback {place}, then repeat `gpucluster k8s up {helm.cluster}`;"
            f" to delete them: helm uninstall {release.name} --namespace {release.namespace}",
        )
    try:
        helm.uninstall(release, CHART_S)
    except NotFoundError:
        return None
    return _there(helm, release)


def _there(helm: Helm, release: Release) -> Installed | None:
    return helm.installed().get((release.namespace, release.name))
