"""What the building of an image asks of the cloud and of this desk. Each call of the cloud's may raise CloudError."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from gpucluster.catalog.image import System
from gpucluster.cloud.port import InstanceState


class ImageState(StrEnum):
    """EC2's words, as far as they matter here."""

    PENDING = "pending"
    AVAILABLE = "available"
    FAILED = "failed"
    OTHER = "other"  # disabled, deregistered, invalid, transient, error


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseImage:
    """The maker's image that ours begins with."""

    id: str
    name: str
    root_device: str = "/dev/sda1"


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeImage:
    """An image of the account's own."""

    id: str
    name: str
    state: ImageState
    digest: str | None
    created: str  # ISO, the cloud's clock
    reason: str = ""  # the cloud's words for a failure
    snapshots: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """A machine that builds an image, or did when its desk was killed."""

    id: str
    state: InstanceState
    desk: str  # who launched it
    launched_at: float
    address: str | None = None  # public where it has one, else private


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where a builder stands."""

    subnet: str
    vpc: str
    zone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One builder to launch."""

    image: str
    machine: str
    subnet: str
    groups: tuple[str, ...]
    user_data: str
    profile: str | None  # of an instance, by name
    root_gib: int
    tags: Mapping[str, str]
    root_device: str = "/dev/sda1"


class Account(Protocol):
    """EC2 of one region."""

    def base(self, system: System) -> BaseImage | None:
        """The newest of the maker's images; None: there is none in this region."""
        ...

    def images(self, name: str) -> tuple[MadeImage, ...]:
        """Images of ours of that name, newest first; a deprecated one, too."""
        ...

    def image(self, image_id: str) -> MadeImage | None:
        """One of ours; None while the cloud does not show it yet."""
        ...

    def builders(self, name: str) -> tuple[Builder, ...]:
        """Builders of that image which have not ended."""
        ...

    def builder(self, instance: str) -> Builder | None:
        """One of them; None while the cloud does not show it yet."""
        ...

    def ground(self, subnet: str | None) -> Ground | None:
        """That subnet, or the default VPC's first; None: there is none."""
        ...

    def open_group(self, name: str, vpc: str, ssh_from: Sequence[str], tags: Mapping[str, str]) -> str:
        """Make a security group that these ranges reach by ssh."""
        ...

    def groups(self, name: str) -> tuple[str, ...]:
        """Such groups that are left."""
        ...

    def delete_group(self, group: str) -> None:
        """Delete one; idempotent."""
        ...

    def launch(self, order: Order) -> str:
        """Launch one builder; its id."""
        ...

    def console(self, instance: str) -> str:
        """What its console shows; empty while there is nothing."""
        ...

    def stop(self, instance: str) -> None:
        """Ask for its stop."""
        ...

    def terminate(self, instances: Sequence[str]) -> None:
        """Ask for their end; idempotent."""
        ...

    def create_image(self, instance: str, name: str, tags: Mapping[str, str]) -> str:
        """Image a stopped machine; image and snapshots get the tags."""
        ...

    def discard(self, image: MadeImage) -> None:
        """Deregister an image and delete its snapshots; idempotent."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a builder is reached by ssh."""

    host: str  # address, or the instance's id where Session Manager carries the connection
    user: str
    host_keys: tuple[str, ...]  # `ssh-ed25519 AAAA...`, as its console says


class Desk(Protocol):
    """This machine: keys, ssh, Ansible."""

    @property
    def name(self) -> str:
        """Who we are, for the builder's tag."""
        ...

    def public_key(self) -> str:
        """A key of this build's own; it goes with the build."""
        ...

    def answers(self, way: Way) -> bool:
        """Whether the builder takes our key now."""
        ...

    def play(self, way: Way, variables: Mapping[str, object], tags: Sequence[str]) -> None:
        """Run the image's playbook on it; GpuclusterError with the end of its words."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the operator chooses."""

    region: str
    machine: str = "m7i.2xlarge"
    subnet: str | None = None
    group: str | None = None  # theirs; None: one of ours for this build
    ssh_from: tuple[str, ...] = ()
    ssm: bool = False
    profile: str | None = None
    root_gib: int = 60
    force: bool = False
    files: Path | None = None
