"""A warning that stops work: the run is not green, and its last line says so."""

import io
import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import pytest
from support import builders
from support.standing_cluster import StandingCluster

from gpucluster.checks import reservations, slurmctld
from gpucluster.checks.check import CheckStatus
from gpucluster.cli.validate_table import final
from gpucluster.slurm.values import SlurmNode, SlurmReservation
from gpucluster.validate import expectations
from gpucluster.validate.expect import select
from gpucluster.validate.report import headline, html
from gpucluster.validate.results import Run
from gpucluster.validate.run import run
from gpucluster.validate.session import RunContext

WARN = CheckStatus.WARN
BY_HAND = SlurmReservation(
    name="patch", starts_at=4000, ends_at=9000, nodes=("e1", "e2"), users=("root",), flags=("MAINT",)
)


def blocked(name: str, *partitions: str) -> SlurmNode:
    states = frozenset({"IDLE", "DRAIN", "POWERED_DOWN"})
    reason = "gpucluster: no h200"
    return SlurmNode(name=name, states=states, reason=reason, reason_by="slurm", partitions=partitions)


def up(name: str, *partitions: str) -> SlurmNode:
    return SlurmNode(name=name, states=frozenset({"IDLE"}), partitions=partitions)


@pytest.mark.parametrize(
    ("nodes", "stops"),
    [
        ((blocked("e1", "gpu"), blocked("e2", "gpu")), True),
        ((blocked("e1", "gpu"), up("e2", "gpu")), False),
        ((blocked("e1", "gpu", "all"), up("e2", "all")), True),
    ],
    ids=["all nodes", "one of two", "all nodes of one of two partitions"],
)
def test_nodes_that_the_cloud_refuses_stop_the_work_of_a_partition_that_has_no_other(nodes, stops):
    """Regression: with no node that a job could get `validate` was healthy, with exit 0."""
    result = slurmctld.evaluate_nodes(nodes, slurmctld.Nodes(elastic=("e1", "e2"), always_on=()))
    assert (result.verdict, result.stops_work) == (WARN, stops)
    assert ("partition gpu has no other node" in result.found) is stops
    assert "scontrol" not in result.remedy, "the daemon lifts its own drain"


@pytest.mark.parametrize(
    ("change", "stops"),
    [
        ({}, True),
        ({"nodes": ("e1",)}, False),
        ({"starts_at": 6000}, False),
        ({"ends_at": 4900}, False),
        ({"whole": False}, False),
    ],
    ids=["now", "not all nodes", "later", "ended", "some cores"],
)
def test_reservation_by_hand_stops_the_work_of_a_partition_that_it_holds_now(change, stops):
    found = reservations.Reserved(now_s=5000.0, found=(replace(BY_HAND, **change),))
    want = reservations.Reservations(planned=(), partitions={"gpu": ("e1", "e2")})
    result = reservations.evaluate_reservations(found, want)
    assert (result.verdict, result.stops_work) == (WARN, stops)
    assert ("partition gpu has no other node" in result.found) is stops
    assert result.remedy == ("on {machine}: scontrol delete reservation=patch  # when it is no longer needed")


def held() -> StandingCluster:
    """A healthy lab, all of whose nodes a person has reserved."""
    plan = builders.a_lab_plan()
    nodes = [node for pool in plan.pools for node, _ in pool.hosts()]
    shown = {
        "name": "patch",
        "start_time": {"set": True, "infinite": False, "number": 1},
        "end_time": {"set": True, "infinite": False, "number": 4_000_000_000},
        "node_list": ",".join(nodes),
        "users": "root",
        "accounts": "",
        "groups": "",
        "partition": "",
        "flags": ["MAINT", "SPEC_NODES"],
    }
    answer = json.dumps({"reservations": [shown], "errors": []})
    return StandingCluster(plan, up=nodes, answers={"show reservations": answer})


def test_run_with_a_warning_that_stops_work_is_not_green(tmp_path):
    cluster: Any = held()
    junit = tmp_path / "junit.xml"
    context = RunContext(plan=cluster.plan, user="vision")
    done = run(context, cluster, select(expectations(cluster.plan), tier=0), junit=junit)
    (result,) = [one for one in done.results if one.check == "ctl.resv"]
    assert (result.verdict, result.stops_work, done.ok) == (WARN, True, False)
    assert done.counts()["fail"] == done.counts()["unknown"] == 0
    words = f"work is stopped: 1 warning of {len(done.results)} checks"
    assert headline(done) == words
    assert final(done, io.StringIO()).splitlines()[-1].startswith(f"lab: {words}, in ")
    assert words in html(done)
    assert [row["stops_work"] for row in done.as_json()["results"] if row["check"] == "ctl.resv"] == [True]
    wrong = [one.get("name") for one in ET.parse(junit).iter("testcase") if one.find("failure") is not None]  # noqa: S314
    assert wrong == ["ctl.resv[head]"]


def test_last_line_tells_of_stopped_work_beside_a_failure():
    cluster: Any = held()
    cluster.answers["gpu01: cat /etc/hosts"] = "10.9.9.9 gpu02\n"
    context = RunContext(plan=cluster.plan, user="vision")
    done: Run = run(context, cluster, select(expectations(cluster.plan), tier=0))
    assert headline(done).startswith("not proven healthy: 1 fail of ")
    assert headline(done).endswith(" checks; work is stopped: 1 warning")
