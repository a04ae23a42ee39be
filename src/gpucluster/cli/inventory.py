"""`gpucluster inventory`: what Ansible needs to make hosts that exist into the cluster."""

import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpucluster.cli.output import answer, progress, reporting, say
from gpucluster.errors import GpuclusterError

if TYPE_CHECKING:
    from gpucluster.plan.model import ClusterPlan
    from gpucluster.site.folder import Access, Written


class Form(StrEnum):
    """YAML is for Ansible and for people."""

    YAML = "yaml"
    JSON = "json"


def inventory(
    cluster: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A spec, or a name of stacks/, such as lab.")
    ],
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="Write the inventory, the bundle and our code there."),
    ] = None,
    known_hosts: Annotated[
        Path | None,
        typer.Option("--known-hosts", metavar="FILE", help="Trust these host keys instead of your own."),
    ] = None,
    output: Annotated[Form, typer.Option("--output", "-o", help="How to answer.")] = Form.YAML,
) -> None:
    """Write what `ansible-playbook -i DIR/inventory.yml playbooks/site.yml` needs; without --to, show the inventory."""
    with reporting(output):
        from gpucluster.cli.desk import resolve_file, the_spec

        desk = resolve_file(the_spec(cluster))
        for warning in desk.warnings:
            progress(str(warning))
        written = write_site(desk.plan, _access(known_hosts), to)
        if output is Form.JSON:
            where = {} if to is None else {"to": str(to), "files": list(written.files)}
            answer(ok=True, inventory=written.values, **where)
            return
        say(written.text.rstrip("\n") if to is None else _next(to))


def write_site(plan: "ClusterPlan", access: "Access", to: Path | None) -> "Written":
    """The folder for Ansible, with the bundle of the plan in it."""
    from gpucluster.cli.render import artifacts_of
    from gpucluster.site import folder

    if plan.hosts is None:
        raise GpuclusterError(
            f"'{plan.name}' does not stand on hosts that exist, so there is nobody to list",
            next_step="name a spec with a `hosts` part, for example stacks/lab.yaml",
        )
    return folder.write(plan, artifacts_of(plan), access, to)


def _access(known_hosts: Path | None) -> "Access":
    from gpucluster.site.folder import Access

    if known_hosts is None:
        return Access()
    try:
        return Access(known_hosts=known_hosts.read_bytes())
    except OSError as error:
        raise GpuclusterError(
            f"{known_hosts}: cannot be read: {error.strerror}",
            next_step="make it with ssh-keyscan, and compare its fingerprints with the hosts' own",
        ) from error


def _next(to: Path) -> str:
    from gpucluster.files import shipped

    file = to / "inventory.yml"
    argv = ["ansible-playbook", "-i", str(file), str(_short(shipped("playbooks") / "site.yml"))]
    return f"{file}\n  next: {shlex.join(argv)}"


def _short(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
