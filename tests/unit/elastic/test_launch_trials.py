"""The daemon tries its launches by dry runs: each offer once an hour, one at a time, and beside no launch."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from support.builders import a_plan
from support.cluster_states import NOW, ask, living, sight
from support.fleet import Fleet

from gpucluster.cloud.port import CloudError, Fault, LaunchCall
from gpucluster.elastic.abilities import Dependency, Loss
from gpucluster.elastic.decide.launch_trials import AGAIN_S, PAUSE_S, REFUSED_AGAIN_S, next_trial, trial_key
from gpucluster.elastic.decide.offers import all_offers
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import LaunchRequested
from gpucluster.elastic.executors import InlineExecutor
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.launch_trials import LaunchTrials
from gpucluster.elastic.model import LaunchTrial
from gpucluster.elastic.reconciler import Reconciler
from gpucluster.plan import names

PLAN = a_plan((", p5e.48xlarge", ""))  # spot and on-demand, in two zones
NEVER = float("-inf")


def world(snapshot: ClusterSnapshot | None = None, *, later: float = 0.0) -> World:
    found = replace(snapshot or sight(PLAN), now=NOW + later).world
    assert found is not None
    return found


def tried(*, ago: float = 0.0, words: str = "") -> dict[str, LaunchTrial]:
    """An answer for each offer."""
    offers = (offer for some in all_offers(world()).values() for offer in some)
    return {trial_key(one): LaunchTrial(at=NOW - ago, words=words) for one in offers}


def test_offers_are_tried_in_turn_and_again_after_an_hour() -> None:
    answers: dict[str, LaunchTrial] = {}
    for _ in range(4):
        offer = next_trial(world(), answers, NEVER)
        assert offer is not None
        answers[trial_key(offer)] = LaunchTrial(at=NOW)
    assert answers.keys() == tried().keys()
    assert next_trial(world(later=AGAIN_S - 1), answers, NEVER) is None
    oldest = min(answers)
    answers[oldest] = LaunchTrial(at=NOW - 5)
    again = next_trial(world(later=AGAIN_S), answers, NEVER)
    assert again is not None
    assert trial_key(again) == oldest


def test_refused_offer_is_tried_again_soon() -> None:
    """Else a cluster that is healed looks broken for an hour."""
    answers = tried(words="UnauthorizedOperation: no")
    assert next_trial(world(later=REFUSED_AGAIN_S - 1), answers, NEVER) is None
    assert next_trial(world(later=REFUSED_AGAIN_S), answers, NEVER) is not None


@pytest.mark.parametrize(
    "snapshot",
    [
        sight(PLAN, halted="launches are stopped, by ada"),
        sight(PLAN, lost={Dependency.EC2: Loss(since=NOW, words="no")}),
        sight(PLAN, (1.0, LaunchRequested(request=ask(1, "h200-2a-1")))),
    ],
    ids=["stopped", "without EC2", "beside a launch"],
)
def test_nothing_is_tried_where_nothing_may_be_launched_now(snapshot: ClusterSnapshot) -> None:
    assert next_trial(world(snapshot), {}, NEVER) is None


def test_trials_leave_the_calls_of_the_bucket_to_launches() -> None:
    recent = sight(PLAN, *(pair for n in range(4) for pair in living(f"h200-2a-{n + 1}", ago=1.0, number=n)))
    assert next_trial(world(recent), {}, NEVER) is None
    assert next_trial(world(), {}, NOW - PAUSE_S + 1) is None
    assert next_trial(world(), {}, NOW - PAUSE_S) is not None


class Port:
    def __init__(self, *answers: CloudError | None) -> None:
        self.calls: list[LaunchCall] = []
        self.answers = list(answers)

    def try_launch(self, call: LaunchCall) -> None:
        self.calls.append(call)
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer


def run(port: Port, *times: float) -> Mapping[str, LaunchTrial]:
    published: list[Mapping[str, LaunchTrial]] = [{}]
    trials = LaunchTrials("burst", port, InlineExecutor(), published.append)
    for at in times:
        trials.look(at, lambda at=at: world(later=at - NOW))
    return published[-1]


def test_request_is_that_of_a_launch() -> None:
    port = Port(None)
    (answer,) = run(port, NOW).values()
    assert answer == LaunchTrial(at=NOW)
    (call,) = port.calls
    offers = [offer.spec for some in all_offers(world()).values() for offer in some]
    assert call.spec in offers
    assert call.count == 1
    assert call.tags[names.TAG_CLUSTER] == "burst"
    assert {names.TAG_ROLE, names.TAG_POOL, names.TAG_REQUEST} <= call.tags.keys()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (CloudError(Fault.CONFIGURATION, "UnauthorizedOperation", "no"), "UnauthorizedOperation: no"),
        (CloudError(Fault.UNSUPPORTED, "Unsupported", "not here"), "Unsupported: not here"),
        # a profile that does not exist has the error of one that is new
        (CloudError(Fault.THROTTLED, "InvalidParameterValue", "IAM Instance Profile"), "InvalidParameterValue: IAM Instance Profile"),
        (CloudError(Fault.NO_CAPACITY, "InsufficientInstanceCapacity", "none"), ""),
        (CloudError(Fault.QUOTA, "VcpuLimitExceeded", "32"), ""),
    ],
)  # fmt: skip
def test_answer_is_what_ec2_says_of_rights_and_parameters(error: CloudError, words: str) -> None:
    (answer,) = run(Port(error), NOW).values()
    assert answer == LaunchTrial(at=NOW, words=words)


def test_call_without_an_answer_is_repeated_after_the_pause() -> None:
    port = Port(
        CloudError(Fault.THROTTLED, "RequestLimitExceeded", "later"),
        CloudError(Fault.LOST, "InternalError", "500"),
        None,
    )
    found = run(port, NOW, NOW + 1, NOW + PAUSE_S, NOW + 2 * PAUSE_S)
    assert len(port.calls) == 3
    assert [one.at for one in found.values()] == [NOW + 2 * PAUSE_S]


class Trying:
    """A fleet whose daemon looks at launches to try."""

    def __init__(self, folder: Path) -> None:
        self.times: list[float] = []
        self.fleet = Fleet(PLAN, folder)
        self.fleet.reconciler_class = partial(Reconciler, try_launches=self._look)  # type: ignore[assignment]
        self.fleet.restart()

    def _look(self, now: float, world: Callable[[], World | None]) -> None:
        assert world() is not None
        self.times.append(now)


def test_daemon_that_acts_looks_for_a_launch_to_try_and_publishes_answers(tmp_path: Path) -> None:
    trying = Trying(tmp_path)
    trying.fleet.look()
    assert trying.times == [trying.fleet.now]
    trying.fleet.reconciler.show_trials({"a": LaunchTrial(at=NOW)})
    assert trying.fleet.reconciler.status.trials == {"a": LaunchTrial(at=NOW)}


def test_daemon_that_cannot_see_a_half_tries_nothing(tmp_path: Path) -> None:
    trying = Trying(tmp_path)
    trying.fleet.cloud.unlisted = CloudError(Fault.LOST, "Unavailable", "503")
    trying.fleet.look()
    assert trying.times == []
