"""The watchdog: a slurmctld that runs and does not answer is killed, rarely, and never while the heads change roles."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_machine import FakeMachine, a_bundle, a_small_plan

from gpucluster.agent.boot import boot_state, watchdog
from gpucluster.agent.boot.boot_state import BootState, Identity
from gpucluster.agent.boot.watchdog import HUNG_S, MOST_RESTARTS, RESTARTS_S, TAKEOVER_S
from gpucluster.agent.machine import NotYetError
from gpucluster.agent.roles import head as head_role
from gpucluster.plan import names
from gpucluster.plan.model import Standby

KILL = ("systemctl", "kill", "--signal=KILL", "slurmctld.service")


class Head:
    """A head whose agent has finished its boot."""

    def __init__(self, root: Path) -> None:
        self.machine = FakeMachine(root, role=names.ROLE_HEAD, address="10.42.0.10")
        self.machine.services.objects[names.BUNDLE_KEY] = a_bundle(a_small_plan())
        self.state, _, self.last = head_role.run_once(
            self.machine.machine(), head_role.BOOT, BootState(), b""
        )

    def look(self) -> dict[str, object]:
        """One round of the head's loop, and the published status."""
        self.state, _, self.last = head_role.run_once(
            self.machine.machine(), head_role.FOLLOW, self.state, self.last
        )
        return json.loads(self.machine.services.objects[names.STATUS_KEY])

    @property
    def kills(self) -> int:
        return self.machine.calls.count(KILL)

    def seen(self) -> dict[str, object]:
        return json.loads(self.machine.text(names.CONTROLLER_WATCH))


def test_silent_slurmctld_is_killed_after_the_bound_and_the_status_shows_it(tmp_path: Path) -> None:
    """Any user's `scancel --ctld` hung slurmctld until a person killed it; `scontrol ping` still answered."""
    head = Head(tmp_path)
    head.machine.hung, began = True, head.machine.clock
    detail = str(head.look()["detail"])
    assert "watchdog: slurmctld runs, but has not answered for" in detail
    assert head.kills == 0
    assert head.seen()["silent_since"] is not None
    status: dict[str, object] = {}
    while head.machine.hung:
        status = head.look()
    assert HUNG_S <= head.machine.clock - began <= HUNG_S + 60
    assert head.machine.active["slurmctld.service"] == 1  # of the fake: started anew after the kill
    assert (status["ready"], status["detail"]) == (
        True,
        "slurmctld did not answer and was restarted once within the last hour; its log has the cause",
    )
    assert (head.seen()["silent_since"], len(head.seen()["restarts"])) == (None, 1)  # type: ignore[arg-type]


def test_answer_before_the_bound_resets_it(tmp_path: Path) -> None:
    head = Head(tmp_path)
    for _ in range(3):
        head.machine.hung = True
        with pytest.raises(NotYetError):
            watchdog.watch(head.machine.machine(), head.state)
        head.machine.clock += HUNG_S - 1
        head.machine.hung = False
        head.look()
    assert head.kills == 0
    assert head.seen()["silent_since"] is None


def test_restarts_are_bounded(tmp_path: Path) -> None:
    head = Head(tmp_path)
    machine = head.machine.machine()
    for _ in range(MOST_RESTARTS):
        hang(head)
        watchdog.watch(machine, head.state)
    assert head.kills == MOST_RESTARTS
    hang(head)
    with pytest.raises(NotYetError, match="was restarted 3 times within an hour: restarted again in"):
        watchdog.watch(machine, head.state)
    assert head.kills == MOST_RESTARTS
    head.machine.clock += RESTARTS_S
    watchdog.watch(machine, head.state)
    assert head.kills == MOST_RESTARTS + 1


def hang(head: Head) -> None:
    """slurmctld has been silent for the bound."""
    head.machine.hung = True
    boot_state.update(head.machine.machine(), slurmctld_silent_since=head.machine.clock - HUNG_S)


def test_two_heads_wait_for_the_takeover_first(tmp_path: Path) -> None:
    head = Head(tmp_path)
    with_standby(head)
    head.machine.hung = True
    boot_state.update(
        head.machine.machine(), slurmctld_silent_since=head.machine.clock - HUNG_S - TAKEOVER_S + 1
    )
    with pytest.raises(NotYetError, match="restarted after 240 s"):
        watchdog.watch(head.machine.machine(), head.state)
    head.machine.clock += 1
    watchdog.watch(head.machine.machine(), head.state)
    assert head.kills == 1


@pytest.mark.parametrize(
    "moment", ["it starts", "it takes control back", "it does not run", "the head is in control"]
)
def test_nothing_is_killed_while_slurmctld_starts_or_hands_over(tmp_path: Path, moment: str) -> None:
    head = Head(tmp_path)
    hang(head)
    if moment == "it starts":
        boot_state.update(head.machine.machine(), slurm_digest="")
    elif moment == "it takes control back":
        boot_state.update(head.machine.machine(), standby_stops=1)
    elif moment == "it does not run":
        del head.machine.active["slurmctld.service"]
    else:
        with_standby(head, names.ROLE_STANDBY)
    watchdog.watch(head.machine.machine(), head.state)
    assert head.kills == 0


def with_standby(head: Head, role: str = names.ROLE_HEAD) -> None:
    bundle, identity = head.state.bundle, head.state.identity
    assert bundle is not None
    assert isinstance(identity, Identity)
    standby = Standby(machine="m7i.2xlarge", zone="us-east-1b", address="10.42.16.10", state="/state")
    plan = replace(bundle.plan, head=replace(bundle.plan.head, standby=standby))
    head.state = replace(head.state, bundle=replace(bundle, plan=plan), identity=replace(identity, role=role))
