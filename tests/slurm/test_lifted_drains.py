"""What is left of a person's drain on a node that slurmctld has set DOWN (S49)."""

import dataclasses
import json
import time

import pytest
from real_slurm import VERSIONS, RealSlurm
from support.builders import a_plan

from gpucluster.plan.model import SlurmLine

NODE = "h200-2a-1"


@pytest.mark.parametrize("version", VERSIONS)
def test_reason_user_and_time_of_a_lifted_drain_stay_while_the_node_is_down(version: str) -> None:
    plan = a_plan()
    timeout = SlurmLine(file="slurm.conf", key="ResumeTimeout", value="5")
    plan = dataclasses.replace(plan, slurm=dataclasses.replace(plan.slurm, lines=(timeout,)))
    with RealSlurm(version, plan) as slurm:
        slurm.start_controller()

        def update(state: str, *reason: str) -> None:
            slurm.must("scontrol", "update", f"nodename={NODE}", f"state={state}", *reason)

        def shown() -> tuple[set[str], tuple[str, str, int]]:
            found = json.loads(slurm.must("scontrol", "show", "node", NODE, "--json"))["nodes"][0]
            reason = found["reason"], found["reason_set_by_user"], found["reason_changed_at"]["number"]
            return set(found["state"]), reason

        update("power_up")
        slurm.wait(lambda: "DOWN" in shown()[0], "ResumeTimeout is reached")
        update("drain", "reason=broken fan")
        states, drain = shown()
        assert {"DOWN", "DRAIN"} <= states
        assert drain[:2] == ("broken fan", "root")
        time.sleep(1.1)  # times are whole seconds
        update("undrain")
        states, left = shown()
        assert "DOWN" in states
        assert "DRAIN" not in states
        assert left == drain
        update("down", "reason=broken fan")
        assert shown()[1] == drain  # the same words change nothing
        update("down", "reason=look at it")
        assert shown()[1][2] > drain[2]
