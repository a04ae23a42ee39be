"""The ways from the desk to a cluster's head: its own Python there answers, and we pass on what it says.

By `nsenter` into a sandbox, by ssh with strict host keys to hosts that exist or to any address, or here where this is the head.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from gpucluster.cli.output import Output, answer, progress, say
from gpucluster.errors import GpuclusterError, HostError, StateError

if TYPE_CHECKING:
    from gpucluster.plan.model import ClusterPlan
    from gpucluster.validate.reach import SshPlace

MOST_PORT = 65535
LIMIT_S = 90.0  # a journal of years, a slurmctld that holds its locks, a cloud that throttles
KNOWN_HOSTS = Path("~/.ssh/known_hosts")
_NEVER_OURS = ("Traceback", "No module named")  # Python's own 1, which is no answer
OLD = "the cluster's image is of a version without it: apply the bundle of this one, or replace the head"

ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        "-c",
        metavar="NAME|FILE",
        help="A sandbox, or a stack on hosts; the only one without it.",
    ),
]
SshOption = Annotated[
    str | None,
    typer.Option("--ssh", metavar="[USER@]HOST[:PORT]", help="The head's address, where no spec has it."),
]
KnownHostsOption = Annotated[
    Path, typer.Option("--known-hosts", help="Host keys that ssh may trust; no other is.")
]
IdentityOption = Annotated[Path | None, typer.Option("--identity", help="The private key for ssh.")]
SshConfigOption = Annotated[Path | None, typer.Option("--ssh-config", help="For jump hosts.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What the command line says of the way; None is found out."""

    cluster: str | None = None
    ssh: str | None = None
    known_hosts: Path = KNOWN_HOSTS
    identity: Path | None = None
    ssh_config: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What the program on the head answered: 0 done, 1 no; 2 has become an exception."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A head that can be asked; `run` takes an argv and gives (code, stdout, stderr)."""

    name: str
    run: Callable[[Sequence[str]], tuple[int, str, str]]

    def ask(self, module: str, *arguments: str) -> Said:
        """Run `python -m gpucluster.elastic.MODULE` there; what it could not do is an error with its own words."""
        from gpucluster.plan import names

        code, out, err = self.run(
            (f"{names.VENV}/bin/python", "-I", "-m", f"gpucluster.elastic.{module}", *arguments)
        )
        if code not in (0, 1) or (code == 1 and any(sign in err for sign in _NEVER_OURS)):
            raise _failure(self.name, code, err)
        return Said(code=code, stdout=printable(out), stderr=printable(err))


def report(head: Head, output: Output, module: str, *arguments: str) -> None:
    """Ask, and pass the answer on as text or as JSON, with the exit code."""
    if output is Output.TEXT:
        said = head.ask(module, *arguments)
        if said.stdout.strip():
            say(said.stdout.rstrip("\n"))
    else:
        said = head.ask(module, *arguments, "--json")
        values = {"ok": said.code == 0, "cluster": head.name, **_json(said.stdout)}
        answer(**values)
        said = replace(said, code=0 if values["ok"] else 1)
    if said.stderr.strip():
        progress(said.stderr.rstrip("\n"))
    raise typer.Exit(said.code)


def reach(way: Way) -> Head:
    """The head that is meant, or an error that says what to name."""
    if way.ssh is not None:
        return _by_ssh(way.cluster or way.ssh, _place(way.ssh), way)
    if way.cluster is None and _is_here():
        return Head(name="here", run=_here)
    cluster = way.cluster or _only_sandbox()
    if _is_sandbox(cluster):
        return _of_sandbox(cluster)
    return _of_hosts(cluster, way)


def pool_names(incomplete: str) -> list[str]:
    """For the shell's completion: pools of the sandboxes that are there."""
    from gpucluster.sandbox import ledger

    found: set[str] = set()
    try:
        for home in ledger.homes():
            found |= {pool["name"] for pool in json.loads(home.plan.read_text())["pools"]}
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return sorted(name for name in found if name.startswith(incomplete))


def printable(text: str) -> str:
    """What a machine said, without what a terminal would obey."""
    return "".join(c for c in text if c.isprintable() or c == "\n")


# --- which head ---------------------------------------------------------------------------------------
def _is_here() -> bool:
    from gpucluster.plan import names

    return (Path(names.BUNDLE_DIR) / names.PLAN_FILE).is_file() and Path(names.JOURNAL).is_file()


def _only_sandbox() -> str:
    from gpucluster.sandbox import ledger

    try:
        alive = [home.name for home in ledger.homes() if ledger.alive(home)]
    except PermissionError:
        alive = []
    if len(alive) == 1:
        return alive[0]
    found = (
        f"{len(alive)} sandboxes are up ({', '.join(alive)})"
        if alive
        else "no sandbox is up, and this is no head"
    )
    raise StateError(
        f"which cluster is meant? {found}", next_step="name it: --cluster NAME, or --ssh HOST of its head"
    )


def _is_sandbox(name: str) -> bool:
    from gpucluster.sandbox import ledger

    try:
        return ledger.Home(name=name).path.is_dir()
    except (StateError, PermissionError):
        return False


# --- the ways -----------------------------------------------------------------------------------------
def _here(argv: Sequence[str]) -> tuple[int, str, str]:
    from gpucluster import shell

    done = shell.run(argv, check=False, timeout_s=LIMIT_S)
    return done.code, done.stdout, done.stderr


def _of_sandbox(name: str) -> Head:
    from gpucluster.plan import names
    from gpucluster.sandbox import host, inside, ledger

    host.require_root()
    home = ledger.living(name)
    trees = host.cgroup_trees(Path("/proc/self/mountinfo").read_text())
    plan = home.read_plan()
    word = plan.head.name if home.site.is_dir() and plan.head is not None else names.ROLE_HEAD
    leader = inside.find(home, trees, word).leader
    return Head(name=name, run=lambda argv: _here(inside.enter_argv(leader, argv, user=None, term="dumb")))


def _of_hosts(cluster: str, way: Way) -> Head:
    from gpucluster.cli.desk import resolve_file, spec_of
    from gpucluster.validate.reach import SshPlace

    file = spec_of(cluster)
    if not file.is_file():
        raise StateError(
            f"{cluster} is neither a sandbox nor a spec file",
            next_step="gpucluster sandbox status; or --ssh HOST of its head",
        )
    plan = resolve_file(file).plan
    if plan.hosts is None or plan.head is None:
        raise _not_from_here(plan, file)
    place = SshPlace(address=plan.head.address, user=plan.hosts.ssh_user, port=plan.hosts.ssh_port)
    return _by_ssh(plan.name, place, way)


def _not_from_here(plan: "ClusterPlan", file: Path) -> HostError:
    if plan.head is None:
        return HostError(
            f"{plan.name} has no head: no Slurm runs there", next_step="name a cluster with `slurm:`"
        )
    return HostError(
        f"{plan.name} is on AWS, and nothing leads from here to its head, {plan.head.address}, which has no public address",
        next_step=f"--ssh USER@{plan.head.address}, with --ssh-config for a jump host; or on the head itself, as docs/aws.md says;"
        f" to rehearse: gpucluster sandbox up {file}",
    )


def _place(word: str) -> "SshPlace":
    """`[USER@]HOST[:PORT]`; never something that ssh would take as an option."""
    from gpucluster.validate.reach import SshPlace

    user, _, rest = word.rpartition("@")
    host, colon, port = rest.partition(":") if rest.count(":") == 1 else (rest, "", "")
    known = user.replace("-", "").replace("_", "").replace(".", "").isalnum() or not user
    if (
        not host
        or host.startswith("-")
        or user.startswith("-")
        or not known
        or (colon and not (port.isdecimal() and 0 < int(port[:6]) <= MOST_PORT))
    ):
        raise GpuclusterError(
            f"--ssh: {word!r} is no [USER@]HOST[:PORT]", next_step="for example admin@192.0.2.10"
        )
    return SshPlace(address=host, user=user or "root", port=int(port) if port else 22)


def _by_ssh(name: str, place: "SshPlace", way: Way) -> Head:
    from gpucluster.validate.reach import SshKeys, ask, by_ssh

    keys: SshKeys = SshKeys(
        known_hosts=way.known_hosts.expanduser(), identity=way.identity, config=way.ssh_config
    )
    machines = by_ssh({"head": place}, keys)

    def run(argv: Sequence[str]) -> tuple[int, str, str]:
        try:
            done = ask(machines, "head", argv, limit_s=LIMIT_S, user=None, sudo=place.user != "root")
        finally:
            machines.close()
        return done.code, done.stdout, done.stderr

    return Head(name=name, run=run)


# --- what came back -----------------------------------------------------------------------------------
def _failure(name: str, code: int, err: str) -> StateError:
    """The program's own sentence and next step; or that it is not there."""
    lines = printable(err).strip().splitlines() or [f"it ended with code {code}"]
    if any("No module named" in line for line in lines) or code == 127:
        return StateError(f"{name}: the head has no such program: {lines[-1]}", next_step=OLD)
    said = next((n for n, line in enumerate(lines) if line.startswith("error: ")), None)
    if said is None:
        return StateError(f"{name}: {lines[-1]}", next_step="look at the head's log of gpucluster-elastic")
    rest = [line.strip() for line in lines[said + 1 :]]
    step = next((line.removeprefix("next: ") for line in rest if line.startswith("next: ")), None)
    return StateError(f"{name}: {lines[said].removeprefix('error: ')}", next_step=step)


def _json(text: str) -> dict[str, Any]:
    try:
        found: Any = json.loads(text)
    except ValueError as error:
        raise StateError(f"the head's answer is no JSON: {error}", next_step=OLD) from error
    if isinstance(found, list):  # the moments of a job: none is no job of ours
        return {"moments": found, "ok": bool(cast("list[Any]", found))}
    answered = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    return {key: value for key, value in answered.items() if key != "schema"}
