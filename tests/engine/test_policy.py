"""The policy pack inside the real engine: the same rules say the same as at the desk, and a violation stops the run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from stacked import Cluster
from typed import Shell, a_shell

from gpucluster.engine import offline, policy

ROOT = Path(__file__).parents[2]
PACK = ROOT / "policies"
PROGRAM = "gpucluster.aws.program:declare"
Row = tuple[str, str, str, str]  # level, rule, urn, the message's first line
OPEN_PORT = """
import pulumi_aws as aws

aws.vpc.SecurityGroupIngressRule(
    "door", security_group_id="sg-1", cidr_ipv4="0.0.0.0/0", ip_protocol="tcp", from_port=22, to_port=22,
    tags={"gpucluster:cluster": "burst"},
)
"""


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Shell:
    return a_shell(cluster, tmp_path / "checkout", PULUMI_DEBUG_COMMANDS="true")  # for --event-log


def told(shell: Shell, verb: str, *, check: bool = True) -> tuple[list[Row], str]:
    """What the pack said to the engine, from the engine's own log of events."""
    log = shell.folder / "events"
    argv = ["pulumi", verb, "--policy-pack", str(PACK), "--event-log", str(log)]
    done = shell(*argv, *(["--yes", "--skip-preview"] if verb == "up" else []), check=check)
    events = [json.loads(line) for line in log.read_text().splitlines()]
    log.unlink()
    return sorted(_row(e["policyEvent"]) for e in events if "policyEvent" in e), done.stdout


def _row(event: dict[str, Any]) -> Row:
    first = event["message"].splitlines()[0]
    return event["enforcementLevel"], event["policyName"], event["resourceUrn"], first


def at_the_desk(cluster: Cluster) -> list[Row]:
    planned = offline.run(PROGRAM, cluster.plan)
    report = policy.judge([policy.load(PACK)], planned.resources)
    levels = (replace(f, level=policy.Level.ADVISORY) if f.open else f for f in report.findings)
    return sorted((str(f.level), f.rule, f.urn, str(f)) for f in levels)


def test_our_own_stack_passes_and_a_preview_says_what_the_desk_says(shell: Shell) -> None:
    found, said = told(shell, "preview")
    desk = at_the_desk(shell.cluster)
    assert found, "a preview leaves something open"
    assert found == [row for row in desk if row[1] == "wide-policy"]
    # the provider names the bucket before it makes it, so that its preview knows user data, and the desk does not
    assert {row[1] for row in desk if row not in found} == {"secret-in-user-data"}
    assert {row[0] for row in desk} == {"advisory"}
    assert "gpucluster" in said
    known, _ = told(shell, "up")
    assert known == [], "after `up` nothing is open any more"


def test_an_open_port_stops_the_run(shell: Shell) -> None:
    program = shell.folder / "__main__.py"
    program.write_text(program.read_text() + OPEN_PORT)
    argv = ("pulumi", "preview", "--policy-pack", str(PACK))
    done = shell(*argv, check=False)
    assert done.returncode != 0
    assert "open-group" in done.stdout
    assert "found '0.0.0.0/0'" in done.stdout
