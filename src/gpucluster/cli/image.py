"""`gpucluster image build`: build the machine image of head, login machines and nodes on AWS."""

import os
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpucluster.cli.output import Output, OutputOption, answer, print_result, progress, reporting
from gpucluster.errors import GpuclusterError, StateError

if TYPE_CHECKING:
    from gpucluster.image.build import Built, Inspection, Tools
    from gpucluster.image.port import BuildOptions
    from gpucluster.image.recipe import PinCheck, Recipe

app = typer.Typer(help="The machine image.", no_args_is_help=True, rich_markup_mode=None)


class Via(StrEnum):
    """The connection to the builder."""

    SSH = "ssh"
    SSM = "ssm"


@app.callback()
def _group() -> None:
    """Commands for machine images."""


OsNameOption = Annotated[str, typer.Option("--os", help="Operating system of the image.")]
SlurmOption = Annotated[
    str | None, typer.Option(help="Slurm version. Default: the newest one that SchedMD supports.")
]
RegionOption = Annotated[
    str | None, typer.Option(help="Region. Default: AWS_REGION, or the region of the profile.")
]
FilesOption = Annotated[Path | None, typer.Option(help="Folder with the files of the parts and SHA256SUMS.")]
WithoutOption = Annotated[list[str] | None, typer.Option(help="Leave a part out: nvidia, efa, lustre.")]
WithPartOption = Annotated[
    list[str] | None,
    typer.Option("--with", help="Add a part: pyxis, apptainer, dcgm, or nvlsm for p6 machines."),
]
MachineOption = Annotated[str, typer.Option(help="Machine type of the builder.")]
SubnetOption = Annotated[str | None, typer.Option(help="Subnet of the builder. Default: the default VPC.")]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--security-group", help="Security group of the builder. Default: a new group for this build."
    ),
]
SshFromOption = Annotated[
    list[str] | None, typer.Option(help="Address of this machine, such as 198.51.100.7/32.")
]
ViaOption = Annotated[Via, typer.Option(help="Connection to the builder.")]
ProfileOption = Annotated[
    str | None,
    typer.Option("--instance-profile", help="Instance profile of the builder, required by --via ssm."),
]
CheckPinsOption = Annotated[
    bool, typer.Option("--check-pins", help="Only compare the files with their digests.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Build the image even if it exists.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what the build would do, and create nothing.")
]


@app.command("build")
def build(
    *,
    os_name: OsNameOption = "ubuntu-24.04",
    slurm: SlurmOption = None,
    region: RegionOption = None,
    files: FilesOption = None,
    without: WithoutOption = None,
    with_part: WithPartOption = None,
    machine: MachineOption = "m7i.2xlarge",
    subnet: SubnetOption = None,
    group: GroupOption = None,
    ssh_from: SshFromOption = None,
    via: ViaOption = Via.SSH,
    profile: ProfileOption = None,
    check_pins: CheckPinsOption = False,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Build the image on a temporary machine, which is always terminated. The same content is not built twice."""
    from gpucluster import catalog
    from gpucluster.catalog.image import image_facts
    from gpucluster.image.port import BuildOptions
    from gpucluster.image.recipe import check_pins as checked_pins
    from gpucluster.image.recipe import chosen_parts, recipe

    version = slurm or catalog.load().slurm_default
    with reporting(output):
        facts = image_facts()
        parts = chosen_parts(facts, os_name, version, without or (), with_part or ())
        rows = checked_pins(facts, version, parts, files)
        if check_pins:
            _print_pins(rows, output)
            return
        made = recipe(facts, os_name, version, rows, files)
        options = BuildOptions(
            region=_region(region),
            machine=machine,
            subnet=subnet,
            group=group,
            ssh_from=tuple(ssh_from or ()),
            ssm=via is Via.SSM,
            profile=profile,
            force=force,
        )
        with _clouded():
            _build(made, options, dry_run, output)


def _build(made: "Recipe", options: "BuildOptions", dry_run: bool, output: Output) -> None:
    from gpucluster.image.build import build as build_image
    from gpucluster.image.build import inspect

    with _tools(made, options) as tools:
        if dry_run:
            _print_found(made, options, inspect(made, options, tools), output)
        else:
            _print_built(made, build_image(made, options, tools), output)


@contextmanager
def _clouded() -> Generator[None]:
    from gpucluster.cloud.port import CloudError

    try:
        yield
    except CloudError as error:
        raise GpuclusterError(
            f"AWS refused: {error}",
            next_step="correct this, then repeat the command; it terminates the old builder",
        ) from error


@contextmanager
def _tools(made: "Recipe", options: "BuildOptions") -> "Generator[Tools]":
    from gpucluster.cloud.terminate_nodes import Clock
    from gpucluster.engine.build import default_cache
    from gpucluster.image.build import Tools
    from gpucluster.image.ec2 import Ec2Account
    from gpucluster.image.ssh import SshBuildHost

    cache = default_cache()
    with _alone(cache, made.name), tempfile.TemporaryDirectory(prefix="gpucluster-image-") as scratch:
        build_host = SshBuildHost(
            Path(scratch),
            cache,
            region=options.region,
            python=made.system.python,
            ssm=options.ssm,
            progress=progress,
        )
        yield Tools(
            account=Ec2Account(options.region),
            build_host=build_host,
            clock=Clock(time.monotonic, time.sleep),
            wall=time.time,
            progress=progress,
        )


@contextmanager
def _alone(cache: Path, name: str) -> Generator[None]:
    """Allow one build of an image on this machine at a time. So other builders with this machine's name are leftovers."""
    import fcntl

    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateError(
                f"{name} is being built on this machine", next_step="wait until that build ends"
            ) from None
        yield


def _region(asked: str | None) -> str:
    found = asked or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not found:
        raise GpuclusterError("no AWS region is set", next_step="--region us-east-2, or set AWS_REGION")
    return found


def _print_pins(rows: "tuple[PinCheck, ...]", output: Output) -> None:
    good = all(row.good for row in rows)
    if output is Output.JSON:
        pins = [
            {
                "name": r.name, "version": r.pin.version, "file": r.pin.file, "state": r.state.value,
                "found": r.found, "wanted": r.wanted,
            }
            for r in rows
        ]  # fmt: skip
        answer(ok=good, pins=pins)
    else:
        for row in rows:
            print_result(f"{'ok  ' if row.good else 'fail'}  {row.message()}")
    if not good:
        raise typer.Exit(1)


def _print_found(made: "Recipe", options: "BuildOptions", found: "Inspection", output: Output) -> None:
    builds = found.existing is None or options.force
    if output is Output.JSON:
        answer(
            ok=True,
            name=found.name if builds else found.existing and found.existing.name,
            digest=made.digest,
            parts=list(made.parts),
            would_build=builds,
            standing=found.existing and found.existing.id,
            base=found.base and found.base.id,
            subnet=found.subnet and found.subnet.subnet,
            left_over=[b.id for b in found.left],
        )
        return
    for builder in found.left:
        print_result(f"would terminate {builder.id}, the builder of an interrupted build")
    if not builds and found.existing:
        print_result(f"nothing to do: {found.existing.id} is {found.existing.name} with the same content")
    elif found.base and found.subnet:
        print_result(
            f"would launch {options.machine} in {found.subnet.zone} from {found.base.name} ({found.base.id})"
        )
        print_result(f"would build  {found.name}: {', '.join(made.parts)}; content {made.digest[:12]}")


def _print_built(made: "Recipe", built: "Built", output: Output) -> None:
    if output is Output.JSON:
        answer(ok=True, id=built.image.id, name=built.image.name, digest=made.digest, made=built.made)
    else:
        print_result(
            f"{built.image.id} is {built.image.name}" + ("" if built.made else ", which existed already")
        )
        if built.image.name == made.name:
            print_result(f"the spec's `aws: {{image: {{os: {made.os}}}}}` finds it by this name")
        else:  # the older image keeps its name, so no cluster changes until its spec names the new one
            print_result(f"to use it, set in the spec: aws: {{image: {{ami: {built.image.id}}}}}")
