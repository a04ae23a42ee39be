"""Where `gpucluster down` acts: in a sandbox of this machine or on AWS, and its access to that cluster.

A name can be both. What is local is looked at first: the folder of the sandbox, and whether this folder has a Pulumi.yaml. Only
if both are there Pulumi is asked for a stack of that name.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from gpucluster.cli.output import progress
from gpucluster.errors import HostError, StateError

if TYPE_CHECKING:
    from gpucluster.cli.down_jobs import Jobs
    from gpucluster.cloud.control import S3Control
    from gpucluster.cloud.network_interfaces import OccupantsPort
    from gpucluster.cloud.port import CloudPort
    from gpucluster.engine.deployment import DeployedResource
    from gpucluster.engine.events import Outcome, Report
    from gpucluster.sandbox.state_dir import SandboxDir

_PROJECT = Path("Pulumi.yaml")


class World(StrEnum):
    """The two clouds that a name can mean. The value is the option of `down`."""

    SANDBOX = "--sandbox"
    AWS = "--aws"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """What a name can mean here."""

    sandbox: bool | None  # whether a sandbox of that name is here, running or not; None: only root can see it
    project: bool  # this folder has a Pulumi.yaml
    shell: str  # the sandbox in whose shell we are; empty: in none
    stack: Callable[[], bool]  # whether Pulumi has a stack of that name; StateError: it cannot be asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """The Pulumi stack in which a cluster is declared, and its world."""

    world: World
    name: str
    project: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """The access to one cluster: its resources, its cloud, its head and its Pulumi state."""

    stack: Stack
    resources: "Callable[[], tuple[DeployedResource, ...]]"
    destroy: "Callable[[Report], Outcome]"  # except protected resources
    release: "Callable[[], None]"  # removes the protection
    account: "Callable[[str], str]"  # of the credentials; argument: the region
    cloud: "Callable[[str], CloudPort]"  # argument: the region
    occupants: "Callable[[str], OccupantsPort]"  # argument: the region
    control: "Callable[[str, str], S3Control]"  # arguments: the region and the bucket
    launched: "Callable[[str], frozenset[str]]"  # by the daemon's journal; argument: the region
    jobs: "Callable[[str], Jobs]"  # by the head; argument: the region
    region: str | None  # None: taken from the resources


def down_line(name: str, world: World | None) -> str:
    """Return the command that destroys the cluster in its world, also if another one has a cluster of the name; None: as asked."""
    if world is None:
        return f"gpucluster down {name}"
    return f"gpucluster down {name} --sandbox" if world is World.SANDBOX else f"gpucluster down {name} --aws"


def access_of(name: str, asked: World | None) -> ClusterAccess:
    """Return the access to the cluster of that name. StateError if there is none, or if the name is both and nothing was asked for."""
    from gpucluster.cli.shell import SANDBOX
    from gpucluster.engine import find_or_build

    candidates = Candidates(
        sandbox=_sandbox_is_here(name),
        project=_PROJECT.is_file(),
        shell=os.environ.get(SANDBOX, ""),
        stack=lambda: _stack_exists(name),
    )
    if world_of(name, asked, candidates, progress) is World.AWS:
        return of_user(name, find_or_build(progress))
    from gpucluster.sandbox import state_dir

    return _of_sandbox(state_dir.living(name), find_or_build(progress))


def world_of(name: str, asked: World | None, candidates: Candidates, report: Callable[[str], None]) -> World:
    """Return what the name means. A StateError changes nothing, and says what to type."""
    if candidates.shell:
        return _in_shell(name, asked, candidates.shell)
    if asked is World.AWS or (asked is None and candidates.sandbox is False):
        return _on_aws(name, asked, candidates)
    if candidates.sandbox is None:
        raise _unseen(name, asked, candidates)
    if asked is None and candidates.project and _is_stack(name, candidates, report):
        raise StateError(
            f"'{name}' is a sandbox on this machine and also a Pulumi stack of this folder: nothing was changed",
            next_step=f"gpucluster down {name} --sandbox; or gpucluster down {name} --aws",
        )
    return World.SANDBOX


def _in_shell(name: str, asked: World | None, shell: str) -> World:
    """The environment of the shell has the keys and the state of its sandbox."""
    if asked is World.AWS:
        raise StateError(
            f"this is the shell of the sandbox '{shell}', which has no access to AWS: nothing was changed",
            next_step=f"leave it with `exit`; then: gpucluster down {name} --aws",
        )
    return World.SANDBOX


def _on_aws(name: str, asked: World | None, candidates: Candidates) -> World:
    if candidates.project:
        return World.AWS
    no_sandbox = "" if asked is World.AWS else "no sandbox of that name, and "
    raise StateError(
        f"there is no cluster '{name}' here: {no_sandbox}no Pulumi.yaml in this folder",
        next_step="go to the folder with Pulumi.yaml, or run gpucluster sandbox status",
    )


def _unseen(name: str, asked: World | None, candidates: Candidates) -> HostError:
    """Only root reads the folders of sandboxes, so the name may be both."""
    if asked is World.SANDBOX or not candidates.project:
        return HostError(
            "only root can use the sandboxes of this machine",
            next_step=f"sudo gpucluster down {name} --sandbox",
        )
    return HostError(
        f"only root can see whether '{name}' is also a sandbox of this machine: nothing was changed",
        next_step=f"gpucluster down {name} --aws; or sudo gpucluster down {name} --sandbox",
    )


def _is_stack(name: str, candidates: Candidates, report: Callable[[str], None]) -> bool:
    try:
        return candidates.stack()
    except StateError as error:
        report(
            f"whether '{name}' is also a Pulumi stack of this folder is not known: {error.message}; only the sandbox is meant"
        )
        return False


def _sandbox_is_here(name: str) -> bool | None:
    from gpucluster.sandbox.state_dir import SandboxDir

    try:
        SandboxDir(name=name).path.stat()
    except PermissionError:
        return None
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _stack_exists(name: str) -> bool:
    from gpucluster.engine import find_or_build, user

    return user.stack_exists(Path(), name, find_or_build(progress))


def _of_sandbox(home: "SandboxDir", pulumi: Path) -> ClusterAccess:
    from gpucluster.cli import transport
    from gpucluster.cli.down_jobs import jobs_of
    from gpucluster.cli.down_network import launched_by
    from gpucluster.cloud.aws import AwsCloud
    from gpucluster.cloud.control import S3Control
    from gpucluster.cloud.identity import caller_account
    from gpucluster.cloud.network_interfaces import AwsOccupants
    from gpucluster.engine import run
    from gpucluster.engine.error_attribution import explainer
    from gpucluster.engine.target import PROJECT

    if home.site.is_dir():
        raise StateError(
            f"{home.name} is a sandbox of hosts: it has no AWS, so there is no stack to destroy",
            next_step=f"gpucluster sandbox down {home.name}",
        )
    aim, explain = home.target(pulumi), explainer(home.read_plan())
    run.refuse_if_busy(aim)
    machines = transport.choose(transport.HeadOptions(cluster=home.name))
    return ClusterAccess(
        stack=Stack(world=World.SANDBOX, name=home.name, project=PROJECT),
        resources=lambda: run.deployed_resources(aim),
        destroy=lambda report: run.destroy(aim, report=report, explain=explain),
        release=lambda: run.release(aim),
        account=lambda region: caller_account(region, lambda: home.client("sts")),
        cloud=lambda region: AwsCloud(region, lambda _: home.client("ec2")),
        occupants=lambda region: AwsOccupants(region, lambda: home.client("ec2")),
        control=lambda region, bucket: S3Control(region, bucket, lambda: home.client("s3")),
        launched=lambda _: launched_by(machines.run, progress),
        jobs=lambda _: jobs_of(machines.run),
        region=aim.environment["AWS_REGION"],
    )


def of_user(name: str, pulumi: Path) -> ClusterAccess:
    """Return the access to a stack of the user, with their credentials."""
    from gpucluster.cli.down_jobs import jobs_of
    from gpucluster.cli.down_network import launched_by
    from gpucluster.cli.transport_ssm import SsmMachines
    from gpucluster.cloud.aws import AwsCloud
    from gpucluster.cloud.control import S3Control
    from gpucluster.cloud.identity import caller_account
    from gpucluster.cloud.network_interfaces import AwsOccupants
    from gpucluster.engine import user
    from gpucluster.engine.target import project_name

    return ClusterAccess(
        stack=Stack(world=World.AWS, name=name, project=project_name(_PROJECT)),
        resources=lambda: user.deployed_resources(Path(), name, pulumi),
        destroy=lambda report: user.destroy(Path(), name, pulumi, report=report),
        release=lambda: user.release(Path(), name, pulumi),
        account=caller_account,
        cloud=AwsCloud,
        occupants=AwsOccupants,
        control=S3Control,
        launched=lambda region: launched_by(SsmMachines(name, region).run, progress),
        jobs=lambda region: jobs_of(SsmMachines(name, region).run),
        region=None,
    )
