"""One list of rows for both ports: the model's, and boto3's over loopback against the sandbox's face.

So a test that holds for the daemon over ModelCloud holds for it over EC2, as far as the face is true.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from clouds import Network, RunningCloud, a_network, running_cloud

from gpucluster.cloud.aws import AwsCloud
from gpucluster.cloud.model import CloudModel, ModelCloud, Timing
from gpucluster.cloud.port import CloudError, CloudPort, Fault, InstanceState, LaunchRequest
from gpucluster.plan import names
from gpucluster.plan.model import Market

pytestmark = pytest.mark.loopback
TIMING = Timing(pending_s=1.0, ending_s=5.0)
UNKNOWN = "i-0123456789abcdef0"


@dataclass
class Side:
    """A port over a model, with what its requests need."""

    name: str
    port: CloudPort
    cloud: RunningCloud
    subnets: dict[str, str]
    template: str

    @property
    def model(self) -> CloudModel:
        return self.cloud.model

    def request(self, **change: Any) -> LaunchRequest:
        base = LaunchRequest(
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
        return replace(base, **change)

    def in_zone_b(self, **change: Any) -> LaunchRequest:
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


def test_a_launch_is_listed_with_all_that_was_asked(side: Side):
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


def test_the_identical_request_again_launches_nothing(side: Side):
    assert set(side.port.launch(side.request())) == set(side.port.launch(side.request()))
    assert len(side.port.instances("burst")) == 2


def test_a_token_with_another_machine_is_spent(side: Side):
    side.port.launch(side.request())
    assert fault_of(lambda: side.port.launch(side.request(machine="p5e.48xlarge"))) is Fault.TOKEN


def test_the_same_token_in_another_zone_launches_again(side: Side):
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


def test_a_machine_that_is_not_sold_there_is_unsupported(side: Side):
    side.model.capacity.withdraw("p5en.48xlarge", "us-east-1a")
    assert fault_of(lambda: side.port.launch(side.request())) is Fault.UNSUPPORTED


def test_the_sixth_launch_at_once_is_throttled_and_not_refused(side: Side):
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
def test_an_ordered_error_comes_with_its_meaning(side: Side, code: str, fault: Fault):
    side.model.faults.next_error("RunInstances", code)
    assert fault_of(lambda: side.port.launch(side.request())) is fault


def test_a_lost_reply_may_be_repeated(side: Side):
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


def test_an_ended_instance_is_listed_as_long_as_the_cloud_shows_it(side: Side):
    ids = side.port.launch(side.request())
    side.cloud.clock.move(2)
    side.port.terminate(ids)
    assert {i.state for i in side.port.instances("burst")} == {InstanceState.SHUTTING_DOWN}
    side.cloud.clock.move(5)
    ended = side.port.instances("burst")
    assert {(i.state, i.address, i.living) for i in ended} == {(InstanceState.TERMINATED, None, False)}
    side.cloud.clock.move(3600)
    assert side.port.instances("burst") == ()


def test_one_unknown_id_spares_no_other(side: Side):
    ids = side.port.launch(side.request())
    side.port.terminate([UNKNOWN, *ids])
    assert {i.state for i in side.port.instances("burst")} == {InstanceState.SHUTTING_DOWN}


def test_ending_is_idempotent_and_an_empty_list_asks_nothing(side: Side):
    ids = side.port.launch(side.request())
    for these in (ids, ids, [UNKNOWN], []):
        side.port.terminate(these)
    assert {i.state for i in side.port.instances("burst")} == {InstanceState.SHUTTING_DOWN}


def test_a_full_subnet_counts_as_no_capacity(side: Side):
    side.cloud.model.buckets.enabled = False
    side.model.faults.next_error("RunInstances", "InsufficientFreeAddressesInSubnet")
    assert fault_of(lambda: side.port.launch(side.request())) is Fault.NO_CAPACITY


def test_a_subnet_that_is_gone_stops_and_tells(side: Side):
    gone = side.request(subnet_id="subnet-00000000000000000")
    assert fault_of(lambda: side.port.launch(gone)) is Fault.CONFIGURATION
