"""The daemon tells systemd that it lives, from the thread that owns the state, and only while that thread goes on."""

import configparser
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from support.builders import a_plan
from support.fleet import some_bindings, with_times
from support.slurm_model import SlurmModel
from support.waiting import BOUND_S, eventually

from gpucluster import agent
from gpucluster.agent.boot.systemd import START_S
from gpucluster.cloud import bucket_object as s3
from gpucluster.cloud.bucket_object import ONE_ATTEMPT_S
from gpucluster.cloud.control import S3Control
from gpucluster.cloud.port import CloudError, Control, ControlPort, Fault, Instance, Scaling, Stamped
from gpucluster.elastic import daemon as daemon_module
from gpucluster.elastic import journal, notifier
from gpucluster.elastic.abilities import Dependency
from gpucluster.elastic.daemon import SCAN_S, Daemon, Paths, Ports, RunOptions
from gpucluster.elastic.events import DaemonStarted, Entry
from gpucluster.elastic.inspect.daemon_view import WAITING_SILENT_S
from gpucluster.elastic.journal import BUSY_S, Journal
from gpucluster.elastic.lease import Lease, LocalHolders
from gpucluster.elastic.notifier import TICK_S, WATCHDOG_S, Notifier
from gpucluster.elastic.standby import Standby
from gpucluster.slurm.values import SlurmView

pytestmark = pytest.mark.loopback


class Systemd:
    """A socket like that of systemd, and what it received."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self.socket.settimeout(BOUND_S)

    def next(self) -> str:
        return self.socket.recv(4096).decode()

    def until(self, message: str) -> list[str]:
        """Return what comes up to this message."""
        seen = [self.next()]
        while seen[-1] != message:
            seen.append(self.next())
        return seen

    def waiting(self) -> list[str]:
        """Return what has come, without a wait."""
        self.socket.setblocking(False)
        seen: list[str] = []
        try:
            while True:
                seen.append(self.socket.recv(4096).decode())
        except BlockingIOError:
            return seen
        finally:
            self.socket.settimeout(BOUND_S)


@pytest.fixture(params=["path", "abstract"])
def any_systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Systemd]:
    address = str(tmp_path / "notify") if request.param == "path" else f"@{tmp_path}"
    one = Systemd(address)
    yield one
    one.socket.close()


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Systemd]:
    monkeypatch.setattr(notifier, "TICK_S", 0.0)  # each turn ticks
    one = Systemd(str(tmp_path / "notify"))
    yield one
    one.socket.close()


def test_messages_of_sd_notify(any_systemd: Systemd) -> None:
    sender = Notifier(any_systemd.address)
    sender.ready()
    sender.status("standby: head/a/1.2/b holds the lease")
    sender.tick()
    sender.stopping()
    assert any_systemd.waiting() == [
        "READY=1",
        "STATUS=standby: head/a/1.2/b holds the lease",
        "WATCHDOG=1",
        "STATUS=ends",
        "STOPPING=1",
    ]


def test_programs_of_the_daemon_do_not_get_the_address(any_systemd: Systemd) -> None:
    environ = {
        "NOTIFY_SOCKET": any_systemd.address,
        "WATCHDOG_USEC": "1",
        "WATCHDOG_PID": "2",
        "PATH": "/bin",
    }
    Notifier.from_environ(environ).ready()
    assert environ == {"PATH": "/bin"}
    assert any_systemd.next() == "READY=1"


def test_text_of_others_is_no_message(any_systemd: Systemd) -> None:
    sender = Notifier(any_systemd.address)
    sender.status("the control object: no\nMAINPID=1\nWATCHDOG=1")
    sender.status("the control object: no\nMAINPID=1\nWATCHDOG=1")
    (message,) = any_systemd.waiting()
    assert "\n" not in message


@pytest.mark.parametrize("address", ["", "/nowhere/notify", "@nobody-listens"])
def test_without_systemd_nothing_happens(address: str) -> None:
    sender = Notifier(address)
    sender.ready()
    sender.tick()
    sender.stopping()


def test_burst_of_turns_wakes_systemd_once(any_systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "TICK_S", BOUND_S)
    sender = Notifier(any_systemd.address)
    for _ in range(1000):
        sender.tick()
    assert any_systemd.waiting() == ["WATCHDOG=1"]


def test_other_threads_do_not_tick(systemd: Systemd) -> None:
    """A thread that renews the lease goes on while the owner of the state hangs."""
    sender = Notifier(systemd.address)
    other = threading.Thread(target=sender.tick)
    other.start()
    other.join(BOUND_S)
    assert systemd.waiting() == []


def unit() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    units = Path(agent.__file__).parent / "units/etc/systemd/system"
    parser.read_string((units / "gpucluster-elastic.service").read_text())
    return parser["Service"]


JOURNAL_WRITES = 6  # of one turn: see notifier.WATCHDOG_S
PAUSE_S = 2.0  # the longest pause of a waiting daemon


def test_watchdog_of_the_unit_is_above_the_longest_wait_between_two_ticks() -> None:
    service = unit()
    assert (service["Type"], service["Restart"], service["WatchdogSec"]) == (
        "notify",
        "always",
        str(WATCHDOG_S),
    )
    turn = SCAN_S + JOURNAL_WRITES * 2 * BUSY_S
    assert turn + TICK_S == 62
    assert ONE_ATTEMPT_S + PAUSE_S + TICK_S == WAITING_SILENT_S
    assert 1.3 * max(turn, ONE_ATTEMPT_S + PAUSE_S) < WATCHDOG_S


def test_stop_of_the_unit_ends_before_the_agent_gives_up() -> None:
    """The agent's `systemctl restart` of a daemon that hangs took longer than the agent waits."""
    assert float(unit()["TimeoutStopSec"]) < START_S


class Hanging:
    """A call that comes, and has no answer until the end of the test."""

    def __init__(self) -> None:
        self.called, self.over = threading.Event(), threading.Event()

    def hang(self) -> None:
        self.called.set()
        self.over.wait(BOUND_S)


class HangingSlurm(SlurmModel):
    """A slurmctld that does not answer."""

    hanging: Hanging

    def read(self, at: float) -> SlurmView:
        self.hanging.hang()
        return super().read(at)


class HangingControl:
    """S3 that does not answer; `answers`: the calls before it hangs."""

    def __init__(self, hanging: Hanging, answers: int = 0) -> None:
        self.hanging, self.answers, self.calls = hanging, answers, 0
        self.control = Control()

    def read(self) -> Control:
        return self.stamped().control

    def stamped(self) -> Stamped:
        self._call()
        return Stamped(control=self.control, etag=None)

    def last_readable(self) -> Control | None:
        self._call()
        return self.control

    def write(self, control: Control, etag: str | None) -> str | None:
        self._call()
        self.control = control
        return "1"

    def scale(self, scaling: Scaling, by: str) -> Control:
        """Not called here."""
        return self.control

    def _call(self) -> None:
        self.calls += 1
        if self.answers:
            self.answers -= 1
        else:
            self.hanging.hang()
            raise CloudError(Fault.LOST, "ReadTimeoutError", "no answer")


class NoCloud:
    """EC2 without instances."""

    def instances(self, cluster: str, own: Sequence[str]) -> tuple[Instance, ...]:
        return ()


def lease_of(control: HangingControl) -> Lease:
    """A lease that ends after some failed renewals: each call of S3 takes four seconds of its clock."""
    return Lease(
        control,
        "head/boot/1.2/n",
        30.0,
        clock=lambda: 4.0 * control.calls,
        wall=lambda: 1e9,
        local_holders=LocalHolders(has_ended=lambda _: False, kill=lambda _: None),
        known_epoch=lambda: 0,
    )


class Run:
    """A daemon in a thread, over a slurmctld and an S3 that hang."""

    def __init__(self, root: Path, address: str) -> None:
        plan = with_times(a_plan(), poll_s=3600.0, reconcile_s=3600.0)
        self.plan = replace(plan, head=replace(plan.head, address="127.0.0.1", registration_port=0))
        self.paths = Paths(
            bundle=root, journal=root / "j", spool=root / "spool", wake=root / "wake", metrics_port=0
        )
        self.hanging = Hanging()
        slurm = HangingSlurm(self.plan, lambda kind, hosts: None)
        slurm.hanging = self.hanging
        self.s3 = Hanging()
        control = HangingControl(self.s3, answers=3)  # the read, the old versions, the write
        cloud: Any = NoCloud()
        self.ports = Ports(cloud=cloud, slurm=slurm, control=control)
        self.lease, self.address = lease_of(control), address
        assert self.lease.watch() == ""
        self.daemon: Daemon | None = None
        self.errors: list[BaseException] = []
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            options = RunOptions(lease=self.lease, notifier=Notifier(self.address))
            self.daemon = Daemon(self.plan, some_bindings(self.plan), self.paths, self.ports, options)
            self.daemon.run()
        except BaseException as error:  # noqa: BLE001 -- shown by `stop`
            self.errors.append(error)

    def stop(self) -> None:
        self.hanging.over.set()
        self.s3.over.set()
        if self.daemon:
            self.daemon.stop()
        self.thread.join(BOUND_S)
        assert not self.errors, self.errors
        assert not self.thread.is_alive()


@pytest.fixture
def run(tmp_path: Path, systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setattr(daemon_module, "SCAN_S", 0.02)
    monkeypatch.setattr(daemon_module, "RENEW_AGAIN_S", 0.02)
    one = Run(tmp_path, systemd.address)
    try:
        yield one
    finally:
        one.stop()


def test_daemon_ticks_while_slurmctld_and_s3_hang(run: Run, systemd: Systemd) -> None:
    """There was no watchdog; one whose ticks wait for slurmctld or S3 would kill a daemon that only waits for them."""
    assert run.hanging.called.wait(BOUND_S)
    assert run.s3.called.wait(BOUND_S)
    systemd.waiting()
    assert [systemd.next() for _ in range(10)] == ["WATCHDOG=1"] * 10


def test_owner_ticks_for_the_lease_while_slurmctld_and_s3_hang(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it a daemon that only waits for S3 would look like one that slept, and ignore notices."""
    assert run.s3.called.wait(BOUND_S)
    ticks: SimpleQueue[int] = SimpleQueue()
    monkeypatch.setattr(run.lease, "tick", lambda: ticks.put(threading.get_ident()))
    assert {ticks.get(timeout=BOUND_S) for _ in range(10)} == {run.thread.ident}


def test_daemon_says_that_it_acts_then_that_its_lease_is_over_then_that_it_ends(
    run: Run, systemd: Systemd
) -> None:
    systemd.until(f"STATUS=acts, as {run.lease.me}")
    assert run.s3.called.wait(BOUND_S)
    run.s3.over.set()
    systemd.until("STATUS=no lease: the control object: ReadTimeoutError: no answer")
    daemon = run.daemon
    assert daemon is not None
    # after a pause of its thread, as on a busy machine, the next renewal must fail first
    told = eventually("the loss", lambda: daemon._reconciler.status.lost.get(Dependency.CONTROL))
    assert told.words == "ReadTimeoutError: no answer"
    run.stop()
    assert [m for m in systemd.waiting() if m != "WATCHDOG=1"] == ["STATUS=ends", "STOPPING=1"]


def test_lease_that_ends_during_a_renewal_is_published(run: Run) -> None:
    """While S3 hung, the daemon's status still named no loss: readers told what it would do next."""
    assert run.s3.called.wait(BOUND_S)
    daemon = run.daemon
    assert daemon is not None
    run.lease._two_heads = True
    run.lease._until = float("-inf")
    eventually("the loss", lambda: daemon._reconciler.status.lost.get(Dependency.LEASE))


def test_daemon_whose_thread_hangs_does_not_tick(run: Run, systemd: Systemd) -> None:
    """Its other threads went on: the status endpoint answered, and nothing was launched."""
    systemd.until("WATCHDOG=1")
    assert run.daemon is not None
    frozen = Hanging()
    run.daemon._inbox.put(frozen.hang)
    try:
        assert frozen.called.wait(BOUND_S)
        systemd.waiting()
        ticks = threading.Thread(target=run.daemon._notifier.tick)
        ticks.start()
        ticks.join(BOUND_S)
        assert systemd.waiting() == []
    finally:
        frozen.over.set()
    systemd.until("WATCHDOG=1")


def test_standby_ticks_in_each_round_and_names_the_holder(systemd: Systemd) -> None:
    control = HangingControl(Hanging(), answers=10**6)
    control.control = Control(holder="other/boot/7.1/n", epoch=3)
    standby, thread = in_a_thread(lease_that_stays(control), systemd)
    seen = systemd.until("STATUS=standby: other/boot/7.1/n holds the lease")
    assert "WATCHDOG=1" in seen
    assert [systemd.next() for _ in range(3)] == ["WATCHDOG=1"] * 3
    standby.stop()
    thread.join(BOUND_S)
    assert not thread.is_alive()


def lease_that_stays(control: ControlPort) -> Lease:
    """A lease with short rounds; the clock stands still, so another's lease never ends."""
    return Lease(
        control,
        "me/boot/1.2/n",
        0.1,
        clock=lambda: 0.0,
        wall=lambda: 1e9,
        local_holders=LocalHolders(has_ended=lambda _: False, kill=lambda _: None),
        known_epoch=lambda: 1,
    )


def in_a_thread(lease: Lease, systemd: Systemd) -> tuple[Standby, threading.Thread]:
    made: list[Standby] = []
    begun = threading.Event()

    def work() -> None:
        made.append(Standby(lease, Notifier(systemd.address)))
        begun.set()
        made[0].wait()

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(BOUND_S)
    return made[0], thread


@pytest.fixture
def silent_s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[socket.socket]]:
    """A server that takes connections and never answers."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x",  # gitleaks:allow
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(s3, "READ_S", 0.1)
    taken: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.getsockname()[1]}")

        def take() -> None:
            while True:
                try:
                    taken.append(server.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        yield taken
        server.shutdown(socket.SHUT_RDWR)
        thread.join(BOUND_S)
    for one in taken:
        one.close()


def test_standby_ticks_while_s3_hangs(systemd: Systemd, silent_s3: list[socket.socket]) -> None:
    control = S3Control("us-east-1", "b", attempts=1)
    standby, thread = in_a_thread(lease_that_stays(control), systemd)
    eventually("three calls have had no answer", lambda: len(silent_s3) >= 3)
    standby.stop()
    thread.join(BOUND_S)
    seen = systemd.waiting()
    assert seen.count("WATCHDOG=1") >= 3
    assert any(m.startswith("STATUS=standby: the control object: ") for m in seen)


def test_call_of_the_lease_is_one_attempt_and_ticks_before_it(silent_s3: list[socket.socket]) -> None:
    """Three attempts of up to eight addresses last four minutes: a waiting daemon could not tick in them."""
    before: list[int] = []
    control = S3Control("us-east-1", "b", attempts=1, before=lambda: before.append(len(silent_s3)))
    with pytest.raises(CloudError):
        control.stamped()
    with pytest.raises(CloudError):
        control.write(Control(), None)
    assert len(before) == 2
    assert before[0] == 0
    eventually("both calls came", lambda: len(silent_s3) == 2)


def test_long_journal_ticks_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Journal.open(tmp_path / "j", 1.0)
    first.append(tuple(Entry(at=float(n), event=DaemonStarted()) for n in range(9)))
    first.close()
    monkeypatch.setattr(journal, "PAGE", 2)
    ticks: list[int] = []
    Journal.open(tmp_path / "j", 2.0, each_page=lambda: ticks.append(1)).close()
    assert len(ticks) == 5
