"""Read a cluster once, on its head, without changes: the bundle, the journal, Slurm, the cloud, the daemon's status.

`why`, `timeline`, `order` and `reconcile` use it. A view that could not be read is None, and the program reports it.
"""

import argparse
import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gpucluster.cloud.aws import AwsCloud
from gpucluster.cloud.control import S3Control
from gpucluster.cloud.port import CloudError, CloudPort, ControlPort, Reservation
from gpucluster.elastic import journal, status_endpoint
from gpucluster.elastic.abilities import Dependency, Loss
from gpucluster.elastic.decide.world import owned
from gpucluster.elastic.inspect import daemon_view, machine_file
from gpucluster.elastic.inspect.daemon_view import DaemonView, UnitState
from gpucluster.elastic.inspect.machine_file import MachineFile
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.journal import JournalRecord
from gpucluster.elastic.memory import Memory
from gpucluster.elastic.model import CloudView
from gpucluster.elastic.status_endpoint import StatusSnapshot, halted_by, unread
from gpucluster.errors import GpuclusterError, StateError
from gpucluster.files import variables
from gpucluster.plan import codec, names, plan_json
from gpucluster.plan.model import Bindings, SlurmPlan
from gpucluster.slurm.client import Scontrol, SlurmPort
from gpucluster.slurm.values import SlurmView

NO_CLOUD = Bindings(schema=1, region="", bucket="", secret="", subnets={}, templates={})  # hosts that exist


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadFiles:
    """The daemon's files and its port on the head."""

    bundle: Path = Path(names.BUNDLE_DIR)
    journal: Path = Path(names.JOURNAL)
    spool: Path = Path(names.SPOOL)
    wake: Path = Path(names.WAKE_SOCKET)
    endpoint: Path = Path(names.ENDPOINT_FILE)
    port: int = names.METRICS_PORT

    @property
    def held(self) -> Path:
        """The file of the held bundle, beside the applied bundle."""
        return self.bundle.parent / Path(names.HELD_BUNDLE).name

    @property
    def controller(self) -> Path:
        """The file of the agent's watchdog, in the same folder."""
        return self.bundle.parent / Path(names.CONTROLLER_WATCH).name

    @property
    def release(self) -> Path:
        """The file of the operator's order for the held bundle."""
        return self.bundle.parent / Path(names.BUNDLE_RELEASE).name


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderClients:
    """What a reader queries. `cloud` and `control` are None without a cloud; `status` returns None without a daemon.

    `unit` returns what systemd knows of the daemon, `slurm_started` since when slurmctld acts; None: not known.
    """

    slurm: SlurmPort
    cloud: CloudPort | None
    control: ControlPort | None
    status: Callable[[], StatusSnapshot | None] = lambda: None
    unit: Callable[[], UnitState | None] = lambda: None
    slurm_started: Callable[[], float | None] = lambda: None


def run(work: Callable[[], int]) -> int:
    """Run `work` and return its exit code; an error of ours becomes a message and its own code."""
    try:
        return work()
    except GpuclusterError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python would try again at exit
        return 141


def print_answer(as_json: bool, values: Mapping[str, object], words: str, *, error: bool = False) -> None:
    """Print the result of an order as JSON, or as one line of text; an error's line goes to stderr."""
    if as_json:
        sys.stdout.write(json.dumps({"schema": 1, **values}, indent=1, sort_keys=True) + "\n")
    else:
        (sys.stderr if error else sys.stdout).write(words + "\n")


def parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of one program of the head, with the options that all have."""
    made = argparse.ArgumentParser(prog=f"python -m gpucluster.elastic.{program}")
    made.add_argument("--json", action="store_true", help="print one JSON object")
    made.add_argument("--bundle", type=Path, default=HeadFiles().bundle, help=argparse.SUPPRESS)
    made.add_argument("--journal", type=Path, default=HeadFiles().journal, help=argparse.SUPPRESS)
    made.add_argument("--spool", type=Path, default=HeadFiles().spool, help=argparse.SUPPRESS)
    made.add_argument("--wake", type=Path, default=HeadFiles().wake, help=argparse.SUPPRESS)
    return made


def head_files(options: argparse.Namespace) -> HeadFiles:
    """Return the files that the command line names."""
    return HeadFiles(bundle=options.bundle, journal=options.journal, spool=options.spool, wake=options.wake)


def read_plan(where: HeadFiles) -> SlurmPlan:
    """Return the plan of the applied bundle."""
    path = where.bundle / names.PLAN_FILE
    try:
        return plan_json.load_slurm(path.read_bytes())
    except PermissionError as error:
        raise StateError(f"{path} cannot be read: {error.strerror}", next_step="be root, or slurm") from error
    except (OSError, ValueError) as error:
        raise StateError(
            f"{path} cannot be read: {error}", next_step="run it on the cluster's head, as root or slurm"
        ) from error


def read_snapshot(
    where: HeadFiles, clients: ReaderClients | None = None, clock: Callable[[], float] = time.time
) -> ClusterSnapshot:
    """Read everything once."""
    return read_with_daemon(where, clients, clock)[0]


def read_with_daemon(
    where: HeadFiles, clients: ReaderClients | None = None, clock: Callable[[], float] = time.time
) -> tuple[ClusterSnapshot, DaemonView]:
    """Read everything once, also what this machine's daemon does. Existing hosts have no daemon, and miss none."""
    plan = read_plan(where)
    bindings = _bindings(where, plan)
    record = read_record(where, plan)
    clients = clients or real_clients(plan, bindings, where)
    now = clock()
    published = clients.status()
    status = _status(clients, plan, now, where, published)
    no_daemon = plan.aws is None
    daemon = daemon_view.ACTING if no_daemon else _daemon(clients.unit(), published)
    slurm, cloud = _slurm(clients, now), _cloud(clients.cloud, plan, record.memory, now)
    if isinstance(cloud, Loss):  # the daemon's own error counts first
        status, cloud = replace(status, lost={Dependency.EC2: cloud, **status.lost}), None
    snapshot = ClusterSnapshot(
        plan=plan,
        bindings=bindings,
        observation=status.observation(slurm, cloud),
        memory=record.memory,
        now=now,
        entries=record.entries,
        pruned_before=record.pruned_before,
        copy=status.copy,
        trials=status.trials,
        controller=status_endpoint.read_controller(where.controller),
        daemon=daemon.acts,
    )
    return snapshot, daemon


def read_booting(
    where: HeadFiles, machine: Path, clock: Callable[[], float] = time.time
) -> tuple[MachineFile, float] | None:
    """Return the file of a machine that has applied no bundle yet, and the time; None if it has one, or if there is no file."""
    found = None if where.bundle.exists() else machine_file.read(machine)
    if found is None:
        return None
    use_endpoint(where)
    return found, clock()


def read_record(where: HeadFiles, plan: SlurmPlan) -> JournalRecord:
    """Return the journal; existing hosts have no daemon, and so no journal."""
    return JournalRecord() if plan.aws is None and not where.journal.exists() else read_journal(where)


def read_journal(where: HeadFiles) -> JournalRecord:
    """Return the events that are kept, and the daemon's memory."""
    step = "be root or slurm, on the head where gpucluster-elastic runs"
    try:
        return journal.read_record(where.journal)
    except (sqlite3.Error, ValueError, OSError) as error:
        raise StateError(f"the journal {where.journal} cannot be read: {error}", next_step=step) from error


def real_clients(plan: SlurmPlan, bindings: Bindings, where: HeadFiles) -> ReaderClients:
    """Return clients of the head's slurmctld, of AWS or the sandbox's endpoint, and of the daemon.

    With two heads it is not known since when a slurmctld acts: it may have taken over long after its start.
    """
    slurm = Scontrol()
    started = slurm.started_at if plan.head.standby is None else lambda: None
    if plan.aws is None:
        return ReaderClients(slurm=slurm, cloud=None, control=None, slurm_started=started)
    use_endpoint(where)
    return ReaderClients(
        slurm=slurm,
        slurm_started=started,
        cloud=AwsCloud(bindings.region),
        control=S3Control(bindings.region, bindings.bucket),
        status=lambda: status_endpoint.read(where.port),
        unit=lambda: daemon_view.read(time.monotonic()),
    )


def use_endpoint(where: HeadFiles) -> None:
    """Let boto3 reach the sandbox's endpoint; on AWS this changes nothing."""
    for key, value in variables(where.endpoint).items():
        os.environ.setdefault(key, value)


def _bindings(where: HeadFiles, plan: SlurmPlan) -> Bindings:
    return NO_CLOUD if plan.aws is None else read_bindings(where)


def read_bindings(where: HeadFiles) -> Bindings:
    """Return the bindings of the applied bundle."""
    path = where.bundle / names.BINDINGS_FILE
    try:
        return codec.loads(Bindings, path.read_bytes())
    except (OSError, ValueError) as error:
        raise StateError(f"{path} cannot be read: {error}", next_step="see gpucluster-agent's log") from error


def _status(
    clients: ReaderClients, plan: SlurmPlan, now: float, where: HeadFiles, published: StatusSnapshot | None
) -> StatusSnapshot:
    """Return what the daemon publishes. Without an answer: what a daemon that starts now knows.

    The control object and the held bundle are read anew, as each pass of the daemon does. If the control object cannot be
    read, the daemon's own state counts: it launches for some time without it.
    """
    status = published or StatusSnapshot(listening_since=now)
    status = replace(status, held=status_endpoint.read_held(where.held))
    if clients.control is not None:
        status = replace(status, halted=_halted(clients.control, published))
    if status.reservations_at is None:
        status = replace(status, reservations=_reservations(clients.cloud, plan), reservations_at=now)
    return status


def _daemon(unit: UnitState | None, published: StatusSnapshot | None) -> DaemonView:
    """Return the view of this machine's daemon. One that was cut off while it held the lease still evacuates."""
    cut_off = published is not None and Dependency.CONTROL in published.lost
    return daemon_view.view(unit, answers=published is not None, evacuates=cut_off)


def _slurm(clients: ReaderClients, now: float) -> SlurmView | None:
    try:
        return replace(clients.slurm.read(now), started_at=clients.slurm_started())
    except GpuclusterError as error:
        sys.stderr.write(f"slurmctld does not answer: {error.message}\n")
        return None


def _cloud(port: CloudPort | None, plan: SlurmPlan, memory: Memory, now: float) -> CloudView | Loss:
    if port is None:
        return CloudView(at=now, instances={})
    try:
        return CloudView(at=now, instances={i.id: i for i in port.instances(plan.name, owned(memory, now))})
    except CloudError as error:
        return Loss(since=None, words=str(error))


def _reservations(port: CloudPort | None, plan: SlurmPlan) -> Mapping[str, Reservation]:
    """Return the reservations of the plan; an unlisted one counts as full."""
    ids = sorted({s.reservation for pool in plan.pools for s in pool.sources if s.reservation})
    try:
        return {found.id: found for found in port.reservations(ids)} if port and ids else {}
    except CloudError as error:
        sys.stderr.write(f"the reservations cannot be read: {error}\n")
        return {}


def _halted(port: ControlPort, published: StatusSnapshot | None) -> str:
    """Return why the control object allows no launch."""
    try:
        return halted_by(port.read())
    except CloudError as error:
        return unread(str(error)) if published is None else published.halted
