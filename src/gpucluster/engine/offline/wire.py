"""Property values as they come over the wire, told as a reviewer may see them: secrets and unknowns are words."""

from collections.abc import Iterable, Mapping
from typing import Final, cast

from google.protobuf import json_format, struct_pb2

from gpucluster.engine.offline.model import SECRET, UNKNOWN, Value
from gpucluster.engine.provider.values import UNKNOWN_ON_WIRE

# The protocol's own marks: an object with SIGNATURE is not a plain one.
SIGNATURE: Final = "4dabf18193072939515e22adb298388d"
SECRET_VALUE: Final = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105
ASSET: Final = "c44067f5952c0a294b673a41bacd8c17"
ARCHIVE: Final = "0def7320c3a5731c473e5ecbe6d01bc7"
REFERENCE: Final = "5cf8f73096256a8f31e491e813e4eb8e"

Shown = dict[str, Value]


def shown(struct: struct_pb2.Struct, *, secret: Iterable[str] = ()) -> Shown:
    """Properties by name, sorted; those of `secret` are masked whatever they are."""
    hidden = frozenset(secret)
    plain: Shown = json_format.MessageToDict(struct)
    return {name: SECRET if name in hidden else _told(plain[name]) for name in sorted(plain)}


def _told(value: Value) -> Value:
    if value == UNKNOWN_ON_WIRE:
        return UNKNOWN
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return _object(cast(Shown, value))
    if isinstance(value, list):
        return [_told(one) for one in cast(list[Value], value)]
    return value


def _object(value: Shown) -> Value:
    mark = value.get(SIGNATURE)
    if mark == SECRET_VALUE:
        return SECRET
    if mark == REFERENCE:
        return value["urn"]
    content: Mapping[str, Value] = {k: _told(value[k]) for k in sorted(value) if k != SIGNATURE}
    if mark in {ASSET, ARCHIVE}:
        return {"asset" if mark == ASSET else "archive": content}
    return content
