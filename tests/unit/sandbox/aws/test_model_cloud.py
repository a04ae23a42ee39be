"""The same rows for two ports: the model's, and boto3's over loopback with the sandbox's API front end.

So a test that holds for the daemon over ModelCloud holds for it over EC2, as far as the face is true.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from support.clouds import Network, RunningCloud, a_network, running_cloud
from support.launches import fleet_call, launch_call, with_changes

from gpucluster.cloud.aws import AwsCloud
from gpucluster.cloud.fleet import fleet_error
from gpucluster.cloud.port import (
    CloudError,
    CloudPort,
    Fault,
    FleetAnswer,
    InstanceState,
    LaunchCall,
)
from gpucluster.plan import names
from gpucluster.plan.model import Market
from gpucluster.sandbox.aws.ec2.state.client import ModelCloud
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Lag, Timing

pytestmark = pytest.mark.loopback
TIMING = Timing(pending_s=1.0, ending_s=5.0)
UNKNOWN = "i-0123456789abcdef0"
RESERVED = "cr-0123456789abcdef0"
ZONE = "us-east-1a"
MACHINE = "p5en.48xlarge"


@dataclass
class Side:
    """A port to a model, with the values that its requests need."""

    name: str
    port: CloudPort
    cloud: RunningCloud
    subnets: dict[str, str]
    template: str

    @property
    def model(self) -> CloudModel:
        return self.cloud.model

    def request(self, **change: Any) -> LaunchCall:
        base = launch_call(
            token="t1",
            count=2,
            template_id=self.template,
            template_version=1,
            subnet_id=self.subnets["us-east-1a"],
            zone="us-east-1a",
            machine="p5en.48xlarge",
            market=Market.SPOT,
            tags={names.TAG_CLUSTER: "burst", names.TAG_ROLE: names.ROLE_NODE, names.TAG_POOL: "h200"},
        )
        return with_changes(base, **change)

    def fleet(self, *machines: str, **change: Any) -> FleetAnswer:
        machines = machines or ("p5en.48xlarge", "p5e.48xlarge")
        tags = {names.TAG_CLUSTER: "burst", names.TAG_ROLE: names.ROLE_NODE, names.TAG_POOL: "h200"}
        base: dict[str, Any] = {
            "token": "f1",
            "count": 4,
            "tags": tags,
            "template_id": self.template,
            "subnet_id": self.subnets["us-east-1a"],
        }
        return self.port.fleet(fleet_call(*machines, **{**base, **change}))

    def reserved(self, **change: Any) -> LaunchCall:
        """Return a launch into the reservation `cr-1`."""
        return self.request(**{"market": Market.RESERVATION, "reservation": RESERVED, **change})

    def in_zone_b(self, **change: Any) -> LaunchCall:
        return self.request(zone="us-east-1b", subnet_id=self.subnets["us-east-1b"], **change)


@pytest.fixture(scope="module")
def running() -> Generator[tuple[RunningCloud, Network], None, None]:
    with running_cloud(timing=TIMING) as cloud:
        yield cloud, a_network(cloud)


@pytest.fixture(params=["model", "aws"])
def side(request: pytest.FixtureRequest, running: tuple[RunningCloud, Network]) -> Side:
    cloud, network = running
    cloud.fresh(buckets=True)
    port: CloudPort = AwsCloud("us-east-1", lambda _: cloud.client("ec2"))
    if request.param == "model":
        port = ModelCloud(cloud.model, cloud.clock, {s: z for z, s in network.subnets.items()})
    return Side(request.param, port, cloud, network.subnets, network.template)


def fault_of(call: Any) -> Fault:
    with pytest.raises(CloudError) as caught:
        call()
    return caught.value.fault


def test_launched_instance_has_all_requested_values(side: Side):
    ids = side.port.launch(side.request())
    side.cloud.clock.move(2)
    listed = side.port.instances("burst")
    assert {i.id for i in listed} == set(ids)
    assert len(ids) == 2
    one = listed[0]
    assert (one.state, one.zone, one.machine) == (InstanceState.RUNNING, "us-east-1a", "p5en.48xlarge")
    assert (one.market, one.token, one.tags[names.TAG_POOL]) == (Market.SPOT, "t1", "h200")
    assert one.address is not None
    assert abs(one.launched_at - (side.cloud.clock.now - 2)) < 1


def test_on_demand_is_not_spot(side: Side):
    side.port.launch(side.request(market=Market.ON_DEMAND))
    assert {i.market for i in side.port.instances("burst")} == {Market.ON_DEMAND}


def test_identical_request_launches_nothing_more(side: Side):
    assert set(side.port.launch(side.request())) == set(side.port.launch(side.request()))
    assert len(side.port.instances("burst")) == 2


def test_token_with_another_machine_is_refused(side: Side):
    side.port.launch(side.request())
    assert fault_of(lambda: side.port.launch(side.request(machine="p5e.48xlarge"))) is Fault.TOKEN


def test_same_token_in_another_zone_launches_again(side: Side):
    side.port.launch(side.request())
    side.port.launch(side.in_zone_b())
    assert len(side.port.instances("burst")) == 4


def test_half_a_gang_is_none(side: Side):
    side.model.set_capacity(zone="us-east-1a", free=1)
    assert fault_of(lambda: side.port.launch(side.request())) is Fault.NO_CAPACITY
    assert side.port.instances("burst") == ()


def test_capacity_is_counted_by_zone_and_market(side: Side):
    side.model.set_capacity(zone="us-east-1a", market="spot", free=0)
    assert fault_of(lambda: side.port.launch(side.request())) is Fault.NO_CAPACITY
    side.port.launch(side.in_zone_b(token="t2"))
    side.port.launch(side.request(token="t3", market=Market.ON_DEMAND))
    assert len(side.port.instances("burst")) == 4


def test_machine_type_not_offered_in_the_zone_is_unsupported(side: Side):
    side.model.capacity.withdraw("p5en.48xlarge", "us-east-1a")
    assert fault_of(lambda: side.port.launch(side.request())) is Fault.UNSUPPORTED


def test_sixth_concurrent_launch_is_throttled(side: Side):
    for number in range(5):
        side.port.launch(side.request(token=f"n{number}", count=1))
    sixth = side.request(token="n5", count=1)
    assert fault_of(lambda: side.port.launch(sixth)) is Fault.THROTTLED
    side.cloud.clock.move(0.5)
    assert len(side.port.launch(sixth)) == 1


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("VcpuLimitExceeded", Fault.QUOTA),
        ("UnauthorizedOperation", Fault.CONFIGURATION),
        ("InternalError", Fault.LOST),
    ],
)
def test_injected_error_has_its_fault_class(side: Side, code: str, fault: Fault):
    side.model.faults.next_error("RunInstances", code)
    assert fault_of(lambda: side.port.launch(side.request())) is fault


def test_lost_reply_may_be_repeated(side: Side):
    side.model.faults.lose_reply("RunInstances")
    assert fault_of(lambda: side.port.launch(side.request())) is Fault.LOST
    assert len(side.port.launch(side.request())) == 2
    assert len(side.port.instances("burst")) == 2


def test_another_clusters_instances_and_heads_are_not_listed(side: Side):
    side.port.launch(
        side.request(token="a", tags={names.TAG_CLUSTER: "other", names.TAG_ROLE: names.ROLE_NODE})
    )
    side.port.launch(
        side.request(token="b", tags={names.TAG_CLUSTER: "burst", names.TAG_ROLE: names.ROLE_HEAD})
    )
    assert side.port.instances("burst") == ()


def test_terminated_instance_is_listed_for_a_while(side: Side):
    ids = side.port.launch(side.request())
    side.cloud.clock.move(2)
    side.port.terminate(ids)
    assert {i.state for i in side.port.instances("burst")} == {InstanceState.SHUTTING_DOWN}
    side.cloud.clock.move(5)
    ended = side.port.instances("burst")
    assert {(i.state, i.address, i.living) for i in ended} == {(InstanceState.TERMINATED, None, False)}
    side.cloud.clock.move(3600)
    assert side.port.instances("burst") == ()


def test_unknown_id_does_not_stop_other_terminations(side: Side):
    ids = side.port.launch(side.request())
    assert side.port.terminate([UNKNOWN, *ids]) == (UNKNOWN,)
    assert {i.state for i in side.port.instances("burst")} == {InstanceState.SHUTTING_DOWN}


def test_ending_is_idempotent_and_an_empty_list_asks_nothing(side: Side):
    ids = side.port.launch(side.request())
    for these, unknown in ((ids, ()), (ids, ()), ([UNKNOWN], (UNKNOWN,)), ([], ())):
        assert side.port.terminate(these) == unknown
    assert {i.state for i in side.port.instances("burst")} == {InstanceState.SHUTTING_DOWN}


def test_full_subnet_counts_as_no_capacity(side: Side):
    side.cloud.model.buckets.enabled = False
    side.model.faults.next_error("RunInstances", "InsufficientFreeAddressesInSubnet")
    assert fault_of(lambda: side.port.launch(side.request())) is Fault.NO_CAPACITY


def test_missing_subnet_is_a_configuration_fault(side: Side):
    gone = side.request(subnet_id="subnet-00000000000000000")
    assert fault_of(lambda: side.port.launch(gone)) is Fault.CONFIGURATION


# --- fewer than asked, reservations, blocks, prices, quotas ---------------------------------------


def test_t05_where_fewer_are_of_use_they_come_without_an_error(side: Side):
    side.model.set_capacity(zone=ZONE, free=3)
    assert len(side.port.launch(side.request(count=8, at_least=1))) == 3


def test_t08_price_below_the_markets_is_refused_with_the_price(side: Side):
    side.model.set_spot_price(MACHINE, ZONE, 14_000_000)
    with pytest.raises(CloudError, match="14") as caught:
        side.port.launch(side.request(max_price=9_500_000))
    assert (caught.value.fault, caught.value.code) == (Fault.NO_CAPACITY, "SpotMaxPriceTooLow")
    assert len(side.port.launch(side.request(token="t2", max_price=14_000_000))) == 2


@pytest.mark.parametrize(
    ("market", "code"),
    [(Market.ON_DEMAND, "VcpuLimitExceeded"), (Market.SPOT, "MaxSpotInstanceCountExceeded")],
)
def test_t09_quota_is_per_market_and_named(side: Side, market: Market, code: str):
    side.model.set_quota("P", market, 192 * 2 - 1)
    with pytest.raises(CloudError) as caught:
        side.port.launch(side.request(market=market))
    assert (caught.value.fault, caught.value.code) == (Fault.QUOTA, code)
    other = Market.SPOT if market is Market.ON_DEMAND else Market.ON_DEMAND
    assert len(side.port.launch(side.request(token="t2", market=other))) == 2


def test_t09_idle_reservation_counts_against_the_quota(side: Side):
    side.model.set_quota("P", Market.ON_DEMAND, 192 * 2)
    held = side.model.reserve(MACHINE, ZONE, 1)
    on_demand = side.request(market=Market.ON_DEMAND)
    assert fault_of(lambda: side.port.launch(on_demand)) is Fault.QUOTA
    side.model.cancel_reservation(held, side.cloud.clock.now)
    assert len(side.port.launch(replace(on_demand, token="t2"))) == 2


def test_t25_targeted_reservation_launches_its_capacity_and_is_named(side: Side):
    side.model.reserve(MACHINE, ZONE, 2, id=RESERVED)
    side.model.set_capacity(free=0)
    ids = side.port.launch(side.reserved())
    assert {(i.market, i.reservation) for i in side.port.instances("burst")} == {
        (Market.RESERVATION, RESERVED)
    }
    with pytest.raises(CloudError) as caught:
        side.port.launch(side.reserved(token="t2", count=1))
    assert (caught.value.fault, caught.value.code) == (Fault.NO_CAPACITY, "ReservationCapacityExceeded")
    side.cloud.clock.move(2)
    side.port.terminate(ids)
    side.cloud.clock.move(6)
    assert len(side.port.launch(side.reserved(token="t3"))) == 2


def test_t25_full_open_reservation_gives_ordinary_instances_in_silence(side: Side):
    side.model.reserve(MACHINE, ZONE, 1, id=RESERVED, open=True)
    side.port.launch(side.request(market=Market.ON_DEMAND))
    found = [(i.market, i.reservation) for i in side.port.instances("burst")]
    assert sorted(found) == [(Market.ON_DEMAND, None), (Market.RESERVATION, RESERVED)]


def test_t25_missing_reservation_is_a_configuration_fault(side: Side):
    gone = side.reserved(reservation="cr-0000000000000000f")
    assert fault_of(lambda: side.port.launch(gone)) is Fault.CONFIGURATION


def test_t25_after_a_cancellation_instances_live_on_as_ordinary_ones(side: Side):
    side.model.reserve(MACHINE, ZONE, 2, id=RESERVED)
    side.port.launch(side.reserved())
    side.model.cancel_reservation(RESERVED, side.cloud.clock.now)
    assert {(i.living, i.market) for i in side.port.instances("burst")} == {(True, Market.ON_DEMAND)}
    assert fault_of(lambda: side.port.launch(side.reserved(token="t2"))) is Fault.NO_CAPACITY


def test_reservations_are_listed_by_id_and_a_missing_one_is_left_out(side: Side):
    side.model.reserve(MACHINE, ZONE, 3, id=RESERVED)
    side.port.launch(side.reserved())
    (seen,) = side.port.reservations([RESERVED, "cr-0000000000000000f"])
    assert (seen.id, seen.state, seen.machine, seen.zone) == (RESERVED, "active", MACHINE, ZONE)
    assert (seen.total, seen.free, seen.ends_at) == (3, 1, None)
    assert side.port.reservations([]) == ()


def test_t26_block_opens_at_its_start_and_takes_only_its_own_market(side: Side):
    now = side.cloud.clock.now
    side.model.reserve(MACHINE, ZONE, 2, id=RESERVED, block=True, starts_at=now + 100, ends_at=now + 86400)
    block = side.request(market=Market.CAPACITY_BLOCK, reservation=RESERVED)
    assert side.port.reservations([RESERVED])[0].state == "scheduled"
    side.cloud.clock.move(99)
    with pytest.raises(CloudError) as caught:
        side.port.launch(block)
    assert caught.value.code == "InvalidCapacityReservationState.PendingActivation"
    assert caught.value.fault is Fault.NO_CAPACITY
    side.cloud.clock.move(1)
    assert fault_of(lambda: side.port.launch(side.reserved(token="t2"))) is Fault.CONFIGURATION
    side.port.launch(replace(block, token="t3"))
    assert {i.market for i in side.port.instances("burst")} == {Market.CAPACITY_BLOCK}
    assert fault_of(lambda: side.port.launch(replace(block, token="t4"))) is Fault.NO_CAPACITY


def test_t26_block_ends_its_instances_half_an_hour_before_it_ends(side: Side):
    now = side.cloud.clock.now
    side.model.reserve(MACHINE, ZONE, 2, id=RESERVED, block=True, starts_at=now, ends_at=now + 7200)
    block = side.request(market=Market.CAPACITY_BLOCK, reservation=RESERVED)
    side.port.launch(block)
    side.cloud.clock.move(7200 - 1801)
    assert {i.state for i in side.port.instances("burst")} == {InstanceState.RUNNING}
    side.cloud.clock.move(1)
    assert {i.state for i in side.port.instances("burst")} == {InstanceState.SHUTTING_DOWN}
    assert fault_of(lambda: side.port.launch(replace(block, token="t2"))) is Fault.NO_CAPACITY


def test_t26_slot_of_an_ended_instance_is_back_after_minutes_of_cleaning(side: Side):
    now = side.cloud.clock.now
    side.model.reserve(MACHINE, ZONE, 2, id=RESERVED, block=True, starts_at=now, ends_at=now + 86400)
    block = side.request(market=Market.CAPACITY_BLOCK, reservation=RESERVED)
    ids = side.port.launch(block)
    side.cloud.clock.move(2)
    side.port.terminate(ids)
    side.cloud.clock.move(10)
    side.port.instances("burst")
    assert fault_of(lambda: side.port.launch(replace(block, token="t2"))) is Fault.NO_CAPACITY
    side.cloud.clock.move(300)
    assert len(side.port.launch(replace(block, token="t3"))) == 2


# --- fleets -----------------------------------------------------------------------------------


def codes(answer: FleetAnswer) -> list[tuple[str, str]]:
    return [(e.machine, e.code) for e in answer.errors]


def test_t13_fleet_takes_the_first_machine_that_can_be_had(side: Side):
    answer = side.fleet()
    assert [machine for _, machine in answer.instances] == [MACHINE] * 4
    assert answer.errors == ()
    listed = side.port.instances("burst")
    assert {i.id for i in listed} == {i for i, _ in answer.instances}
    assert {(i.market, i.tags[names.TAG_POOL]) for i in listed} == {(Market.SPOT, "h200")}


def test_t13_instances_and_errors_come_side_by_side(side: Side):
    side.model.set_capacity(machine=MACHINE, free=0)
    answer = side.fleet()
    assert [machine for _, machine in answer.instances] == ["p5e.48xlarge"] * 4
    assert codes(answer) == [(MACHINE, "InsufficientInstanceCapacity")]


def test_t13_fleet_below_minimum_launches_nothing_and_gives_all_errors(side: Side):
    side.model.set_capacity(machine=MACHINE, free=1)
    side.model.set_capacity(machine="p5e.48xlarge", free=2)
    answer = side.fleet()
    assert answer.instances == ()
    assert [machine for machine, _ in codes(answer)] == [MACHINE, "p5e.48xlarge"]
    assert fleet_error(answer.errors).fault is Fault.NO_CAPACITY
    assert side.port.instances("burst") == ()
    assert len(side.fleet(token="f2", at_least=1).instances) == 3, "what was planned was given back"


def test_t13_identical_fleet_again_launches_nothing(side: Side):
    assert set(side.fleet().instances) == set(side.fleet().instances)
    assert len(side.port.instances("burst")) == 4
    assert fault_of(lambda: side.fleet(count=3)) is Fault.TOKEN


def test_throttle_in_a_fleet_is_not_a_capacity_error(side: Side):
    """aws-parallelcluster-node#734: this mistake disabled 2,000 of 3,000 nodes."""
    side.model.buckets.charge_instances("RunInstances", 997, side.cloud.clock.now)
    side.model.set_capacity(machine=MACHINE, free=0)
    answer = side.fleet(count=3)
    assert answer.instances == ()
    assert codes(answer) == [
        (MACHINE, "InsufficientInstanceCapacity"),
        ("p5e.48xlarge", "RequestLimitExceeded"),
    ]
    assert fleet_error(answer.errors).fault is Fault.THROTTLED


def test_t13_untried_machine_type_repeats_an_error(side: Side):
    side.model.set_quota("P", Market.SPOT, 0)
    answer = side.fleet()
    assert codes(answer) == [
        (MACHINE, "MaxSpotInstanceCountExceeded"),
        ("p5e.48xlarge", "UnfulfillableCapacity"),
    ]
    assert fleet_error(answer.errors).fault is Fault.QUOTA


def test_t14_fleet_has_its_own_code_for_types_not_offered(side: Side):
    side.model.capacity.withdraw(MACHINE, ZONE)
    answer = side.fleet(MACHINE)
    assert codes(answer) == [(MACHINE, "InvalidFleetConfiguration")]
    assert fleet_error(answer.errors).fault is Fault.UNSUPPORTED


def test_t11_fleets_and_launches_share_one_bucket_of_instances(side: Side):
    side.model.buckets.charge_instances("RunInstances", 1000, side.cloud.clock.now)
    answer = side.fleet(MACHINE)
    assert fleet_error(answer.errors).fault is Fault.THROTTLED
    assert fault_of(lambda: side.port.launch(side.request())) is Fault.THROTTLED


def test_fleet_pays_at_most_max_price(side: Side):
    side.model.set_spot_price(MACHINE, ZONE, 14_000_000)
    answer = side.fleet(max_price=9_000_000)
    assert [machine for _, machine in answer.instances] == ["p5e.48xlarge"] * 4
    assert codes(answer) == [(MACHINE, "SpotMaxPriceTooLow")]


def test_lost_reply_of_a_fleet_may_be_repeated(side: Side):
    side.model.faults.lose_reply("CreateFleet")
    assert fault_of(side.fleet) is Fault.LOST
    assert len(side.fleet().instances) == 4
    assert len(side.port.instances("burst")) == 4


# --- what lags, fails or is gone -------------------------------------------------------------------


def test_t03_token_of_terminated_instances_returns_them_or_an_error(side: Side):
    ids = side.port.launch(side.request())
    side.cloud.clock.move(2)
    side.port.terminate(ids)
    side.cloud.clock.move(10)
    assert set(side.port.launch(side.request())) == set(ids)
    assert {i.living for i in side.port.instances("burst")} == {False}
    side.model.switches.dead_token = "refuse"
    assert fault_of(lambda: side.port.launch(side.request())) is Fault.TOKEN


def test_t18_image_that_is_gone_stops_the_growth_and_no_node(side: Side):
    side.port.launch(side.request())
    image = side.model.describe((), side.cloud.clock.now)[0].spec.image
    side.model.switches.images_gone[image] = "InvalidAMIID.Unavailable"
    assert fault_of(lambda: side.port.launch(side.request(token="t2"))) is Fault.CONFIGURATION
    assert {i.living for i in side.port.instances("burst")} == {True}


def test_t20_id_tags_and_address_come_each_in_its_time(side: Side):
    side.model.switches.lag = Lag(id_s=8, address_s=8, tags_s=8)
    side.port.launch(side.request(count=40))
    seen: list[tuple[int, int]] = []
    for _ in range(9):
        listed = side.port.instances("burst")
        seen.append((len(listed), sum(i.address is not None for i in listed)))
        side.cloud.clock.move(1)
    counts = [count for count, _ in seen]
    assert counts[0] < 40
    assert counts == sorted(counts)
    assert any(addressed < count for count, addressed in seen), "listed before it has an address"
    assert seen[-1] == (40, 40)


def test_t21_failing_zone_fails_the_listing_and_never_empties_it(side: Side):
    side.port.launch(side.request())
    side.model.switches.failing_zones.add("us-east-1b")
    assert fault_of(lambda: side.port.instances("burst")) is Fault.LOST


def test_t22_pages_are_short_and_one_is_empty_and_nothing_is_missed(side: Side):
    side.model.switches.page_size = 5
    side.model.buckets.enabled = False
    side.port.launch(side.request(count=23))
    assert len(side.port.instances("burst")) == 23
    held = [side.model.reserve(MACHINE, ZONE, 1) for _ in range(7)]
    assert {r.id for r in side.port.reservations(held)} == set(held)


def test_t23_protected_node_is_spared_and_others_end(side: Side):
    now = side.cloud.clock.now
    (kept,) = side.port.launch(side.request(count=1))
    side.model.change(kept, now, lambda i: replace(i, spec=replace(i.spec, protected=True)))
    (other,) = side.port.launch(side.in_zone_b(token="t2", count=1))
    side.cloud.clock.move(2)
    assert fault_of(lambda: side.port.terminate([kept, other])) is Fault.CONFIGURATION
    assert {i.id: i.state.value for i in side.port.instances("burst")} == {
        kept: "running",
        other: "shutting-down",
    }
