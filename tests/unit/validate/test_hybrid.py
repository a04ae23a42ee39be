"""One run of checks over Slurm's machines and over Kubernetes: each check by its own session, both closed."""

from dataclasses import dataclass, field
from typing import cast

from support import builders
from support.standing_cluster import StandingCluster

from gpucluster.checks.check import failed, passed
from gpucluster.checks.kubernetes.api import ApiServer
from gpucluster.checks.kubernetes.table import CLUSTER
from gpucluster.validate import expectations
from gpucluster.validate.expect import select
from gpucluster.validate.expectation import Expectation, expect
from gpucluster.validate.reach import Reach
from gpucluster.validate.results import Result, Run, result_of
from gpucluster.validate.run import run
from gpucluster.validate.session import RunContext

API = expect("kube.api", CLUSTER, ApiServer(version="1.36"))


@dataclass
class KubernetesStandIn:
    """A session whose API server is away, or not."""

    away: bool
    results: list[Result] = field(default_factory=list)
    closed: bool = False

    def result(self, expectation: Expectation) -> Result:
        finding = failed("no answer", "an answer") if self.away else passed("1.36")
        made = result_of(expectation, finding, machine=CLUSTER, tier=0, remedy="", seconds=0.0, blocked_by="")
        self.results.append(made)
        return made

    def close(self) -> None:
        self.closed = True


def ran(kubernetes: KubernetesStandIn) -> Run:
    plan = builders.a_lab_plan()
    cluster = StandingCluster(plan, up=[node for pool in plan.pools for node, _ in pool.hosts()])
    of_machines = select(expectations(plan), tier=0, only=["ctl.ping", "disk"])
    context = RunContext(plan=plan, user="vision")
    done = run(context, cast("Reach", cluster), (*of_machines, API), kubernetes=kubernetes)
    assert cluster.closed
    assert [one.id for one in done.results] == [one.id for one in (*of_machines, API)]
    return done


def test_checks_of_both_are_one_run() -> None:
    kubernetes = KubernetesStandIn(away=False)
    assert ran(kubernetes).ok
    assert [one.id for one in kubernetes.results] == [API.id]
    assert kubernetes.closed


def test_kubernetes_that_is_away_fails_the_run_and_blocks_no_check_of_slurm() -> None:
    done = ran(KubernetesStandIn(away=True))
    assert not done.ok
    assert [one.id for one in done.results if not one.healthy] == [API.id]
