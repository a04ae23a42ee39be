"""The Pulumi program: declare the resources of a plan in order, and export the bindings."""

from dataclasses import dataclass
from pathlib import Path

import pulumi
import pulumi_aws as aws

from gpucluster.aws.bucket import Bucket, MungeSecret
from gpucluster.aws.budget import Budget
from gpucluster.aws.bundle import Bundle, kubernetes_bindings
from gpucluster.aws.eks.declare import declare_eks
from gpucluster.aws.encryption import Key, look_up_key
from gpucluster.aws.events import Events
from gpucluster.aws.head import Head
from gpucluster.aws.iam_roles import HeadIdentity, LoginIdentity, NodeIdentity
from gpucluster.aws.instances import Images, cost_tags
from gpucluster.aws.login import Login
from gpucluster.aws.network import Network
from gpucluster.aws.pools import Pools
from gpucluster.aws.storage import Storage, Stores
from gpucluster.engine.program import apply_overlays, explain_failures
from gpucluster.errors import GpuclusterError
from gpucluster.plan.model import AwsPlan, ClusterPlan, KubernetesOnAws, SlurmOnAws, SlurmOnHosts, eks_of
from gpucluster.plan.model import Login as LoginPlan
from gpucluster.plan.model.eks import EksControlPlane
from gpucluster.plan.model.kubernetes import Kubernetes
from gpucluster.plan.spec_source import SpecSource


def main() -> None:
    """Run by `pulumi up`: resolve the spec that has the name of the stack, and declare its resources."""
    from gpucluster.catalog import load as load_catalog  # noqa: PLC0415  sandbox and tests hand in a plan
    from gpucluster.engine.error_attribution import explainer  # noqa: PLC0415
    from gpucluster.engine.spec_source import source_of  # noqa: PLC0415
    from gpucluster.plan.resolve import resolve  # noqa: PLC0415
    from gpucluster.spec import load as load_spec  # noqa: PLC0415

    file = Path("stacks") / f"{pulumi.get_stack()}.yaml"
    made = resolve(load_spec(file), load_catalog())
    source = source_of(file, made)
    if source.dirty:
        pulumi.log.warn(source.warning(file))
    plan = apply_overlays(made)
    explain_failures(explainer(plan))
    declare(plan, source)


def declare(plan: ClusterPlan, source: SpecSource | None = None) -> None:
    """Declare every resource of the plan inside a running program, and export what its users read.

    `source`: the spec that the plan is made of, for the bundle; None for a plan of no file.
    """
    match plan:
        case SlurmOnAws():
            _slurm(plan, source)
        case KubernetesOnAws(kubernetes=Kubernetes(control_plane=EksControlPlane() as plane)):
            _kubernetes(plan, plane)
        case _:
            raise _unable(plan)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Site:
    """What every cluster on AWS begins with."""

    provider: aws.Provider
    options: pulumi.ResourceOptions
    key: Key
    network: Network


def _site(plan: AwsPlan) -> _Site:
    provider = aws.Provider(  # region and tags come from the spec alone, keys from the environment
        "aws", region=plan.aws.region, default_tags={"tags": cost_tags(plan)}
    )
    options = pulumi.ResourceOptions(provider=provider)
    return _Site(
        provider=provider,
        options=options,
        key=look_up_key(plan, provider),
        network=Network(plan, options),
    )


def _kubernetes(plan: KubernetesOnAws, plane: EksControlPlane) -> None:
    """Declare a cluster with Kubernetes alone."""
    site = _site(plan)
    storage = Storage(plan, site.network, site.key, site.options)
    cluster = declare_eks(plan, plan.kubernetes, plane, network=site.network, key=site.key, opts=site.options)
    pulumi.export("bindings", kubernetes_bindings(plan, site.network, storage))
    pulumi.export("cluster", cluster.name)


def _slurm(plan: SlurmOnAws, source: SpecSource | None) -> None:
    """Declare a cluster with Slurm, and the Kubernetes beside it if EKS runs it."""
    site = _site(plan)
    options, key, network = site.options, site.key, site.network
    # An S3 object takes ten tags, and the site may have forty: objects get no default tags. `override_provider` of an
    # object is no way: Pulumi's provider merges the default tags before it reads that (`applyTags`).
    objects = aws.Provider("aws-objects", region=plan.aws.region)
    images = Images(plan, site.provider)
    bucket = Bucket(plan.name, key, options)
    secrets = MungeSecret(plan.name, key, options)
    storage = Storage(plan, network, key, options)
    stores = Stores(bucket=bucket, secrets=secrets, storage=storage, key=key)
    events = Events(plan.name, options)
    node = NodeIdentity(plan, stores, options)
    pools = Pools(plan, images=images, network=network, node=node.node, stores=stores, opts=options)
    bundle = Bundle(
        plan,
        stores=stores,
        network=network,
        pools=pools,
        events=events,
        node=node,
        source=source,
        opts=options,
        objects=objects,
    )
    identity = HeadIdentity(
        plan,
        images=[found.image_id for found in images.every()],
        stores=stores,
        network=network,
        node=node,
        events=events,
        opts=options,
    )
    head = Head(
        plan,
        image=images.default.image_id,
        stores=stores,
        network=network,
        profiles=identity.profiles,
        after=[bundle, identity, node, network, *storage.ready],
        opts=options,
    )
    plane = eks_of(plan)
    if plan.kubernetes is not None and plane is not None:
        declare_eks(
            plan, plan.kubernetes, plane, network=network, key=key, own_bucket=bucket.arn, opts=options
        )
    if plan.budget is not None:
        Budget(plan.name, plan.budget, options)
    pulumi.export("bindings", bundle.bindings)
    pulumi.export("bucket", bucket.name)
    pulumi.export("head", head.id)
    if plan.login is not None:
        login = _login(plan, plan.login, images, stores, network, after=bundle, opts=options)
        pulumi.export("login", dict(login.addresses))


def _login(
    plan: SlurmOnAws,
    machines: LoginPlan,
    images: Images,
    stores: Stores,
    network: Network,
    *,
    after: Bundle,
    opts: pulumi.ResourceOptions,
) -> Login:
    """Declare the login machines with their role."""
    identity = LoginIdentity(plan, stores, opts)
    return Login(
        plan,
        machines,
        image=images.default.image_id,
        stores=stores,
        network=network,
        profile=identity.login.profile,
        after=[after, identity, network, *stores.storage.ready],
        opts=opts,
    )


def _unable(plan: SlurmOnHosts | KubernetesOnAws) -> GpuclusterError:
    """Return the error for a cluster on hosts or in a Kubernetes that exists: Pulumi creates nothing for it."""
    why = "its spec has no `aws:`" if plan.aws is None else "its spec names a Kubernetes that exists"
    return GpuclusterError(
        f"Pulumi creates nothing for the cluster '{plan.name}', for {why}",
        next_step=f"gpucluster render stacks/{plan.name}.yaml, for a cluster that is there already",
    )
