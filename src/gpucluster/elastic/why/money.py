"""What the month has cost so far, and when a budget lets go."""

from collections.abc import Iterator

from gpucluster.elastic import ledger
from gpucluster.elastic.decide import limits
from gpucluster.elastic.decide.world import HAS, World
from gpucluster.elastic.why.screen import Line, Part, money
from gpucluster.plan.model import Market


def rate(world: World) -> int:
    """What lives now costs so much an hour, in micro-USD."""
    return sum(price for price, _ in _living(world))


def unpriced(world: World) -> int:
    """Machines that live and whose price is not known: the spend is at least what is said."""
    return sum(
        1
        for slot, life in world.memory.lives.items()
        if life.instance
        and not life.price
        and life.market is not Market.CAPACITY_BLOCK  # paid ahead
        and world.fate(slot) in HAS
    )


def lines(world: World) -> Iterator[Line]:
    """The month's money, if the cluster has a budget."""
    budget = world.plan.budget
    if budget is None:
        return
    blind = unpriced(world)
    least = "at least " if blind else ""
    yield Line(
        part=Part.MONEY,
        words=f"{ledger.month_of(world.now)}: {least}{money(limits.spent(world))} of {money(budget.monthly)}, launches stop at "
        f"{money(budget.stop_scaling_at)}; now {least}{money(rate(world))} an hour"
        + (f"; {blind} machines have no price in the catalog" if blind else ""),
    )


def stopped(world: World) -> Iterator[Line]:
    """A job that waits for the budget."""
    yield Line(
        part=Part.NEXT, at=ledger.next_month(world.now), words="a new month begins, and launches go on"
    )
    yield Line(
        part=Part.DO, words="raise `budget` in the spec, and apply it; what runs is never ended for it"
    )


def _living(world: World) -> tuple[tuple[int, float], ...]:
    lives = world.memory.lives.items()
    return tuple(
        (life.price, life.launched_at) for slot, life in lives if life.instance and world.fate(slot) in HAS
    )
