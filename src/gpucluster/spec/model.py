"""The typed spec. Field names are the keys of the file; None is a missing key, and the plan decides the value.

To add a field: CONTRIBUTING.md, "How to add".
"""

from collections.abc import Mapping
from typing import Any

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from gpucluster.spec.accounting import Account, Accounting, LicenseCount, Preemption, Qos
from gpucluster.spec.aws import Access, Aws, PoolImage
from gpucluster.spec.aws_fields import PlacementField
from gpucluster.spec.extra import ExtraKey, ExtraValue, extra_field, remove_field
from gpucluster.spec.fields import (
    MAX_NODES,
    BootTimeout,
    Count,
    Feature,
    Flag,
    Idle,
    LicenseName,
    MaxTime,
    Name,
    PartitionName,
    PositiveCount,
    ReservationId,
    SchemaVersion,
    SlurmName,
    Source,
    Text,
    Tier,
    UpdateClass,
    Version,
    count,
    spec_field,
)
from gpucluster.spec.head import Head, Login
from gpucluster.spec.health import Health
from gpucluster.spec.host_fields import Addresses, Hostlist
from gpucluster.spec.hosts import HostMachine, Hosts, User
from gpucluster.spec.isolation import ContainersField, NodeSsh, PrivateTmp, Software
from gpucluster.spec.kubernetes import Kubernetes, RunsField, Sharing
from gpucluster.spec.money import Budget, HourlyPrice
from gpucluster.spec.operations import BootScript, Breaker, JobHeartbeat, Termination
from gpucluster.spec.part import Part
from gpucluster.spec.people import Accept, Directory
from gpucluster.spec.reservations import Reservation
from gpucluster.spec.storage import Storage
from gpucluster.spec.topology import Topology


class Slurm(Part):
    """Slurm, the scheduler of jobs."""

    version: Version = spec_field(UpdateClass.STOP_FLEET, 'Slurm release, quoted: "24.11".')
    topology: Topology | None = spec_field(
        UpdateClass.STOP_FLEET,
        "Switches of hosts that exist. On AWS the zones are the topology.",
        default=None,
    )
    private_tmp: PrivateTmp | None = spec_field(
        UpdateClass.STOP_FLEET, "Each job's own /tmp, /var/tmp and /dev/shm. On by default.", default=None
    )
    containers: ContainersField | None = spec_field(
        UpdateClass.DRAIN,
        "How jobs run in containers: `pyxis` (Enroot, `srun --container-image`) or `apptainer`. The image needs the part of this name.",
        default=None,
    )
    software: Software | None = spec_field(
        UpdateClass.NEW_NODES, "Modules and Conda on shared storage.", default=None
    )
    node_ssh: NodeSsh | None = spec_field(
        UpdateClass.NEW_NODES, "Who may log in to compute nodes by ssh.", default=None
    )
    accounting: Accounting | None = spec_field(
        UpdateClass.RESTART,
        "Records of all jobs in a database. Without it: one line for each job in a file.",
        default=None,
    )
    preemption: Preemption | None = spec_field(
        UpdateClass.RESTART, "Jobs that may take the nodes of running jobs.", default=None
    )
    requeue: Flag | None = spec_field(
        UpdateClass.LIVE,
        "Whether batch jobs without `--requeue` or `--no-requeue` run again after a failed node. On by default.",
        default=None,
    )
    licenses: Mapping[LicenseName, LicenseCount] = spec_field(
        UpdateClass.LIVE, "Licences that jobs share, for `sbatch --licenses NAME:2`.", default_factory=dict
    )
    reservations: tuple[Reservation, ...] = spec_field(
        UpdateClass.LIVE,
        "Nodes that are kept for people or for maintenance at given times.",
        default=(),
        min_length=1,
    )
    extra: Mapping[ExtraKey, ExtraValue] = extra_field("slurm.conf")
    remove: tuple[ExtraKey, ...] = remove_field("slurm.conf")


class Nodes(Part):
    """Number of nodes over all zones. `nodes: 4` means min = max = 4."""

    min: Count = spec_field(UpdateClass.LIVE, "Number of nodes that are always on.")
    max: PositiveCount = spec_field(UpdateClass.LIVE, "Most nodes at one time.")

    instead = "a whole number or "

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            return {"min": value, "max": count(1)(value)}
        return value

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        whole = {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_NODES,
            "description": "Always on: min = max.",
        }
        return {"anyOf": [whole, handler.resolve_ref_schema(handler(schema))], "title": "Nodes"}


class Capacity(Part):
    """A source of machines. Sources are tried in their order."""

    source: Source = spec_field(UpdateClass.NEW_NODES, "Kind of the source.", alias="from")
    machines: tuple[Text, ...] = spec_field(
        UpdateClass.NEW_NODES, "Machine types in order of preference.", min_length=1
    )
    id: ReservationId | None = spec_field(
        UpdateClass.NEW_NODES, "Id of the reservation or the capacity block: `cr-…`.", default=None
    )
    max_price: HourlyPrice | None = spec_field(
        UpdateClass.NEW_NODES, "Highest price of a spot machine: `40 USD/h`.", default=None
    )
    max: PositiveCount | None = spec_field(
        UpdateClass.LIVE, "Most nodes from this source at one time.", default=None
    )
    zones: tuple[Text, ...] | None = spec_field(
        UpdateClass.DRAIN, "Only these zones of the network.", default=None, min_length=1
    )


class Pool(Part):
    """A pool has nodes of one kind."""

    name: Name = spec_field(UpdateClass.DRAIN, "Name of the pool. Node names begin with it: `NAME-1a-1`.")
    runs: RunsField | None = spec_field(
        UpdateClass.REPLACE, "`slurm` or `kubernetes`. A cluster with both needs it.", default=None
    )
    nodes: Nodes | None = spec_field(
        UpdateClass.LIVE, "Number of nodes. For hosts that exist it is their count.", default=None
    )
    idle: Idle | None = spec_field(
        UpdateClass.LIVE, "An elastic node without a job ends after this time.", default=None
    )
    boot_timeout: BootTimeout | None = spec_field(
        UpdateClass.LIVE, "A node that does not register within this time has failed.", default=None
    )
    capacity: tuple[Capacity, ...] = spec_field(
        UpdateClass.NEW_NODES, "Sources of AWS machines.", default=(), min_length=1
    )
    spares: Count = spec_field(UpdateClass.LIVE, "Number of idle nodes that stay up.", default=0)
    termination: Termination | None = spec_field(
        UpdateClass.LIVE, "What a job gets before its machine ends.", default=None
    )
    job_heartbeat: JobHeartbeat | None = spec_field(
        UpdateClass.LIVE, "When a job that sends heartbeats counts as hung.", default=None
    )
    breaker: Breaker | None = spec_field(
        UpdateClass.LIVE, "When failed boots stop launches of the pool.", default=None
    )
    on_boot: tuple[BootScript, ...] = spec_field(
        UpdateClass.NEW_NODES,
        "Scripts that each new node runs as root at its boot, in order. A failed script is a failed boot.",
        default=(),
        min_length=1,
    )
    image: PoolImage | None = spec_field(
        UpdateClass.NEW_NODES, "The image of this pool, instead of the cluster's.", default=None
    )
    placement: PlacementField | None = spec_field(
        UpdateClass.NEW_NODES,
        "`cluster` places nodes near each other in a zone. It is the default for machines with EFA.",
        default=None,
    )
    sharing: Sharing | None = spec_field(
        UpdateClass.DRAIN, "How several jobs or pods share a GPU.", default=None
    )
    machine: Name | None = spec_field(
        UpdateClass.DRAIN, "Kind of the hosts: a name of `machines`.", default=None
    )
    hosts: Hostlist | None = spec_field(
        UpdateClass.DRAIN, "Short names of hosts that exist: `gpu[01-04]`.", default=None
    )
    addresses: Addresses | None = spec_field(
        UpdateClass.DRAIN, "Addresses of the hosts, in the same order: `192.0.2.[11-14]`.", default=None
    )
    features: tuple[Feature, ...] = spec_field(
        UpdateClass.LIVE,
        "More Slurm features of the nodes, for `--constraint`: `ib`. The pool, the machine and the GPU model are features already.",
        default=(),
        min_length=1,
    )
    extra: Mapping[ExtraKey, ExtraValue] = extra_field("the pool's NodeName lines")
    remove: tuple[ExtraKey, ...] = remove_field("the pool's NodeName lines")


class Partition(Part):
    """A partition of whole pools."""

    name: PartitionName = spec_field(UpdateClass.DRAIN, "Name of the partition, for `sbatch -p`.")
    pools: tuple[Text, ...] = spec_field(UpdateClass.LIVE, "Pools of the partition.", min_length=1)
    default: Flag = spec_field(UpdateClass.LIVE, "Jobs without a partition go to this one.", default=False)
    max_time: MaxTime | None = spec_field(
        UpdateClass.LIVE, "Longest run time of a job. Without it there is no limit.", default=None
    )
    default_time: MaxTime | None = spec_field(
        UpdateClass.LIVE,
        "Time limit of a job without `--time`. Without it: 1 hour, or `max_time` if that is shorter.",
        default=None,
    )
    requires_gpus: Flag | None = spec_field(
        UpdateClass.LIVE,
        "Refuse jobs without GPUs. On by default if all pools have GPUs and another partition has a pool without GPUs or `max_cpus_per_node`.",
        default=None,
    )
    max_cpus_per_node: PositiveCount | None = spec_field(
        UpdateClass.LIVE,
        "Most CPUs of a node that the jobs of this partition use together. They get memory in proportion. Jobs above it go to further nodes: on an elastic pool they launch more machines.",
        default=None,
    )
    tier: Tier | None = spec_field(
        UpdateClass.LIVE,
        "Jobs of a partition with a higher tier start first. The default is 1.",
        default=None,
    )
    exclusive: Flag = spec_field(
        UpdateClass.LIVE, "Each job has its nodes alone, with all their CPUs, memory and GPUs.", default=False
    )
    qos: Text | None = spec_field(
        UpdateClass.LIVE, "A QOS whose limits count for all jobs of the partition.", default=None
    )
    accounts: tuple[Text, ...] = spec_field(
        UpdateClass.LIVE,
        "Only these accounts, and those below them, may use the partition.",
        default=(),
        min_length=1,
    )
    allow_qos: tuple[Text, ...] = spec_field(
        UpdateClass.LIVE, "Only jobs of these QOS may use the partition.", default=(), min_length=1
    )
    topology: SlurmName | None = spec_field(
        UpdateClass.STOP_FLEET, "One of `slurm.topology.named`. Without it: the default one.", default=None
    )
    extra: Mapping[ExtraKey, ExtraValue] = extra_field("the PartitionName line")
    remove: tuple[ExtraKey, ...] = remove_field("the PartitionName line")


class ClusterSpec(Part):
    """One cluster: its machines, its schedulers, its storage and its limits."""

    format: SchemaVersion = spec_field(UpdateClass.NONE, "Version of this format.", alias="schema")
    name: Name = spec_field(UpdateClass.DATA_LOSS, "Name of the cluster. It is part of every name and tag.")
    aws: Aws | None = spec_field(UpdateClass.REPLACE, "Where the cluster runs on AWS.", default=None)
    hosts: Hosts | None = spec_field(
        UpdateClass.REPLACE, "Hosts that exist already, instead of AWS.", default=None
    )
    machines: Mapping[Name, HostMachine] = spec_field(
        UpdateClass.DRAIN,
        "The hardware of hosts that exist, by a name that `pools[].machine` uses.",
        default_factory=dict,
    )
    access: Access | None = spec_field(
        UpdateClass.LIVE, "Who may connect to the login machines.", default=None
    )
    users: tuple[User, ...] = spec_field(
        UpdateClass.LIVE, "User accounts on every machine.", default=(), min_length=1
    )
    directory: Directory | None = spec_field(
        UpdateClass.LIVE, "User accounts from a directory, instead of `users`.", default=None
    )
    slurm: Slurm | None = spec_field(UpdateClass.STOP_FLEET, "Slurm, the scheduler of jobs.", default=None)
    kubernetes: Kubernetes | None = spec_field(
        UpdateClass.REPLACE, "Kubernetes, instead of Slurm or in addition to it.", default=None
    )
    head: Head | None = spec_field(
        UpdateClass.RESTART, "The machine of the Slurm controller on AWS.", default=None
    )
    login: Login | None = spec_field(UpdateClass.RESTART, "Login machines.", default=None)
    storage: tuple[Storage, ...] = spec_field(
        UpdateClass.DRAIN, "File systems on every machine.", default=(), min_length=1
    )
    pools: tuple[Pool, ...] = spec_field(UpdateClass.LIVE, "The compute nodes.", min_length=1)
    partitions: tuple[Partition, ...] = spec_field(
        UpdateClass.LIVE, "Slurm's queues.", default=(), min_length=1
    )
    qos: tuple[Qos, ...] = spec_field(
        UpdateClass.LIVE, "Qualities of service: priority, limits, preemption.", default=(), min_length=1
    )
    accounts: tuple[Account, ...] = spec_field(
        UpdateClass.LIVE, "Slurm's accounts: users, shares and limits.", default=(), min_length=1
    )
    health: Health | None = spec_field(
        UpdateClass.LIVE, "Health checks of Slurm's nodes. Without it there are none.", default=None
    )
    budget: Budget | None = spec_field(
        UpdateClass.LIVE, "The monthly limit on the cost of Slurm's nodes.", default=None
    )
    accept: tuple[Accept, ...] = spec_field(
        UpdateClass.NONE, "Warnings that you accept, each with a reason.", default=(), min_length=1
    )
