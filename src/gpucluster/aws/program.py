"""The Pulumi program: the plan's resources in order, and what the cluster must know of them."""

from pathlib import Path

import pulumi
import pulumi_aws as aws

from gpucluster.aws.bundle import Bundle
from gpucluster.aws.events import Events
from gpucluster.aws.head import Head
from gpucluster.aws.identity import HeadIdentity, NodeIdentity
from gpucluster.aws.network import Network
from gpucluster.aws.pools import Pools
from gpucluster.aws.storage import Storage
from gpucluster.engine.amended import amended
from gpucluster.errors import GpuclusterError
from gpucluster.plan.model import ClusterPlan, there
from gpucluster.plan.names import TAG_CLUSTER


def main() -> None:
    """What `pulumi up` runs: the stack's name is the spec's."""
    from gpucluster.catalog import load as load_catalog  # noqa: PLC0415  sandbox and tests hand in a plan
    from gpucluster.plan.resolve import resolve  # noqa: PLC0415
    from gpucluster.spec import load as load_spec  # noqa: PLC0415

    spec = load_spec(Path("stacks") / f"{pulumi.get_stack()}.yaml")
    declare(amended(resolve(spec, load_catalog())))


def declare(plan: ClusterPlan) -> None:
    """Declare every resource of the plan inside a running program; export `bindings`, `bucket`, `head`."""
    _able(plan)
    provider = aws.Provider(  # region and tags come from the spec alone, keys from the environment
        "aws", region=there(plan.aws).region, default_tags={"tags": {TAG_CLUSTER: plan.name}}
    )
    options = pulumi.ResourceOptions(provider=provider)
    image = aws.ec2.get_ami_output(
        owners=["self"],
        filters=[{"name": "name", "values": [there(there(there(plan.aws).image).name)]}],
        opts=pulumi.InvokeOutputOptions(provider=provider),
    )
    network = Network(plan, options)
    storage = Storage(plan.name, options)
    node = NodeIdentity(plan.name, storage, options)
    pools = Pools(plan, image=image, network=network, node=node, bucket=storage.bucket, opts=options)
    events = Events(plan.name, options)
    identity = HeadIdentity(
        plan,
        image=image.image_id,
        network=network,
        storage=storage,
        node=node,
        pools=pools,
        events=events,
        opts=options,
    )
    bundle = Bundle(plan, storage=storage, network=network, pools=pools, events=events, opts=options)
    head = Head(
        plan,
        image=image.image_id,
        network=network,
        identity=identity,
        bucket=storage.bucket,
        after=[bundle, identity, node, network],
        opts=options,
    )
    pulumi.export("bindings", bundle.bindings)
    pulumi.export("bucket", storage.bucket)
    pulumi.export("head", head.id)


def _able(plan: ClusterPlan) -> None:
    """Pulumi makes Slurm's side of a cluster on AWS; half of another kind would be worse than none."""
    if plan.aws is None or plan.slurm is None or plan.head is None:
        lacks = "`aws:`" if plan.aws is None else "`slurm:`"
        raise GpuclusterError(
            f"Pulumi makes nothing of the cluster '{plan.name}', for its spec has no {lacks}",
            next_step=f"gpucluster render stacks/{plan.name}.yaml, for a cluster that is there already",
        )
