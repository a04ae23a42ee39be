"""The check of launches, over the answers of the real `status` program."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from support.builders import a_plan
from support.cluster_states import NOW, refusal, sight

from gpucluster.checks.check import CheckResult, CheckStatus, ParseError, QueryOutput
from gpucluster.checks.scaling import ScalingWant, evaluate_scaling, parse_scaling
from gpucluster.cloud.bundle_status import Published
from gpucluster.elastic.abilities import Dependency, Loss
from gpucluster.elastic.events import (
    BreakerTripped,
    BudgetCrossed,
    LaunchRefused,
    OrderGiven,
    Verb,
    source_key,
)
from gpucluster.elastic.inspect.daemon_view import NO_ANSWER, DaemonView
from gpucluster.elastic.inspect.overview import Overview, overview
from gpucluster.elastic.inspect.status import status_values
from gpucluster.elastic.ledger import month_of
from gpucluster.elastic.model import LaunchTrial
from gpucluster.plan.model import Budget

READY = Published(bundle="1" * 64, ready=True)
BUDGET = Budget(monthly=100_000_000, warn_at=80_000_000, stop_scaling_at=95_000_000)
PLAN = replace(a_plan(), budget=BUDGET)
PAUSED = OrderGiven(verb=Verb.POOL_PAUSE, target="h200", by="ada", words="a new driver")
TRIPPED = BreakerTripped(pool="h200", words="3 boots failed in a row", until=NOW + 600)
SPENT = BudgetCrossed(line="stop", month=month_of(NOW), spent=95_000_000)


def shown(*events: object, daemon: DaemonView | None = None, **more: object) -> Overview:
    timed = tuple((30.0, event) for event in events)
    return overview(sight(PLAN, *timed, **more), READY.bundle, READY, daemon)  # type: ignore[arg-type]


def checked(found: Overview) -> CheckResult:
    answer = QueryOutput(code=0, stdout=json.dumps(status_values(found, NOW)))
    return evaluate_scaling(parse_scaling((answer,)), ScalingWant(cluster="burst"))


@pytest.mark.parametrize(
    ("make", "words", "remedy"),
    [
        (
            lambda: shown(halted="launches are stopped, by ada"),
            "launches are stopped, by ada",
            "on the head: gpucluster scaling start burst",
        ),
        (lambda: shown(PAUSED), "h200: paused by ada: a new driver", "gpucluster pool resume h200 -c burst"),
        (
            lambda: shown(TRIPPED),
            "h200: breaker: 3 boots failed in a row",
            "gpucluster pool resume h200 -c burst",
        ),
        (lambda: shown(SPENT), "h200: budget: 95.00 USD of 100.00 USD", "raise `budget` in the spec"),
        (
            lambda: shown(daemon=DaemonView(acts=False, state=NO_ANSWER)),
            NO_ANSWER,
            "systemctl status gpucluster-elastic",
        ),
        (
            lambda: shown(lost={Dependency.EC2: Loss(since=NOW - 60, words="UnauthorizedOperation: no")}),
            "UnauthorizedOperation",
            "journalctl",
        ),
    ],
    ids=["stopped", "paused", "breaker", "budget", "no daemon", "no EC2"],
)
def test_what_stops_launches_is_a_fault_with_its_remedy(
    make: Callable[[], Overview], words: str, remedy: str
) -> None:
    """V2: each of these passed, or was a warning, and no node could ever start."""
    found = checked(make())
    assert found.verdict is CheckStatus.FAIL
    assert words in found.found
    assert remedy in found.remedy


def test_daemon_that_may_launch_passes() -> None:
    assert checked(shown()).verdict is CheckStatus.PASS


def test_daemon_of_the_other_head_acts() -> None:
    waits = DaemonView(acts=False, state="it waits for the lease", holder="burst-standby")
    assert checked(shown(daemon=waits)).verdict is CheckStatus.PASS


def test_want_of_capacity_is_a_warning() -> None:
    moment = sight(PLAN, *refusal(2, ("h200-2b-1",), 50.0, "InsufficientInstanceCapacity"))
    found = checked(overview(moment, READY.bundle, READY))
    assert found.verdict is CheckStatus.WARN
    assert "InsufficientInstanceCapacity" in found.found


@pytest.mark.parametrize("for_this_run", [False, True], ids=["a right or a quota", "no such offer"])
def test_refusal_for_another_reason_than_capacity_is_a_fault(*, for_this_run: bool) -> None:
    sources = PLAN.pools[0].sources
    keys = [source_key("h200", source.position) for source in sources]
    until = NOW if for_this_run else NOW + 600
    refused = [
        LaunchRefused(
            request="r", key=key, words="UnauthorizedOperation: no", until=until, for_this_run=for_this_run
        )
        for key in keys
    ]
    found = checked(shown(*refused))
    assert found.verdict is CheckStatus.FAIL
    assert "UnauthorizedOperation" in found.found
    assert found.remedy == "on your computer: gpucluster doctor burst"


SPOT = "h200: spot p5en.48xlarge in us-east-2a"


def with_trials(*trials: LaunchTrial) -> CheckResult:
    moment = sight(PLAN)
    found = dict(zip((SPOT, "h200: spot p5en.48xlarge in us-east-2b"), trials, strict=False))
    return checked(overview(replace(moment, trials=found), READY.bundle, READY))


def test_launch_that_ec2_refuses_in_a_dry_run_is_a_fault() -> None:
    refused = LaunchTrial(at=NOW - 180, words="UnauthorizedOperation: You are not authorized")
    found = with_trials(refused, LaunchTrial(at=NOW))
    assert found.verdict is CheckStatus.FAIL
    assert found.found == (
        f"EC2 refuses a dry run of {SPOT} (13:57:00 UTC, 3 min ago): UnauthorizedOperation: You are not authorized"
    )
    assert found.remedy == "pulumi up --refresh --stack burst, and wait some minutes for the next dry run"


def test_dry_runs_that_pass_say_what_they_prove() -> None:
    found = with_trials(LaunchTrial(at=NOW), LaunchTrial(at=NOW))
    assert found.verdict is CheckStatus.PASS
    assert found.found == (
        "nothing stops launches; EC2 takes 2 of 6 launches in a dry run, which proves rights and parameters, and neither capacity nor quotas"
    )
    assert with_trials().found == "nothing stops launches; none of 6 launches has been tried by a dry run yet"


def test_lost_orders_stop_launches() -> None:
    moment = sight(PLAN)
    moment = replace(moment, memory=replace(moment.memory, unrestored_since=NOW - 60))
    found = checked(overview(moment, READY.bundle, READY))
    assert found.verdict is CheckStatus.FAIL


def test_answer_of_another_version_is_no_pass() -> None:
    with pytest.raises(ParseError):
        parse_scaling((QueryOutput(code=0, stdout="{}"),))
