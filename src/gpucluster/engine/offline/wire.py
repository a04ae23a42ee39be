"""Convert property values from the protocol for reviewers: secrets and unknown values become fixed words."""

from collections.abc import Iterable, Mapping
from typing import Final, cast

from google.protobuf import json_format, struct_pb2

from gpucluster.engine.offline.model import SECRET, UNKNOWN, Value
from gpucluster.engine.values import UNKNOWN_ON_WIRE

# The protocol marks special objects with the key SIGNATURE.
SIGNATURE: Final = "4dabf18193072939515e22adb298388d"
SECRET_VALUE: Final = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105
ASSET: Final = "c44067f5952c0a294b673a41bacd8c17"
ARCHIVE: Final = "0def7320c3a5731c473e5ecbe6d01bc7"
REFERENCE: Final = "5cf8f73096256a8f31e491e813e4eb8e"

Shown = dict[str, Value]


def shown(struct: struct_pb2.Struct, *, secret: Iterable[str] = ()) -> Shown:
    """Return properties by name, sorted. Properties in `secret` are always masked."""
    hidden = frozenset(secret)
    plain: Shown = json_format.MessageToDict(struct)
    return {name: SECRET if name in hidden else _readable(plain[name]) for name in sorted(plain)}


def _readable(value: Value) -> Value:
    if value == UNKNOWN_ON_WIRE:
        return UNKNOWN
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return _object(cast(Shown, value))
    if isinstance(value, list):
        return [_readable(one) for one in cast(list[Value], value)]
    return value


def _object(value: Shown) -> Value:
    mark = value.get(SIGNATURE)
    if mark == SECRET_VALUE:
        return SECRET
    if mark == REFERENCE:
        return value["urn"]
    content: Mapping[str, Value] = {k: _readable(value[k]) for k in sorted(value) if k != SIGNATURE}
    if mark in {ASSET, ARCHIVE}:
        return {"asset" if mark == ASSET else "archive": content}
    return content
