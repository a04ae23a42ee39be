"""The bundle: plan, bindings and rendered files as one object under one fixed key."""

import base64
from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.artifacts import Artifact, pack
from gpucluster.aws.events import Events
from gpucluster.aws.iam_roles import NodeIdentity
from gpucluster.aws.network import Network
from gpucluster.aws.pools import Pools
from gpucluster.aws.storage import FileSystem, Storage, Stores
from gpucluster.plan import codec
from gpucluster.plan.model import (
    Bindings,
    FileSystemBinding,
    KubernetesOnAws,
    SlurmOnAws,
    TemplateBinding,
)
from gpucluster.plan.names import BINDINGS_FILE, BUNDLE_KEY, PLAN_FILE, ROLE_NODE, TAG_CLUSTER
from gpucluster.plan.spec_source import SpecSource, artifact

BINDINGS_SCHEMA = 1


class Bundle(pulumi.ComponentResource):
    """One object. It changes with every id and version in the bindings."""

    bindings: Output[str]  # JSON of model.Bindings

    def __init__(
        self,
        plan: SlurmOnAws,
        *,
        stores: Stores,
        network: Network,
        pools: Pools,
        events: Events,
        node: NodeIdentity,
        source: SpecSource | None,
        opts: ResourceOptions,
        objects: pulumi.ProviderResource,
    ) -> None:
        super().__init__("gpucluster:aws:Bundle", plan.name, None, opts)
        known = Output.all(
            bucket=stores.bucket.name,
            secret=stores.secrets.munge,
            subnets=dict(network.vpc_context.private),
            ids=dict(pools.ids),
            versions=dict(pools.versions),
            queue=events.queue,
            file_systems={path: _fields(made) for path, made in stores.storage.file_systems.items()},
            volumes=dict(stores.storage.volumes),
            placement_groups=dict(pools.placement_groups),
            jobs_role=node.jobs,
            groups={ROLE_NODE: network.groups.ids[ROLE_NODE]},
            account=network.vpc_context.account,
        )
        self.bindings = known.apply(lambda seen: codec.dumps(bindings(plan.aws.region, seen)))
        aws.s3.BucketObjectv2(
            f"{plan.name}-bundle",
            bucket=stores.bucket.name,
            key=BUNDLE_KEY,
            content_base64=self.bindings.apply(
                lambda text: base64.b64encode(bundle(plan, text, source)).decode()
            ),
            content_type="application/gzip",
            tags={TAG_CLUSTER: plan.name},  # the provider has no default tags
            opts=ResourceOptions(parent=self, provider=objects),
        )
        self.register_outputs({"bindings": self.bindings})


def bindings(region: str, seen: Mapping[str, Any]) -> Bindings:
    """Return the outputs of Pulumi as Bindings. Pulumi may pass a version as a float."""
    templates = {k: TemplateBinding(id=v, version=int(seen["versions"][k])) for k, v in seen["ids"].items()}
    return Bindings(
        schema=BINDINGS_SCHEMA,
        region=region,
        bucket=seen["bucket"],
        secret=seen["secret"],
        subnets=dict(seen["subnets"]),
        templates=templates,
        queue=seen["queue"],
        file_systems={mount: FileSystemBinding(**fields) for mount, fields in seen["file_systems"].items()},
        volumes=dict(seen["volumes"]),
        placement_groups=dict(seen["placement_groups"]),
        jobs_role=seen["jobs_role"],
        groups=dict(seen["groups"]),
        account=seen["account"],
    )


def kubernetes_bindings(plan: KubernetesOnAws, network: Network, storage: Storage) -> Output[str]:
    """Return the bindings of a cluster without Slurm, for `gpucluster render --bindings`. It has no bucket and no munge key."""
    known = Output.all(
        subnets=dict(network.vpc_context.private),
        file_systems={path: _fields(made) for path, made in storage.file_systems.items()},
        account=network.vpc_context.account,
    )
    nothing: dict[str, Any] = {
        "bucket": "",
        "secret": "",
        "ids": {},
        "versions": {},
        "queue": "",
        "volumes": {},
    }
    more: dict[str, Any] = {"placement_groups": {}, "jobs_role": "", "groups": {}}
    return known.apply(lambda seen: codec.dumps(bindings(plan.aws.region, {**nothing, **more, **seen})))


def bundle(plan: SlurmOnAws, bindings_text: str, source: SpecSource | None = None) -> bytes:
    """Return the bytes of the archive. `source`: None if the plan is made of no file."""
    from gpucluster.slurm.config.render import render  # noqa: PLC0415  only a run that gets so far renders

    own = (
        Artifact(PLAN_FILE, codec.dumps(plan).encode()),
        Artifact(BINDINGS_FILE, bindings_text.encode()),
    )
    return pack((*own, *([] if source is None else [artifact(source)]), *render(plan)))


def _fields(made: FileSystem) -> dict[str, Any]:
    return {
        "id": made.id,
        "dns_name": made.dns_name,
        "mount_name": made.mount_name,
        "access_point": made.access_point,
    }
