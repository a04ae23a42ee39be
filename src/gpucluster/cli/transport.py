"""The transport from this computer to the machines of one cluster: run a command there, and get its code and its output.

It is chosen from the options and the plan: this machine, if it is the head; `nsenter` for a sandbox; ssh with strict host keys
and the user's own configuration for hosts and addresses; Systems Manager for a stack on AWS with `access: {ssm: true}`.
A machine is `head`, a Slurm node name, and on AWS also `standby`, `login`, the name of a login machine or an instance id.
"""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpucluster.errors import StateError
from gpucluster.json_text import parse_json
from gpucluster.plan.names import ROLE_HEAD
from gpucluster.shell import Result

if TYPE_CHECKING:
    from gpucluster.validate.reach import SshKeys

KNOWN_HOSTS = Path("~/.ssh/known_hosts")

Run = Callable[[str, Sequence[str], float], Result]  # machine, argv as root, limit in seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadOptions:
    """The options of every command that runs on a head. None: found automatically. `on_head` declares them."""

    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            "-c",
            metavar="NAME|FILE",
            help="A sandbox or a stack. Default: the only running sandbox.",
        ),
    ] = None
    ssh: Annotated[
        str | None,
        typer.Option("--ssh", metavar="[USER@]HOST[:PORT]", help="The head's address, if no spec has it."),
    ] = None
    known_hosts: Annotated[
        Path,
        typer.Option(
            "--known-hosts", help="File with the host keys that ssh trusts, instead of your own file."
        ),
    ] = KNOWN_HOSTS
    identity: Annotated[Path | None, typer.Option("--identity", help="The private key for ssh.")] = None
    ssh_config: Annotated[
        Path | None, typer.Option("--ssh-config", help="ssh configuration file, for jump hosts.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """The machines of one cluster. `typed` are the options with which the reader selects the cluster, if they are not `-c NAME`."""

    name: str
    run: Run
    typed: str = ""


def choose(options: HeadOptions) -> Transport:
    """Return the transport to the selected cluster. GpuclusterError lists the possible names. Nothing is connected yet."""
    if options.ssh is not None:
        return _by_address(options, options.ssh)
    here = _name_here()
    if here and options.cluster in (None, here):
        return Transport(name=here, run=_only_head("this machine is the head", _local))
    if options.cluster is None:
        return _of_only_sandbox()
    if _is_sandbox(options.cluster):
        return _of_sandbox(options.cluster)
    return _of_stack(options.cluster, options)


# --- choice of the head ---------------------------------------------------------------------------------
def _name_here() -> str:
    """Return the cluster whose head this machine is; empty if it is none, or if its plan cannot be read."""
    from gpucluster.plan import names

    try:
        found = parse_json((Path(names.BUNDLE_DIR) / names.PLAN_FILE).read_bytes())
        return str(found["name"]) if Path(names.JOURNAL).is_file() else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _of_only_sandbox() -> Transport:
    """Return the head of the only running sandbox. An error says that the name is a default."""
    name = _only_sandbox()
    try:
        return _of_sandbox(name)
    except StateError as error:
        default = f"no -c was given, and '{name}' is the only running sandbox"
        raise StateError(f"{error.message} ({default})", next_step=error.next_step) from error


def _only_sandbox() -> str:
    from gpucluster.sandbox import state_dir

    try:
        alive = [home.name for home in state_dir.homes() if state_dir.alive(home)]
    except PermissionError:
        alive = []
    if len(alive) == 1:
        return alive[0]
    found = (
        f"{len(alive)} sandboxes are up ({', '.join(alive)})"
        if alive
        else "no sandbox is up, and this machine is not a head"
    )
    raise StateError(
        f"no cluster is named: {found}", next_step="name it: --cluster NAME, or --ssh HOST of its head"
    )


def _is_sandbox(name: str) -> bool:
    from gpucluster.sandbox import state_dir

    return state_dir.exists(name)


# --- connections ----------------------------------------------------------------------------------------
def _local(argv: Sequence[str], limit_s: float) -> Result:
    from gpucluster import shell

    return shell.run(argv, check=False, timeout_s=limit_s)


def _only_head(why: str, run: Callable[[Sequence[str], float], Result]) -> Run:
    """Return a run that refuses every other machine."""

    def on_head(machine: str, argv: Sequence[str], limit_s: float) -> Result:
        if machine != ROLE_HEAD:
            raise StateError(
                f"{machine} cannot be reached: {why}", next_step="name the machine `head`, or a spec with -c"
            )
        return run(argv, limit_s)

    return on_head


def _of_sandbox(name: str) -> Transport:
    from gpucluster.sandbox import host_checks as host
    from gpucluster.sandbox import state_dir
    from gpucluster.sandbox.machines import inside

    host.require_root()
    home = state_dir.living(name)
    trees = host.cgroup_trees(Path("/proc/self/mountinfo").read_text())

    def run(machine: str, argv: Sequence[str], limit_s: float) -> Result:
        leader = inside.find(home, trees, machine).leader
        return _local(inside.enter_argv(leader, argv, user=None, term="dumb"), limit_s)

    return Transport(name=name, run=run)


def _of_stack(cluster: str, options: HeadOptions) -> Transport:
    from gpucluster.cli.context import resolve_file
    from gpucluster.cli.spec_files import find_spec
    from gpucluster.plan.model import SlurmOnHosts

    file = find_spec(cluster)
    if not file.is_file():
        raise StateError(
            f"{cluster} is neither a sandbox nor a spec file",
            next_step="gpucluster sandbox status; or --ssh HOST of its head",
        )
    plan = resolve_file(file).plan
    if isinstance(plan, SlurmOnHosts):
        from gpucluster.cli.transport_ssh import addresses, by_ssh

        typed = shlex.join(("-c", cluster, *_ssh_options(options)))
        return Transport(name=plan.name, run=by_ssh(addresses(plan), _keys(options)), typed=typed)
    from gpucluster.cli.transport_ssm import SsmMachines, ssm_plan

    machines = SsmMachines(plan.name, ssm_plan(plan, file).aws.region)
    return Transport(name=plan.name, run=machines.run, typed=f"-c {shlex.quote(cluster)}")


def _by_address(options: HeadOptions, address: str) -> Transport:
    from gpucluster.cli.transport_ssh import by_ssh, place_of

    run = by_ssh({ROLE_HEAD: place_of(address)}, _keys(options))
    only = _only_head("--ssh is the address of the head", lambda argv, limit_s: run(ROLE_HEAD, argv, limit_s))
    return Transport(name=options.cluster or address, run=only, typed=shlex.join(_ssh_options(options)))


def _ssh_options(options: HeadOptions) -> tuple[str, ...]:
    """Return the ssh options as the reader typed them."""
    given = (
        ("--ssh", options.ssh),
        ("--known-hosts", None if options.known_hosts == KNOWN_HOSTS else str(options.known_hosts)),
        ("--identity", options.identity),
        ("--ssh-config", options.ssh_config),
    )
    return tuple(word for option, value in given if value is not None for word in (option, str(value)))


def _keys(options: HeadOptions) -> "SshKeys":
    from gpucluster.validate.reach import SshKeys

    return SshKeys(
        known_hosts=options.known_hosts.expanduser(), identity=options.identity, config=options.ssh_config
    )
