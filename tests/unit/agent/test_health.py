"""The health program: programs that hang or print without an end, and the limit of drains in every order of the nodes' calls."""

import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from threading import Semaphore, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_lab_plan
from support.waiting import BOUND_S

from gpucluster.agent.health import drain, programs
from gpucluster.agent.health.drain import Outcome
from gpucluster.agent.health.programs import Argv
from gpucluster.checks import health_wants
from gpucluster.checks.check import TIMED_OUT, QueryOutput

PLAN = a_lab_plan(("\npools:", "\nhealth: {at_most: 2}\npools:"))
SETTINGS = health_wants.settings(PLAN, PLAN.pools[0], "gpu01", {})
NODES = ("gpu01", "gpu02", "gpu03", "gpu04")


def test_a_program_that_hangs_and_one_without_an_end_do_not_stop_the_others() -> None:
    hangs = ("/bin/sh", "-c", "trap '' TERM; while :; do sleep 60; done")
    endless = ("/usr/bin/yes", "x" * 10_000)
    well = ("/bin/echo", "well")
    found = programs.run_all([hangs, endless, well, ("/no/such/program",)], 5.0)
    assert found[hangs].code == TIMED_OUT
    assert (found[endless].code, found[endless].stdout) == (programs.TOO_LONG, "")
    assert (found[well].code, found[well].stdout) == (0, "well\n")
    assert found["/no/such/program",].code == programs.NOT_FOUND


@dataclass
class Controller:
    """slurmctld: one call after another. `answers` ends when it no longer answers."""

    reasons: dict[str, str] = field(default_factory=dict[str, str])
    answers: int = 1000

    def call(self, argv: Argv) -> QueryOutput:
        self.answers -= 1
        if self.answers < 0:
            return QueryOutput(code=1, stdout="", stderr="Unable to contact slurm controller")
        if argv[1] == "update":
            pairs = dict(word.split("=", 1) for word in argv[2:])
            if pairs.get("state") == "drain":
                self.reasons[pairs["nodename"]] = pairs["reason"]
            if pairs.get("state") == "undrain":
                self.reasons.pop(pairs["nodename"], None)
            return QueryOutput(code=0, stdout="")
        nodes = [
            {
                "name": name,
                "state": ["IDLE", "DRAIN"] if name in self.reasons else ["IDLE"],
                "reason": self.reasons.get(name, ""),
                "reason_set_by_user": "root",
            }
            for name in NODES
        ]
        return QueryOutput(code=0, stdout=json.dumps({"nodes": nodes}))


def one_by_one(controller: Controller, nodes: tuple[str, ...], order: list[int]) -> dict[str, Outcome]:
    """Let each node make its next call in the given order, then let all of them end."""

    turns = {node: Semaphore(0) for node in nodes}
    done = {node: Semaphore(0) for node in nodes}
    outcomes: dict[str, Outcome] = {}

    def live(node: str) -> None:
        def scontrol(argv: Argv) -> QueryOutput:
            turns[node].acquire()
            try:
                return controller.call(argv)
            finally:
                done[node].release()

        outcomes[node] = drain.drain(SETTINGS, node, "gpu.ecc: bad", scontrol).outcome
        done[node].release()

    threads = [Thread(target=live, args=(node,), daemon=True) for node in nodes]
    for thread in threads:
        thread.start()
    for turn in order:
        turns[nodes[turn % len(nodes)]].release()
        time.sleep(0)
    for node in nodes:
        for _ in range(8):
            turns[node].release()
    for thread in threads:
        thread.join(BOUND_S)
    return outcomes


@given(order=st.lists(st.integers(0, 3), max_size=16))
def test_no_order_of_calls_keeps_more_nodes_drained_than_the_limit(order: list[int]) -> None:
    controller = Controller()
    outcomes = one_by_one(controller, NODES, order)
    drained = [node for node, outcome in outcomes.items() if outcome is Outcome.DRAINED]
    assert sorted(controller.reasons) == sorted(drained)
    assert len(drained) <= 2
    assert set(outcomes.values()) <= {Outcome.DRAINED, Outcome.LIMIT}


@pytest.mark.parametrize("answers", range(4))
def test_without_slurmctld_no_drain_stays_unproved(answers: int) -> None:
    controller = Controller(answers=answers)
    found = drain.drain(SETTINGS, "gpu01", "gpu.ecc: bad", controller.call)
    assert found.outcome is (Outcome.DRAINED if answers == 3 else Outcome.NO_ANSWER)


def test_the_drain_of_a_person_stays() -> None:
    controller = Controller(reasons={"gpu01": "broken fan"})
    assert drain.drain(SETTINGS, "gpu01", "gpu.ecc: bad", controller.call).outcome is Outcome.DRAINED_ALREADY
    assert controller.reasons == {"gpu01": "broken fan"}


def test_drains_of_others_do_not_count() -> None:
    controller = Controller(
        reasons={"gpu02": "broken fan", "gpu03": "gpucluster: [bundle] new", "gpu04": "x"}
    )
    assert (
        drain.drain(SETTINGS, "gpu01", "gpu.ecc: bad\x1b[31m\n", controller.call).outcome is Outcome.DRAINED
    )
    assert controller.reasons["gpu01"] == "gpucluster: [health] gpu.ecc: bad"


def test_programs_of_a_healthy_node_import_neither_a_plan_nor_the_parser_of_slurm() -> None:
    """Each job waits for these imports twice: with them a program took 0.27 s of CPU, without them 0.09 s."""
    code = "import gpucluster.agent.health.__main__, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    slow = ("gpucluster.plan.model", "gpucluster.checks.table", "gpucluster.slurm")
    assert [name for name in done.stdout.split() if name.startswith(slow)] == []
