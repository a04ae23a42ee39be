"""`gpucluster validate NAME`: prove that a living cluster is what its plan says."""

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpucluster.cli.output import Output, OutputOption, answer, reporting, say
from gpucluster.errors import GpuclusterError, HostError, StateError

if TYPE_CHECKING:
    from gpucluster.plan.model import Bindings, ClusterPlan
    from gpucluster.sandbox.ledger import Home
    from gpucluster.validate.reach import Reach
    from gpucluster.validate.results import Run

KNOWN_HOSTS = Path("~/.ssh/known_hosts")
SANDBOX_USER = "researcher"  # the sandbox's image has this ordinary user
USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")  # never an option of runuser's or ssh's


class Backend(StrEnum):
    """How machines are reached."""

    SANDBOX = "sandbox"
    SSH = "ssh"
    PARAMIKO = "paramiko"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """What a cluster is validated with."""

    plan: "ClusterPlan"
    bindings: "Bindings | None"
    bundle: str  # digest of what must be applied
    reach: "Reach"
    up: Sequence[str]
    user: str
    sudo: bool
    ec2: Callable[[], Any] | None
    folders: bool = False  # shared file systems are folders of a rehearsal's host


@dataclass(frozen=True, slots=True, kw_only=True)
class SshOptions:
    """What the command line says of ssh; None is the plan's or ssh's own."""

    paramiko: bool
    known_hosts: Path
    identity: Path | None
    config: Path | None
    user: str | None
    port: int | None


def validate(
    name: Annotated[
        str, typer.Argument(help="A living sandbox, or a spec file or stack of a cluster on hosts.")
    ],
    *,
    tier: Annotated[
        int,
        typer.Option("--tier", min=0, max=1, help="0: seconds, beside jobs. 1: with short jobs of its own."),
    ] = 1,
    only: Annotated[
        str, typer.Option("--only", help="Checks or ids, separated by commas: `ctl.ping,disk[head]`.")
    ] = "",
    backend: Annotated[
        Backend | None, typer.Option("--backend", help="How to reach machines.", show_default=False)
    ] = None,
    junit: Annotated[Path | None, typer.Option("--junit", help="Write JUnit XML here.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write a self-contained page here.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="The ordinary user who submits jobs.")] = None,
    known_hosts: Annotated[
        Path, typer.Option("--known-hosts", help="Host keys that ssh may trust; no other is.")
    ] = KNOWN_HOSTS,
    identity: Annotated[Path | None, typer.Option("--identity", help="The private key for ssh.")] = None,
    ssh_config: Annotated[
        Path | None, typer.Option("--ssh-config", help="For jump hosts; OpenSSH only.")
    ] = None,
    ssh_user: Annotated[str | None, typer.Option("--ssh-user", help="Instead of the spec's.")] = None,
    ssh_port: Annotated[
        int | None, typer.Option("--ssh-port", min=1, max=65535, help="Instead of the spec's.")
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Ask a living cluster whether it is what its plan says. Exit 0 healthy, 1 not proven so, 2 could not run."""
    with reporting(output):
        for option, word in (("--user", user), ("--ssh-user", ssh_user)):
            _hold_user(option, word)
        for option, path in (("--html", html), ("--junit", junit)):
            _hold_writable(option, path)
        ssh = SshOptions(
            paramiko=backend is Backend.PARAMIKO,
            known_hosts=known_hosts.expanduser(),
            identity=identity,
            config=ssh_config,
            user=ssh_user,
            port=ssh_port,
        )
        ways = _ways(name, backend, ssh, user)
        run = _run(ways, tier, [word for word in only.split(",") if word], junit)
        _write(html, run)
        if output is Output.JSON:
            answer(ok=run.ok, **run.as_json())
        else:
            from gpucluster.cli.validate_table import final

            say(final(run))
        raise typer.Exit(0 if run.ok else 1)


def _hold_user(option: str, word: str | None) -> None:
    if word is not None and not USER.fullmatch(word):
        raise GpuclusterError(
            f"{option}: {word!r} is no user's name", next_step="letters, digits, . _ and -, no - in front"
        )


def _hold_writable(option: str, path: Path | None) -> None:
    """Before the run, which takes a while, and not after it."""
    if path is None:
        return
    folder = path.parent
    if path.is_dir() or not folder.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        why = "is a folder" if path.is_dir() else "cannot be written"
        raise GpuclusterError(
            f"{path} {why}", next_step=f"name a file in a folder that is there with {option}"
        )


def _run(ways: Ways, tier: int, only: Sequence[str], junit: Path | None) -> "Run":
    # pytest loads every plugin that is installed; ours needs none of them
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    for word in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        os.environ.pop(word, None)
    from gpucluster.cli.validate_table import Live
    from gpucluster.validate.expect import expectations, select
    from gpucluster.validate.run import run
    from gpucluster.validate.stage import Scene

    try:
        chosen = select(
            expectations(ways.plan, ways.bindings, up=ways.up, bundle=ways.bundle, folders=ways.folders),
            tier=tier,
            only=only,
        )
    except ValueError as error:
        raise GpuclusterError(
            str(error), next_step="--only takes checks, or one of a target: --only 'disk[head]'"
        ) from error
    if not chosen:
        raise GpuclusterError(
            f"nothing is left to ask at tier {tier} of {', '.join(only)}",
            next_step="without --only, or with --tier 1",
        )
    scene = Scene(plan=ways.plan, user=ways.user, sudo=ways.sudo, ec2=ways.ec2)
    with Live(len(chosen), sys.stderr) as live:
        return run(scene, ways.reach, chosen, told=live.told, junit=junit)


def _write(path: Path | None, run: "Run") -> None:
    if path is None:
        return
    from gpucluster.validate.report import html

    try:
        path.write_text(html(run))
    except OSError as error:
        raise GpuclusterError(
            f"{path}: {error.strerror}", next_step="name another file with --html"
        ) from error


def _ways(name: str, backend: Backend | None, ssh: SshOptions, user: str | None) -> Ways:
    """A living or dead sandbox of that name comes first, then a file or a stack."""
    from gpucluster.cli.desk import spec_of

    file = spec_of(name)
    if backend is None:
        backend = Backend.SSH if file.is_file() and not _is_sandbox(name) else Backend.SANDBOX
    if backend is Backend.SANDBOX:
        return _sandbox(name, user)
    if (home := _rehearsal(name)) is not None:
        return _rehearsed(home, ssh, user)
    if not file.is_file():
        raise StateError(
            f"{name} is no spec file: ssh needs one, for addresses",
            next_step=f"gpucluster validate stacks/{name}.yaml --backend {backend.value}",
        )
    return _hosts(file, ssh, user)


def _is_sandbox(name: str) -> bool:
    from gpucluster.sandbox import ledger

    try:
        return ledger.Home(name=name).path.is_dir()
    except (
        StateError,
        PermissionError,
    ):  # no sandbox can have such a name; or they are root's, and not ours to see
        return False


def _rehearsal(name: str) -> "Home | None":
    """The living sandbox of plain machines of that name: its plan, host keys and key are known."""
    from gpucluster.sandbox import ledger

    if not _is_sandbox(name):
        return None
    home = ledger.living(name)
    return home if home.site.is_dir() else None


def _rehearsed(home: "Home", ssh: SshOptions, user: str | None) -> Ways:
    """By ssh to a rehearsal's machines, from inside its network: `gpucluster sandbox run NAME -- gpucluster validate ...`."""
    from dataclasses import replace

    keys = replace(
        ssh,
        known_hosts=home.site / "known_hosts"
        if ssh.known_hosts == KNOWN_HOSTS.expanduser()
        else ssh.known_hosts,
        identity=ssh.identity or home.site / "id_ed25519",
    )
    return _by_ssh(home.read_plan(), _offered(home)[1], keys, user)


def _sandbox(name: str, user: str | None) -> Ways:
    from gpucluster.sandbox import host, inside, ledger
    from gpucluster.validate.reach import by_argv

    host.require_root()
    home = ledger.living(name)
    trees = host.cgroup_trees(Path("/proc/self/mountinfo").read_text())

    bindings, bundle = _offered(home)

    def enter(machine: str) -> Sequence[str]:
        leader = inside.find(home, trees, machine).leader
        return inside.enter_argv(leader, (), user=None, term="dumb")

    plan = home.read_plan()
    return Ways(
        plan=plan,
        bindings=bindings,
        bundle=bundle,
        reach=by_argv(enter),
        up=[resident.node for resident in inside.residents(home, trees) if resident.node],
        user=user or (plan.users[0].name if plan.users else SANDBOX_USER),
        sudo=False,
        ec2=None if plan.aws is None else lambda: home.client("ec2"),
        folders=plan.aws is not None,
    )


def _offered(home: "Home") -> "tuple[Bindings | None, str]":
    """Bindings and digest of the bundle that was offered, not of what the head has, which is what we doubt."""
    import zlib

    from botocore.exceptions import BotoCoreError, ClientError

    from gpucluster import artifacts
    from gpucluster.plan import codec, names
    from gpucluster.plan.model import Bindings

    if home.site.is_dir():  # plain machines: no cloud, and the bundle is what Ansible was given
        return None, artifacts.digest((home.site / names.BUNDLE_KEY).read_bytes())
    client = home.client("s3")
    try:
        buckets = [
            b["Name"] for b in client.list_buckets()["Buckets"] if b["Name"].startswith(f"{home.name}-")
        ]
        body = client.get_object(Bucket=buckets[0], Key=names.BUNDLE_KEY)["Body"].read()
        text = next(a.content for a in artifacts.unpack(body) if a.path == names.BINDINGS_FILE)
        return codec.loads(Bindings, text), artifacts.digest(body)
    except (
        BotoCoreError,
        ClientError,
        OSError,
        EOFError,
        ValueError,
        IndexError,
        StopIteration,
        zlib.error,
    ) as error:
        raise GpuclusterError(
            f"the bundle of {home.name} cannot be read: {error}",
            next_step="pulumi up, or gpucluster sandbox up, again",
        ) from error


def _hosts(file: Path, ssh: SshOptions, user: str | None) -> Ways:
    from gpucluster.artifacts import digest, pack
    from gpucluster.cli.desk import resolve_file
    from gpucluster.cli.render import artifacts_of

    plan = resolve_file(file).plan
    if plan.hosts is None or plan.head is None or plan.slurm is None:
        raise HostError(
            f"{plan.name} does not stand on hosts with Slurm; from here only such a cluster or a sandbox is validated",
            next_step=f"gpucluster sandbox up {file}, then gpucluster validate {plan.name}",
        )
    return _by_ssh(plan, digest(pack(artifacts_of(plan))), ssh, user)


def _by_ssh(plan: "ClusterPlan", bundle: str, ssh: SshOptions, user: str | None) -> Ways:
    from gpucluster.plan.model import there
    from gpucluster.validate.expect import HEAD
    from gpucluster.validate.reach import SshKeys, SshPlace, by_ssh

    name = ssh.user or there(plan.hosts).ssh_user
    port = ssh.port or there(plan.hosts).ssh_port
    nodes = {node: address for pool in plan.pools for node, address in pool.hosts()}
    places = {
        machine: SshPlace(address=address, user=name, port=port)
        for machine, address in {**nodes, HEAD: there(plan.head).address}.items()
    }
    keys = SshKeys(known_hosts=ssh.known_hosts, identity=ssh.identity, config=ssh.config)
    return Ways(
        plan=plan,
        bindings=None,
        bundle=bundle,
        reach=by_ssh(places, keys, paramiko=ssh.paramiko),
        up=(),
        user=user or (plan.users[0].name if plan.users else name),
        sudo=name != "root",
        ec2=None,
    )
