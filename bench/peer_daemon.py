"""Our daemon as the peer bench runs it: the real one, with its lease, over the bench's door and Slurm.

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
from gpucluster import catalog
from gpucluster.cloud.aws import AwsCloud
from gpucluster.cloud.control import S3Control
from gpucluster.elastic.daemon import Daemon, Means, Paths, Ports
from gpucluster.elastic.scontrol import Scontrol
from gpucluster.elastic.standby import Standby, lease_of
from gpucluster.plan.model import Bindings, ClusterPlan, Market, TemplateBinding, there
from gpucluster.plan.resolve import resolve
from gpucluster.spec import load

STACK = Path(__file__).parent.parent / "stacks" / "burst.yaml"
NODES = 1000


def the_plan(port: int = 0) -> ClusterPlan:
    """The first stack with 1,000 slots in one zone, on demand: what ParallelCluster's default is."""
    plan = resolve(load(STACK), catalog.load())
    (pool,) = plan.pools
    (on_demand,) = (s for s in pool.sources if s.market is Market.ON_DEMAND)
    (span,) = (s for s in pool.slots if s.zone == ZONE)
    wide = replace(
        pool, max=NODES, slots=(replace(span, first=1, last=NODES),), sources=(replace(on_demand, max=None),)
    )
    head = replace(there(plan.head), address="127.0.0.1", registration_port=port)
    return replace(plan, pools=(wide,), head=head)


def main(folder: Path, subnet: str, template: str) -> None:
    """Run until told to end."""
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
    assert Standby(lease).wait()
    ports = Ports(cloud=AwsCloud(REGION), slurm=Scontrol(), control=control)
    daemon = Daemon(plan, bindings, paths, ports, Means(lease=lease))
    signal.signal(signal.SIGTERM, lambda *_: daemon.stop())
    daemon.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
