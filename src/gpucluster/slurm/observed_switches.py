"""The switches that EC2 reports above always-on and reserved nodes, below the leaf switch of their pool and zone.

The plan gives each pool one leaf in each zone. Its nodes may be below several switches of the building. `divided` writes
these switches into the rendered topology.conf; slots without a known place are below a switch of their own, and the name
of the pool's leaf becomes the name of the switch above all of them. Pure; standard library only: the head runs it.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping

from gpucluster.json_text import parse_json
from gpucluster.plan.model import Leaf, SlurmOnAws
from gpucluster.slurm.hostlist import fold

Places = Mapping[str, tuple[str, ...]]  # slot -> the switches above it, the nearest last

MAX_BYTES = 16 << 20
MOST_LAYERS = 8
_ID = re.compile(r"nn-([0-9a-f]{8,40})")


def dumps(places: Places) -> str:
    """The places as a file."""
    return json.dumps({slot: list(path) for slot, path in sorted(places.items())}, indent=1) + "\n"


def loads(text: str) -> Places:
    """The places of a file. ValueError for any other content: another user of the machine writes the file."""
    found: object = parse_json(text)
    if not isinstance(found, dict):
        raise ValueError("it is no mapping of slots")  # noqa: TRY004 - a file is a value
    return {str(slot): _path(path) for slot, path in found.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def observed_slots(plan: SlurmOnAws) -> tuple[str, ...]:
    """The slots whose machines stay: always-on ones, and all of a pool whose first source is a reservation or a block."""
    return tuple(
        slot
        for pool in plan.pools
        for slot in (
            (name for span in pool.slots for name in span)
            if pool.sources[0].reservation
            else pool.always_on()
        )
    )


def divided(text: str, leaves: Iterable[Leaf], places: Places) -> str:
    """topology.conf with the switches of the places. The text stays as it is where all places have one switch."""
    lines = {f"SwitchName={leaf.name} Nodes={leaf.hostlist}": tuple(_lines(leaf, places)) for leaf in leaves}
    return "".join("".join(f"{new}\n" for new in lines.get(line, (line,))) for line in text.splitlines())


def _lines(leaf: Leaf, places: Places) -> Iterator[str]:
    slots = [slot for span in leaf.slots for slot in span]
    known = [(slot, places[slot]) for slot in slots if places.get(slot)]
    if len({path for _, path in known}) < 2:
        yield f"SwitchName={leaf.name} Nodes={leaf.hostlist}"
        return
    below = list[str]()
    for name, group in _groups(leaf.name, known):
        below.append(name)
        yield from _switch(name, leaf.name, group)
    rest = [slot for slot in slots if not places.get(slot)]
    if rest:
        below.append(f"{leaf.name}-elsewhere")
        yield f"SwitchName={leaf.name}-elsewhere Nodes={fold(rest)}"
    yield f"SwitchName={leaf.name} Switches={','.join(below)}"


_Placed = list[tuple[str, tuple[str, ...]]]


def _groups(leaf: str, placed: _Placed) -> Iterator[tuple[str, _Placed]]:
    """The slots by their highest switch that divides them, each with the rest of its path."""
    while len({path[0] for _, path in placed}) == 1 and all(len(path) > 1 for _, path in placed):
        placed = [(slot, path[1:]) for slot, path in placed]
    for first in sorted({path[0] for _, path in placed}):
        match = _ID.fullmatch(first)
        name = f"{leaf}-{match[1] if match else first}"
        yield name, [(slot, path[1:]) for slot, path in placed if path[0] == first]


def _switch(name: str, leaf: str, placed: _Placed) -> Iterator[str]:
    """A switch with those below it, the lower ones first."""
    if any(not path for _, path in placed) or len({path for _, path in placed}) < 2:
        yield f"SwitchName={name} Nodes={fold(slot for slot, _ in placed)}"
        return
    below = list[str]()
    for other, group in _groups(leaf, placed):
        below.append(other)
        yield from _switch(other, leaf, group)
    yield f"SwitchName={name} Switches={','.join(below)}"


def _path(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MOST_LAYERS:  # pyright: ignore[reportUnknownArgumentType]
        raise ValueError("a slot has no list of switches")
    words = tuple(str(one) for one in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if not all(_ID.fullmatch(word) for word in words):
        raise ValueError("a switch has no id of EC2: nn- and digits of 0-9 and a-f")
    return words
