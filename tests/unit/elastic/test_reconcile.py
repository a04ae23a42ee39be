"""What looks only: `reconcile --dry-run`, `why` and what they read on a head, over a fleet that lives."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from support.aws_plans import standby
from support.builders import a_lab_plan, a_plan
from support.fleet import Fleet, some_bindings
from support.slurm_model import SlurmModel

from gpucluster.cloud.bundle_status import Published
from gpucluster.cloud.port import Scaling
from gpucluster.elastic import status_endpoint
from gpucluster.elastic.abilities import LOSSES, ORDERS_LOST, Dependency, Loss
from gpucluster.elastic.events import Entry, JournalCreated
from gpucluster.elastic.inspect import head, pools, reconcile, status
from gpucluster.elastic.inspect.daemon_view import UnitState
from gpucluster.elastic.inspect.head import ReaderClients
from gpucluster.elastic.inspect.why import __main__ as why
from gpucluster.elastic.listeners import listen_to_hooks
from gpucluster.elastic.model import LaunchTrial
from gpucluster.files import variables
from gpucluster.plan import codec, names


class Head:
    """A head's files over a fleet, and whom a look asks."""

    def __init__(self, root: Path) -> None:
        self.root, self.fleet = root, Fleet(a_plan(), root)
        (root / names.PLAN_FILE).write_text(codec.dumps(self.fleet.plan))
        (root / names.BINDINGS_FILE).write_text(codec.dumps(self.fleet.bindings))
        self.clients = ReaderClients(
            slurm=self.fleet.slurm, cloud=self.fleet.cloud, control=self.fleet.control
        )
        self.options = [f"--bundle={root}", f"--journal={root / 'journal.sqlite'}", f"--wake={root / 'wake'}"]

    def dry(self, *more: str) -> int:
        return reconcile.main(["--dry-run", *more, *self.options], self.clients)

    def pools(self, *more: str) -> int:
        return pools.main([*more, *self.options], self.clients)

    def status(self, *more: str) -> int:
        return status.main([*more, *self.options], self.clients, lambda *_: Published())

    def why(self, *words: str) -> int:
        return why.main([*words, *self.options], self.clients)


@pytest.fixture
def one(tmp_path: Path) -> Head:
    return Head(tmp_path)


def test_dry_run_prints_the_actions_and_does_nothing(one: Head, capsys: pytest.CaptureFixture[str]) -> None:
    assert one.dry() == 0
    assert capsys.readouterr().out == "nothing: the cluster is in its planned state\n"
    one.fleet.slurm.submit(2)
    for _ in range(3):
        one.fleet.now += 1
        one.fleet.slurm.tick(one.fleet.now)
    before = one.fleet.journal.memory
    assert one.dry() == 0
    text = capsys.readouterr().out
    assert "launch r1: 2 x spot p5en.48xlarge in us-east-2a as h200-2a-[1-2]: for job 1" in text
    assert "records node-needed h200-2a-[1-2] incarnation=1 jobs=1" in text
    assert one.dry("--json") == 0
    kinds = [action["kind"] for action in json.loads(capsys.readouterr().out)["actions"]]
    assert kinds == ["RecordEvents", "LaunchGang"]
    assert one.fleet.journal.memory == before
    assert not one.fleet.cloud.launches


def test_dry_run_without_an_answer_of_slurm_is_an_error(
    one: Head, capsys: pytest.CaptureFixture[str]
) -> None:
    one.fleet.slurm.away = True
    assert one.dry() == 2
    assert "slurmctld does not answer: the daemon would do nothing" in capsys.readouterr().err
    assert one.why("1") == 2
    assert "slurmctld does not answer" in capsys.readouterr().out


def test_each_look_names_all_losses_without_an_answer_of_slurm(
    one: Head, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the journal lost too, `status` said nothing of the lost orders and of `pool confirm`, and `why` named no loss."""
    fleet = one.fleet
    fleet.run(5)
    fleet.journal.append((Entry(at=fleet.now, event=JournalCreated(epoch="e", first=False)),))
    fleet.slurm.away = True
    fleet.run(90)
    lost = {
        **fleet.reconciler.status.lost,
        Dependency.CONTROL: Loss(since=fleet.now, words="AccessDenied: no"),
    }
    told = replace(fleet.reconciler.status, lost=lost)
    runs = UnitState(active="active", sub="running", status="acts, as head/b/1.2/n", silent_s=0.4)
    one.clients = replace(one.clients, status=lambda: told, unit=lambda: runs)
    for look in (one.dry, one.pools, lambda: one.why("1"), one.status):
        look()
        said = "".join(capsys.readouterr())
        for words in (ORDERS_LOST, "gpucluster pool confirm -c burst", "slurmctld", "AccessDenied: no"):
            assert words in said
        assert LOSSES[Dependency.SLURMCTLD].stops in said


def test_reconcile_wakes_the_daemon_and_reports_a_missing_one(
    one: Head, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reconcile.main(one.options) == 2
    assert "no daemon listens" in capsys.readouterr().err
    rung: list[int] = []
    bell = listen_to_hooks(one.root / "wake", lambda: rung.append(1))
    try:
        assert reconcile.main(one.options) == 0
    finally:
        bell.close()


def test_why_reads_a_running_cluster(one: Head, capsys: pytest.CaptureFixture[str]) -> None:
    job = one.fleet.slurm.submit(2)
    one.fleet.run(10)
    assert one.why(str(job.id)) == 0
    assert "boot" in capsys.readouterr().out
    assert one.why("h200-2a-1", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["subject"] == "node h200-2a-1"
    assert answer["headline"] == "its instance boots"
    assert one.why("99") == 1
    assert one.why("h300-1") == 1
    assert "this cluster has h200-2a-[1-16]" in capsys.readouterr().out


def test_why_answers_on_existing_hosts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = a_lab_plan()
    (tmp_path / names.PLAN_FILE).write_text(codec.dumps(plan))
    slurm = SlurmModel(plan, lambda kind, hosts: None)
    for node in slurm.nodes.values():
        node.flags.clear()
    slurm.submit(1)
    where = [f"--bundle={tmp_path}", f"--journal={tmp_path / 'none'}"]
    clients = ReaderClients(slurm=slurm, cloud=None, control=None)
    assert why.main(["1", *where], clients) == 0
    assert "job 1 waits" in capsys.readouterr().out
    assert why.main(["gpu01", *where], clients) == 0
    assert "node gpu01: " in capsys.readouterr().out


@pytest.mark.parametrize("broken", ["no journal", "no sqlite", "no plan", "no bindings"])
def test_unreadable_source_is_named_with_a_next_step(
    one: Head, capsys: pytest.CaptureFixture[str], broken: str
) -> None:
    journal = one.root / "other"
    if broken == "no sqlite":
        journal.write_text("nonsense" * 1000)
    elif broken == "no plan":
        (one.root / names.PLAN_FILE).write_text('{"schema": 1}')
    elif broken == "no bindings":
        (one.root / names.BINDINGS_FILE).unlink()
    assert why.main(["1", f"--bundle={one.root}", f"--journal={journal}"], one.clients) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "next: " in error
    assert "Traceback" not in error


@pytest.mark.loopback
def test_status_endpoint_returns_the_whole_status(one: Head) -> None:
    one.fleet.slurm.submit(1)
    one.fleet.run(20)
    told = status_endpoint.replace(
        one.fleet.reconciler.status,
        absent_since={"i-9": 5.0},
        halted="stopped",
        trials={"a": LaunchTrial(at=7.0, words="no")},
    )
    server = status_endpoint.serve(0, lambda: b"# metrics\n", lambda: told)
    try:
        port = int(server.server_address[1])
        assert status_endpoint.read(port) == told
    finally:
        server.shutdown()
        server.server_close()
    assert status_endpoint.read(port) is None


def test_sandbox_endpoint_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "agent.env"
    file.write_text("# comment\nAWS_ENDPOINT_URL=http://10.0.0.1:1\n\n")
    assert variables(file) == {"AWS_ENDPOINT_URL": "http://10.0.0.1:1"}
    assert variables(tmp_path / "none") == {}


def test_dry_run_knows_since_when_the_daemon_listens(one: Head) -> None:
    """After a restart a silent machine has its whole time to call again; the dry run once reported boot-failed."""
    fleet = one.fleet
    fleet.mute = lambda _: True
    fleet.slurm.submit(1)
    fleet.until(lambda: bool(fleet.living()))
    fleet.now += fleet.plan.pools[0].boot_timeout_s / 2
    fleet.slurm.tick(fleet.now)
    fleet.restart()
    fleet.look()
    clients = ReaderClients(
        slurm=fleet.slurm, cloud=fleet.cloud, control=fleet.control, status=lambda: fleet.reconciler.status
    )
    places = head.head_files(head.parser("x").parse_args(one.options))
    assert reconcile.would_do(head.read_snapshot(places, clients, lambda: fleet.now)) == ()


def test_daemon_that_is_cut_off_is_told_by_the_row_of_its_loss(
    one: Head, capsys: pytest.CaptureFixture[str]
) -> None:
    """It drains, signals and requeues; `why` and the dry run called it idle."""
    fleet = one.fleet
    job = fleet.slurm.submit(1, lasts=3000.0)
    fleet.until(lambda: job.state == "RUNNING", 120)
    lost = {Dependency.CONTROL: Loss(since=fleet.now, words="AccessDenied: no")}
    status = replace(fleet.reconciler.status, lost=lost)
    lapsed = UnitState(
        active="active", sub="running", status="no lease: the control object: no", silent_s=0.4
    )
    one.clients = replace(one.clients, status=lambda: status, unit=lambda: lapsed)
    row = LOSSES[Dependency.CONTROL]
    for look in (one.dry, one.pools, lambda: one.why(str(job.id)), lambda: one.why(next(iter(job.nodes)))):
        assert look() == 0
        said = capsys.readouterr()
        assert row.stops in said.out
        assert row.still(row.denied) in said.out
        assert "no lease" not in said.out + said.err


def test_list_of_pools_tells_what_stops_the_whole_cluster(
    one: Head, capsys: pytest.CaptureFixture[str]
) -> None:
    """It showed the stops of single pools alone: `h200: at most 16 nodes; all off`, and nothing was launched."""
    one.fleet.run(5)
    runs = UnitState(active="active", sub="running", status="acts, as head/b/1.2/n", silent_s=0.4)
    one.clients = replace(one.clients, status=lambda: one.fleet.reconciler.status, unit=lambda: runs)
    assert one.pools() == 0
    assert capsys.readouterr().out == "h200: at most 16 nodes; all off\n"
    one.fleet.control.scale(Scaling.STOP, "an operator")
    assert one.pools() == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["launches are stopped, by an operator"]
    assert one.pools("--json") == 0
    assert json.loads(capsys.readouterr().out)["stops"] == ["launches are stopped, by an operator"]
    one.clients = replace(one.clients, unit=lambda: replace(runs, silent_s=47.0))
    assert one.pools() == 0
    assert "has given no sign of life for 47 s: it launches nothing" in capsys.readouterr().out


def test_snapshot_has_the_start_of_slurmctld(one: Head) -> None:
    clients = replace(one.clients, slurm_started=lambda: 77.0)
    slurm = head.read_snapshot(head.head_files(head.parser("x").parse_args(one.options)), clients)
    assert slurm.observation.slurm is not None
    assert slurm.observation.slurm.started_at == 77.0


def test_with_two_heads_it_is_not_known_since_when_a_slurmctld_acts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slurmctld that has taken over was started long before."""
    program = tmp_path / "scontrol"
    program.write_text("#!/bin/sh\necho 'BOOT_TIME               = 2026-11-23T03:48:17'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    plan, where = a_plan(), head.HeadFiles()
    started = [
        head.real_clients(one, some_bindings(plan), where).slurm_started() for one in (plan, standby(plan))
    ]
    assert started == [1795405697.0, None]


@pytest.mark.parametrize("answers", [True, False])
def test_unread_control_object_stops_launches_as_the_daemon_says(one: Head, answers: bool) -> None:
    """The daemon launches for some time without the object; the dry run reported a stop at once."""
    fleet = one.fleet
    fleet.run(5)
    fleet.control.readable = False
    status = fleet.reconciler.status if answers else None
    clients = ReaderClients(
        slurm=fleet.slurm, cloud=fleet.cloud, control=fleet.control, status=lambda: status
    )
    places = head.head_files(head.parser("x").parse_args(one.options))
    halted = head.read_snapshot(places, clients, lambda: fleet.now).observation.halted
    assert halted.startswith("" if answers else "the control object cannot be read: ")
    assert bool(halted) is not answers
