"""The transport by ssh: strict host keys, and the user's own configuration."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gpucluster.errors import GpuclusterError, StateError
from gpucluster.plan.names import ROLE_HEAD
from gpucluster.shell import Result
from gpucluster.validate import reach
from gpucluster.validate.reach import SshAddress, SshKeys

if TYPE_CHECKING:
    from gpucluster.cli.transport import Run
    from gpucluster.plan.model import SlurmOnHosts

MOST_PORT = 65535


def place_of(word: str) -> SshAddress:
    """Parse `[USER@]HOST[:PORT]`. Refuse a value that ssh could read as an option."""
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
            f"--ssh: {word!r} is not [USER@]HOST[:PORT]", next_step="use the form admin@192.0.2.10"
        )
    return SshAddress(address=host, user=user or "root", port=int(port) if port else 22)


def addresses(plan: "SlurmOnHosts") -> dict[str, SshAddress]:
    """Return the addresses of the machines by their names. The head is also called `head`."""
    nodes = {node: address for pool in plan.pools for node, address in pool.hosts()}
    all_of = {**nodes, plan.head.name: plan.head.address, ROLE_HEAD: plan.head.address}
    user, port = plan.hosts.ssh_user, plan.hosts.ssh_port
    return {name: SshAddress(address=address, user=user, port=port) for name, address in all_of.items()}


def by_ssh(places: Mapping[str, SshAddress], keys: SshKeys) -> "Run":
    """Run commands by ssh as root, with sudo for another user. GpuclusterError if the known hosts cannot be read."""
    machines = reach.by_ssh(places, keys)

    def run(machine: str, argv: Sequence[str], limit_s: float) -> Result:
        if machine not in places:
            raise StateError(
                f"the plan has no machine {machine!r}", next_step=f"it has {', '.join(sorted(places))}"
            )
        try:
            sudo = places[machine].user != "root"
            done = reach.ask(machines, machine, argv, limit_s=limit_s, user=None, sudo=sudo)
        finally:
            machines.close()
        return Result(tuple(argv), done.code, done.stdout, done.stderr)

    return run
