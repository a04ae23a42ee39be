"""Two sides to everything that a review shows. Pure: specs, plans, files, costs and resources are handed in."""

from collections.abc import Iterator
from dataclasses import replace

from gpucluster.artifacts import Artifact
from gpucluster.cost import AnyPool, pools_of
from gpucluster.gitops import files
from gpucluster.gitops.classes import ORDER, worse, worst
from gpucluster.gitops.consequences import consequences
from gpucluster.gitops.model import Diff, PoolFacts, PoolRow, ResourceChange, Side, SpecChange
from gpucluster.gitops.refine import refined
from gpucluster.gitops.walk import walk
from gpucluster.plan import names
from gpucluster.plan.model import Pool
from gpucluster.spec import ClusterSpec, UpdateClass
from gpucluster.spec.pools import run_by


def diff(old: Side, new: Side, resources: tuple[ResourceChange, ...] | None = None) -> Diff:
    """Compare; `resources` is what `gitops.resources.compare` said, None when nobody asked it."""
    spec = _worst_first(_changes(old, new))
    follows = consequences(old.plan, new.plan, spec)
    by_spec = worst(one.update for one in (*spec, *follows))
    by_engine = worst(one.update for one in resources or ())
    return Diff(
        name=new.spec.name,
        old=old.label,
        new=new.label,
        spec=spec,
        consequences=follows,
        files=files.compare(_rendered(old), _rendered(new)),
        resources=resources,
        pools=tuple(_rows(old, new)),
        cost_before=old.cost,
        cost_after=new.cost,
        worst=by_engine if worse(by_engine, by_spec) else by_spec,
        engine_says=_says(by_spec, by_engine, resources or ()),
    )


def _changes(old: Side, new: Side) -> Iterator[SpecChange]:
    """What only says what held already, such as a default written out, costs nothing: the plan is the witness."""
    same = old.plan == new.plan
    for found in walk(_settled(old.spec), _settled(new.spec), old.document, new.document):
        change = refined(found)
        yield replace(change, update=UpdateClass.NONE, why="the plan is the same") if same else change


def _settled(spec: ClusterSpec) -> ClusterSpec:
    """Each pool says what runs it: it must be written once there are two, and moves nothing by that."""
    pools = tuple(pool.model_copy(update={"runs": run_by(spec, pool)}) for pool in spec.pools)
    return spec.model_copy(update={"pools": pools})


def _worst_first(changes: Iterator[SpecChange]) -> tuple[SpecChange, ...]:
    return tuple(sorted(changes, key=lambda change: (-ORDER[change.update], change.path)))


def _rendered(side: Side) -> tuple[Artifact, ...]:
    """Without plan.json, which says the spec's changes a second time."""
    return tuple(artifact for artifact in side.artifacts if artifact.path != names.PLAN_FILE)


def _says(
    by_spec: UpdateClass | None, by_engine: UpdateClass | None, resources: tuple[ResourceChange, ...]
) -> str | None:
    if by_engine is None or not worse(by_engine, by_spec):
        return None
    cause = next(one for one in resources if one.update is by_engine)
    reason = f": {cause.why}" if cause.why else ""
    than = by_spec.value if by_spec else "no change"
    return f"the engine says worse: {by_engine} instead of {than}, because {cause.type} {cause.name} is {cause.kind}{reason}"


def _rows(old: Side, new: Side) -> Iterator[PoolRow]:
    before = {pool.name: pool for pool in pools_of(old.plan)}
    after = {pool.name: pool for pool in pools_of(new.plan)}
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        yield PoolRow(name=name, before=was and _facts(was, old), after=now and _facts(now, new))


def _facts(pool: AnyPool, side: Side) -> PoolFacts:
    line = side.cost.line("pool", pool.name)
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
    )
