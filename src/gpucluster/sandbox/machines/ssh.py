"""ssh into a machine of a sandbox, with the user's own key, through the network of the capsule."""

from pathlib import Path

from gpucluster.errors import StateError
from gpucluster.sandbox.machines.hosts import reach_argv
from gpucluster.sandbox.machines.inside import RunningMachine
from gpucluster.sandbox.state_dir import SandboxDir
from gpucluster.sandbox.status import control

HOST_KEY = "etc/ssh/ssh_host_ed25519_key.pub"


def ssh_argv(
    home: SandboxDir, to: RunningMachine, command: tuple[str, ...], *, user: str, identity: Path | None
) -> list[str]:
    """The ssh command. The machine's host key is read from its disk, so the connection verifies it."""
    capsule = home.read_capsule()
    address = next((one["address"] for one in control(home).instances() if one["id"] == to.instance), None)
    if capsule is None or not address:
        raise StateError(f"'{home.name}' has no address for {to.node or to.instance}")
    try:
        words = Path(f"/proc/{to.leader}/root/{HOST_KEY}").read_text().split()[:2]
    except OSError as error:
        raise StateError(
            f"{to.node or to.role} has no host key: no sshd is there, only login machines have one",
            next_step=f"gpucluster sandbox exec {home.name} {to.node or to.role} -- bash",
        ) from error
    known = home.path / "known_hosts"
    known.write_text(f"{address} {' '.join(words)}\n")
    return reach_argv(capsule.init, (*_ssh(known, identity), f"{user}@{address}", *command))


def _ssh(known: Path, identity: Path | None) -> tuple[str, ...]:
    key = () if identity is None else ("-i", str(identity), "-o", "IdentitiesOnly=yes")
    return ("ssh", "-o", f"UserKnownHostsFile={known}", "-o", "StrictHostKeyChecking=yes", *key)
