"""`gpucluster inventory`: write what Ansible needs to configure existing hosts."""

import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpucluster.cli.output import answer, print_result, progress, reporting
from gpucluster.errors import GpuclusterError

if TYPE_CHECKING:
    from gpucluster.inventory.folder import SshAccess, Written
    from gpucluster.plan.model import ClusterPlan
    from gpucluster.plan.spec_source import SpecSource


class Form(StrEnum):
    """Output forms: YAML for Ansible and for people, JSON for programs."""

    YAML = "yaml"
    JSON = "json"


def inventory(
    cluster: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A spec, or a name of stacks/, such as lab.")
    ],
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", metavar="DIR", help="Folder for the inventory, the bundle and the code of gpucluster."
        ),
    ] = None,
    known_hosts: Annotated[
        Path | None,
        typer.Option(
            "--known-hosts",
            metavar="FILE",
            help="File with the host keys that ssh trusts, instead of your own file.",
        ),
    ] = None,
    output: Annotated[Form, typer.Option("--output", "-o", help="Output format.")] = Form.YAML,
) -> None:
    """Write the files for `ansible-playbook -i DIR/inventory.yml playbooks/site.yml`; without --to, show the inventory."""
    with reporting(output):
        from gpucluster.cli.context import resolve_file
        from gpucluster.cli.spec_files import require_spec
        from gpucluster.engine.spec_source import source_of

        file = require_spec(cluster)
        resolved = resolve_file(file)
        for warning in resolved.warnings:
            progress(str(warning))
        source = source_of(file, resolved.plan)
        if source.dirty:
            progress(source.warning(file))
        written = write_site(resolved.plan, source, _access(known_hosts), to)
        if output is Form.JSON:
            where = {} if to is None else {"to": str(to), "files": list(written.files)}
            answer(ok=True, inventory=written.values, **where)
            return
        print_result(written.text.rstrip("\n") if to is None else _next(to))


def write_site(plan: "ClusterPlan", source: "SpecSource", access: "SshAccess", to: Path | None) -> "Written":
    """Write the folder for Ansible, with the plan's bundle."""
    from gpucluster.cli.render import artifacts_of
    from gpucluster.inventory import folder
    from gpucluster.plan.spec_source import artifact

    if plan.hosts is None:
        raise GpuclusterError(
            f"'{plan.name}' does not use existing hosts, so it has no inventory",
            next_step="name a spec with `hosts:`, for example stacks/lab.yaml",
        )
    return folder.write(plan, (artifact(source), *artifacts_of(plan)), access, to)


def _access(known_hosts: Path | None) -> "SshAccess":
    from gpucluster.inventory.folder import SshAccess

    if known_hosts is None:
        return SshAccess()
    try:
        return SshAccess(known_hosts=known_hosts.read_bytes())
    except OSError as error:
        raise GpuclusterError(
            f"{known_hosts}: cannot be read: {error.strerror}",
            next_step="create it with ssh-keyscan, and compare its fingerprints with those on the hosts",
        ) from error


def _next(to: Path) -> str:
    from gpucluster.files import shipped

    file = to / "inventory.yml"
    argv = ["ansible-playbook", "-i", str(file), str(_short(shipped("playbooks") / "site.yml"))]
    return f"{file}\n  next: {shlex.join(argv)}"


def _short(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
