"""What programs on the head read, once and without changing anything: the bundle, the journal, Slurm, the cloud, the daemon.

`why`, `timeline`, `order` and `reconcile` stand on it. What has no answer is None, and who asks says so.
"""

import argparse
import os
import sqlite3
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpucluster.cloud.aws import AwsCloud
from gpucluster.cloud.control import S3Control
from gpucluster.cloud.port import CloudError, CloudPort, ControlPort, Reservation, Scaling
from gpucluster.elastic.events import Entry
from gpucluster.elastic.journal import read_only
from gpucluster.elastic.memory import Memory, fold
from gpucluster.elastic.model import CloudView, Observation, SlurmView
from gpucluster.elastic.scontrol import Scontrol, SlurmPort
from gpucluster.elastic.shown import LOOPBACK, Overheard
from gpucluster.elastic.sight import Sight
from gpucluster.errors import GpuclusterError, StateError
from gpucluster.plan import codec, names
from gpucluster.plan.model import Bindings, ClusterPlan, Market

ASK_S = 2.0  # the daemon answers from memory
MAX_SEEN = 64 * 1024 * 1024
NO_CLOUD = Bindings(schema=1, region="", bucket="", secret="", subnets={}, templates={})  # hosts that exist


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where everything stands on the head."""

    bundle: Path = Path(names.BUNDLE_DIR)
    journal: Path = Path(names.JOURNAL)
    spool: Path = Path(names.SPOOL)
    wake: Path = Path(names.WAKE_SOCKET)
    endpoint: Path = Path(names.ENDPOINT_FILE)
    port: int = names.METRICS_PORT


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Whom a look asks; `cloud` and `control` are None where there is no cloud, `daemon` answers None where it is silent."""

    slurm: SlurmPort
    cloud: CloudPort | None
    control: ControlPort | None
    daemon: Callable[[], Overheard | None] = lambda: None


def run(work: Callable[[], int]) -> int:
    """Do it, and turn what goes wrong into a sentence and its exit code."""
    try:
        return work()
    except GpuclusterError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python would try again at its end
        return 141


def parser(program: str) -> argparse.ArgumentParser:
    """A parser of a program of the head; `--json` and where things stand are the same for all."""
    made = argparse.ArgumentParser(prog=f"python -m gpucluster.elastic.{program}")
    made.add_argument("--json", action="store_true", help="answer with one JSON object")
    made.add_argument("--bundle", type=Path, default=Places().bundle, help=argparse.SUPPRESS)
    made.add_argument("--journal", type=Path, default=Places().journal, help=argparse.SUPPRESS)
    made.add_argument("--spool", type=Path, default=Places().spool, help=argparse.SUPPRESS)
    made.add_argument("--wake", type=Path, default=Places().wake, help=argparse.SUPPRESS)
    return made


def places(options: argparse.Namespace) -> Places:
    """Where the command line says that things stand."""
    return Places(bundle=options.bundle, journal=options.journal, spool=options.spool, wake=options.wake)


def plan_of(where: Places) -> ClusterPlan:
    """The plan that is applied here."""
    path = where.bundle / names.PLAN_FILE
    try:
        return codec.loads(ClusterPlan, path.read_bytes())
    except PermissionError as error:
        raise StateError(f"{path} cannot be read: {error.strerror}", next_step="be root, or slurm") from error
    except (OSError, ValueError) as error:
        raise StateError(
            f"{path} cannot be read: {error}", next_step="run it on the cluster's head, as root or slurm"
        ) from error


def sight(where: Places, asked: Asked | None = None, clock: Callable[[], float] = time.time) -> Sight:
    """One look at all of it."""
    plan = plan_of(where)
    bindings = _bindings(where, plan)
    entries = entries_of(where, plan)
    ports = asked or real_ports(plan, bindings, where)
    heard = ports.daemon() or Overheard()
    now = clock()
    seen = Observation(
        slurm=_slurm(ports.slurm, plan, now),
        cloud=_cloud(ports.cloud, plan, heard, now),
        reports=heard.reports,
        halted=heard.halted or _halted(ports.control),
    )
    memory = fold(Memory(), entries)
    return Sight(plan=plan, bindings=bindings, seen=seen, memory=memory, now=now, entries=entries)


def entries_of(where: Places, plan: ClusterPlan) -> tuple[Entry, ...]:
    """The journal; a cluster on hosts that exist has no daemon, and so none."""
    return () if plan.aws is None and not where.journal.exists() else journal(where)


def journal(where: Places) -> tuple[Entry, ...]:
    """Every event that the daemon wrote."""
    step = "be root or slurm, on the head where gpucluster-elastic runs"
    try:
        return read_only(where.journal)
    except (sqlite3.Error, ValueError, OSError) as error:
        raise StateError(f"the journal {where.journal} cannot be read: {error}", next_step=step) from error


def real_ports(plan: ClusterPlan, bindings: Bindings, where: Places) -> Asked:
    """The head's own slurmctld, and AWS or what a rehearsal's own file names in its place."""
    if plan.aws is None:
        return Asked(slurm=Scontrol(), cloud=None, control=None)
    for key, value in endpoint(where.endpoint).items():
        os.environ.setdefault(key, value)
    return Asked(
        slurm=Scontrol(),
        cloud=AwsCloud(bindings.region),
        control=S3Control(bindings.region, bindings.bucket),
        daemon=lambda: overheard(where.port),
    )


def overheard(port: int) -> Overheard | None:
    """What only the daemon knows; None where it does not answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{LOOPBACK}:{port}/seen", timeout=ASK_S) as answer:
            return codec.loads(Overheard, answer.read(MAX_SEEN))
    except (OSError, ValueError):
        return None


def endpoint(path: Path) -> Mapping[str, str]:
    """KEY=VALUE lines of the unit's EnvironmentFile; there is none on AWS."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def _bindings(where: Places, plan: ClusterPlan) -> Bindings:
    if plan.aws is None:
        return NO_CLOUD
    path = where.bundle / names.BINDINGS_FILE
    try:
        return codec.loads(Bindings, path.read_bytes())
    except (OSError, ValueError) as error:
        raise StateError(f"{path} cannot be read: {error}", next_step="see gpucluster-agent's log") from error


def _slurm(port: SlurmPort, plan: ClusterPlan, now: float) -> SlurmView | None:
    blocks = any(s.market is Market.CAPACITY_BLOCK for pool in plan.pools for s in pool.sources)
    try:
        return port.look(now, windows=blocks)
    except GpuclusterError as error:
        sys.stderr.write(f"slurmctld does not answer: {error.message}\n")
        return None


def _cloud(port: CloudPort | None, plan: ClusterPlan, heard: Overheard, now: float) -> CloudView | None:
    if port is None:
        return CloudView(at=now, instances={})
    try:
        listed = {i.id: i for i in port.instances(plan.name)}
    except CloudError as error:
        sys.stderr.write(f"the cloud does not answer: {error}\n")
        return None
    absent = {i: at for i, at in heard.absent_since.items() if i not in listed}
    return CloudView(at=now, instances=listed, absent_since=absent, reservations=_reservations(port, plan))


def _reservations(port: CloudPort, plan: ClusterPlan) -> Mapping[str, Reservation]:
    """Of those in the plan; what is not known is taken as full."""
    ids = sorted({s.reservation for pool in plan.pools for s in pool.sources if s.reservation})
    try:
        return {found.id: found for found in port.reservations(ids)} if ids else {}
    except CloudError as error:
        sys.stderr.write(f"the reservations are not told: {error}\n")
        return {}


def _halted(control: ControlPort | None) -> str:
    """As the daemon says it; used where it does not answer."""
    if control is None:
        return ""
    try:
        found = control.read()
    except CloudError:
        return "the control object cannot be read"
    return f"launches are stopped, by {found.by or 'nobody'}" if found.scaling is Scaling.STOP else ""
