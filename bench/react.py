"""The time until the running daemon decides on a new request, a refusal and a notice, with 1,000 slots and 25 jobs of 4.

The time is from the event to the journal's entry of the decision. scontrol is a program that answers from files, the cloud
is the model in the same process. The decision on a notice uses the last observation; the other two need a new answer of scontrol.
"""

import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from random import Random

from bench.figure import Figure, figure, unit_ms
from bench.peer import NODES, Slurm
from bench.peer_daemon import ZONE, the_plan
from gpucluster.cloud.port import QueueNotice
from gpucluster.elastic import hook
from gpucluster.elastic.daemon import Daemon, Paths, Ports
from gpucluster.elastic.events import Interrupted, LaunchDone, LaunchRefused, LaunchRequested
from gpucluster.elastic.journal import read_only
from gpucluster.plan.messages import Notice, NoticeKind
from gpucluster.plan.model import Bindings, Market, SlurmOnAws, TemplateBinding
from gpucluster.sandbox.aws.ec2.state.client import ModelCloud, ModelControl
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.slurm.client import Scontrol

LIMIT = 22.0  # units of this machine's speed
PATIENCE_S = 60.0
JOB, WANTED = (
    4,
    100,
)  # a refused request also uses tokens for its instances: more jobs would wait for tokens


class Queue:
    """A NoticePort with the notices of the benchmark."""

    def __init__(self) -> None:
        self.messages: SimpleQueue[QueueNotice] = SimpleQueue()

    def receive(self, wait_s: float) -> tuple[QueueNotice, ...]:
        try:
            return (self.messages.get(timeout=1.0),)
        except Empty:
            return ()

    def forget(self, handles: Sequence[str]) -> None:
        """The notice is already removed."""


class Bench:
    """A daemon in a thread, with its files in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (self.pool,) = the_plan().pools
        spot = replace(self.pool.sources[0], market=Market.SPOT)
        pool = replace(self.pool, sources=(spot, *self.pool.sources))
        plan = replace(the_plan(), pools=(pool,))
        self.prefix = pool.slots[0].prefix
        self.slurm = Slurm(folder / "slurm", [f"{self.prefix}{n}" for n in range(1, NODES + 1)])
        os.environ["PATH"] = f"{self.slurm.bin}:{os.environ['PATH']}"
        self.model = CloudModel(Random(1))  # noqa: S311 -- the same each time
        bindings = Bindings(
            schema=1, region="us-east-1", bucket="b", secret="", subnets={ZONE: "subnet-1"},
            templates={t.key: TemplateBinding(id="lt-1", version=1) for t in pool.templates},
        )  # fmt: skip
        self.queue = Queue()
        ports = Ports(
            cloud=ModelCloud(self.model, time.time, {"subnet-1": ZONE}), slurm=Scontrol(), control=ModelControl(),
            notices=self.queue,
        )  # fmt: skip
        self.paths = Paths(bundle=folder, journal=folder / "j", spool=folder / "spool", wake=folder / "wake")
        self.made = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(plan, bindings, ports))
        self.thread.start()
        self.made.wait()

    def _run(self, plan: SlurmOnAws, bindings: Bindings, ports: Ports) -> None:
        self.daemon = Daemon(plan, bindings, self.paths, ports)
        self.made.set()
        self.daemon.run()

    def first(self, kind: type[object], after: float = 0.0) -> float:
        """Return the time of the first such journal entry after that time."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            found = [
                e.at for e in read_only(self.paths.journal) if isinstance(e.event, kind) and e.at >= after
            ]
            if found:
                return min(found)
            time.sleep(0.05)
        raise TimeoutError(kind.__name__)

    def ring(self) -> float:
        """Call the hook as Slurm does; return the time."""
        at = time.time()
        environ = {"SLURM_RESUME_FILE": str(self.slurm.resume_file(JOB, WANTED))}
        assert (
            hook.main(
                ["/x/resume", f"{self.prefix}[1-{NODES}]"],
                environ,
                str(self.paths.spool),
                str(self.paths.wake),
            )
            == 0
        )
        return at


def run() -> Iterator[Figure]:
    """Send a request, its refusal by the spot market, and a notice for one of its nodes."""
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        try:
            yield from _measured(bench)
        finally:
            bench.daemon.stop()
            bench.thread.join()
            logging.disable(logging.NOTSET)


def _measured(bench: Bench) -> Iterator[Figure]:
    _settled(lambda: bench.slurm.asked() >= 2)
    bench.model.set_capacity(zone=ZONE, market=Market.SPOT, free=0)
    bench.slurm.burst(JOB, WANTED)
    rung = bench.ring()
    asked = bench.first(LaunchRequested)
    yield figure("react.new_request", (asked - rung) * 1000, "ms", LIMIT * unit_ms())
    refused = bench.first(LaunchRefused)
    again = bench.first(LaunchRequested, refused)
    yield figure("react.refusal", (again - refused) * 1000, "ms", LIMIT * unit_ms())
    bench.first(LaunchDone)
    bench.slurm.running(JOB, WANTED)
    looks = bench.slurm.asked()
    _settled(lambda: bench.slurm.asked() >= looks + 4)
    done = next(e.event for e in read_only(bench.paths.journal) if isinstance(e.event, LaunchDone))
    notice = QueueNotice(
        instance=done.instances[0], notice=Notice(kind=NoticeKind.SPOT, at=time.time() + 120), handle="h"
    )
    sent = time.time()
    bench.queue.messages.put(notice)
    yield figure("react.notice", (bench.first(Interrupted) - sent) * 1000, "ms", LIMIT * unit_ms())


def _settled(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.05)
    time.sleep(0.5)
