"""The edge: threads, sockets and the bell, in real time over models; and what the daemon may not import."""

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
from builders import a_plan
from fleet import some_bindings, with_times
from slurm_model import SlurmModel

from gpucluster.cloud.model import CloudModel, ModelCloud, ModelControl
from gpucluster.elastic import hook
from gpucluster.elastic.daemon import QUIET_S, Daemon, Paths, Ports, load
from gpucluster.elastic.words import OneLine
from gpucluster.errors import StateError
from gpucluster.plan import codec, names
from gpucluster.plan.model import there

pytestmark = pytest.mark.loopback


class Running:
    """A daemon in a thread, with long waits, so that what is quick came by event."""

    def __init__(self, root: Path) -> None:
        self.paths = Paths(
            bundle=root, journal=root / "j", spool=root / "spool", wake=root / "wake", metrics_port=0
        )
        plan = with_times(a_plan(), poll_s=30.0, reconcile_s=30.0)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.plan = replace(
            plan, head=replace(there(plan.head), address="127.0.0.1", registration_port=self.port)
        )
        self.bindings = some_bindings(self.plan)
        self.slurm = SlurmModel(self.plan, lambda kind, hosts: None)
        model = CloudModel(Random(1), region=there(self.plan.aws).region)  # noqa: S311 -- the same each time
        self.cloud = ModelCloud(model, time.time, {v: k for k, v in self.bindings.subnets.items()})
        ports = Ports(cloud=self.cloud, slurm=self.slurm, control=ModelControl())
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
        self.thread.join(20)
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


def soon(reached: Callable[[], bool], limit: float = 10.0) -> None:
    end = time.monotonic() + limit
    pause = threading.Event()
    while not reached():
        assert time.monotonic() < end, "not in time"
        pause.wait(0.01)


def test_a_hooks_bell_makes_it_look_and_launch_at_once(running: Running) -> None:
    running.slurm.tick(time.time())
    running.slurm.submit(2)
    running.slurm.tick(time.time())
    running.slurm.tick(time.time())
    began = time.monotonic()
    code = hook.main(["/x/resume", "h200-2a-[1-2]"], {}, str(running.paths.spool), str(running.paths.wake))
    assert code == 0
    soon(lambda: len(running.cloud.launches) == 1)
    assert time.monotonic() - began < 5
    assert running.cloud.launches[0].count == 2
    soon(lambda: not list((running.paths.spool / "new").iterdir()))


def test_it_answers_nodes(running: Running) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=10)
    connection.request("POST", "/v1/failed", b"{}")
    assert connection.getresponse().status == 403
    connection.close()


def test_it_ends_cleanly_when_told(running: Running) -> None:
    running.stop()
    with socket.socket() as one:
        assert one.connect_ex(("127.0.0.1", running.port)) != 0


def test_a_trouble_is_said_once_and_again_when_it_comes_back(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """The second time that slurmctld was away, in a daemon's life, its log said nothing."""
    daemon = running.daemon
    assert daemon is not None
    for _ in range(3):
        daemon._complain("slurmctld: away")
    words, at = daemon._told["slurmctld"]
    daemon._told["slurmctld"] = (words, at - QUIET_S - 1)
    daemon._complain("slurmctld: away")
    assert [r.getMessage() for r in caplog.records].count("slurmctld: away") == 2


def test_what_others_say_is_one_line_of_the_log() -> None:
    """A cloud's text with a line's end in it stood in the log as if we had said it."""
    said = "end i-1: \x1b[2Jno\r\nlaunch-done request=r1"
    record = logging.LogRecord("x", logging.INFO, "x", 1, "%s", (said,), None)
    assert OneLine("%(message)s").format(record) == "end i-1: ?[2Jno; launch-done request=r1"


def test_plan_and_bindings_come_from_the_applied_bundle(tmp_path: Path) -> None:
    plan = a_plan()
    (tmp_path / names.PLAN_FILE).write_text(codec.dumps(plan))
    (tmp_path / names.BINDINGS_FILE).write_text(codec.dumps(some_bindings(plan)))
    assert load(tmp_path) == (plan, some_bindings(plan))
    (tmp_path / names.PLAN_FILE).write_text("{}")
    with pytest.raises(StateError, match="the bundle cannot be read"):
        load(tmp_path)


DESK = ("pydantic", "jinja2", "rich", "typer", "ruamel", "ruamel.yaml", "pulumi", "yaml", "moto")


def test_it_imports_where_no_desk_library_is(tmp_path: Path) -> None:
    code = f"import sys\nfor name in {DESK!r}: sys.modules[name] = None\nimport gpucluster.elastic.daemon\n"
    code += "import gpucluster.elastic.timeline\nassert 'boto3' not in sys.modules, 'boto3 is loaded at the first call'"
    environ = {k: v for k, v in os.environ.items() if k != "COVERAGE_PROCESS_START"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
