"""The daemon with real threads and sockets, over models of Slurm and the cloud; and the libraries that it may not import."""

import http.client
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from support.builders import a_plan
from support.fleet import Fleet, some_bindings, with_times
from support.slurm_model import SlurmModel
from support.waiting import BOUND_S, eventually

from gpucluster.cloud.port import Control, LaunchCall
from gpucluster.elastic import hook
from gpucluster.elastic.daemon import QUIET_S, Daemon, Paths, Ports, RunOptions, load
from gpucluster.elastic.journal import Journal
from gpucluster.elastic.log_lines import Lines, OneLine
from gpucluster.elastic.standby import lease_of
from gpucluster.errors import StateError
from gpucluster.plan import codec, names
from gpucluster.sandbox.aws.ec2.state.client import ModelCloud, ModelControl, ModelObject
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.slurm.values import SlurmView

pytestmark = pytest.mark.loopback


class Trials:
    """A cloud that takes each dry run."""

    def __init__(self, tried: list[LaunchCall]) -> None:
        self._tried = tried

    def try_launch(self, call: LaunchCall) -> None:
        self._tried.append(call)


class Running:
    """A daemon in a thread. It polls once an hour, so a test sees only the effects of events."""

    def __init__(self, root: Path) -> None:
        self.paths = Paths(
            bundle=root, journal=root / "j", spool=root / "spool", wake=root / "wake", metrics_port=0
        )
        plan = with_times(a_plan(), poll_s=3600.0, reconcile_s=3600.0)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.plan = replace(plan, head=replace(plan.head, address="127.0.0.1", registration_port=self.port))
        self.bindings = some_bindings(self.plan)
        self.slurm = SlurmModel(self.plan, lambda kind, hosts: None)
        model = CloudModel(Random(1), region=self.plan.aws.region)  # noqa: S311 -- the same each time
        self.cloud = ModelCloud(model, time.time, {v: k for k, v in self.bindings.subnets.items()})
        self.tried: list[LaunchCall] = []
        trials = Trials(self.tried)
        ports = Ports(cloud=self.cloud, slurm=self.slurm, control=ModelControl(), trials=trials)
        self.daemon: Daemon | None = None
        self.errors: list[BaseException] = []
        self.thread = threading.Thread(target=self._run, args=(ports,))
        self.thread.start()

    def _run(self, ports: Ports) -> None:
        try:
            self.daemon = Daemon(self.plan, self.bindings, self.paths, ports)
            self.daemon.run()
        except BaseException as error:  # noqa: BLE001 -- shown by `stop`
            self.errors.append(error)

    def stop(self) -> None:
        if self.daemon:
            self.daemon.stop()
        self.thread.join(BOUND_S)
        assert not self.errors, self.errors
        assert not self.thread.is_alive()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    one = Running(tmp_path)
    try:
        soon(lambda: one.paths.wake.exists() and any(c == "instances" for c, _ in one.cloud.calls))
        yield one
    finally:
        one.stop()


def soon(reached: Callable[[], bool]) -> None:
    """Wait for an event."""
    eventually("the event comes", reached, poll=0.01)


def test_hook_datagram_causes_observation_and_launch_at_once(running: Running) -> None:
    running.slurm.tick(time.time())
    running.slurm.submit(2)
    running.slurm.tick(time.time())
    running.slurm.tick(time.time())
    code = hook.main(["/x/resume", "h200-2a-[1-2]"], {}, str(running.paths.spool), str(running.paths.wake))
    assert code == 0
    soon(lambda: len(running.cloud.launches) == 1)
    assert running.cloud.launches[0].count == 2
    soon(lambda: not list((running.paths.spool / "new").iterdir()))


def test_events_let_the_daemon_read_slurm_while_ec2_hangs(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpucluster.elastic.reconciler.YOUNG_S", 0.0)
    let_go, reads, read = threading.Event(), [0], running.slurm.read

    def counted(at: float) -> SlurmView:
        reads[0] += 1
        return read(at)

    monkeypatch.setattr(running.slurm, "read", counted)
    monkeypatch.setattr(running.cloud, "instances", lambda *_: let_go.wait(BOUND_S) and ())
    try:
        for count in (1, 2, 3):
            argv = ["/x/resume", "h200-2a-1"]
            assert hook.main(argv, {}, str(running.paths.spool), str(running.paths.wake)) == 0
            soon(lambda count=count: reads[0] >= count)
    finally:
        let_go.set()


@pytest.mark.parametrize(
    ("fence", "epoch", "readable", "waits"),
    [(0, 0, True, False), (0, 0, False, True), (2, 2, False, False), (2, 3, False, True), (0, 3, True, True)],
    ids=("first", "perhaps first", "goes on", "journal of yesterday", "journal lost"),
)
def test_daemon_knows_whether_its_journal_lacks_orders(
    tmp_path: Path, fence: int, epoch: int, readable: bool, waits: bool
) -> None:
    """`fence`: epoch of the journal, 0: none; `epoch`: of the last daemon; there is no copy."""
    plan = a_plan()
    plan = replace(plan, head=replace(plan.head, address="127.0.0.1", registration_port=0))
    fleet = Fleet(plan, tmp_path / "fleet")
    paths = Paths(
        bundle=tmp_path, journal=tmp_path / "j", spool=tmp_path / "s", wake=tmp_path / "w", metrics_port=0
    )
    if fence:
        Journal.open(paths.journal, 1.0, fence).close()
    control, orders = ModelControl(Control(epoch=epoch, beat=epoch)), ModelObject()
    orders.readable = readable
    lease = lease_of(control, 30.0, paths.journal, time.time)
    assert lease.watch() == ""
    ports = Ports(cloud=fleet.cloud, slurm=fleet.slurm, control=control, orders=orders)
    daemon = Daemon(fleet.plan, fleet.bindings, paths, ports, RunOptions(lease=lease))
    assert (daemon._journal.memory.unrestored_since is not None) is waits
    daemon.stop()
    daemon.run()


def test_daemon_answers_nodes(running: Running) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=BOUND_S)
    connection.request("POST", "/v1/failed", b"{}")
    assert connection.getresponse().status == 403
    connection.close()


def test_daemon_tries_a_launch_and_shows_the_answer(running: Running) -> None:
    daemon = running.daemon
    assert daemon is not None
    soon(lambda: bool(daemon._reconciler.status.trials))
    (answer,) = daemon._reconciler.status.trials.values()
    assert answer.words == ""
    assert len(running.tried) == 1


def test_daemon_ends_cleanly_after_a_signal(running: Running) -> None:
    running.stop()
    with socket.socket() as one:
        assert one.connect_ex(("127.0.0.1", running.port)) != 0


def test_problem_is_logged_once_and_again_when_it_returns(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: a second absence of slurmctld in one run of the daemon was not logged."""
    daemon = running.daemon
    assert daemon is not None
    for _ in range(3):
        daemon._warn("slurmctld: away")
    words, at = daemon._warned["slurmctld"]
    daemon._warned["slurmctld"] = (words, at - QUIET_S - 1)
    daemon._warn("slurmctld: away")
    assert [r.getMessage() for r in caplog.records].count("slurmctld: away") == 2


def test_text_from_outside_is_one_line_of_the_log() -> None:
    """Regression: a text of the cloud with a newline looked like a line of our own in the log."""
    text = "end i-1: \x1b[2Jno\r\nlaunch-done request=r1"
    record = logging.LogRecord("x", logging.INFO, "x", 1, "%s", (text,), None)
    assert OneLine("%(message)s").format(record) == "end i-1: no; launch-done request=r1"


def test_lines_of_one_record_are_each_one_line_of_the_log() -> None:
    lines = Lines(("job-placed job=1", "node-up a-1 words=\x1b[2Jno\r\nend i-1"))
    record = logging.LogRecord("x", logging.INFO, "x", 1, "%s", (lines,), None)
    assert OneLine("%(message)s").format(record).split("\n") == [
        "job-placed job=1",
        "node-up a-1 words=no; end i-1",
    ]
    assert record.getMessage() == "\n".join(lines)


def test_plan_and_bindings_are_read_from_the_applied_bundle(tmp_path: Path) -> None:
    plan = a_plan()
    (tmp_path / names.PLAN_FILE).write_text(codec.dumps(plan))
    (tmp_path / names.BINDINGS_FILE).write_text(codec.dumps(some_bindings(plan)))
    assert load(tmp_path) == (plan, some_bindings(plan))
    (tmp_path / names.PLAN_FILE).write_text("{}")
    with pytest.raises(StateError, match="the bundle cannot be read"):
        load(tmp_path)


DESK = ("pydantic", "jinja2", "rich", "typer", "ruamel", "ruamel.yaml", "pulumi", "yaml", "moto")


def test_daemon_imports_without_the_libraries_of_the_cli(tmp_path: Path) -> None:
    code = f"import sys\nfor name in {DESK!r}: sys.modules[name] = None\nimport gpucluster.elastic.daemon\n"
    code += "import gpucluster.elastic.inspect.timeline\nassert 'boto3' not in sys.modules, 'boto3 is loaded at the first call'"
    environ = {k: v for k, v in os.environ.items() if k != "COVERAGE_PROCESS_START"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
