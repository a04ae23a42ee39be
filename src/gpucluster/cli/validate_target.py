"""The expected cluster of `gpucluster validate`, and the way to its machines: a sandbox, ssh, or Systems Manager."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpucluster.cli.reviewed import acceptances, compared, of_sandbox, recorded
from gpucluster.cli.transport import KNOWN_HOSTS
from gpucluster.errors import GpuclusterError, StateError
from gpucluster.plan.names import ROLE_HEAD

if TYPE_CHECKING:
    from gpucluster.checks.acceptances import Acceptances
    from gpucluster.checks.reviewed_spec import Reviewed
    from gpucluster.plan.model import Bindings, ClusterPlan, SlurmOnHosts, SlurmPlan
    from gpucluster.plan.spec_source import SpecSource
    from gpucluster.sandbox.state_dir import SandboxDir
    from gpucluster.validate.reach import Reach

SOURCE_S = 10.0
SANDBOX_USER = "researcher"  # an ordinary user of the sandbox's image


class Backend(StrEnum):
    """How commands reach the machines."""

    SANDBOX = "sandbox"
    SSH = "ssh"
    PARAMIKO = "paramiko"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationTarget:
    """The expected cluster and the way to its machines."""

    plan: "SlurmPlan"
    bindings: "Bindings | None"
    bundle: str  # digest of the bundle that must be applied
    reach: "Reach"
    up: Sequence[str]
    user: str
    sudo: bool
    aws: Callable[[str], Any] | None
    reviewed: "Reviewed | None" = None  # None: no spec is at hand
    accepted: "Acceptances | None" = None  # None: it accepts nothing until a day
    folders: bool = False  # shared file systems are folders of the sandbox's host


@dataclass(frozen=True, slots=True, kw_only=True)
class SshOptions:
    """The ssh options of the command line. None: the value of the plan or ssh's default."""

    paramiko: bool
    known_hosts: Path
    identity: Path | None
    config: Path | None
    user: str | None
    port: int | None


def find_target(name: str, backend: Backend | None, ssh: SshOptions, user: str | None) -> ValidationTarget:
    """A sandbox of that name, running or not, comes first, then a file or a stack."""
    from gpucluster.cli.spec_files import find_spec
    from gpucluster.sandbox import state_dir

    file = find_spec(name)
    if backend is None:
        backend = Backend.SSH if file.is_file() and not state_dir.exists(name) else Backend.SANDBOX
    if backend is Backend.SANDBOX:
        return _sandbox(name, user)
    if (home := _rehearsal(name)) is not None:
        return _rehearsed(home, ssh, user)
    if not file.is_file():
        raise StateError(
            f"{name} is not a spec file: ssh needs one, for addresses",
            next_step=f"gpucluster validate stacks/{name}.yaml --backend {backend.value}",
        )
    return _hosts(file, ssh, user)


def _rehearsal(name: str) -> "SandboxDir | None":
    """Return the running sandbox of plain machines of that name, with its plan, host keys and key."""
    from gpucluster.sandbox import state_dir

    if not state_dir.exists(name):
        return None
    home = state_dir.living(name)
    return home if home.site.is_dir() else None


def _rehearsed(home: "SandboxDir", ssh: SshOptions, user: str | None) -> ValidationTarget:
    """Reach the machines of a rehearsal by ssh inside its network: `gpucluster sandbox run NAME -- gpucluster validate ...`."""
    from dataclasses import replace

    keys = replace(
        ssh,
        known_hosts=home.site / "known_hosts"
        if ssh.known_hosts == KNOWN_HOSTS.expanduser()
        else ssh.known_hosts,
        identity=ssh.identity or home.site / "id_ed25519",
    )
    offered = _offered(home)
    reviewed = of_sandbox(home, offered.source, offered.bucket)
    target = _by_ssh(home.read_plan_on_hosts(), offered.digest, keys, user, reviewed)
    return replace(target, accepted=acceptances(home.spec))


def _sandbox(name: str, user: str | None) -> ValidationTarget:
    from gpucluster.sandbox import host_checks, state_dir
    from gpucluster.sandbox.machines import inside
    from gpucluster.validate.reach import by_argv

    host_checks.require_root()
    home = state_dir.living(name)
    trees = host_checks.cgroup_trees(Path("/proc/self/mountinfo").read_text())

    offered = _offered(home)
    plan = home.read_slurm_plan()

    def enter(machine: str) -> Sequence[str]:
        leader = inside.find(home, trees, machine).leader
        return inside.enter_argv(leader, (), user=None, term="dumb")

    return ValidationTarget(
        plan=plan,
        bindings=offered.bindings,
        bundle=offered.digest,
        reviewed=of_sandbox(home, offered.source, offered.bucket),
        accepted=acceptances(home.spec),
        reach=by_argv(enter),
        up=[machine.node for machine in inside.running_machines(home, trees) if machine.node],
        user=user or (plan.users[0].name if plan.users else SANDBOX_USER),
        sudo=False,
        aws=None if plan.aws is None else home.client,
        folders=plan.aws is not None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offered:
    """The bundle that a sandbox publishes. The head's own copy is under test."""

    bindings: "Bindings | None"  # None: plain machines, without a cloud
    digest: str
    source: "SpecSource | None"
    bucket: str


def _offered(home: "SandboxDir") -> _Offered:
    from botocore.exceptions import BotoCoreError, ClientError

    from gpucluster import artifacts
    from gpucluster.plan import codec, names
    from gpucluster.plan.model import Bindings

    plain = home.site.is_dir()
    try:
        bucket, body = ("", (home.site / names.BUNDLE_KEY).read_bytes()) if plain else _in_bucket(home)
        files = {one.path: one.content for one in artifacts.unpack(body)}
        return _Offered(
            bindings=None if plain else codec.loads(Bindings, files[names.BINDINGS_FILE]),
            digest=artifacts.digest(body),
            source=recorded(files),
            bucket=bucket,
        )
    except (BotoCoreError, ClientError, OSError, ValueError, LookupError) as error:
        raise GpuclusterError(
            f"the bundle of {home.name} cannot be read: {error}",
            next_step=f"repeat pulumi up, or `gpucluster sandbox up {home.name}`",
        ) from error


def _in_bucket(home: "SandboxDir") -> tuple[str, bytes]:
    from gpucluster.plan import names

    client = home.client("s3")
    every = [b["Name"] for b in client.list_buckets()["Buckets"] if b["Name"].startswith(f"{home.name}-")]
    return every[0], client.get_object(Bucket=every[0], Key=names.BUNDLE_KEY)["Body"].read()


def _hosts(file: Path, ssh: SshOptions, user: str | None) -> ValidationTarget:
    from dataclasses import replace

    from gpucluster.artifacts import Artifact, digest, pack
    from gpucluster.cli.context import resolve_file
    from gpucluster.cli.render import artifacts_of
    from gpucluster.plan import names

    plan = resolve_file(file).plan
    if plan.hosts is None:
        return _on_aws(plan, file, user)
    target = _by_ssh(plan, "", ssh, user)
    said, reach = _said_by_head(target)  # its commit is that of the last playbook
    files = {} if said is None else {names.SOURCE_FILE: said}
    made = (*artifacts_of(plan), *(Artifact(path, content) for path, content in files.items()))
    reviewed = compared(file, plan, recorded(files), place="the bundle of the head")
    accepted = acceptances(file)
    return replace(target, bundle=digest(pack(made)), reviewed=reviewed, accepted=accepted, reach=reach)


def _said_by_head(target: ValidationTarget) -> "tuple[bytes | None, Reach]":
    """Return what the head's bundle says of its spec, None if it does not say it, and the way that knows whether the head is away."""
    from gpucluster.checks.reviewed_spec import QUERY
    from gpucluster.validate.reach import KnownAway, UnreachableError, ask

    try:
        answer = ask(target.reach, ROLE_HEAD, QUERY, limit_s=SOURCE_S, user=None, sudo=target.sudo)
    except UnreachableError as error:
        return None, KnownAway(target.reach, error)
    return (answer.stdout.encode() if answer.code == 0 else None), target.reach


def _on_aws(plan: "ClusterPlan", file: Path, user: str | None) -> ValidationTarget:
    from gpucluster.cli.validate_on_aws import on_aws

    found = on_aws(plan, file, user)
    return ValidationTarget(
        plan=found.plan,
        bindings=found.bindings,
        bundle=found.bundle,
        reach=found.reach,
        up=found.up,
        user=found.user,
        sudo=False,
        aws=found.clients,
        folders=found.folders,
        reviewed=found.reviewed,
        accepted=acceptances(file),
    )


def _by_ssh(
    plan: "SlurmOnHosts",
    bundle: str,
    ssh: SshOptions,
    user: str | None,
    reviewed: "Reviewed | None" = None,
) -> ValidationTarget:
    from gpucluster.validate.reach import SshAddress, SshKeys, by_ssh

    name = ssh.user or plan.hosts.ssh_user
    port = ssh.port or plan.hosts.ssh_port
    nodes = {node: address for pool in plan.pools for node, address in pool.hosts()}
    places = {
        machine: SshAddress(address=address, user=name, port=port)
        for machine, address in {**nodes, ROLE_HEAD: plan.head.address}.items()
    }
    keys = SshKeys(known_hosts=ssh.known_hosts, identity=ssh.identity, config=ssh.config)
    return ValidationTarget(
        plan=plan,
        bindings=None,
        bundle=bundle,
        reviewed=reviewed,
        reach=by_ssh(places, keys, paramiko=ssh.paramiko),
        up=(),
        user=user or (plan.users[0].name if plan.users else name),
        sudo=name != "root",
        aws=None,
    )
