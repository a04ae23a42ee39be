"""Which launch the daemon tries next by a dry run. Pure.

EC2 then checks the rights of the head and the parameters of the request, and neither capacity nor quotas. A fleet is tried as
the single launches of its machine types.
"""

from collections.abc import Mapping

from gpucluster.elastic.abilities import Ability
from gpucluster.elastic.decide.api_rate import LAUNCHES, Pace
from gpucluster.elastic.decide.launches import is_over
from gpucluster.elastic.decide.offers import Offer, all_offers
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.model import LaunchTrial

AGAIN_S = 3600.0  # each offer
REFUSED_AGAIN_S = 300.0  # one that EC2 refuses: else a cluster that is healed looks broken for an hour
PAUSE_S = 60.0  # between two calls
_LEFT = 4  # calls in the bucket of RunInstances, of 5 (T11): a launch that comes next has enough


def trial_key(offer: Offer) -> str:
    """Return the key of an offer's answer, which people read too."""
    into = f" into {offer.source.reservation}" if offer.source.reservation else ""
    return f"{offer.pool}: {offer.words}{into} in {offer.spec.zone}"


def next_trial(world: World, answers: Mapping[str, LaunchTrial], tried_at: float) -> Offer | None:
    """Return the offer to try now; None if none is due, or if a launch may need the call. `tried_at`: the last call."""
    if world.halted or not world.may(Ability.LAUNCH) or world.memory.launches:
        return None
    paced = not is_over(world.memory.paced_until, world.now)
    if paced or world.now - tried_at < PAUSE_S or Pace(world.memory, world.now).calls(LAUNCHES) < _LEFT:
        return None
    offers = {trial_key(one): one for some in all_offers(world).values() for one in some}
    due = [key for key in offers if _is_due(answers.get(key), world.now)]
    first = min(due, key=lambda key: (answers[key].at if key in answers else 0.0, key), default=None)
    return None if first is None else offers[first]


def _is_due(answer: LaunchTrial | None, now: float) -> bool:
    """Return whether there is no answer, or an old one. One of the future is old: the clock was set back."""
    if answer is None:
        return True
    return not 0 <= now - answer.at < (REFUSED_AGAIN_S if answer.words else AGAIN_S)
