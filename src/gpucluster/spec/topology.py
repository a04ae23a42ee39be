"""The network of existing hosts: a tree of switches of any depth, blocks, or several named topologies."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, ValidatorFunctionWrapHandler, WithJsonSchema, WrapValidator
from typing_extensions import TypeAliasType

from gpucluster.spec.fields import Flag, SlurmName, UpdateClass, refuse, spec_field
from gpucluster.spec.host_fields import Hostlist, number, parse_hosts
from gpucluster.spec.part import Part

MAX_NODES_OF_BLOCK = 65_536

Below = tuple[str, ...] | Mapping[str, "Below"]
"""What is below a switch: the hosts of a leaf, or more switches."""


def _below(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """A text is a hostlist, a mapping has switches."""
    if isinstance(value, dict):
        if not value:
            raise refuse("empty-mapping", "the mapping is empty; it needs at least one key")
        return handler(value)
    return parse_hosts(value)


if TYPE_CHECKING:
    _Below = Below
else:
    _Below = TypeAliasType(
        "_Below",
        Annotated[
            Mapping[SlurmName, "_Below"],
            WrapValidator(_below),
            WithJsonSchema(
                {
                    "anyOf": [{"type": "string"}, {"type": "object", "minProperties": 1}],
                    "description": "Hosts of a leaf switch, or the switches below.",
                }
            ),
        ],
    )
Size = Annotated[
    int,
    BeforeValidator(number(1, MAX_NODES_OF_BLOCK)),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_NODES_OF_BLOCK}),
]


class Block(Part):
    """Blocks of nodes with a fast network inside, such as the racks of NVL72 machines."""

    blocks: Mapping[SlurmName, Hostlist] = spec_field(
        UpdateClass.STOP_FLEET, '`{rack1: "gb[01-18]"}`. Neighbours in this order form the larger sizes.'
    )
    sizes: tuple[Size, ...] | None = spec_field(
        UpdateClass.STOP_FLEET,
        "Numbers of nodes: the base size, then its multiples by powers of two. Without it: the nodes of the smallest block.",
        default=None,
        min_length=1,
    )
    imex: Flag = spec_field(
        UpdateClass.STOP_FLEET,
        "`true`: each job gets an IMEX channel, with which its GPUs on several nodes of an NVL72 rack share memory. The hosts run nvidia-imex.",
        default=False,
    )


class _Kinds(Part):
    """One of `tree`, `block` or `flat`."""

    tree: Mapping[SlurmName, _Below] | None = spec_field(
        UpdateClass.STOP_FLEET,
        "`{spine: {leaf: hosts}}`, with any number of levels. Two switches at the top have no connection: no job uses both.",
        default=None,
        min_length=1,
    )
    block: Block | None = spec_field(
        UpdateClass.STOP_FLEET, "Blocks instead of a tree. Needs Slurm 24.05.", default=None
    )


class NamedTopology(_Kinds):
    """One of several topologies."""

    flat: Flag = spec_field(
        UpdateClass.STOP_FLEET, "`true`: all nodes of the topology are equally near.", default=False
    )
    default: Flag = spec_field(
        UpdateClass.STOP_FLEET, "Partitions without `topology` use this one.", default=False
    )


class Topology(_Kinds):
    """The network between existing hosts. It has one of the three."""

    named: Mapping[SlurmName, NamedTopology] | None = spec_field(
        UpdateClass.STOP_FLEET,
        "Several topologies by name, for `partitions[].topology`. Needs Slurm 25.05.",
        default=None,
        min_length=1,
    )


def switches(tree: Mapping[str, Below], at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Below]]:
    """Every switch with its path of names from the top, a switch before those below it."""
    for name, below in tree.items():
        path = (*at, name)
        yield path, below
        if isinstance(below, Mapping):
            yield from switches(below, path)
