"""Kubernetes' part of `gpucluster plan`, for people."""

from collections.abc import Iterator, Mapping

from gpucluster.plan.kubernetes import Kubernetes, NodePool, Share, Team, quantity
from gpucluster.plan.note import Note


def summary(part: Kubernetes) -> Iterator[str]:
    """Version and place, then pools, then teams."""
    where = f"the context {part.context}" if part.context else part.distribution.value
    yield f"kubernetes {part.version} ({where}): queued by {part.queueing}, GPUs by {part.gpu_stack}"
    for pool in part.pools:
        yield from _pool(pool)
    for team in part.teams:
        yield from _team(team)


def waves() -> Iterator[Note]:
    """In which order the files are applied, and why."""
    from gpucluster.k8s.waves import CHARTS, WAVES

    for wave in (CHARTS, *WAVES):
        yield Note(f"k8s.{wave.folder}", "a wave", wave.holds)


def _pool(pool: NodePool) -> Iterator[str]:
    nodes = f"{pool.min} stand" if pool.min == pool.max else f"{pool.min} stand, {pool.elastic} come and go"
    slices = ", ".join(f"{n} x {profile}" for profile, n in sorted(pool.mig.items()))
    yield f"pool {pool.name}: {nodes}" + (f"; each GPU as {slices}" if slices else "")
    yield f"  each gives {_amounts(pool.allocatable)}"
    for source in pool.sources:
        most = f", at most {source.max}" if source.max is not None else ""
        yield f"  {source.position + 1}. {source.market} {' or '.join(source.machines)} in {', '.join(source.zones)}{most}"


def _team(team: Team) -> Iterator[str]:
    yield f"team {team.name}: {_amounts(team.quota)}{', and borrows' if team.may_borrow else ''}"
    for share in team.shares:
        yield f"  of {share.pool}: {_share(share)}"


def _share(share: Share) -> str:
    return _amounts({r: amount for r, amount in share.nominal.items() if amount}) or "what others leave idle"


def _amounts(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{quantity(r, amount)} {r}" for r, amount in sorted(amounts.items()))
