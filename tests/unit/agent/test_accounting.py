"""The head's accounting step: MariaDB and slurmdbd, also after a kill, on a new volume, and while they are away."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.fake_machine import SECRET, FakeMachine, FakeServices, Killed, a_bundle, a_small_plan

from gpucluster import artifacts
from gpucluster.agent.boot import accounting, boot_state, bundles
from gpucluster.agent.boot.boot_state import BootState, Bundle, Identity
from gpucluster.agent.machine import Machine, NotYetError, StepError
from gpucluster.plan import names
from gpucluster.plan.model import Accounting, ExternalDatabase, LocalDatabase, Qos, Volume
from gpucluster.shell import Result
from gpucluster.slurm.config.render import render

LOCAL = Accounting(database=LocalDatabase(buffer_pool_mib=2048), keep_s=86400)
EXTERNAL = Accounting(
    database=ExternalDatabase(host="db.example.org", port=3306, secret=SECRET, ca="/etc/ca.pem"), keep_s=86400
)
VOLUME = Volume(key=names.STATE_VOLUME, size_gib=100, path=names.STATE_MOUNT)
PASSWORD = "correct-horse-battery"
EMPTY = {"qos": [], "accounts": [], "associations": [], "users": []}


class Head:
    """A head on a folder, whose MariaDB and slurmdbd start. A step that is killed is tried again by `run`."""

    def __init__(self, root: Path, part: Accounting | None, *, volume: bool = False) -> None:
        self.fake = FakeMachine(root=root, role=names.ROLE_HEAD)
        plan = a_small_plan()
        head = replace(plan.head, volumes=(VOLUME,)) if volume else plan.head
        self.plan = replace(plan, head=head, slurm=replace(plan.slurm, accounting=part))
        self.listens = True
        self.written: list[str] = []
        self.answers: dict[str, tuple[int, str]] = {}  # first words of a command -> exit code and output

    def machine(self) -> Machine:
        return replace(
            self.fake.machine(),
            run=self._run,
            listening=lambda _host, port: (
                port == names.SLURMDBD_PORT and self.listens and "slurmdbd.service" in self.fake.active
            ),
        )

    def run(self) -> BootState:
        return accounting.run_slurmdbd(self.machine(), self.state())

    def state(self) -> BootState:
        tree = self.fake.root / "tree"
        for artifact in render(self.plan):
            place = tree / artifact.path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(artifact.content)
        me = Identity(instance_id="i-1", address="10.42.0.10", cluster="trial", region="us-east-1", bucket="b", key="k", role=names.ROLE_HEAD)  # fmt: skip
        bundle = Bundle(digest="d", etag="e", tree=tree, plan=self.plan, bindings=None)
        return BootState(identity=me, bundle=bundle)

    def apply_bundle(self) -> None:
        """The link of the applied bundle, which a later step of the agent makes."""
        link = self.fake.root / names.BUNDLE_DIR.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to("bundles/d")

    def has(self, path: str) -> bool:
        return (self.fake.root / path.lstrip("/")).exists()

    def _run(self, argv: Sequence[str], **more: Any) -> Result:
        words = list(argv)
        for start, (code, text) in self.answers.items():
            if " ".join(words).startswith(start):
                return Result(tuple(words), code, text, "")
        done = self.fake.machine().run(argv, **more)
        if words[0] == "mariadb-install-db":
            (Path(words[2].partition("=")[2]) / "mysql").mkdir()
        if words[0] == "sacctmgr":
            conf = Path((more.get("env") or {})["SLURM_CONF"])
            assert conf.is_file(), "at the first boot /etc/slurm has no slurm.conf, and sacctmgr ends"
        if words[0] == "mariadb":
            self.written.append(str(more.get("stdin")))
        if "--json" in words and done.code == 0:
            return replace(done, stdout=str(EMPTY).replace("'", '"'))
        return done


def test_head_starts_mariadb_then_slurmdbd_and_a_second_run_starts_nothing(tmp_path: Path) -> None:
    head = Head(tmp_path, LOCAL)
    assert head.run().accounting == ""
    assert head.fake.active == {"mariadb.service": 1, "slurmdbd.service": 1}
    assert head.written == [accounting.SETUP]
    before = dict(head.fake.active)
    head.run()
    assert head.fake.active == before


def test_slurmdbds_file_is_only_for_slurm(tmp_path: Path) -> None:
    """slurmdbd 24.11 refuses another mode than 0600."""
    head = Head(tmp_path, LOCAL)
    head.run()
    file = tmp_path / names.SLURMDBD_CONF.lstrip("/")
    assert file.stat().st_mode & 0o777 == 0o600
    assert head.fake.owners.get(file.name) == "slurm" or "slurm" in head.fake.owners.values()
    assert "StoragePass" not in file.read_text()


def test_head_killed_after_any_effect_reaches_the_same_state(tmp_path: Path) -> None:
    whole = Head(tmp_path / "whole", LOCAL, volume=True)
    whole.run()
    for turn in range(len(whole.fake.calls) + 2):
        head = Head(tmp_path / str(turn), LOCAL, volume=True)
        head.fake.kill_after = turn
        with contextlib.suppress(Killed):
            head.run()
        head.fake.kill_after = None
        assert head.run().accounting == ""
        assert accounting.SETUP in head.written
        assert head.has(f"{names.STATE_MOUNT}/mysql/mysql")
        assert not head.has(f"{names.STATE_MOUNT}/mysql.incoming")


def test_data_of_the_root_disk_are_copied_to_a_volume_that_is_added_later(tmp_path: Path) -> None:
    """Without the copy slurmdbd would begin with an empty database, and every share and limit would be gone."""
    head = Head(tmp_path, LOCAL, volume=True)
    head.fake.put(f"{names.MARIADB_DATA}/mysql/db.frm", "")
    head.fake.put(f"{names.MARIADB_DATA}/{names.DATABASE}/job_table.ibd", "records")
    (tmp_path / names.STATE_MOUNT.lstrip("/")).mkdir(parents=True)  # the mounted volume
    head.fake.active["mariadb.service"] = 1
    head.run()
    assert (
        tmp_path / f"{names.STATE_MOUNT}/mysql/{names.DATABASE}/job_table.ibd".lstrip("/")
    ).read_text() == "records"
    stop, copy = (
        next(n for n, call in enumerate(head.fake.calls) if call[:2] == words)
        for words in (("systemctl", "stop"), ("cp", "--archive"))
    )
    assert stop < copy, "a running database writes its files"


def test_before_slurmctlds_first_start_with_accounting_slurmdbd_is_needed(tmp_path: Path) -> None:
    """slurmctld ends at its first start without slurmdbd's list of resources."""
    head = Head(tmp_path, LOCAL)
    head.listens = False
    with pytest.raises(NotYetError, match="slurmdbd does not listen"):
        head.run()


def test_later_the_cluster_goes_on_without_slurmdbd_and_says_so(tmp_path: Path) -> None:
    head = Head(tmp_path, LOCAL)
    head.listens = False
    head.fake.put(accounting.KNOWN_TRES, "")
    assert head.run().accounting.startswith("accounting is away, jobs go on: slurmdbd does not listen")


def test_without_accounting_both_daemons_stop_and_their_data_stay(tmp_path: Path) -> None:
    head = Head(tmp_path, LOCAL)
    head.run()
    head.fake.put(f"{names.MARIADB_DATA}/{names.DATABASE}/job_table.ibd", "records")
    head.plan = replace(head.plan, slurm=replace(head.plan.slurm, accounting=None))
    head.run()
    stopped = [call[2] for call in head.fake.commands("systemctl") if call[1] == "stop"]
    assert stopped == ["slurmdbd.service", "mariadb.service"]
    assert not head.has(names.SLURMDBD_CONF)
    assert head.has(f"{names.MARIADB_DATA}/{names.DATABASE}/job_table.ibd")


def test_password_of_a_database_elsewhere_is_in_slurmdbds_file_only(tmp_path: Path) -> None:
    head = Head(tmp_path, EXTERNAL)
    head.fake.services = FakeServices(value=f'{{"username": "slurm", "password": "{PASSWORD}"}}'.encode())
    head.run()
    assert "mariadb.service" not in head.fake.active
    holders = [p for p in tmp_path.rglob("*") if p.is_file() and PASSWORD in p.read_text(errors="replace")]
    assert holders == [tmp_path / names.SLURMDBD_CONF.lstrip("/")]
    assert not any(PASSWORD in word for call in head.fake.calls for word in call)


@pytest.mark.parametrize(
    "secret",
    [b"", b"word", b"[]", b'{"username": "u"}', b'{"username": "u", "password": ""}', b'{"username": "u", "password": "s#cret"}', b'{"username": "u", "password": "s cret"}', b'{"username": "u", "password": "s\\ncret"}'],
)  # fmt: skip
def test_a_secret_that_slurmdbds_file_cannot_hold_is_refused_without_its_text(secret: bytes) -> None:
    with pytest.raises(StepError) as caught:
        accounting.credentials(secret)
    assert "cret" not in str(caught.value).replace("secret", "")
    with pytest.raises(NotYetError):
        accounting.credentials(None)


def _with_qos(hours: int | None) -> Accounting:
    return replace(LOCAL, qos=(Qos(name="normal", gpu_hours_per_month=hours),))


def test_accounts_are_applied_once_and_again_when_the_plan_changes(tmp_path: Path) -> None:
    head = Head(tmp_path, _with_qos(None))
    state = head.run()

    def added() -> int:
        return sum("add" in call for call in head.fake.commands("sacctmgr"))

    accounting.apply_accounts(head.machine(), state)
    once = added()
    assert once > 0
    accounting.apply_accounts(head.machine(), state)
    assert added() == once
    head.plan = replace(head.plan, slurm=replace(head.plan.slurm, accounting=_with_qos(5)))
    accounting.apply_accounts(head.machine(), head.state())
    assert added() > once


def test_accounts_that_slurmdbd_refuses_are_reported_and_tried_again(tmp_path: Path) -> None:
    head = Head(tmp_path, _with_qos(None))
    state = head.run()
    head.fake.refuses["sacctmgr"] = "Connection refused"
    told = accounting.apply_accounts(head.machine(), state).accounting
    assert told == "the accounts are not applied: slurmdbd does not answer: Connection refused"
    assert boot_state.load(head.machine()).accounts_digest == ""


def test_the_month_counts_only_with_a_monthly_limit() -> None:
    assert accounting.digest(_with_qos(None), "2026-11") == accounting.digest(_with_qos(None), "2026-12")
    assert accounting.digest(_with_qos(5), "2026-11") != accounting.digest(_with_qos(5), "2026-12")


def test_login_of_a_database_elsewhere_checks_its_certificate_and_hides_the_password(tmp_path: Path) -> None:
    """slurmdbd itself accepts any certificate. A password with both quotes and a backslash reaches the server whole."""
    head = Head(tmp_path, EXTERNAL)
    head.fake.services = FakeServices(value=b"""{"username": "slurm", "password": "it's\\\\\\"x"}""")
    head.run()
    (options,) = [text for text in head.written if "[client]" in text]
    assert "\nssl-ca=/etc/ca.pem\nssl-verify-server-cert\n" in options
    assert "\npassword='it's\\\\\"x'\n" in options
    head.run()
    assert len([text for text in head.written if "[client]" in text]) == 1, "only before a start"


def test_a_database_that_refuses_is_told_in_its_own_words_and_slurmdbd_does_not_start(tmp_path: Path) -> None:
    head = Head(tmp_path, EXTERNAL)
    head.fake.services = FakeServices(value=f'{{"username": "slurm", "password": "{PASSWORD}"}}'.encode())
    head.fake.refuses["mariadb"] = "ERROR 1045 (28000): Access denied for user 'slurm'@'10.42.0.10'"
    head.fake.put(accounting.KNOWN_TRES, "")
    told = head.run().accounting
    assert told == (
        "accounting is away, jobs go on: the database at db.example.org:3306: "
        "ERROR 1045 (28000): Access denied for user 'slurm'@'10.42.0.10'"
    )
    assert "slurmdbd.service" not in head.fake.active


@pytest.mark.parametrize(
    ("running", "good", "away"),
    [(True, True, True), (False, True, False), (True, False, False)],
    ids=["it runs with accounting", "it has ended", "it runs without accounting"],
)
def test_a_slurmctld_that_runs_with_accounting_goes_on_before_it_has_saved_its_list_of_resources(
    running: bool, good: bool, away: bool, tmp_path: Path
) -> None:
    """slurmctld first writes last_tres 300 s after its start. Until then the step failed, and with it every later step."""
    head = Head(tmp_path, LOCAL)
    head.listens = False
    if running:
        head.fake.active["slurmctld.service"] = 1
    plan = head.plan if good else a_small_plan()
    for file in artifacts.unpack(a_bundle(plan)):
        head.fake.put(f"{bundles.TREES}/d/{file.path}", file.content.decode())
    boot_state.update(head.machine(), good="d")
    if away:
        assert head.run().accounting.startswith("accounting is away, jobs go on: slurmdbd does not listen")
    else:
        with pytest.raises(NotYetError, match="slurmdbd does not listen"):
            head.run()


@pytest.mark.parametrize(
    ("command", "answer", "told"),
    [
        ("sacctmgr --noheader", (1, "Connection refused"), "slurmdbd does not answer: its log is empty"),
        (
            "sdiag",
            (0, '{"statistics": {"dbd_agent_queue_size": 303}}'),
            "303 records wait in slurmctld for slurmdbd: its log is empty",
        ),
        ("sdiag", (0, '{"statistics": {"dbd_agent_queue_size": 99}}'), ""),
        ("sdiag", (1, "slurm_get_statistics: Unable to contact slurm controller"), ""),
    ],
)
def test_a_running_slurmdbd_that_does_not_do_its_work_is_told(
    command: str, answer: tuple[int, str], told: str, tmp_path: Path
) -> None:
    head = Head(tmp_path, LOCAL)
    head.run()
    head.fake.put(accounting.KNOWN_TRES, "")
    head.apply_bundle()
    head.answers[command] = answer
    assert head.run().accounting == (f"accounting is away, jobs go on: {told}" if told else "")


@pytest.mark.parametrize(("listens", "restarts"), [(True, 1), (False, 0)])
def test_a_slurmdbd_that_is_older_than_its_clients_is_restarted(
    listens: bool, restarts: int, tmp_path: Path
) -> None:
    """One that does not listen may convert its tables: a restart would begin that again."""
    head = Head(tmp_path, LOCAL)
    head.run()
    head.fake.put(accounting.KNOWN_TRES, "")
    head.apply_bundle()
    head.listens = listens
    head.fake.calls.clear()
    head.answers["sacctmgr --noheader"] = (1, "Sending PersistInit msg: Incompatible versions of client")
    head.run()
    restarted = [call for call in head.fake.calls if call[:2] == ("systemctl", "restart")]
    assert restarted == [("systemctl", "restart", "slurmdbd.service")] * restarts


def test_a_disk_that_is_nearly_full_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = Head(tmp_path, LOCAL)
    head.run()
    head.fake.put(accounting.KNOWN_TRES, "")
    head.apply_bundle()
    assert head.run().accounting == ""
    free = os.statvfs(tmp_path)
    left = free.f_bavail * free.f_frsize >> 20
    monkeypatch.setattr(accounting, "LEAST_FREE_MIB", left + 10_000)
    assert "accounting is away, jobs go on: the disk of /var/lib/mysql has " in head.run().accounting


def test_standby_runs_the_backup_without_waiting_for_its_port(tmp_path: Path) -> None:
    """A backup slurmdbd does not listen while the head's answers."""
    head = Head(tmp_path, EXTERNAL)
    head.fake.services = FakeServices(value=f'{{"username": "slurm", "password": "{PASSWORD}"}}'.encode())
    head.listens = False
    accounting.run_backup(head.machine(), head.state())
    assert head.fake.active == {"slurmdbd.service": 1}
    assert head.fake.commands("sacctmgr") == []
    head.fake.services.value = b"word"
    accounting.run_backup(head.machine(), head.state())  # told in the log, and no other step stops
