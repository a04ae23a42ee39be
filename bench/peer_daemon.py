"""The real daemon with its lease, for the peer benchmark, with the benchmark's API server and Slurm.

`python -m bench.peer_daemon FOLDER SUBNET TEMPLATE`; the endpoint and keys are in the environment. SIGTERM ends it.
"""

import logging
import signal
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

from bench.peer_cloud import BUCKET, REGION, ZONE
from gpucluster import catalog, gc_control
from gpucluster.cloud.aws import AwsCloud
from gpucluster.cloud.control import S3Control
from gpucluster.elastic.daemon import Daemon, Paths, Ports, RunOptions
from gpucluster.elastic.notifier import Notifier
from gpucluster.elastic.standby import Standby, lease_of
from gpucluster.plan.model import Bindings, Market, SlurmOnAws, TemplateBinding
from gpucluster.plan.resolve import resolve
from gpucluster.slurm.client import Scontrol
from gpucluster.spec import load

STACK = Path(__file__).parent.parent / "stacks" / "burst.yaml"
NODES = 1000


def the_plan(port: int = 0) -> SlurmOnAws:
    """The first stack with 1,000 on-demand slots in one zone, as in ParallelCluster's default."""
    plan = resolve(load(STACK), catalog.load())
    assert isinstance(plan, SlurmOnAws)
    (pool,) = plan.pools
    (on_demand,) = (s for s in pool.sources if s.market is Market.ON_DEMAND)
    (span,) = (s for s in pool.slots if s.zone == ZONE)
    wide = replace(
        pool, max=NODES, slots=(replace(span, first=1, last=NODES),), sources=(replace(on_demand, max=None),)
    )
    head = replace(plan.head, address="127.0.0.1", registration_port=port)
    return replace(plan, pools=(wide,), head=head)


def main(folder: Path, subnet: str, template: str) -> None:
    """Run until SIGTERM."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        plan = the_plan(int(probe.getsockname()[1]))
    bindings = Bindings(
        schema=1,
        region=REGION,
        bucket=BUCKET,
        secret="",
        subnets={ZONE: subnet},
        templates={t.key: TemplateBinding(id=template, version=1) for t in plan.pools[0].templates},
    )
    paths = Paths(bundle=folder, journal=folder / "journal", spool=folder / "spool", wake=folder / "wake")
    control = S3Control(REGION, BUCKET)
    lease = lease_of(control, plan.times.lease_s, paths.journal, time.time)
    assert Standby(lease, Notifier()).wait()
    ports = Ports(cloud=AwsCloud(REGION), slurm=Scontrol(), control=control)
    daemon = Daemon(plan, bindings, paths, ports, RunOptions(lease=lease))
    gc_control.freeze_loaded()  # as the daemon's program
    signal.signal(signal.SIGTERM, lambda *_: daemon.stop())
    daemon.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
