"""Build a diff from two revisions. Pure: specs, plans, files, costs and resources are arguments."""

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpucluster.artifacts import Artifact
from gpucluster.cost import AnyPool, pools_of
from gpucluster.gitops import hosts, manifests, moved_nodes, pods
from gpucluster.gitops.consequences import consequences
from gpucluster.gitops.effects import named, of_another_cluster, of_jobs
from gpucluster.gitops.events import events
from gpucluster.gitops.host_events import host_events
from gpucluster.gitops.host_steps import APPLY
from gpucluster.gitops.identity import is_another
from gpucluster.gitops.manifests import TreeChange
from gpucluster.gitops.model import (
    ORDER,
    Compared,
    Diff,
    Effects,
    FileChange,
    Kind,
    PoolFacts,
    PoolRow,
    ResourceChange,
    Revision,
    SpecChange,
    worse,
    worst,
)
from gpucluster.gitops.refine import refined, refused
from gpucluster.gitops.rights import with_rights
from gpucluster.gitops.split import splits
from gpucluster.gitops.walk import walk
from gpucluster.gitops.workload_changes import workload_changes
from gpucluster.plan import names
from gpucluster.plan.model import ClusterPlan, Pool, SlurmOnAws, SlurmOnHosts, eks_of
from gpucluster.spec import ClusterSpec, UpdateClass
from gpucluster.spec.pools import run_by

NOTHING = Compared()
_IDENTITY = ("name", "aws", "hosts")
_OF_NEW = "of the new cluster: the old one stays as it is"
DOWN = (
    "gpucluster down {}    # when its jobs have ended and its data is copied: until then both clusters cost"
)
_POOL = re.compile(r"pools\[([^\]]*)\]")
_ALL = pods.PodEvents(applied=True)  # a new cluster gets all manifests


def diff(old: Revision, new: Revision, compared: Compared = NOTHING) -> Diff:
    """Compare two revisions. `compared` has the results of `gitops.resources.compare` and `gitops.rights`."""
    resources = None if compared.resources is None else with_rights(compared.resources, compared.rights or ())
    own = _worst_first(_changes(old, new))
    workloads = tuple(workload_changes(old, new))
    spec = _worst_first(iter((*own, *workloads)))
    tree = pods.changed_tree(old, new, resources or ())
    of_plans = consequences(old.plan, new.plan, own)
    if _refuses(old.plan, new.plan, own, resources or ()):
        spec = tuple(replace(one, why=refused(one.why)) for one in spec)
        of_plans = tuple(replace(one, message=refused(one.message)) for one in of_plans)
    follows = (*of_plans, *manifests.consequences(tree, spec))
    by_spec = worst(one.update for one in (*spec, *follows))
    by_engine = worst(one.update for one in resources or ())
    beyond = [one for one in resources or () if worse(one.update, by_spec)]
    has_effects = own or follows or beyond or workloads
    return Diff(
        name=new.spec.name,
        old=old.label,
        new=new.label,
        spec=spec,
        consequences=follows,
        files=compare_files(_rendered(old), _rendered(new)),
        resources=resources,
        rights=compared.rights,
        unseen=compared.unseen,
        pools=tuple(_rows(old, new)),
        cost_before=old.cost,
        cost_after=new.cost,
        worst=by_engine if worse(by_engine, by_spec) else by_spec,
        engine_note=_engine_note(by_spec, by_engine, resources or ()),
        effects=_with_splits(old, new, _effects(old, new, own, resources or (), workloads, tree=tree))
        if has_effects
        else None,
        old_origins=old.origins,
        new_origins=new.origins,
        stays_beside=old.plan.name if is_another(old.plan, new.plan) and old.plan.aws is not None else "",
    )


def _refuses(
    old: ClusterPlan,
    new: ClusterPlan,
    changes: tuple[SpecChange, ...],
    resources: tuple[ResourceChange, ...],
) -> bool:
    """Whether the head goes on with the old bundle, so that it waits for no job."""
    if is_another(old, new):
        return False
    if isinstance(old, SlurmOnHosts) and isinstance(new, SlurmOnHosts):
        return host_events(old, new, changes).refuses
    if isinstance(old, SlurmOnAws) and isinstance(new, SlurmOnAws):
        return events(old, new, changes, resources).refuses
    return False


def _with_splits(old: Revision, new: Revision, found: Effects) -> Effects:
    """Return the effects; first of all what cannot be done in one edit, which then has no commands."""
    parts = () if is_another(old.plan, new.plan) else splits(old.plan, new.plan)
    split = "; ".join(one for one in (*parts, found.split) if one)
    if not split:
        return found
    refused = "; ".join(one for one in (split, found.refused) if one)
    return replace(found, refused=refused, split=split, steps=())


def _effects(
    old: Revision,
    new: Revision,
    changes: tuple[SpecChange, ...],
    resources: tuple[ResourceChange, ...],
    workloads: tuple[SpecChange, ...],
    *,
    tree: TreeChange,
) -> Effects:
    name = new.spec.name
    if is_another(old.plan, new.plan):
        applied = _apply(new, pods.commands(old.plan, new.plan, _ALL))
        ended = (DOWN.format(old.spec.name),) if old.plan.aws is not None else ()
        return of_another_cluster(name, (*applied, *ended), on_hosts=old.plan.hosts is not None)
    if isinstance(old.plan, SlurmOnHosts) and isinstance(new.plan, SlurmOnHosts):
        return hosts.effects(name, old.plan, new.plan, changes)
    pools = pods.pod_pools(old.plan, new.plan)
    of_pods = tuple(one for one in changes if pods.is_of_pods(one.path, pools))
    mine = changes if old.plan.slurm is None else of_pods
    found = pods.pod_events(old, new, mine, workloads, resources, tree=tree)
    apply = _apply(new, pods.commands(old.plan, new.plan, found))
    if old.plan.slurm is None:
        return named(name, pods.alone(found), apply)
    after = None if new.plan.slurm is None else new.plan
    own = tuple(one for one in changes if one not in of_pods)
    effects = of_jobs(name, apply, events(old.plan, after, own, resources), own, (old.plan, after))
    if old.plan.kubernetes is not None:
        effects = named(name, pods.beside(effects, pods.alone(found)), effects.steps)
    return effects


def _apply(revision: Revision, on_aws: tuple[str, ...]) -> tuple[str, ...]:
    """Return the commands that apply a spec."""
    if revision.plan.aws is not None:
        return on_aws
    return APPLY


def _changes(old: Revision, new: Revision) -> Iterator[SpecChange]:
    """Give changes without effect on the plan, such as an explicit default, the class `none`."""
    same, other = old.plan == new.plan, is_another(old.plan, new.plan)
    of_pods, plane = pods.pod_pools(old.plan, new.plan), pods.plane(old.plan, new.plan)
    without_slurm = old.plan.slurm is None and new.plan.slurm is None
    eks = (
        all(_on_eks(one.plan) for one in (old, new)) and plane is not pods.Plane.REPLACED
    )  # in another Region the old one does not bind the new one
    for found in walk(_settled(old.spec), _settled(new.spec), old.document, new.document):
        pool = _POOL.match(found.path)
        is_of_pods = without_slurm or (pool is not None and pool[1] in of_pods)
        change = pods.reworded(refined(found, pods=is_of_pods, hosts=on_hosts(old, new), eks=eks), plane)
        if isinstance(old.plan, SlurmOnHosts) and isinstance(new.plan, SlurmOnHosts):
            change = moved_nodes.reworded(change, old.plan, new.plan)
        if same:
            change = replace(change, update=UpdateClass.NONE, why="the plan is the same")
        elif other and change.path not in _IDENTITY:
            change = replace(change, update=UpdateClass.NONE, why=_OF_NEW)
        yield change


def on_hosts(old: Revision, new: Revision) -> bool:
    """Whether both are clusters on hosts, which are the same machines under another name, too."""
    return isinstance(old.plan, SlurmOnHosts) and isinstance(new.plan, SlurmOnHosts)


def _on_eks(plan: ClusterPlan) -> bool:
    return plan.aws is not None and eks_of(plan) is not None


def _settled(spec: ClusterSpec) -> ClusterSpec:
    """Ignore the `runs` fields of pools: they become mandatory with a second pool and change nothing."""
    pools = tuple(pool.model_copy(update={"runs": run_by(spec, pool)}) for pool in spec.pools)
    return spec.model_copy(update={"pools": pools})


def _worst_first(changes: Iterator[SpecChange]) -> tuple[SpecChange, ...]:
    return tuple(sorted(changes, key=lambda change: (-ORDER[change.update], change.path)))


def _rendered(revision: Revision) -> tuple[Artifact, ...]:
    """Return the files without plan.json, which repeats the spec's changes."""
    return tuple(artifact for artifact in revision.artifacts if artifact.path != names.PLAN_FILE)


def _engine_note(
    by_spec: UpdateClass | None, by_engine: UpdateClass | None, resources: tuple[ResourceChange, ...]
) -> str | None:
    if by_engine is None or not worse(by_engine, by_spec):
        return None
    cause = next(one for one in resources if one.update is by_engine)
    reason = f": {cause.why}" if cause.why else ""
    than = by_spec.value if by_spec else "no change"
    return f"the effect on resources is worse: {by_engine} instead of {than}, because {cause.type} {cause.name} is {cause.kind}{reason}"


def _rows(old: Revision, new: Revision) -> Iterator[PoolRow]:
    before = {pool.name: pool for pool in pools_of(old.plan)}
    after = {pool.name: pool for pool in pools_of(new.plan)}
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        yield PoolRow(name=name, before=was and facts_of(was, old), after=now and facts_of(now, new))


def facts_of(pool: AnyPool, revision: Revision) -> PoolFacts:
    """Return a row of the table of pools."""
    line = revision.cost.line("pool", pool.name)
    if line is None:
        raise ValueError(f"the estimate has no line for the pool {pool.name}")
    machines = dict.fromkeys(machine for source in pool.sources for machine in source.machines)
    look = pool.shape if isinstance(pool, Pool) else pool
    gpus = f"{look.gpu_count} x {look.gpu_model}" if look.gpu_count else ""
    return PoolFacts(
        least=pool.min,
        most=pool.max,
        machines=tuple(machines),
        gpus=gpus,
        cost_least=line.least,
        cost_most=line.most,
        stays=line.stays,
        stays_month=line.stays_month,
    )


def compare_files(
    old: Iterable[Artifact], new: Iterable[Artifact], *, labels: tuple[str, str] = ("old", "new")
) -> tuple[FileChange, ...]:
    """Return every added, removed or changed file."""
    before = {artifact.path: artifact.content for artifact in old}
    after = {artifact.path: artifact.content for artifact in new}
    return tuple(
        _file_change(path, before.get(path), after.get(path), labels)
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    )


def _file_change(path: str, old: bytes | None, new: bytes | None, labels: tuple[str, str]) -> FileChange:
    kind = Kind.ADDED if old is None else Kind.REMOVED if new is None else Kind.CHANGED
    before, after = _file(labels[0], path, old), _file(labels[1], path, new)
    lines = list(difflib.unified_diff(_lines(old), _lines(new), before, after, lineterm=""))
    touched = sum(1 for line in lines[2:] if line.startswith(("+", "-")))
    text = "\n".join(lines or [f"--- {before}", f"+++ {after}"])  # an empty file was added or removed
    return FileChange(path=path, kind=kind, diff=text, lines=touched)


def _file(label: str, path: str, content: bytes | None) -> str:
    return "/dev/null" if content is None else f"{label}/{path}"


def _lines(content: bytes | None) -> list[str]:
    """Split lines at newlines only, as Slurm and git do. Mark a missing final newline as git does."""
    return list(_split("" if content is None else content.decode(errors="replace")))


def _split(text: str) -> Iterator[str]:
    *lines, rest = text.split("\n")
    yield from lines
    if rest:
        yield f"{rest}\n\\ No newline at end of file"
