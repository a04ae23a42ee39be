"""Apply the steps in order, each with its check. A second run changes nothing, and it continues a killed one."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpucluster import catalog
from gpucluster.artifacts import write_tree
from gpucluster.errors import StateError
from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s.releases import has_definitions
from gpucluster.k8s_apply import charts, charts_objects, charts_removal, record
from gpucluster.k8s_apply.access import Access
from gpucluster.k8s_apply.clock import patiently, some, until
from gpucluster.k8s_apply.conditions import binding_later, waiting
from gpucluster.k8s_apply.faults import RefusedError
from gpucluster.k8s_apply.foreign_controllers import refuse_foreign_controllers
from gpucluster.k8s_apply.kubectl import FORCE
from gpucluster.k8s_apply.lease import Lease, held
from gpucluster.k8s_apply.objects import ref_of
from gpucluster.k8s_apply.ownership import Leftovers, ending, leftovers, refuse_foreign_objects
from gpucluster.k8s_apply.record import Record
from gpucluster.k8s_apply.refusals import explained
from gpucluster.k8s_apply.steps import AWAITED_LAST, ENDING_S, SERVED_S, Steps, WaveStep, waves_through
from gpucluster.plan import names
from gpucluster.plan.model.values import GANG

_PRIORITY_CLASS = ("scheduling.k8s.io/v1", "PriorityClass")


@dataclass(frozen=True, slots=True)
class Applied:
    """What an `up` did."""

    charts: tuple[str, ...]  # installed or upgraded
    waves: tuple[str, ...]  # applied; the API server changes only what differs
    pruned: tuple[str, ...]
    leftovers: tuple[str, ...]  # objects of this cluster that the tree no longer has
    waiting: tuple[str, ...] = ()  # services that are not ready, and what they wait for


def up(
    access: Access,
    steps: Steps,
    *,
    holder: str,
    prune: bool = False,
    force_conflicts: bool = False,
    through: str | None = None,
    limit_s: float | None = None,
) -> Applied:
    """Apply everything, or the waves up to the folder `through`. Services are awaited at the end: no later wave needs them.

    `limit_s` replaces the limit of each check. `force_conflicts`: take fields that others have set.
    """
    kubectl, cluster = access.kubectl, steps.cluster
    waves, flags = waves_through(steps, through), (FORCE,) if force_conflicts else ()
    pruned, left = tuple[str, ...](), tuple[str, ...]()
    if prune and through is not None:
        raise StateError(
            "--prune and --through exclude each other: nothing was changed",
            next_step="leave out --through: what the spec no longer has is known after the last wave",
        )
    if access.helm is not None:
        access.helm.require_version()
    with (
        tempfile.TemporaryDirectory(prefix="gpucluster-k8s-") as made,
        held(kubectl, cluster, holder, access.clock, access.report) as lease,
    ):
        folder = Path(made)
        write_tree(steps.tree, folder)
        found = _refuse(access, steps)
        _await_ends(access, cluster, waves, limit_s)
        begun = _begin(access, steps, lease)
        changed = tuple(
            _charts(access, steps, found, folder, lease, defined=begun.definitions, limit_s=limit_s)
        )
        begun = _defined(access, steps, lease, begun)
        for wave in waves:
            lease.require()
            _wave(access, wave, folder, limit_s=limit_s, flags=flags)
            if wave.wave not in AWAITED_LAST:
                _await(access, steps, wave, limit_s)
        if through is None:
            pruned, left = _leftovers(access, steps, lease, prune=prune)
            lease.require()
            done = replace(begun, complete=True)
            patiently(lambda: record.write(kubectl, done), access.clock, access.report)
    waiting = [line for wave in waves for line in _waiting(access, steps, wave, limit_s)]
    return Applied(
        charts=changed,
        waves=tuple(wave.wave.folder for wave in waves),
        pruned=pruned,
        leftovers=left,
        waiting=tuple(waiting),
    )


def _refuse(access: Access, steps: Steps) -> charts.Found:
    """Refuse what is not ours before the first change, and return the releases that are there."""
    kubectl, helm, found = access.kubectl, access.helm, charts.NONE
    patiently(
        lambda: record.require_same(kubectl, steps.cluster, access.account), access.clock, access.report
    )
    if helm is not None:
        found = patiently(lambda: charts.require_ours(helm, steps.releases), access.clock, access.report)
        refuse_foreign_controllers(access, steps.cluster, steps.releases, found)
    patiently(
        lambda: refuse_foreign_objects(kubectl, steps.cluster, steps.objects), access.clock, access.report
    )
    _tell_default_class(access, steps.cluster)
    return found


def _tell_default_class(access: Access, cluster: str) -> None:
    """Tell of a class that the API server gives to pods of teams, whose policy has a list of classes."""
    classes = patiently(lambda: access.kubectl.find([_PRIORITY_CLASS]), access.clock, access.report)
    theirs = [one["metadata"]["name"] for one in classes if one.get("globalDefault")]
    if theirs:
        access.report(
            f"pods without a class get the PriorityClass {theirs[0]}, the default of this cluster:"
            f" those of teams need {names.kubernetes_name(cluster, GANG)}, or they are refused"
        )


def _await_ends(access: Access, cluster: str, waves: Sequence[WaveStep], limit_s: float | None) -> None:
    """Wait until nothing that will be applied is being deleted, for example by a `down` that did not end."""
    wanted = [one for wave in waves for one in wave.objects]
    until(
        "the end of objects that are applied again",
        lambda: ending(access.kubectl, wanted),
        access.clock,
        access.report,
        limit_s=ENDING_S if limit_s is None else limit_s,
        next_step=f"when they are gone: `gpucluster k8s up {cluster}`, which makes them again. Nothing was changed",
    )


def _begin(access: Access, steps: Steps, lease: Lease) -> Record:
    """Record that this tree is being applied, unless it is applied already."""
    kubectl, cluster = access.kubectl, steps.cluster
    found = patiently(lambda: record.read(kubectl, cluster), access.clock, access.report)
    uid = patiently(lambda: record.uid_of(kubectl), access.clock, access.report)
    account = access.account or (found.account if found is not None else "")
    begun = Record(
        cluster,
        steps.digest,
        complete=found is not None and found.complete and found.digest == steps.digest,
        uid=uid,
        account=account,
        definitions=frozenset() if found is None else found.definitions,
    )
    if found is None or found.digest != steps.digest:
        lease.require()
        patiently(lambda: record.write(kubectl, begun), access.clock, access.report)
    return begun


def _defined(access: Access, steps: Steps, lease: Lease, begun: Record) -> Record:
    """Record whose definitions are applied: all charts are as the spec wants now."""
    if access.helm is None:
        return begun
    there = frozenset(one.full_name for one in steps.releases if has_definitions(one))
    if there == begun.definitions:
        return begun
    lease.require()
    done = replace(begun, definitions=there)
    patiently(lambda: record.write(access.kubectl, done), access.clock, access.report)
    return done


def _charts(
    access: Access,
    steps: Steps,
    found: charts.Found,
    folder: Path,
    lease: Lease,
    *,
    defined: frozenset[str],
    limit_s: float | None,
) -> Iterator[str]:
    """Install the charts that differ, and yield their names. `defined`: those whose definitions an earlier `up` applied."""
    if access.helm is None:
        return
    helm, kubectl = access.helm, access.kubectl
    limit = charts.CHART_S if limit_s is None else limit_s
    for release in steps.releases:
        lease.require()
        if charts.install(
            helm,
            release,
            found,
            folder,
            users=lambda one: charts_removal.users_of(access, one),
            lacks=lambda one: charts_objects.lacks(kubectl, helm, one, steps.objects),
            define=kubectl.define,
            clock=access.clock,
            report=access.report,
            limit_s=limit,
        ):
            yield release.name
        else:
            if charts.undefined(release, defined):
                charts.renew(
                    access.helm,
                    release,
                    define=access.kubectl.define,
                    clock=access.clock,
                    report=access.report,
                )
            access.report(f"the chart {release.name} {release.version} is unchanged")


def _wave(
    access: Access, wave: WaveStep, folder: Path, *, limit_s: float | None, flags: Sequence[str]
) -> None:
    kubectl, clock, report = access.kubectl, access.clock, access.report
    until(
        "the API server to serve the kinds of the charts",
        lambda: _unserved(access, wave),
        clock,
        report,
        limit_s=SERVED_S if limit_s is None else limit_s,
        next_step="install the charts that bring these kinds: the README.md of the rendered tree lists them",
    )
    report(f"applying {wave.wave.folder}: {wave.wave.holds}")
    try:
        patiently(lambda: kubectl.apply(folder / wave.wave.folder, *flags), clock, report)
    except RefusedError as error:
        raise explained(error, wave, access) from error


def _unserved(access: Access, wave: WaveStep) -> list[str]:
    """Return the kinds of a wave that the server does not serve. A CustomResourceDefinition is served when it is established."""
    built_in = catalog.kubernetes_facts().served
    types = {(one["apiVersion"], one["kind"]) for one in wave.objects}
    wanted = sorted(kind for kind in types if kind not in built_in)
    served = {version: access.kubectl.served(version) for version in dict.fromkeys(v for v, _ in wanted)}
    return [f"{kind} ({version}) is not served" for version, kind in wanted if kind not in served[version]]


def _await(access: Access, steps: Steps, wave: WaveStep, limit_s: float | None) -> None:
    unbound = [str(ref_of(one)) for one in wave.objects if ref_of(one) in steps.unbound]
    if unbound:
        access.report(
            f"not awaited: {some(unbound)}: a volume has no id yet; pass --bindings (MISSING.md says which)"
        )
    checked = list(steps.awaited(wave))
    if checked:
        until(
            wave.wave.folder,
            lambda: not_ready(access, checked),
            access.clock,
            access.report,
            limit_s=wave.limit_s if limit_s is None else limit_s,
            next_step=f"when it is ready: `gpucluster k8s up {steps.cluster}`, which goes on here",
        )


def _waiting(access: Access, steps: Steps, wave: WaveStep, limit_s: float | None) -> list[str]:
    """Await a wave that is awaited last, and return what its objects still wait for. Nobody holds the lease: nothing changes."""
    if wave.wave not in AWAITED_LAST:
        return []
    try:
        _await(access, steps, wave, limit_s)
    except StateError:
        wanted = list(steps.awaited(wave))
        return patiently(lambda: not_ready(access, wanted), access.clock, access.report)
    return []


def not_ready(access: Access, wanted: list[Manifest]) -> list[str]:
    """Return what the objects still wait for."""
    later = frozenset[str]()
    if any(one["kind"] == "PersistentVolumeClaim" and one["spec"].get("storageClassName") for one in wanted):
        later = binding_later(access.kubectl.find([("storage.k8s.io/v1", "StorageClass")]))
    there = {ref_of(one): one for one in access.kubectl.get(wanted)}
    lines = (
        waiting(there[ref], later) if ref in there else f"{ref} is not there"
        for ref in (ref_of(one) for one in wanted)
    )
    return [line for line in lines if line]


def _leftovers(
    access: Access, steps: Steps, lease: Lease, *, prune: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of what was pruned, and of what is not in the spec and stays."""
    left = patiently(lambda: leftovers(access.kubectl, steps), access.clock, access.report)
    releases = charts_removal.strays(access, steps)
    if not prune:
        return (), (*left.names, *(f"the chart {one.place}" for one in releases))
    pruned = _prune(access, left, lease)
    gone, needed = charts_removal.uninstall(access, releases, lease)
    return (
        (*pruned, *(f"the chart {name}" for name in gone)),
        (*left.staying, *(f"the chart {name}" for name in needed)),
    )


def _prune(access: Access, left: Leftovers, lease: Lease) -> tuple[str, ...]:
    lease.require()
    gone = [ref_of(one) for one in left.prunable]
    if gone:
        access.report(f"deleting what the spec no longer has: {some([str(ref) for ref in gone], 10)}")
        patiently(
            lambda: access.kubectl.delete([ref.manifest() for ref in gone]), access.clock, access.report
        )
    return tuple(str(ref) for ref in gone)
