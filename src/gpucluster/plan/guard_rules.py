"""The rules of nft that protect the metadata service and file servers. The agent loads them, and `validate` asks for them."""

from gpucluster.plan import names

TABLE = "inet gpucluster"
ROOT, DAEMON = "root", "slurm"
NODE_USERS = (ROOT,)
HEAD_USERS = (ROOT, DAEMON)  # also of the standby head
FILE_SERVERS = ", ".join(
    str(low) if low == high else f"{low}-{high}"
    for low, high in (*names.LUSTRE_PORTS, (names.NFS_PORT, names.NFS_PORT))
)
AGENTS = names.REGISTRATION_PORT
PROXY = "-".join(map(str, names.EFS_PROXY_PORTS))
OPENS = "tcp flags & (syn | ack) == syn"  # an answer to a client at such a port is no opening
ADDRESSES = (("ip", "169.254.169.254"), ("ip6", "fd00:ec2::254"))


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
        f"table {TABLE}\n"
        f"delete table {TABLE}\n"
        f"table {TABLE} {{\n"
        f"\tchain output {{\n\t\ttype filter hook output priority filter; policy accept;\n{out}\t}}\n"
        f"\tchain forward {{\n\t\ttype filter hook forward priority filter; policy accept;\n{through}\t}}\n"
        "}\n"
    )
