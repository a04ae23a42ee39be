"""The model of instances: one row for each fact, and properties that hold for any request."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucluster.cloud.port import InstanceState
from gpucluster.plan.model import Market
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import InstanceLaunch, Refusal, SubnetRef, Timing

A = SubnetRef(id="subnet-a", zone="us-east-1a", cidr="10.0.0.0/24")
B = SubnetRef(id="subnet-b", zone="us-east-1b", cidr="10.0.1.0/24")


def a_model(**timing: Any) -> CloudModel:
    return CloudModel(random.Random(7), timing=Timing(**timing))  # noqa: S311 - chance, not secrets


def a_launch(**change: object) -> InstanceLaunch:
    values: dict[str, object] = {
        "machine": "p5.48xlarge",
        "market": Market.ON_DEMAND,
        "subnet": A,
        "min_count": 1,
        "max_count": 1,
        "token": None,
        "fingerprint": "same",
    }
    count = change.pop("count", None)
    if count is not None:
        values |= {"min_count": count, "max_count": count}
    return InstanceLaunch(**(values | change))  # type: ignore[arg-type]


def refused(call: Callable[[], object]) -> Refusal:
    with pytest.raises(Refusal) as caught:
        call()
    return caught.value


def test_t01_same_token_returns_the_same_ids_and_launches_nothing():
    model = a_model()
    first = model.run(a_launch(token="t", count=3), 0)
    again = model.run(a_launch(token="t", count=3), 1)
    assert {i.id for i in again} == {i.id for i in first}
    assert len(model.describe((), 1)) == 3


def test_t01_same_token_with_other_parameters_is_refused():
    model = a_model()
    model.run(a_launch(token="t"), 0)
    error = refused(lambda: model.run(a_launch(token="t", machine="p4d.24xlarge", fingerprint="other"), 1))
    assert error.code == "IdempotentParameterMismatch"


def test_t01_replay_after_the_end_returns_the_dead_instance():
    model = a_model(ending_s=0)
    (first,) = model.run(a_launch(token="t"), 0)
    model.terminate((first.id,), 5)
    (again,) = model.run(a_launch(token="t"), 6)
    assert (again.id, again.state) == (first.id, InstanceState.TERMINATED)


def test_t02_one_token_in_two_zones_launches_two():
    model = a_model()
    one, two = model.run(a_launch(token="t"), 0), model.run(a_launch(token="t", subnet=B), 0)
    assert one[0].id != two[0].id


def test_t02_without_a_zone_in_the_request_the_token_is_regional():
    model = a_model()
    one = model.run(a_launch(token="t", placed=False), 0)
    assert model.run(a_launch(token="t", placed=False, subnet=B), 0)[0].id == one[0].id


def test_t04_launch_that_failed_keeps_its_token():
    model = a_model()
    model.set_capacity(free=0)
    refused(lambda: model.run(a_launch(token="t"), 0))
    model.set_capacity(free=None)
    error = refused(lambda: model.run(a_launch(token="t", fingerprint="other"), 1))
    assert error.code == "IdempotentParameterMismatch"
    assert len(model.run(a_launch(token="t"), 2)) == 1


def test_t05_fewer_instances_than_requested_is_no_error():
    model = a_model()
    model.set_capacity(zone="us-east-1a", free=3)
    assert len(model.run(a_launch(min_count=1, max_count=8), 0)) == 3


def test_t05_below_the_least_nothing_is_launched():
    model = a_model()
    model.set_capacity(zone="us-east-1a", free=3)
    assert refused(lambda: model.run(a_launch(count=8), 0)).code == "InsufficientInstanceCapacity"
    assert model.describe((), 0) == ()


def test_t06_no_capacity_is_a_server_error_that_names_the_other_zones():
    model = a_model()
    model.run(a_launch(subnet=B), 0)
    model.set_capacity(zone="us-east-1a", free=0)
    error = refused(lambda: model.run(a_launch(), 1))
    assert (error.code, error.status) == ("InsufficientInstanceCapacity", 500)
    assert "us-east-1b" in error.message


def test_t06_capacity_is_by_market():
    model = a_model()
    model.set_capacity(market="spot", free=0)
    assert refused(lambda: model.run(a_launch(market=Market.SPOT), 0)).status == 500
    assert len(model.run(a_launch(), 0)) == 1


def test_t07_machine_that_the_zone_does_not_sell_is_unsupported():
    model = a_model()
    model.run(a_launch(subnet=B), 0)
    model.capacity.withdraw("p5.48xlarge", "us-east-1a")
    error = refused(lambda: model.run(a_launch(), 0))
    assert (error.code, error.status) == ("Unsupported", 400)
    assert "us-east-1b" in error.message


def test_t10_full_subnet_is_refused_whole():
    model = a_model()
    small = SubnetRef(id="subnet-s", zone="us-east-1a", cidr="10.9.0.0/28")
    assert len(model.run(a_launch(subnet=small, count=11), 0)) == 11
    error = refused(lambda: model.run(a_launch(subnet=small), 0))
    assert error.code == "InsufficientFreeAddressesInSubnet"


def test_t11_sixth_launch_within_a_second_is_throttled_and_half_a_second_mends_it():
    model = a_model()
    for _ in range(5):
        model.admit("RunInstances", 1.7e9)
    error = refused(lambda: model.admit("RunInstances", 1.7e9))
    assert (error.code, error.status) == ("RequestLimitExceeded", 503)
    model.admit("RunInstances", 1.7e9 + 0.5)


def test_t11_instances_have_a_bucket_of_their_own():
    model = a_model()
    wide = SubnetRef(id="subnet-w", zone="us-east-1a", cidr="10.0.0.0/16")
    model.run(a_launch(subnet=wide, count=1000), 0)
    assert refused(lambda: model.run(a_launch(subnet=wide), 0)).status == 503
    assert len(model.run(a_launch(subnet=wide), 0.5)) == 1


def test_t21_one_unknown_id_fails_the_whole_call():
    model = a_model()
    (known,) = model.run(a_launch(), 0)
    unknown = "i-0123456789abcdef0"
    error = refused(lambda: model.describe((known.id, unknown), 0))
    assert error.code == "InvalidInstanceID.NotFound"
    assert unknown in error.message


def test_t21_malformed_id_has_its_own_error():
    assert refused(lambda: a_model().describe(("i-xyz",), 0)).code == "InvalidInstanceID.Malformed"


def test_t21_order_is_drawn_anew():
    model = a_model()
    model.run(a_launch(count=20), 0)
    orders = {tuple(i.id for i in model.describe((), 0)) for _ in range(5)}
    assert len(orders) > 1


def test_t23_one_unknown_id_ends_none():
    model = a_model()
    (known,) = model.run(a_launch(), 0)
    refused(lambda: model.terminate((known.id, "i-0123456789abcdef0"), 5))
    assert model.instance(known.id, 5).state is InstanceState.RUNNING


def test_t23_protected_instance_spares_its_zone_only():
    model = a_model()
    (guarded,) = model.run(a_launch(protected=True), 0)
    (neighbour,) = model.run(a_launch(), 0)
    (other,) = model.run(a_launch(subnet=B), 0)
    error = refused(lambda: model.terminate((guarded.id, neighbour.id, other.id), 5))
    assert error.code == "OperationNotPermitted"
    states = {i.id: i.state for i in model.describe((), 5)}
    assert states[guarded.id] is states[neighbour.id] is InstanceState.RUNNING
    assert states[other.id] is InstanceState.SHUTTING_DOWN


def test_t24_terminated_instance_is_seen_for_an_hour_with_tags_and_without_address():
    model = a_model(ending_s=5)
    (one,) = model.run(a_launch(tags={"k": "v"}), 0)
    model.terminate((one.id,), 10)
    assert model.instance(one.id, 14).address is not None
    ended = model.instance(one.id, 15)
    assert (ended.state, ended.address, ended.tags) == (InstanceState.TERMINATED, None, {"k": "v"})
    assert model.describe((), 15 + 3599)
    assert model.describe((), 15 + 3600) == ()


def test_t24_stopped_instance_has_given_up_its_capacity():
    model = a_model(ending_s=1)
    model.set_capacity(free=1)
    (one,) = model.run(a_launch(), 0)
    model.stop((one.id,), 2)
    (thief,) = model.run(a_launch(), 4)
    assert refused(lambda: model.start((one.id,), 5)).code == "InsufficientInstanceCapacity"
    model.terminate((thief.id,), 6)
    model.start((one.id,), 8)
    assert model.instance(one.id, 10).state is InstanceState.RUNNING


def test_t24_start_of_a_stopping_instance_is_refused():
    model = a_model()
    (one,) = model.run(a_launch(), 0)
    model.terminate((one.id,), 2)
    assert refused(lambda: model.start((one.id,), 3)).code == "IncorrectInstanceState"


def test_t42_interfaces_outlive_the_instance_and_hold_their_address():
    model = a_model(ending_s=1, linger_s=60)
    (one,) = model.run(a_launch(address="10.0.0.10"), 0)
    model.terminate((one.id,), 10)
    assert [i.address for i in model.interfaces(70)] == ["10.0.0.10"]
    assert refused(lambda: model.run(a_launch(address="10.0.0.10"), 70)).code == "InvalidIPAddress.InUse"
    assert model.interfaces(71) == ()
    assert model.run(a_launch(address="10.0.0.10"), 72)[0].address == "10.0.0.10"


@pytest.mark.parametrize("address", ["10.0.0.0", "10.0.0.3", "10.0.0.255", "10.0.1.9", "x"])
def test_unavailable_address_is_refused(address: str):
    error = refused(lambda: a_model().run(a_launch(address=address), 0))
    assert error.code == "InvalidParameterValue"


def test_launcher_reports_running_and_terminated():
    model = a_model(pending_s=None, ending_s=None)
    (one,) = model.run(a_launch(), 0)
    assert [i.id for i in model.wanted(1000)] == [one.id]
    assert model.instance(one.id, 1000).state is InstanceState.PENDING
    model.mark_running(one.id, 1000)
    model.terminate((one.id,), 1001)
    assert model.wanted(5000) == ()
    assert [i.id for i in model.ending(5000)] == [one.id]
    model.mark_ended(one.id, 5001)
    assert model.ending(5002) == ()
    assert model.instance(one.id, 5002).reason_code == "Client.UserInitiatedShutdown"


def test_failed_boot_ends_the_instance_with_the_launchers_reason():
    model = a_model(pending_s=None, ending_s=None)
    (one,) = model.run(a_launch(), 0)
    model.mark_ended(one.id, 3, reason="the machine did not start", code="Server.InternalError")
    ended = model.instance(one.id, 4)
    assert (ended.state, ended.reason) == (InstanceState.TERMINATED, "the machine did not start")


@pytest.mark.parametrize(
    ("behaviour", "state"), [("stop", InstanceState.STOPPED), ("terminate", InstanceState.TERMINATED)]
)
def test_poweroff_stops_or_terminates_as_the_launch_requested(behaviour: str, state: InstanceState):
    model = a_model()
    (one,) = model.run(a_launch(on_shutdown=behaviour), 0)
    model.mark_ended(one.id, 5)
    assert model.instance(one.id, 5).state is state


def test_spot_notice_ends_the_instance_in_time():
    model = a_model(ending_s=1)
    (one,) = model.run(a_launch(market=Market.SPOT), 0)
    model.interrupt(one.id, 10, after_s=120)
    assert model.instance(one.id, 129).state is InstanceState.RUNNING
    assert model.instance(one.id, 131).reason_code == "Server.SpotInstanceTermination"


def test_zero_capacity_stays_zero_after_a_termination():
    model = a_model(ending_s=0)
    model.set_capacity(free=2)
    (one,) = model.run(a_launch(), 0)
    model.set_capacity(free=0)
    model.terminate((one.id,), 1)
    assert refused(lambda: model.run(a_launch(), 2)).code == "InsufficientInstanceCapacity"


def test_capacity_of_the_host_limits_every_scenario():
    model = a_model(ending_s=0)
    model.set_host_limit(2)
    model.set_capacity(free=None)
    (one, _) = model.run(a_launch(count=2), 0)
    assert refused(lambda: model.run(a_launch(), 1)).code == "InsufficientInstanceCapacity"
    model.clear()
    assert refused(lambda: model.run(a_launch(), 2)).code == "InsufficientInstanceCapacity"
    model.terminate((one.id,), 3)
    assert len(model.run(a_launch(), 4)) == 1


def test_injected_error_occurs_the_requested_number_of_times():
    model = a_model()
    model.faults.next_error("RunInstances", "VcpuLimitExceeded", times=2)
    for _ in range(2):
        assert refused(lambda: model.admit("RunInstances", 0)).code == "VcpuLimitExceeded"
    model.admit("RunInstances", 0)


STEPS = st.lists(
    st.tuples(st.sampled_from(["run", "end", "wait"]), st.integers(1, 4), st.sampled_from([A, B])),
    max_size=40,
)


@given(STEPS, st.integers(0, 6))
def test_never_more_living_than_the_capacity(steps: list[tuple[str, int, SubnetRef]], free: int):
    model = a_model(ending_s=3)
    model.set_capacity(zone="us-east-1a", free=free)
    now = 0.0
    for what, number, subnet in steps:
        now += number
        if what == "run":
            try:
                model.run(a_launch(subnet=subnet, min_count=1, max_count=number), now)
            except Refusal:
                assert subnet is A
        elif what == "end":
            model.terminate([i.id for i in model.describe((), now)][:number], now)
        here = [i for i in model.describe((), now) if i.zone == A.zone]
        living = [i for i in here if i.state is not InstanceState.TERMINATED]
        assert len(living) <= free
        rest = model.capacity.free("p5.48xlarge", A.zone, Market.ON_DEMAND)
        assert rest == free - len(living)
        held = [i.address for i in model.interfaces(now) if i.subnet == A]
        assert len(set(held)) == len(held)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3)), max_size=20))
def test_client_token_has_one_answer(calls: list[tuple[str, int]]):
    model = a_model()
    seen: dict[str, tuple[int, frozenset[str]]] = {}
    for now, (token, count) in enumerate(calls):
        spec = a_launch(token=token, count=count, fingerprint=str(count))
        if token in seen and seen[token][0] != count:
            error = refused(lambda spec=spec, now=now: model.run(spec, float(now)))
            assert error.code == "IdempotentParameterMismatch"
        else:
            ids = frozenset(i.id for i in model.run(spec, float(now)))
            assert seen.setdefault(token, (count, ids)) == (count, ids)
    assert len(model.describe((), 1e3)) == sum(count for count, _ in seen.values())


@given(st.lists(st.floats(0, 3), max_size=60))
def test_token_bucket_never_exceeds_size_and_refill(gaps: list[float]):
    model = a_model()
    now, passed = 0.0, 0
    for gap in gaps:
        now += gap
        try:
            model.admit("RunInstances", now)
            passed += 1
        except Refusal:
            continue
        assert passed <= 5 + 2 * now + 1e-6
