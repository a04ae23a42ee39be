"""The errors of one fleet, judged together: rows, and what holds for any of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucluster.cloud import faults
from gpucluster.cloud.fleet import fault_of, fleet_error, without_echoes
from gpucluster.cloud.port import Fault, FleetError

ECHO = ("UnfulfillableCapacity", "Unable to fulfill capacity due to the errors of the other overrides.")
NONE_LEFT = ("InsufficientInstanceCapacity", "We currently do not have sufficient capacity.")
THROTTLE = ("RequestLimitExceeded", "Request limit exceeded.")


def errors(*said: tuple[str, str]) -> tuple[FleetError, ...]:
    return tuple(FleetError(machine=f"p{n}.48xlarge", code=c, message=m) for n, (c, m) in enumerate(said))


@pytest.mark.parametrize(
    ("sentence", "said", "fault", "code"),
    [
        ("a throttle beside lack of capacity is a throttle (aws-parallelcluster-node#734)", [NONE_LEFT, THROTTLE], Fault.THROTTLED, "RequestLimitExceeded"),
        ("a throttle beside its echo", [THROTTLE, ECHO, ECHO], Fault.THROTTLED, "RequestLimitExceeded"),
        ("a throttle beside what is not sold there", [("InvalidFleetConfiguration", "Unsupported: p5"), THROTTLE], Fault.THROTTLED, "RequestLimitExceeded"),
        ("no capacity anywhere", [NONE_LEFT, NONE_LEFT], Fault.NO_CAPACITY, "InsufficientInstanceCapacity"),
        ("the echo beside lack of capacity", [ECHO, NONE_LEFT], Fault.NO_CAPACITY, "InsufficientInstanceCapacity"),
        ("the echo beside a quota", [("VcpuLimitExceeded", "limit of 0"), ECHO], Fault.QUOTA, "VcpuLimitExceeded"),
        ("the echo alone is a refusal", [ECHO], Fault.NO_CAPACITY, "UnfulfillableCapacity"),
        ("a full reservation says so inside the echo's code", [("UnfulfillableCapacity", "ReservationCapacityExceeded: cr-1")], Fault.NO_CAPACITY, "UnfulfillableCapacity"),
        ("a permission that lacks, in each override", [("UnauthorizedOperation", "not authorized to perform: iam:PassRole")] * 2, Fault.CONFIGURATION, "UnauthorizedOperation"),
        ("a permission outweighs a throttle: no pause mends it", [THROTTLE, ("UnauthorizedOperation", "x")], Fault.CONFIGURATION, "UnauthorizedOperation"),
        ("not sold there at all", [("InvalidFleetConfiguration", "Unsupported: p5 in b")], Fault.UNSUPPORTED, "InvalidFleetConfiguration"),
        ("one that is not sold there beside one that has no room: the other will have some", [("InvalidFleetConfiguration", "Unsupported"), NONE_LEFT], Fault.NO_CAPACITY, "InsufficientInstanceCapacity"),
        ("the service broke off", [("InternalError", "x"), NONE_LEFT], Fault.LOST, "InternalError"),
        ("a spot price", [("SpotMaxPriceTooLow", "minimum is 2.3")], Fault.NO_CAPACITY, "SpotMaxPriceTooLow"),
        ("a code that nobody knows stops", [("NewInTwentyTwentyNine", "x"), NONE_LEFT], Fault.CONFIGURATION, "NewInTwentyTwentyNine"),
    ],
)  # fmt: skip
def test_fleet_errors_have_one_fault(sentence: str, said: list[tuple[str, str]], fault: Fault, code: str):
    error = fleet_error(errors(*said))
    assert (error.fault, error.code) == (fault, code), sentence


def test_machine_types_with_the_same_error_are_named():
    assert (
        fleet_error(errors(NONE_LEFT, NONE_LEFT, ECHO)).message == f"p0.48xlarge, p1.48xlarge: {NONE_LEFT[1]}"
    )


def test_fleet_without_instances_and_errors_has_an_unknown_outcome():
    assert fleet_error(()).fault is Fault.LOST


SAID = st.tuples(
    st.sampled_from([*sorted(faults.TABLE), "Unheard.Of", ""]) | st.text(max_size=20), st.text(max_size=40)
)


@given(st.lists(SAID, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_fault_of_a_fleet_does_not_depend_on_the_order(said: list[tuple[str, str]], dice: object):
    found = errors(*said)
    error = fleet_error(found)
    assert error.fault in {fault_of(e) for e in found}
    shuffled = list(said)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    assert fleet_error(errors(*shuffled)).fault is error.fault


@given(st.lists(SAID, max_size=6))
def test_throttle_among_other_errors_is_not_lack_of_capacity(said: list[tuple[str, str]]):
    fault = fleet_error(errors(*said, THROTTLE)).fault
    assert fault not in (Fault.NO_CAPACITY, Fault.UNSUPPORTED, Fault.QUOTA, Fault.GONE)


@given(st.lists(SAID, min_size=1, max_size=6), st.integers(1, 4))
def test_echoes_do_not_change_the_fault(said: list[tuple[str, str]], echoes: int):
    alone = fleet_error(errors(*said)).fault
    assert fleet_error(errors(*said, *[ECHO] * echoes)).fault is alone
    assert all(e.code != faults.ECHO for e in without_echoes(errors(NONE_LEFT, *[ECHO] * echoes)))
