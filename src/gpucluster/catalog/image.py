"""The parts of a machine image: base systems, pinned packages, and the accounts that packages own. Data with source and date."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from gpucluster.catalog.data_files import read_data
from gpucluster.catalog.nvswitch import fabric_packages


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A vendor's base image, pinned by owner and name."""

    owner: str  # AWS account
    owner_name: str
    pattern: str  # pattern of the name; the newest match is used
    architecture: str
    user: str  # the user that cloud-init gives the SSH key to
    python: str  # Python version of the system, for the wheels
    kernel: str  # the kernel package; held back once modules are built for it
    lustre_series: tuple[str, ...]  # kernel series that the Lustre client supports
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One part of the image. A part with `file` needs a local file; its digest may be unknown."""

    part: str  # the playbook's tag
    version: str
    file: str | None
    upstream: str  # the vendor's name, not an address
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
        """Return the Slurm versions that can be built."""
        found = (name.removeprefix("slurm-") for name in self.pins if name.startswith("slurm-"))
        return tuple(sorted(found))


@cache
def image_facts() -> ImageFacts:
    """Return the image catalog of this release."""
    table = read_data("image.json")
    return ImageFacts(
        source=table["source"],
        date=table["date"],
        systems={name: _system(row) for name, row in table["systems"].items()},
        pins={name: _pin(row) for name, row in table["pins"].items()},
    )


def account_owner(name: str) -> str | None:
    """Return the package or agent that owns an account or group of this name; None: no known one."""
    return _account_owners().get(name)


@cache
def _account_owners() -> dict[str, str]:
    rows = read_data("system-users.json")["accounts"]
    return {name: row["owner"] for row in reversed(rows) for name in row["names"]}


def _system(row: dict[str, Any]) -> System:
    series: list[str] = row["lustre_kernels"]["series"]
    rest = {key: value for key, value in row.items() if key != "lustre_kernels"}
    return System(**rest, lustre_series=tuple(series))


def _pin(row: dict[str, Any]) -> Pin:
    packages: list[str] = row["packages"]
    rest: dict[str, Any] = {**row, "packages": tuple(packages)}
    return Pin(**rest)


def lacking_in_image(machine: str) -> tuple[str, ...]:
    """Return the packages for the machine's NVSwitch that an image without optional parts does not have."""
    built = {package for pin in image_facts().pins.values() if not pin.optional for package in pin.packages}
    return tuple(package for package in fabric_packages(machine) if package not in built)
