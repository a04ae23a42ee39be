"""`gpucluster down` after its question, and a stand-in of a cluster that records the calls."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from gpucluster.cli.down import Emptied, empty
from gpucluster.cli.down_jobs import Jobs
from gpucluster.cli.down_plan import plan_of
from gpucluster.cli.down_world import ClusterAccess, Stack, World
from gpucluster.cloud.network_interfaces import Network, Occupant
from gpucluster.cloud.port import CloudError, CloudPort, Control, Instance, Scaling
from gpucluster.engine.deployment import DeployedResource
from gpucluster.engine.events import Change, Outcome


def emptied(access: ClusterAccess, *, delete_data: bool = False) -> Emptied:
    """Destroy what a plan shows now."""
    return empty(access, plan_of(access, delete_data=delete_data))


ACCOUNT = "123456789012"
BUCKET = DeployedResource(type="aws:s3/bucket:Bucket", name="burst", id="burst-1")
VPC = DeployedResource(
    type="aws:ec2/vpc:Vpc",
    name="burst",
    id="vpc-1",
    outputs={"arn": f"arn:aws:ec2:us-west-2:{ACCOUNT}:vpc/vpc-1"},
)
GROUND = replace(VPC, retained=True)
DISK = DeployedResource(
    type="aws:ebs/volume:Volume",
    name="burst-state",
    id="vol-1",
    protected=True,
    retained=True,
    outputs={"size": 100.0, "type": "gp3"},
)


@dataclass
class Cluster:
    """A stand-in of a cluster that records the calls."""

    deployed: tuple[DeployedResource, ...] = (BUCKET, VPC)
    stop_fails: CloudError | None = None
    inside: tuple[Occupant, ...] = ()
    calls: list[str] = field(default_factory=list[str])
    world: World = World.AWS
    account: str = ACCOUNT
    machines: tuple[Instance, ...] = ()
    listing_fails: CloudError | None = None
    jobs: Jobs = field(default_factory=lambda: Jobs(running={}, waiting={}))
    control: Control = field(default_factory=Control)

    @property
    def changes(self) -> list[str]:
        """The calls that change something."""
        return [one for one in self.calls if one.split(" ")[0] in ("stop", "terminate", "destroy", "release")]

    def place(self, region: str | None = None) -> ClusterAccess:
        return ClusterAccess(
            stack=Stack(world=self.world, name="burst", project="gpucluster"),
            account=lambda _: self.account,
            jobs=lambda _: self.jobs,
            resources=lambda: self.deployed,
            destroy=lambda _: self.destroy(),
            release=self.release,
            cloud=lambda _: cast("CloudPort", self),
            occupants=lambda _: Inside(self),
            launched=lambda _: frozenset(),
            control=lambda name, bucket: self.note(f"control {name} {bucket}"),
            region=region,
        )

    def note(self, text: str) -> Any:
        self.calls.append(text)
        return self

    def read(self) -> Control:
        return self.control

    def scale(self, scaling: Scaling, by: str) -> Control:
        if self.stop_fails:
            raise self.stop_fails
        self.calls.append(scaling.value)
        before, self.control = self.control, Control(scaling=scaling, by=by)
        return before

    def instances(self, cluster: str, also: Sequence[str] = ()) -> tuple[Instance, ...]:
        self.calls.append(f"instances {cluster} {' '.join(also)}".strip())
        if self.listing_fails:
            raise self.listing_fails
        return self.machines

    def terminate(self, ids: Sequence[str]) -> tuple[str, ...]:
        self.calls.append(f"terminate {' '.join(ids)}")
        self.machines = tuple(one for one in self.machines if one.id not in ids)
        return ()

    def destroy(self) -> Outcome:
        self.calls.append("destroy")
        self.deployed = tuple(one for one in self.deployed if one.retained)
        gone = Change(
            op="delete", urn="urn:pulumi:b::g::gpucluster:aws:N$aws:ec2/vpc:Vpc::burst", properties=()
        )
        component = Change(op="delete", urn="urn:pulumi:b::g::gpucluster:aws:N::burst", properties=())
        return Outcome(counts={"delete": 2}, changes=(gone, component))

    def release(self) -> None:
        self.calls.append("release")
        self.deployed = tuple(replace(one, protected=False, retained=False) for one in self.deployed)


@dataclass
class Inside:
    """What is in the network of the cluster. No id of the journal is listed any more."""

    cluster: Cluster

    def occupants(self, network: Network) -> tuple[Occupant, ...]:
        self.cluster.calls.append(f"occupants {' '.join(network.vpcs)}")
        return self.cluster.inside

    def instances(self, ids: Sequence[str]) -> tuple[Instance, ...]:
        assert not ids
        return ()
