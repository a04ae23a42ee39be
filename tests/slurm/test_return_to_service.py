"""What ReturnToService does to CLOUD nodes, by version (E6): which nodes are DOWN after they boot, and how long a person's DOWN lasts.

GPUCLUSTER_RECORD=1 writes tests/recorded/return-to-service.json.
"""

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from real_slurm import VERSIONS, RealSlurm
from support.builders import a_plan

from gpucluster.plan.model import SlurmLine

RECORDED = Path(__file__).parents[1] / "recorded/return-to-service.json"
RESUME_S = 20  # ResumeTimeout here
# case -> a node of its own
NODES = {
    "powered up": "h200-2a-1",
    "a person's DOWN while slurmd runs": "h200-2a-2",
    "a person's DOWN, and slurmd starts again": "h200-2a-3",
    "it registers after ResumeTimeout": "h200-2a-4",
    "DOWN and power_down, then powered up again": "h200-2a-5",
    "a person's drain while slurmd runs": "h200-2a-6",
}


def line(key: str, value: str) -> SlurmLine:
    return SlurmLine(file="slurm.conf", key=key, value=value)


@pytest.mark.parametrize("value", ["1", "2"])
@pytest.mark.parametrize("version", VERSIONS)
def test_states_of_nodes_are_those_that_were_recorded(version: str, value: str) -> None:
    plan = a_plan()
    lines = (
        line("ReturnToService", value),
        line("ResumeTimeout", str(RESUME_S)),
        line("SuspendTimeout", "5"),
    )
    plan = dataclasses.replace(plan, slurm=dataclasses.replace(plan.slurm, lines=lines))
    with RealSlurm(version, plan) as slurm:
        slurm.start_controller()
        found = {"version": version, "value": value, **states(slurm)}
    rows = json.loads(RECORDED.read_text()) if RECORDED.exists() else []
    if os.environ.get("GPUCLUSTER_RECORD"):
        others = [row for row in rows if (row["version"], row["value"]) != (version, value)]
        rows = sorted([*others, found], key=lambda row: (row["version"], row["value"]))
        RECORDED.write_text(json.dumps(rows, indent=1) + "\n")
    assert found in rows


def states(slurm: RealSlurm) -> dict[str, str]:
    up, running, again, late, refused, drained = NODES.values()

    def state(node: str) -> str:
        found = json.loads(slurm.must("scontrol", "show", "node", node, "--json"))["nodes"][0]["state"]
        return "+".join(sorted(set(found) - {"CLOUD", "DYNAMIC_NORM", "PLANNED"}))

    def update(node: str, to: str) -> None:
        reason = ("reason=ann: look",) if to in ("down", "drain") else ()
        slurm.must("scontrol", "update", f"nodename={node}", f"state={to}", *reason)

    def until(node: str, holds: Callable[[str], bool], what: str) -> None:
        slurm.wait(lambda: holds(state(node)), f"{node} {what}; it is {state(node)}")

    booted = [up, running, again, drained]
    for node in NODES.values():
        update(node, "power_up")
    for node in NODES.values():
        until(node, lambda now: "POWERING_UP" in now, "powers up")
    update(refused, "down")
    update(refused, "power_down")
    slurm.start_nodes(*booted)
    for node in booted:
        until(node, lambda now: "POWERING_UP" not in now, "has registered")
    found = {"powered up": state(up)}
    for node in (running, again):
        update(node, "down")
    update(drained, "drain")
    slurm.stop_nodes(again)
    slurm.start_nodes(again, fresh=False)
    until(late, lambda now: "DOWN" in now.split("+"), "reaches ResumeTimeout")
    slurm.start_nodes(late)
    until(refused, lambda now: now == "IDLE+POWERED_DOWN", "is off")
    update(refused, "power_up")
    until(refused, lambda now: "POWERING_UP" in now, "powers up again")
    slurm.start_nodes(refused)
    until(refused, lambda now: "POWERING_UP" not in now, "has registered")
    slurm.must("scontrol", "reconfigure")  # each slurmd registers once more
    for case, node in NODES.items():
        found[case] = steady(slurm, lambda node=node: state(node))
    return found


def steady(slurm: RealSlurm, state: Callable[[], str], times: int = 8) -> str:
    """The state that `times` looks in a row show."""
    seen: list[str] = []

    def holds() -> bool:
        seen.append(state())
        return len(seen) >= times and len(set(seen[-times:])) == 1

    slurm.wait(holds, "a state that stays")
    return seen[-1]
