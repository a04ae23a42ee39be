"""The way into a machine of a sandbox as its people go: by ssh, with their own keys; only the network is the capsule's."""

from pathlib import Path

from gpucluster.errors import StateError
from gpucluster.sandbox.inside import Resident
from gpucluster.sandbox.ledger import Home
from gpucluster.sandbox.plain import reach_argv
from gpucluster.sandbox.status import control

HOST_KEY = "etc/ssh/ssh_host_ed25519_key.pub"


def ssh_argv(
    home: Home, to: Resident, command: tuple[str, ...], *, user: str, identity: Path | None
) -> list[str]:
    """What to become. The machine's host key is read from its disk, so none is trusted unseen."""
    capsule = home.read_capsule()
    address = next((one["address"] for one in control(home).instances() if one["id"] == to.instance), None)
    if capsule is None or not address:
        raise StateError(f"'{home.name}' has no address for {to.node or to.instance}")
    try:
        words = Path(f"/proc/{to.leader}/root/{HOST_KEY}").read_text().split()[:2]
    except OSError as error:
        raise StateError(
            f"{to.node or to.role} has no host key: no sshd is there, only login machines have one",
            next_step=f"gpucluster sandbox exec {home.name} {to.node or to.role}",
        ) from error
    known = home.path / "known_hosts"
    known.write_text(f"{address} {' '.join(words)}\n")
    return reach_argv(capsule.init, (*_ssh(known, identity), f"{user}@{address}", *command))


def _ssh(known: Path, identity: Path | None) -> tuple[str, ...]:
    key = () if identity is None else ("-i", str(identity), "-o", "IdentitiesOnly=yes")
    return ("ssh", "-o", f"UserKnownHostsFile={known}", "-o", "StrictHostKeyChecking=yes", *key)
