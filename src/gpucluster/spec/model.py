"""What the user wrote, typed. Field names are the spec's own words; an absent wish is None (the plan decides).

To add a field: here with its update class, out of `unsupported.py`, then plan, renderer, a stack and a test.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from gpucluster.spec.aws import Access, Aws, PoolImage
from gpucluster.spec.aws_fields import PlacementWish
from gpucluster.spec.care import Breaker, Farewell, Hung
from gpucluster.spec.fields import (
    MAX_NODES,
    BootTimeout,
    Count,
    Flag,
    Idle,
    MaxTime,
    Name,
    PartitionName,
    PositiveCount,
    ReservationId,
    SchemaVersion,
    Source,
    Text,
    UpdateClass,
    Version,
    wish,
)
from gpucluster.spec.head import Head, Login
from gpucluster.spec.host_fields import Addresses, Hostlist
from gpucluster.spec.hosts import HostMachine, Hosts, Topology, User
from gpucluster.spec.kubernetes import Kubernetes, RunsField, Sharing
from gpucluster.spec.money import Budget, HourlyPrice
from gpucluster.spec.part import Part
from gpucluster.spec.people import Accept, Directory
from gpucluster.spec.storage import Storage


class Slurm(Part):
    """The scheduler."""

    version: Version = wish(UpdateClass.STOP_FLEET, 'Slurm release, quoted: "24.11".')
    topology: Topology | None = wish(
        UpdateClass.STOP_FLEET, "Switches above hosts that exist; a cloud's are its zones.", default=None
    )


class Nodes(Part):
    """How many nodes live at once, over all zones; `nodes: 4` is min = max = 4."""

    min: Count = wish(UpdateClass.LIVE, "How many are always on.")
    max: PositiveCount = wish(UpdateClass.LIVE, "The most that live at once.")

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, value: Any) -> Any:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return {"min": value, "max": value} if whole else value

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
    """One way to get machines, tried in the order written."""

    source: Source = wish(UpdateClass.NEW_NODES, "How they are bought.", alias="from")
    machines: tuple[Text, ...] = wish(
        UpdateClass.NEW_NODES, "Machine types in order of preference.", min_length=1
    )
    id: ReservationId | None = wish(
        UpdateClass.NEW_NODES, "Of the reservation or the capacity block: `cr-…`.", default=None
    )
    max_price: HourlyPrice | None = wish(
        UpdateClass.NEW_NODES, "The most to pay for a spot machine: `40 USD/h`.", default=None
    )
    max: PositiveCount | None = wish(UpdateClass.LIVE, "The most that live at once from here.", default=None)
    zones: tuple[Text, ...] | None = wish(
        UpdateClass.DRAIN, "Only in these of the network's zones.", default=None, min_length=1
    )


class Pool(Part):
    """Nodes that look the same to whatever schedules them."""

    name: Name = wish(UpdateClass.DRAIN, "Begins the nodes' names: `NAME-1a-1`.")
    runs: RunsField | None = wish(
        UpdateClass.REPLACE, "What schedules it; needed where there are two.", default=None
    )
    nodes: Nodes | None = wish(UpdateClass.LIVE, "How many; hosts that exist are counted.", default=None)
    idle: Idle | None = wish(
        UpdateClass.LIVE, "An elastic node ends after so long without a job.", default=None
    )
    boot_timeout: BootTimeout | None = wish(
        UpdateClass.LIVE, "A node that has not registered after so long has failed.", default=None
    )
    capacity: tuple[Capacity, ...] = wish(
        UpdateClass.NEW_NODES, "Where a cloud's machines come from.", default=(), min_length=1
    )
    spares: Count = wish(UpdateClass.LIVE, "Idle nodes kept up beside those that work.", default=0)
    farewell: Farewell | None = wish(
        UpdateClass.LIVE, "What a job gets before its machine goes.", default=None
    )
    hung: Hung | None = wish(UpdateClass.LIVE, "When a job that beats is taken for hung.", default=None)
    breaker: Breaker | None = wish(UpdateClass.LIVE, "When failed boots stop the pool.", default=None)
    image: PoolImage | None = wish(
        UpdateClass.NEW_NODES, "What its machines boot from, instead of the cluster's.", default=None
    )
    placement: PlacementWish | None = wish(
        UpdateClass.NEW_NODES,
        "`cluster`: near each other in a zone; where there is EFA, if absent.",
        default=None,
    )
    sharing: Sharing | None = wish(
        UpdateClass.DRAIN, "How each GPU serves several pods of Kubernetes.", default=None
    )
    machine: Name | None = wish(UpdateClass.DRAIN, "What the hosts are: a name of `machines`.", default=None)
    hosts: Hostlist | None = wish(
        UpdateClass.DRAIN, "Short names of hosts that exist: `gpu[01-04]`.", default=None
    )
    addresses: Addresses | None = wish(
        UpdateClass.DRAIN, "Their addresses, in the same order: `192.0.2.[11-14]`.", default=None
    )


class Partition(Part):
    """A queue over whole pools."""

    name: PartitionName = wish(UpdateClass.DRAIN, "Name for `sbatch -p`.")
    pools: tuple[Text, ...] = wish(UpdateClass.LIVE, "Its pools.", min_length=1)
    default: Flag = wish(UpdateClass.LIVE, "Jobs that name no partition come here.", default=False)
    max_time: MaxTime | None = wish(
        UpdateClass.LIVE, "The longest a job may run; no limit if absent.", default=None
    )


class ClusterSpec(Part):
    """A cluster, as a person wishes it."""

    format: SchemaVersion = wish(UpdateClass.NONE, "Version of this format.", alias="schema")
    name: Name = wish(UpdateClass.DATA_LOSS, "Name of the cluster, in every name and tag.")
    aws: Aws | None = wish(UpdateClass.REPLACE, "The cloud.", default=None)
    hosts: Hosts | None = wish(UpdateClass.REPLACE, "Hosts that exist, instead of a cloud.", default=None)
    machines: Mapping[Name, HostMachine] = wish(
        UpdateClass.DRAIN, "What the hosts are, by a name that pools use.", default_factory=dict
    )
    access: Access | None = wish(UpdateClass.LIVE, "Who reaches the login machines.", default=None)
    users: tuple[User, ...] = wish(UpdateClass.LIVE, "People on every machine.", default=(), min_length=1)
    directory: Directory | None = wish(UpdateClass.LIVE, "People by a directory, instead.", default=None)
    slurm: Slurm | None = wish(UpdateClass.STOP_FLEET, "The scheduler.", default=None)
    kubernetes: Kubernetes | None = wish(
        UpdateClass.REPLACE, "The orchestrator of services, instead of Slurm or beside it.", default=None
    )
    head: Head | None = wish(UpdateClass.RESTART, "The controller's machine on AWS.", default=None)
    login: Login | None = wish(UpdateClass.RESTART, "Machines that people log in to.", default=None)
    storage: tuple[Storage, ...] = wish(
        UpdateClass.DRAIN, "File systems on every machine.", default=(), min_length=1
    )
    pools: tuple[Pool, ...] = wish(UpdateClass.LIVE, "The compute nodes.", min_length=1)
    partitions: tuple[Partition, ...] = wish(UpdateClass.LIVE, "Slurm's queues.", default=(), min_length=1)
    budget: Budget | None = wish(
        UpdateClass.LIVE, "What Slurm's nodes may cost in a month before scaling stops.", default=None
    )
    accept: tuple[Accept, ...] = wish(
        UpdateClass.NONE, "Warnings that do not hold here, with the reason.", default=(), min_length=1
    )
