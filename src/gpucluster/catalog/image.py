"""What a machine image is made of: the systems to begin with, and the pinned parts. Data with source and date."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parent / "data" / "image.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A maker's own image that ours begins with: pinned by who owns it and how it is called."""

    owner: str  # AWS account
    owner_name: str
    pattern: str  # of the name; the newest is taken
    architecture: str
    user: str  # whom cloud-init gives the key
    python: str  # the system's, for the wheels
    kernel: str  # its package, held once modules are built for it
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One part of the image. A part with a `file` needs that file at hand; its digest may not be known to us yet."""

    part: str  # the playbook's tag
    version: str
    file: str | None
    upstream: str  # who makes it, in words: no address stands here
    sha256: str | None
    packages: tuple[str, ...]
    source: str
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """The catalog of images."""

    source: str
    date: str
    systems: Mapping[str, System]  # by the spec's `os`
    pins: Mapping[str, Pin]  # `slurm-24.11`, `efa`

    def slurm_versions(self) -> tuple[str, ...]:
        """Versions that can be built."""
        found = (name.removeprefix("slurm-") for name in self.pins if name.startswith("slurm-"))
        return tuple(sorted(found))


@cache
def image_facts() -> ImageFacts:
    """The image's catalog of this release."""
    table = json.loads(_FILE.read_text(encoding="utf-8"))
    return ImageFacts(
        source=table["source"],
        date=table["date"],
        systems={name: System(**row) for name, row in table["systems"].items()},
        pins={name: _pin(row) for name, row in table["pins"].items()},
    )


def _pin(row: dict[str, Any]) -> Pin:
    packages: list[str] = row["packages"]
    rest: dict[str, Any] = {**row, "packages": tuple(packages)}
    return Pin(**rest)
