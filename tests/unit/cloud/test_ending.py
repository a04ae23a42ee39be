"""`end_nodes` ends every node of the cluster, and only those, and believes an empty list at the second look."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from gpucluster.cloud.ending import Clock, NotEndedError, end_nodes
from gpucluster.cloud.model import CloudModel, ModelCloud, Timing
from gpucluster.cloud.port import (
    CloudError,
    Fault,
    FleetAnswer,
    FleetRequest,
    Instance,
    LaunchRequest,
    Reservation,
)
from gpucluster.plan import names
from gpucluster.plan.model import Market


@dataclass
class Time:
    now: float = 1000.0

    def clock(self) -> Clock:
        return Clock(lambda: self.now, self.pause)

    def pause(self, seconds: float) -> None:
        self.now += seconds


def a_cloud(time: Time, ending_s: float = 5.0) -> ModelCloud:
    model = CloudModel(random.Random(1), timing=Timing(pending_s=0, ending_s=ending_s))  # noqa: S311
    return ModelCloud(model, lambda: time.now)


def launch(
    cloud: ModelCloud, count: int, *, cluster: str = "burst", role: str = "node", life: str = "first"
) -> None:
    cloud.launch(
        LaunchRequest(
            token=life, count=count, template_id="lt-1", template_version=1, subnet_id="subnet-1", zone="us-east-1a",
            machine="p5en.48xlarge", market=Market.ON_DEMAND,
            tags={names.TAG_CLUSTER: cluster, names.TAG_ROLE: role},
        )
    )  # fmt: skip


def left(cloud: ModelCloud, cluster: str) -> list[str]:
    return [i.id for i in cloud.instances(cluster) if i.living]


def ignore(_: str) -> None:
    pass


def test_every_node_ends_and_no_other() -> None:
    time = Time()
    cloud = a_cloud(time)
    launch(cloud, 3)
    launch(cloud, 1, cluster="other", life="u")
    assert len(end_nodes(cloud, "burst", time.clock(), report=ignore)) == 3
    assert left(cloud, "burst") == []
    assert len(left(cloud, "other")) == 1


def test_no_node_is_no_work() -> None:
    time = Time()
    assert end_nodes(a_cloud(time), "burst", time.clock(), report=ignore) == ()


def test_again_does_no_harm() -> None:
    time = Time()
    cloud = a_cloud(time)
    launch(cloud, 2)
    end_nodes(cloud, "burst", time.clock(), report=ignore)
    assert end_nodes(cloud, "burst", time.clock(), report=ignore) == ()


def test_a_launch_that_was_under_way_is_ended_too() -> None:
    time = Time()
    cloud = a_cloud(time)
    launch(cloud, 1)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        time.now += seconds
        pauses.append(seconds)
        if len(pauses) == 4:  # after the first look that was empty
            launch(cloud, 1, life="late")

    ended = end_nodes(cloud, "burst", Clock(lambda: time.now, pause), report=ignore)
    assert len(ended) == 2
    assert left(cloud, "burst") == []


class Failing:
    """A port whose calls fail at first."""

    def __init__(self, cloud: ModelCloud, fault: Fault, times: int) -> None:
        self._cloud, self._fault, self._times = cloud, fault, times

    def _maybe(self) -> None:
        if self._times:
            self._times -= 1
            raise CloudError(self._fault, "Code", "text")

    def launch(self, request: LaunchRequest) -> tuple[str, ...]:
        return self._cloud.launch(request)

    def fleet(self, request: FleetRequest) -> FleetAnswer:
        return self._cloud.fleet(request)

    def reservations(self, ids: Sequence[str]) -> tuple[Reservation, ...]:
        return self._cloud.reservations(ids)

    def instances(self, cluster: str) -> tuple[Instance, ...]:
        self._maybe()
        return self._cloud.instances(cluster)

    def terminate(self, ids: object) -> None:
        self._maybe()
        self._cloud.terminate(tuple(ids))  # pyright: ignore[reportArgumentType, reportUnknownArgumentType]


@pytest.mark.parametrize("fault", [Fault.THROTTLED, Fault.LOST])
def test_a_call_that_fails_for_now_is_repeated(fault: Fault) -> None:
    time = Time()
    cloud = a_cloud(time)
    launch(cloud, 2)
    assert len(end_nodes(Failing(cloud, fault, 5), "burst", time.clock(), report=ignore)) == 2
    assert left(cloud, "burst") == []


def test_a_call_that_may_not_be_made_is_told() -> None:
    time = Time()
    with pytest.raises(CloudError, match="Code: text"):
        end_nodes(Failing(a_cloud(time), Fault.CONFIGURATION, 1), "burst", time.clock(), report=ignore)


def test_nodes_that_do_not_go_are_named_after_the_deadline() -> None:
    time = Time()
    cloud = a_cloud(time, ending_s=10_000)
    launch(cloud, 1)
    with pytest.raises(
        NotEndedError, match=r"(?s)^not gone after 2 minutes: i-.*next: run the same command again"
    ) as caught:
        end_nodes(cloud, "burst", time.clock(), report=ignore, deadline_s=120)
    assert caught.value.exit_code == 2


def test_progress_is_told_once_for_each_change() -> None:
    time, said = Time(), list[str]()
    cloud = a_cloud(time)
    launch(cloud, 2)
    end_nodes(cloud, "burst", time.clock(), report=said.append)
    assert said == ["nodes left: 2, 0 of them on their way out", "nodes left: 2, 2 of them on their way out"]


def test_a_terminated_instance_is_not_left() -> None:
    time = Time()
    cloud = a_cloud(time, ending_s=0)
    launch(cloud, 1)
    end_nodes(cloud, "burst", time.clock(), report=ignore)
    assert cloud.instances("burst") != (), "the cloud still shows it"
