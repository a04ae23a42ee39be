"""The policy pack inside the Pulumi engine gives the same findings as `plan --policy`. A violation stops the run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.engine_stack import Cluster
from support.pulumi_shell import Shell, a_shell

from gpucluster.engine import offline, policy

ROOT = Path(__file__).parents[2]
PACK = ROOT / "policies"
PROGRAM = "gpucluster.aws.program:declare"
Row = tuple[str, str, str, str]  # level, rule, URN, first line of the message
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


def findings(shell: Shell, verb: str, *, check: bool = True) -> tuple[list[Row], str]:
    """Return the pack's diagnostics from the engine's event log."""
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
    report = policy.evaluate([policy.load(PACK)], planned.resources)
    levels = (replace(f, level=policy.EnforcementLevel.ADVISORY) if f.open else f for f in report.findings)
    return sorted((str(f.level), f.rule, f.urn, str(f)) for f in levels)


def test_shipped_stack_passes_with_equal_findings(shell: Shell) -> None:
    found, output = findings(shell, "preview")
    desk = at_the_desk(shell.cluster)
    assert found, "a preview leaves something open"
    assert found == [row for row in desk if row[1] == "wide-policy"]
    # the provider names the bucket before it makes it, so its preview knows user data; `plan --policy` does not
    assert {row[1] for row in desk if row not in found} == {"secret-in-user-data"}
    assert {row[0] for row in desk} == {"advisory"}
    assert "gpucluster" in output
    known, _ = findings(shell, "up")
    assert known == [], "after `up` nothing is open any more"


def test_open_port_stops_up(shell: Shell) -> None:
    program = shell.folder / "__main__.py"
    program.write_text(program.read_text() + OPEN_PORT)
    argv = ("pulumi", "preview", "--policy-pack", str(PACK))
    done = shell(*argv, check=False)
    assert done.returncode != 0
    assert "open-group" in done.stdout
    assert "found '0.0.0.0/0'" in done.stdout
