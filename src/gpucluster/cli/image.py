"""`gpucluster image build`: the machine image of head, login machines and nodes, on AWS."""

import os
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpucluster.cli.output import Output, OutputOption, answer, progress, reporting, say
from gpucluster.errors import GpuclusterError, StateError

if TYPE_CHECKING:
    from gpucluster.image.build import Built, Found, Tools
    from gpucluster.image.port import Wish
    from gpucluster.image.recipe import Checked, Recipe

app = typer.Typer(help="The machine image.", no_args_is_help=True, rich_markup_mode=None)


class Via(StrEnum):
    """How the builder is reached."""

    SSH = "ssh"
    SSM = "ssm"


@app.callback()
def _group() -> None:
    """The machine image."""


@app.command("build")
def build(
    *,
    os_name: Annotated[str, typer.Option("--os", help="The system that it begins with.")] = "ubuntu-24.04",
    slurm: Annotated[str, typer.Option(help="The version of Slurm.")] = "24.11",
    region: Annotated[str | None, typer.Option(help="Else AWS_REGION, or the profile's.")] = None,
    files: Annotated[
        Path | None, typer.Option(help="The folder with the parts' files and SHA256SUMS.")
    ] = None,
    without: Annotated[list[str] | None, typer.Option(help="Leave a part out: nvidia, efa, lustre.")] = None,
    with_part: Annotated[list[str] | None, typer.Option("--with", help="Add a part: dcgm.")] = None,
    machine: Annotated[str, typer.Option(help="The builder's machine type.")] = "m7i.2xlarge",
    subnet: Annotated[str | None, typer.Option(help="Where it stands; else the default VPC.")] = None,
    group: Annotated[
        str | None, typer.Option("--security-group", help="Its group; else one for this build.")
    ] = None,
    ssh_from: Annotated[
        list[str] | None, typer.Option(help="This desk's address, as 198.51.100.7/32.")
    ] = None,
    via: Annotated[Via, typer.Option(help="How it is reached.")] = Via.SSH,
    profile: Annotated[
        str | None, typer.Option("--instance-profile", help="Its role, which --via ssm needs.")
    ] = None,
    check_pins: Annotated[
        bool, typer.Option("--check-pins", help="Only compare the files with their digests.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Build also what is there already.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; make nothing.")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Build the image on a machine that is ended again, whatever happens. The same content is not built twice."""
    from gpucluster.catalog.image import image_facts
    from gpucluster.image.port import Wish
    from gpucluster.image.recipe import check_pins as checked_pins
    from gpucluster.image.recipe import chosen_parts, recipe

    with reporting(output):
        facts = image_facts()
        rows = checked_pins(
            facts, slurm, chosen_parts(facts, os_name, slurm, without or (), with_part or ()), files
        )
        if check_pins:
            _say_pins(rows, output)
            return
        made = recipe(facts, os_name, slurm, rows, files)
        wish = Wish(
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
            _build(made, wish, dry_run, output)


def _build(made: "Recipe", wish: "Wish", dry_run: bool, output: Output) -> None:
    from gpucluster.image.build import build as build_image
    from gpucluster.image.build import look

    with _tools(made, wish) as tools:
        if dry_run:
            _say_found(made, wish, look(made, wish, tools), output)
        else:
            _say_built(made, build_image(made, wish, tools), output)


@contextmanager
def _clouded() -> Generator[None]:
    from gpucluster.cloud.port import CloudError

    try:
        yield
    except CloudError as error:
        raise GpuclusterError(
            f"the cloud did not do it: {error}",
            next_step="mend that, then the same command again; it ends what was left",
        ) from error


@contextmanager
def _tools(made: "Recipe", wish: "Wish") -> "Generator[Tools]":
    from gpucluster.cloud.ending import Clock
    from gpucluster.engine.build import default_cache
    from gpucluster.image.account import Ec2Account
    from gpucluster.image.build import Tools
    from gpucluster.image.desk import SshDesk

    cache = default_cache()
    with _alone(cache, made.name), tempfile.TemporaryDirectory(prefix="gpucluster-image-") as scratch:
        desk = SshDesk(
            Path(scratch), cache, region=wish.region, python=made.system.python, ssm=wish.ssm, say=progress
        )
        yield Tools(
            account=Ec2Account(wish.region),
            desk=desk,
            clock=Clock(time.monotonic, time.sleep),
            wall=time.time,
            say=progress,
        )


@contextmanager
def _alone(cache: Path, name: str) -> Generator[None]:
    """One build of an image on this desk: what carries this desk's name besides is left over."""
    import fcntl

    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateError(f"{name} is being built from this desk", next_step="wait for its end") from None
        yield


def _region(asked: str | None) -> str:
    found = asked or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not found:
        raise GpuclusterError("no region is named", next_step="--region us-east-2, or set AWS_REGION")
    return found


def _say_pins(rows: "tuple[Checked, ...]", output: Output) -> None:
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
            say(f"{'ok  ' if row.good else 'fail'}  {row.sentence()}")
    if not good:
        raise typer.Exit(1)


def _say_found(made: "Recipe", wish: "Wish", found: "Found", output: Output) -> None:
    builds = found.standing is None or wish.force
    if output is Output.JSON:
        answer(
            ok=True,
            name=found.name if builds else found.standing and found.standing.name,
            digest=made.digest,
            parts=list(made.parts),
            would_build=builds,
            standing=found.standing and found.standing.id,
            base=found.base and found.base.id,
            subnet=found.ground and found.ground.subnet,
            left_over=[b.id for b in found.left],
        )
        return
    for builder in found.left:
        say(f"would end    {builder.id}, which a killed build left")
    if not builds and found.standing:
        say(f"nothing to do: {found.standing.id} is {found.standing.name} of this very content")
    elif found.base and found.ground:
        say(f"would launch {wish.machine} in {found.ground.zone} from {found.base.name} ({found.base.id})")
        say(f"would build  {found.name}: {', '.join(made.parts)}; content {made.digest[:12]}")


def _say_built(made: "Recipe", built: "Built", output: Output) -> None:
    if output is Output.JSON:
        answer(ok=True, id=built.image.id, name=built.image.name, digest=made.digest, made=built.made)
    else:
        say(f"{built.image.id} is {built.image.name}" + ("" if built.made else ", there already"))
        if built.image.name == made.name:
            say(f"the spec's `aws: {{image: {{os: {made.os}}}}}` finds it by that name")
        else:  # the older keeps the name, so no cluster changes before somebody says so
            say(f"to boot from it, in the spec: aws: {{image: {{ami: {built.image.id}}}}}")
