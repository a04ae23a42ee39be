"""The observer of the topology asks for new machines at once, for known ones each hour, and keeps its file."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from support.builders import a_plan

from gpucluster.cloud.port import CloudError, Fault
from gpucluster.elastic.topology_observer import AGAIN_S, PAUSE_S, TopologyObserver
from gpucluster.slurm.observed_switches import loads

A, B = "nn-aaaaaaaa", "nn-bbbbbbbb"
PLAN = a_plan(("nodes: {min: 0, max: 16}", "nodes: {min: 2, max: 16}"))
ONE, TWO = PLAN.pools[0].always_on()


class Port:
    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.nodes: dict[str, tuple[str, ...]] = {"i-1": (A, A), "i-2": (A, B)}
        self.mute = False

    def network_nodes(self, ids: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        self.asked.append(tuple(ids))
        if self.mute:
            raise CloudError(Fault.THROTTLED, "RequestLimitExceeded", "later")
        return {i: self.nodes[i] for i in ids if i in self.nodes}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def port() -> Port:
    return Port()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def observer(port: Port, clock: Clock, tmp_path: Path) -> TopologyObserver:
    return TopologyObserver(PLAN, port, tmp_path / "topology.json", clock)


def _seen(tmp_path: Path) -> Mapping[str, tuple[str, ...]]:
    return loads((tmp_path / "topology.json").read_text())


def test_new_machines_are_asked_for_and_elastic_ones_are_not(
    observer: TopologyObserver, port: Port, tmp_path: Path
) -> None:
    observer.look({ONE: "i-1", TWO: "i-2", "h200-2a-9": "i-3"})
    assert port.asked == [("i-1", "i-2")]
    assert _seen(tmp_path) == {ONE: (A, A), TWO: (A, B)}


def test_known_machines_are_asked_for_each_hour(observer: TopologyObserver, port: Port, clock: Clock) -> None:
    for moved in (0.0, PAUSE_S, AGAIN_S - PAUSE_S):
        clock.now += moved
        observer.look({ONE: "i-1"})
    assert len(port.asked) == 2


def test_replaced_machine_gets_its_new_place_and_a_machine_that_is_off_keeps_it(
    observer: TopologyObserver, port: Port, clock: Clock, tmp_path: Path
) -> None:
    observer.look({ONE: "i-1", TWO: "i-2"})
    clock.now += PAUSE_S
    observer.look({TWO: "i-2"})
    assert _seen(tmp_path)[ONE] == (A, A)
    port.nodes["i-4"] = (B, B)
    clock.now += PAUSE_S
    observer.look({ONE: "i-4", TWO: "i-2"})
    assert _seen(tmp_path) == {ONE: (B, B), TWO: (A, B)}


def test_refusal_keeps_the_file_and_is_tried_again_after_the_pause(
    observer: TopologyObserver, port: Port, clock: Clock, tmp_path: Path
) -> None:
    observer.look({ONE: "i-1"})
    port.mute = True
    for _ in range(3):
        clock.now += PAUSE_S / 2
        try:
            observer.look({ONE: "i-1", TWO: "i-2"})
        except CloudError:
            continue
    assert len(port.asked) == 2
    assert _seen(tmp_path) == {ONE: (A, A)}


def test_same_answer_does_not_touch_the_file(
    observer: TopologyObserver, clock: Clock, tmp_path: Path
) -> None:
    observer.look({ONE: "i-1"})
    before = (tmp_path / "topology.json").stat().st_mtime_ns
    clock.now += AGAIN_S
    observer.look({ONE: "i-1"})
    assert (tmp_path / "topology.json").stat().st_mtime_ns == before


def test_broken_file_is_written_anew(observer: TopologyObserver, tmp_path: Path) -> None:
    (tmp_path / "topology.json").write_text("{")
    observer.look({ONE: "i-1"})
    assert _seen(tmp_path) == {ONE: (A, A)}
