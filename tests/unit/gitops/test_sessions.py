"""What `diff` says of sessions that are open, and of who may begin one."""

import pytest
from support.audited_edits import STACKS
from support.builders import a_lab_text, changed
from support.reviewed import a_diff

from gpucluster.gitops.model import Diff, Effects
from gpucluster.spec import UpdateClass

RESEARCH = (STACKS / "research.yaml").read_text()
_ENDS = "those through the rule for all addresses end at once: AWS tracks no such connection"


def _effects(found: Diff) -> Effects:
    assert found.effects is not None
    return found.effects


def _limits(limits: str) -> str:
    return changed(RESEARCH, ("count: 1}", f"count: 1, sessions: {{{limits}}}}}"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "memory: 4GiB",
            "memory: 2GiB",
            "stay open; processes in those of a user with more than 2GiB are ended",
        ),
        ("memory: 2GiB", "memory: 4GiB", "stay open"),
        ("tasks: 900", "tasks: 800", "stay open; those of a user with 800 tasks or more start no process"),
        ("tasks: 800", "tasks: 900", "stay open"),
        ("cpus: 4", "cpus: 2", "stay open"),
    ],
)
def test_lower_limit_of_sessions_is_told(old: str, new: str, said: str) -> None:
    """Regression: they stayed open, although the kernel ends processes above a lower limit of memory."""
    assert _effects(a_diff(_limits(old), _limits(new))).sessions == said


@pytest.mark.parametrize(
    ("old", "new", "ends"),
    [
        ("0.0.0.0/0", "198.51.100.0/24", True),
        ("198.51.100.0/24", "198.51.100.0/25", False),
        ("198.51.100.0/24", "0.0.0.0/0", False),
    ],
)
def test_sessions_through_a_rule_for_all_addresses_end_with_it(old: str, new: str, ends: bool) -> None:
    """T55. Regression: they stayed open."""
    was, now = (changed(RESEARCH, ("[198.51.100.0/24]", f"[{span}]")) for span in (old, new))
    said = _effects(a_diff(was, now)).sessions
    assert said.startswith("stay open; ")
    assert (_ENDS in said) is ends
    assert "the next login needs the new keys, networks and accounts" in said


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("", "  node_ssh: false\n", "stay open; the next one on a node needs no job there"),
        ("  node_ssh: false\n", "", "stay open; the next one on a node needs a job there"),
    ],
)
def test_ssh_to_nodes_of_hosts_changes_at_once(old: str, new: str, said: str) -> None:
    """Regression: "only nodes that are launched later have the change", and nobody launches a host."""
    line = '  version: "26.05"\n'
    was, now = (a_lab_text((line, f"{line}{text}")) for text in (old, new))
    found = a_diff(was, now)
    assert _effects(found).sessions == said
    assert found.worst is UpdateClass.LIVE
    assert [one.path for one in found.access] == [one.path for one in found.spec]


def test_boundary_may_keep_the_head_from_its_nodes() -> None:
    """Regression: jobs, sessions and data stay as they are."""
    new = changed(
        RESEARCH,
        (
            "  kms_key: alias/research ",
            "  boundary: arn:aws:iam::111122223333:policy/bound\n  kms_key: alias/research ",
        ),
    )
    found = a_diff(RESEARCH, new)
    assert (
        "those that need a new node wait if the boundary forbids the head to launch it"
        in _effects(found).queued
    )
    assert "gpucluster plan NAME --operator-policy boundary" in found.spec[0].why
    assert "forbids" not in _effects(a_diff(new, RESEARCH)).queued


def test_nodes_stay_in_the_old_reservation_and_both_are_paid() -> None:
    """Regression: nothing said that the new one is paid beside the old one."""
    new = changed(RESEARCH, ("cr-0123456789abcdef0", "cr-0123456789abcdef1"))
    found = a_diff(RESEARCH, new)
    assert found.spec[0].why == (
        "nodes that run stay in the old reservation until they are launched anew: AWS bills both, also the unused one"
    )
    assert any(
        step.startswith("scontrol update nodename=NODES state=power_down_asap")
        for step in _effects(found).steps
    )


_EXCLUSIVE = "those in debug count with all CPUs and GPUs of their nodes against limits of accounts and QOS"


def test_job_that_gets_whole_nodes_counts_with_them() -> None:
    """Regression: a job of one CPU stayed in the queue, and waits above a limit that it was below."""
    new = changed(RESEARCH, ("tier: 20, qos: debug", "tier: 20, qos: debug, exclusive: true"))
    assert _EXCLUSIVE in _effects(a_diff(RESEARCH, new)).queued
    assert _EXCLUSIVE not in _effects(a_diff(new, RESEARCH)).queued


def test_port_of_nodes_closes_at_once_on_aws() -> None:
    new = changed(RESEARCH, ("  containers: pyxis", "  node_ssh: false\n  containers: pyxis"))
    assert "the next one on a node is refused" in _effects(a_diff(RESEARCH, new)).sessions
