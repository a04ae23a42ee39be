"""`end_nodes` ends every node of the cluster, and only those, and believes an empty list at the second look."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from support.launches import launch_call

from gpucluster.cloud.port import (
    CloudError,
    Fault,
    FleetAnswer,
    FleetCall,
    Instance,
    LaunchCall,
    Reservation,
)
from gpucluster.cloud.terminate_nodes import Clock, NotEndedError, end_nodes
from gpucluster.plan import names
from gpucluster.plan.model import Market
from gpucluster.sandbox.aws.ec2.state.client import ModelCloud
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Timing


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
    cloud: ModelCloud, count: int, *, cluster: str = "burst", role: str = "node", incarnation: str = "first"
) -> None:
    cloud.launch(
        launch_call(
            token=incarnation, count=count, market=Market.ON_DEMAND,
            tags={names.TAG_CLUSTER: cluster, names.TAG_ROLE: role},
        )
    )  # fmt: skip


def left(cloud: ModelCloud, cluster: str) -> list[str]:
    return [i.id for i in cloud.instances(cluster) if i.living]


def ignore(_: str) -> None:
    pass


def test_only_nodes_are_terminated() -> None:
    time = Time()
    cloud = a_cloud(time)
    launch(cloud, 3)
    launch(cloud, 1, cluster="other", incarnation="u")
    assert len(end_nodes(cloud, "burst", time.clock(), report=ignore)) == 3
    assert left(cloud, "burst") == []
    assert len(left(cloud, "other")) == 1


def test_nothing_is_called_without_nodes() -> None:
    time = Time()
    assert end_nodes(a_cloud(time), "burst", time.clock(), report=ignore) == ()


def test_repeated_call_is_harmless() -> None:
    time = Time()
    cloud = a_cloud(time)
    launch(cloud, 2)
    end_nodes(cloud, "burst", time.clock(), report=ignore)
    assert end_nodes(cloud, "burst", time.clock(), report=ignore) == ()


def test_instance_of_a_running_launch_is_terminated_too() -> None:
    time = Time()
    cloud = a_cloud(time)
    launch(cloud, 1)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        time.now += seconds
        pauses.append(seconds)
        if len(pauses) == 4:  # after the first look that was empty
            launch(cloud, 1, incarnation="late")

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

    def launch(self, call: LaunchCall) -> tuple[str, ...]:
        return self._cloud.launch(call)

    def fleet(self, call: FleetCall) -> FleetAnswer:
        return self._cloud.fleet(call)

    def reservations(self, ids: Sequence[str]) -> tuple[Reservation, ...]:
        return self._cloud.reservations(ids)

    def instances(self, cluster: str, also: Sequence[str] = ()) -> tuple[Instance, ...]:
        self._maybe()
        return self._cloud.instances(cluster, also)

    def terminate(self, ids: object) -> tuple[str, ...]:
        self._maybe()
        return self._cloud.terminate(tuple(ids))  # pyright: ignore[reportArgumentType, reportUnknownArgumentType]


@pytest.mark.parametrize("fault", [Fault.THROTTLED, Fault.LOST])
def test_temporary_error_is_repeated(fault: Fault) -> None:
    time = Time()
    cloud = a_cloud(time)
    launch(cloud, 2)
    assert len(end_nodes(Failing(cloud, fault, 5), "burst", time.clock(), report=ignore)) == 2
    assert left(cloud, "burst") == []


def test_refused_call_is_an_error() -> None:
    time = Time()
    with pytest.raises(CloudError, match="Code: text"):
        end_nodes(Failing(a_cloud(time), Fault.CONFIGURATION, 1), "burst", time.clock(), report=ignore)


def test_remaining_nodes_are_named_after_the_deadline() -> None:
    time = Time()
    cloud = a_cloud(time, ending_s=10_000)
    launch(cloud, 1)
    with pytest.raises(
        NotEndedError, match=r"(?s)^not gone after 2 minutes: i-.*next: run the same command again"
    ) as caught:
        end_nodes(cloud, "burst", time.clock(), report=ignore, deadline_s=120)
    assert caught.value.exit_code == 2


def test_each_change_of_progress_is_reported_once() -> None:
    time, said = Time(), list[str]()
    cloud = a_cloud(time)
    launch(cloud, 2)
    end_nodes(cloud, "burst", time.clock(), report=said.append)
    assert said == ["nodes left: 2, 0 of them shutting down", "nodes left: 2, 2 of them shutting down"]


def test_wait_without_progress_is_reported_again_with_its_end() -> None:
    """`down` said nothing for minutes while a node shut down."""
    time, said = Time(), list[str]()
    cloud = a_cloud(time, ending_s=70)
    launch(cloud, 1)
    (node,) = left(cloud, "burst")
    end_nodes(cloud, "burst", time.clock(), report=said.append, deadline_s=180)
    again = f"nodes left: 1, 1 of them shutting down; waiting for {node}; this command gives up in %d minutes"
    assert said[2:] == [again % 2, again % 2]


def test_missing_answer_is_reported_and_named_after_the_deadline() -> None:
    """The error had no reason: `not gone after 2 minutes: `."""
    time, said = Time(), list[str]()
    silent = Failing(a_cloud(time), Fault.THROTTLED, 1_000_000)
    with pytest.raises(NotEndedError, match=r"^EC2 does not list instances after 2 minutes: Code: text"):
        end_nodes(silent, "burst", time.clock(), report=said.append, deadline_s=120)
    assert said[0] == "EC2 does not list instances: Code"
    assert said[1] == "EC2 does not list instances: Code; this command gives up in 2 minutes"
    assert len(said) == 5


def test_terminated_instance_is_not_remaining() -> None:
    time = Time()
    cloud = a_cloud(time, ending_s=0)
    launch(cloud, 1)
    end_nodes(cloud, "burst", time.clock(), report=ignore)
    assert cloud.instances("burst") != (), "the cloud still shows it"
