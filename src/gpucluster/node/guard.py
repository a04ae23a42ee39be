"""The metadata service hands out the machine's role: only root reaches it, on the head also the daemon's user.

The image's `gpucluster-guard.service` loads the strict rules before the network is up, at every boot.
The agent loads them again (whatever happened to them), and on the head lets user `slurm` in.
Sockets carry their owner (`meta skuid`), also in a user's own user namespace; what is only forwarded
(containers behind a bridge) has no owner and is dropped.
"""

from gpucluster.node.known import Known
from gpucluster.node.machine import Machine
from gpucluster.plan import names

RULES = f"{names.AGENT_RUN}/guard.nft"
ROOT, DAEMON = "root", "slurm"
ADDRESSES = (("ip", "169.254.169.254"), ("ip6", "fd00:ec2::254"))


def strict(machine: Machine, known: Known) -> Known:
    """Only root."""
    return _load(machine, known, rules((ROOT,)))


def with_daemon(machine: Machine, known: Known) -> Known:
    """Root, and the user that the elastic daemon runs as."""
    return _load(machine, known, rules((ROOT, DAEMON)))


def rules(users: tuple[str, ...]) -> str:
    """An nft script that replaces our table, and nothing else, in one transaction."""
    who = ", ".join(sorted(users))
    out = "".join(
        f"\t\t{family} daddr {address} meta skuid != {{ {who} }} reject with icmpx admin-prohibited\n"
        for family, address in ADDRESSES
    )
    through = "".join(f"\t\t{family} daddr {address} drop\n" for family, address in ADDRESSES)
    return (
        "table inet gpucluster\n"
        "delete table inet gpucluster\n"
        "table inet gpucluster {\n"
        f"\tchain output {{\n\t\ttype filter hook output priority filter; policy accept;\n{out}\t}}\n"
        f"\tchain forward {{\n\t\ttype filter hook forward priority filter; policy accept;\n{through}\t}}\n"
        "}\n"
    )


def _load(machine: Machine, known: Known, text: str) -> Known:
    machine.write(RULES, text)
    machine.run(["nft", "-f", str(machine.place(RULES))], timeout_s=10)
    return known
