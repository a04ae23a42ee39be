"""What looks only: `reconcile --dry-run`, `why` and what they read on a head, over a fleet that lives."""

import json
from pathlib import Path

import pytest
from builders import a_lab_plan, a_plan
from fleet import Fleet
from slurm_model import SlurmModel

from gpucluster.elastic import head, reconcile, shown
from gpucluster.elastic.ears import listen
from gpucluster.elastic.head import Asked
from gpucluster.elastic.why import __main__ as why
from gpucluster.plan import codec, names


class Head:
    """A head's files over a fleet, and whom a look asks."""

    def __init__(self, root: Path) -> None:
        self.root, self.fleet = root, Fleet(a_plan(), root)
        (root / names.PLAN_FILE).write_text(codec.dumps(self.fleet.plan))
        (root / names.BINDINGS_FILE).write_text(codec.dumps(self.fleet.bindings))
        self.asked = Asked(slurm=self.fleet.slurm, cloud=self.fleet.cloud, control=self.fleet.control)
        self.options = [f"--bundle={root}", f"--journal={root / 'journal.sqlite'}", f"--wake={root / 'wake'}"]

    def dry(self, *more: str) -> int:
        return reconcile.main(["--dry-run", *more, *self.options], self.asked)

    def why(self, *words: str) -> int:
        return why.main([*words, *self.options], self.asked)


@pytest.fixture
def one(tmp_path: Path) -> Head:
    return Head(tmp_path)


def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    one: Head, capsys: pytest.CaptureFixture[str]
) -> None:
    assert one.dry() == 0
    assert capsys.readouterr().out == "nothing: the cluster is as it should be\n"
    one.fleet.slurm.submit(2)
    for _ in range(3):
        one.fleet.now += 1
        one.fleet.slurm.tick(one.fleet.now)
    before = one.fleet.journal.memory
    assert one.dry() == 0
    text = capsys.readouterr().out
    assert "launch r1: 2 x spot p5en.48xlarge in us-east-2a as h200-2a-[1-2]: for job 1" in text
    assert "notes needed h200-2a-[1-2] life=1 jobs=1" in text
    assert one.dry("--json") == 0
    kinds = [action["kind"] for action in json.loads(capsys.readouterr().out)["actions"]]
    assert kinds == ["Remember", "LaunchGang"]
    assert one.fleet.journal.memory == before
    assert not one.fleet.cloud.launches


def test_without_an_answer_of_slurm_a_dry_run_concludes_nothing(
    one: Head, capsys: pytest.CaptureFixture[str]
) -> None:
    one.fleet.slurm.away = True
    assert one.dry() == 2
    assert "slurmctld does not answer: the daemon would do nothing" in capsys.readouterr().err
    assert one.why("1") == 2
    assert "nothing is concluded" in capsys.readouterr().out


def test_the_bell_is_rung_and_its_absence_is_said(one: Head, capsys: pytest.CaptureFixture[str]) -> None:
    assert reconcile.main(one.options) == 2
    assert "no daemon listens" in capsys.readouterr().err
    rung: list[int] = []
    bell = listen(one.root / "wake", lambda: rung.append(1))
    try:
        assert reconcile.main(one.options) == 0
    finally:
        bell.close()


def test_why_reads_a_living_cluster(one: Head, capsys: pytest.CaptureFixture[str]) -> None:
    job = one.fleet.slurm.submit(2)
    one.fleet.run(10)
    assert one.why(str(job.id)) == 0
    assert "boot" in capsys.readouterr().out
    assert one.why("h200-2a-1", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["subject"] == "node h200-2a-1"
    assert answer["headline"] == "its machine boots"
    assert one.why("99") == 1
    assert one.why("h300-1") == 1
    assert "this cluster has h200-2a-[1-16]" in capsys.readouterr().out


def test_hosts_that_exist_have_no_daemon_and_still_an_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = a_lab_plan()
    (tmp_path / names.PLAN_FILE).write_text(codec.dumps(plan))
    slurm = SlurmModel(plan, lambda kind, hosts: None)
    for node in slurm.nodes.values():
        node.flags.clear()
    slurm.submit(1)
    where = [f"--bundle={tmp_path}", f"--journal={tmp_path / 'none'}"]
    asked = Asked(slurm=slurm, cloud=None, control=None)
    assert why.main(["1", *where], asked) == 0
    assert "job 1 waits" in capsys.readouterr().out
    assert why.main(["gpu01", *where], asked) == 0
    assert "node gpu01: " in capsys.readouterr().out


@pytest.mark.parametrize("broken", ["no journal", "no sqlite", "no plan", "no bindings"])
def test_what_cannot_be_read_is_named_with_a_next_step(
    one: Head, capsys: pytest.CaptureFixture[str], broken: str
) -> None:
    journal = one.root / "other"
    if broken == "no sqlite":
        journal.write_text("nonsense" * 1000)
    elif broken == "no plan":
        (one.root / names.PLAN_FILE).write_text('{"schema": 1}')
    elif broken == "no bindings":
        (one.root / names.BINDINGS_FILE).unlink()
    assert why.main(["1", f"--bundle={one.root}", f"--journal={journal}"], one.asked) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "next: " in error
    assert "Traceback" not in error


@pytest.mark.loopback
def test_the_daemon_shows_what_only_it_knows_on_loopback(one: Head) -> None:
    one.fleet.slurm.submit(1)
    one.fleet.run(20)
    told = shown.Overheard(reports=one.fleet.keeper.overheard.reports, halted="stopped")
    server = shown.serve(0, lambda: b"# metrics\n", lambda: told)
    try:
        port = int(server.server_address[1])
        assert head.overheard(port) == told
    finally:
        server.shutdown()
        server.server_close()
    assert head.overheard(port) is None


def test_the_sandboxs_endpoint_is_taken_from_its_own_file(tmp_path: Path) -> None:
    file = tmp_path / "agent.env"
    file.write_text("# comment\nAWS_ENDPOINT_URL=http://10.0.0.1:1\n\n")
    assert head.endpoint(file) == {"AWS_ENDPOINT_URL": "http://10.0.0.1:1"}
    assert head.endpoint(tmp_path / "none") == {}
