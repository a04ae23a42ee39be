"""nft rules that protect the metadata service, which gives out the credentials of the machine's role, and file servers.

Only root reaches it, and on the head also the user of the elastic daemon. `gpucluster-guard.service` of the image loads
the strict rules at every boot before the network is up. The agent loads them again, in case something removed them.
The rules match the owner of the socket (`meta skuid`), also in a user namespace. Forwarded packets, for example of
containers behind a bridge, have no owner and are dropped.

NFS and Lustre trust the uid that a client sends, so a job with its own client program is root on /home. Only root reaches
the ports of file servers and the local ports of EFS's TLS proxy. The kernel's own clients pass: their sockets belong to root
or to no file, and a rule with `meta skuid` does not match a socket without a file (net/netfilter/nft_meta.c).

Only root reaches the elastic daemon's port for nodes, in both tables of rules: a job that opens many connections there from
a shared node would take the places of the node's agent.
"""

from gpucluster.agent.boot.boot_state import BootState
from gpucluster.agent.machine import Machine
from gpucluster.plan import names

RULES = f"{names.AGENT_RUN}/guard.nft"
ROOT, DAEMON = "root", "slurm"
FILE_SERVERS = ", ".join(
    str(low) if low == high else f"{low}-{high}"
    for low, high in (*names.LUSTRE_PORTS, (names.NFS_PORT, names.NFS_PORT))
)
AGENTS = names.REGISTRATION_PORT
PROXY = "-".join(map(str, names.EFS_PROXY_PORTS))
OPENS = "tcp flags & (syn | ack) == syn"  # an answer to a client at such a port is no opening
ADDRESSES = (("ip", "169.254.169.254"), ("ip6", "fd00:ec2::254"))


def root_only(machine: Machine, state: BootState) -> BootState:
    """Admit only root."""
    return _load(machine, state, rules((ROOT,)))


def root_and_daemon(machine: Machine, state: BootState) -> BootState:
    """Admit root and the user of the elastic daemon."""
    return _load(machine, state, rules((ROOT, DAEMON)))


def rules(users: tuple[str, ...]) -> str:
    """Return an nft script that replaces our own table in one transaction. `users` reach the metadata service."""
    who = ", ".join(sorted(users))
    out = "".join(
        f"\t\t{family} daddr {address} meta skuid != {{ {who} }} reject with icmpx admin-prohibited\n"
        for family, address in ADDRESSES
    )
    out += (
        f"\t\ttcp dport {{ {FILE_SERVERS} }} {OPENS} meta skuid != {{ {ROOT} }} reject with icmpx admin-prohibited\n"
        f"\t\tip daddr 127.0.0.0/8 tcp dport {PROXY} {OPENS} meta skuid != {{ {ROOT} }} reject with icmpx admin-prohibited\n"
        f"\t\ttcp dport {AGENTS} {OPENS} meta skuid != {{ {ROOT} }} reject with icmpx admin-prohibited\n"
    )
    through = "".join(f"\t\t{family} daddr {address} drop\n" for family, address in ADDRESSES)
    through += f"\t\ttcp dport {{ {FILE_SERVERS}, {AGENTS} }} {OPENS} drop\n"
    return (
        "table inet gpucluster\n"
        "delete table inet gpucluster\n"
        "table inet gpucluster {\n"
        f"\tchain output {{\n\t\ttype filter hook output priority filter; policy accept;\n{out}\t}}\n"
        f"\tchain forward {{\n\t\ttype filter hook forward priority filter; policy accept;\n{through}\t}}\n"
        "}\n"
    )


def _load(machine: Machine, state: BootState, text: str) -> BootState:
    machine.write(RULES, text)
    machine.run(["nft", "-f", str(machine.path(RULES))], timeout_s=10)
    return state
