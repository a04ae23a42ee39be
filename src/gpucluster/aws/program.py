"""The Pulumi program: the plan's resources in order, and what the cluster must know of them."""

from pathlib import Path

import pulumi
import pulumi_aws as aws

from gpucluster.aws.bucket import Bucket
from gpucluster.aws.budget import Budget
from gpucluster.aws.bundle import Bundle
from gpucluster.aws.events import Events
from gpucluster.aws.head import Head
from gpucluster.aws.identity import HeadIdentity, LoginIdentity, NodeIdentity
from gpucluster.aws.images import Images
from gpucluster.aws.login import Login
from gpucluster.aws.machines import cost_tags
from gpucluster.aws.network import Network
from gpucluster.aws.pools import Pools
from gpucluster.aws.secrets import Secrets
from gpucluster.aws.storage import Storage
from gpucluster.engine.amended import amended
from gpucluster.errors import GpuclusterError
from gpucluster.plan.model import ClusterPlan, there


def main() -> None:
    """What `pulumi up` runs: the stack's name is the spec's."""
    from gpucluster.catalog import load as load_catalog  # noqa: PLC0415  sandbox and tests hand in a plan
    from gpucluster.engine.blame import blamer  # noqa: PLC0415
    from gpucluster.engine.failing import tell_failures  # noqa: PLC0415
    from gpucluster.plan.resolve import resolve  # noqa: PLC0415
    from gpucluster.spec import load as load_spec  # noqa: PLC0415

    spec = load_spec(Path("stacks") / f"{pulumi.get_stack()}.yaml")
    plan = amended(resolve(spec, load_catalog()))
    tell_failures(blamer(plan))
    declare(plan)


def declare(plan: ClusterPlan) -> None:
    """Declare every resource of the plan inside a running program; export what the cluster's users must know."""
    _able(plan)
    provider = aws.Provider(  # region and tags come from the spec alone, keys from the environment
        "aws", region=there(plan.aws).region, default_tags={"tags": cost_tags(plan)}
    )
    options = pulumi.ResourceOptions(provider=provider)
    images = Images(plan, provider)
    network = Network(plan, options)
    bucket, secrets = Bucket(plan.name, options), Secrets(plan.name, options)
    storage = Storage(plan, network, options)
    events = Events(plan.name, options)
    node = NodeIdentity(plan, bucket, secrets, options)
    pools = Pools(plan, images=images, network=network, node=node.node, bucket=bucket.name, opts=options)
    bundle = Bundle(
        plan,
        bucket=bucket,
        secrets=secrets,
        storage=storage,
        network=network,
        pools=pools,
        events=events,
        node=node,
        opts=options,
    )
    image = images.default.image_id
    identity = HeadIdentity(
        plan,
        images=[found.image_id for found in images.every()],
        network=network,
        bucket=bucket,
        secrets=secrets,
        node=node,
        events=events,
        opts=options,
    )
    head = Head(
        plan,
        image=image,
        network=network,
        storage=storage,
        profiles=identity.profiles,
        bucket=bucket.name,
        after=[bundle, identity, node, network, *storage.ready],
        opts=options,
    )
    if plan.budget is not None:
        Budget(plan.name, plan.budget, options)
    pulumi.export("bindings", bundle.bindings)
    pulumi.export("bucket", bucket.name)
    pulumi.export("head", head.id)
    if plan.login is not None:
        role = LoginIdentity(plan, bucket, secrets, options)
        login = Login(
            plan,
            image=image,
            network=network,
            profile=role.login.profile,
            bucket=bucket.name,
            after=[bundle, role, network, *storage.ready],
            opts=options,
        )
        pulumi.export("login", dict(login.addresses))


def _able(plan: ClusterPlan) -> None:
    """Pulumi makes Slurm's side of a cluster on AWS; half of another kind would be worse than none."""
    if plan.aws is None or plan.slurm is None or plan.head is None:
        lacks = "`aws:`" if plan.aws is None else "`slurm:`"
        raise GpuclusterError(
            f"Pulumi makes nothing of the cluster '{plan.name}', for its spec has no {lacks}",
            next_step=f"gpucluster render stacks/{plan.name}.yaml, for a cluster that is there already",
        )
