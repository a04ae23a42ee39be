"""What `diff` says of a shorter `boot_timeout`, and the daemon that ends these boots."""

import pytest
from support.builders import LAB, a_plan, a_spec_text, changed
from support.cluster_states import WAKING, instance, job, living, node, report_of, sight
from support.reviewed import a_diff

from gpucluster.elastic.decide import decide
from gpucluster.elastic.events import BootFailed
from gpucluster.elastic.model import RecordEvents
from gpucluster.plan.model import SlurmOnAws

IDLE, SLOT = "    idle: 5m\n", "h200-2a-1"
SHORT = (IDLE, f"{IDLE}    boot_timeout: 5m\n")
SAID = "a node of h200 that is not up 5m after its launch fails, also one that boots now, and one whose agent is silent for 100s"


def _queued(old: str, new: str) -> str:
    found = a_diff(old, new).effects
    assert found is not None
    return found.queued


def _failures(plan: SlurmOnAws, ago: float, *, reports: bool) -> list[str]:
    """Why the daemon ends the machine that was launched so long ago and still boots."""
    launched = [(when, event) for when, event in living(SLOT, ago=ago) if when > ago - 10]
    moment = sight(
        plan,
        *launched,
        nodes=[node(SLOT, WAKING)],
        jobs=[job(41, SLOT, starts=True)],
        instances=[instance(0, ago)],
        reports={"i-0": report_of(0, "mounts")} if reports else {},
    )
    found = decide(plan, moment.bindings, moment.observation, moment.memory, moment.now)
    entries = [entry.event for one in found if isinstance(one, RecordEvents) for entry in one.entries]
    return [one.words for one in entries if isinstance(one, BootFailed)]


def test_shorter_boot_timeout_is_said_with_its_numbers() -> None:
    assert SAID in _queued(a_spec_text(), a_spec_text(SHORT))


@pytest.mark.parametrize(
    ("ago", "reports", "words"),
    [
        (305.0, True, ["i-0: not up after 300 s; step mounts: done"]),
        (105.0, False, ["i-0: its agent did not report within 100 s"]),
        (290.0, True, []),
        (90.0, False, []),
    ],
    ids=["not up", "silent", "in time", "not yet silent"],
)
def test_daemon_ends_a_boot_that_was_in_time_before(ago: float, reports: bool, words: list[str]) -> None:
    assert _failures(a_plan(), ago, reports=reports) == []
    assert _failures(a_plan(SHORT), ago, reports=reports) == words


def test_longer_boot_timeout_and_hosts_fail_no_boot() -> None:
    """The agent of hosts starts slurmd, and no daemon ends a machine."""
    assert "fails" not in _queued(a_spec_text(SHORT), a_spec_text())
    hosts = changed(LAB, ('addresses: "192.0.2.[11-14]"}', 'addresses: "192.0.2.[11-14]", boot_timeout: 5m}'))
    assert "fails" not in _queued(LAB, hosts)
