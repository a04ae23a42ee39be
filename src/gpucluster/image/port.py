"""The ports of an image build: EC2, and the machine that runs the build. Each call to EC2 may raise CloudError."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from gpucluster.catalog.image import System
from gpucluster.cloud.port import InstanceState


class ImageState(StrEnum):
    """States of an image as EC2 writes them; other states are OTHER."""

    PENDING = "pending"
    AVAILABLE = "available"
    FAILED = "failed"
    OTHER = "other"  # disabled, deregistered, invalid, transient, error


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseImage:
    """The public image of the distribution, from which the build starts."""

    id: str
    name: str
    root_device: str = "/dev/sda1"


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeImage:
    """An image of the account."""

    id: str
    name: str
    state: ImageState
    digest: str | None
    created: str  # ISO 8601, by EC2's clock
    reason: str = ""  # EC2's reason for a failure
    snapshots: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """A machine on which an image is built, or which a killed build has left."""

    id: str
    state: InstanceState
    build_host: str  # the machine that launched it
    launched_at: float
    address: str | None = None  # public if it has one, else private
    reason: str = ""  # why it ended, in EC2's words


@dataclass(frozen=True, slots=True, kw_only=True)
class BuilderSubnet:
    """The subnet of a builder."""

    subnet: str
    vpc: str
    zone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BuilderLaunch:
    """The launch of one builder."""

    image: str
    machine: str
    subnet: str
    groups: tuple[str, ...]
    user_data: str
    profile: str | None  # name of the instance profile
    root_gib: int
    tags: Mapping[str, str]
    root_device: str = "/dev/sda1"


class Account(Protocol):
    """EC2 of one region."""

    def base(self, system: System) -> BaseImage | None:
        """Return the newest base image; None if this region has none."""
        ...

    def images(self, name: str) -> tuple[MadeImage, ...]:
        """Return the account's images of that name, newest first, with deprecated ones."""
        ...

    def image(self, image_id: str) -> MadeImage | None:
        """Return one image of the account; None while EC2 does not show it yet."""
        ...

    def builders(self, name: str) -> tuple[Builder, ...]:
        """Return the builders of that image that are not terminated."""
        ...

    def builder(self, instance: str) -> Builder | None:
        """Return one builder; None while EC2 does not show it yet."""
        ...

    def subnet(self, subnet: str | None) -> BuilderSubnet | None:
        """Return that subnet, or the first of the default VPC; None if it does not exist."""
        ...

    def create_group(self, name: str, vpc: str, ssh_from: Sequence[str], tags: Mapping[str, str]) -> str:
        """Create a security group that admits ssh from these ranges; return its id."""
        ...

    def groups(self, name: str) -> tuple[str, ...]:
        """Return the security groups of builders of that image."""
        ...

    def delete_group(self, group: str) -> None:
        """Delete a security group; a missing one is no error."""
        ...

    def launch(self, launch: BuilderLaunch) -> str:
        """Launch one builder; return its id."""
        ...

    def console_output(self, instance: str) -> str:
        """Return the console output; empty while there is none."""
        ...

    def stop(self, instance: str) -> None:
        """Request the stop of an instance."""
        ...

    def terminate(self, instances: Sequence[str]) -> None:
        """Request the termination of instances; missing ones are no error."""
        ...

    def create_image(self, instance: str, name: str, tags: Mapping[str, str]) -> str:
        """Create an image of a stopped instance; image and snapshots get the tags. Return its id."""
        ...

    def delete_image(self, image: MadeImage) -> None:
        """Deregister an image and delete its snapshots; missing ones are no error."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SshTarget:
    """The ssh connection to a builder."""

    host: str  # address, or the instance id with Session Manager
    user: str
    host_keys: tuple[str, ...]  # `ssh-ed25519 AAAA...`, from its console


class BuildHost(Protocol):
    """The machine that runs the build: its keys, ssh, Ansible."""

    @property
    def name(self) -> str:
        """Return the name of this machine, for the tag of a builder."""
        ...

    def public_key(self) -> str:
        """Return the public key of this build. The key is deleted after the build."""
        ...

    def accepts_key(self, target: SshTarget) -> bool:
        """Return whether the builder accepts the key now."""
        ...

    def run_playbook(self, target: SshTarget, variables: Mapping[str, object], tags: Sequence[str]) -> None:
        """Run the playbook of the image on the builder; GpuclusterError with the last lines of its output."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """The options of a build."""

    region: str
    machine: str = "m7i.2xlarge"
    subnet: str | None = None
    group: str | None = None  # an existing security group; None: create one for this build
    ssh_from: tuple[str, ...] = ()
    ssm: bool = False
    profile: str | None = None
    root_gib: int = 60
    force: bool = False
    files: Path | None = None
