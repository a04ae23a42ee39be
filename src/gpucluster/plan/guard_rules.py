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
PRIVILEGED = 1024  # only root binds a port below it
OPENS = "tcp flags & (syn | ack) == syn"  # an answer to a client at such a port is no opening
ADDRESSES = (("ip", "169.254.169.254"), ("ip6", "fd00:ec2::254"))


def rules(users: tuple[str, ...]) -> str:
    """Return an nft script that replaces our own table in one transaction. `users` reach the metadata service."""
    metadata = "".join(f"\t\t{family} daddr {address} goto metadata\n" for family, address in ADDRESSES)
    through = "".join(f"\t\t{family} daddr {address} drop\n" for family, address in ADDRESSES)
    return (
        f"table {TABLE}\n"
        f"delete table {TABLE}\n"
        f"table {TABLE} {{\n"
        f"\tchain metadata {{\n{_owners(users)}\t\t{OPENS} drop\n\t}}\n"
        f"\tchain daemon {{\n{_owners((ROOT,))}\t\tdrop\n\t}}\n"
        f"\tchain servers {{\n{_owners((ROOT,))}\t\ttcp sport >= {PRIVILEGED} drop\n\t}}\n"
        "\tchain output {\n\t\ttype filter hook output priority filter; policy accept;\n"
        f"{metadata}"
        f"\t\ttcp dport {{ {FILE_SERVERS} }} {OPENS} goto servers\n"
        f"\t\ttcp dport {AGENTS} {OPENS} goto daemon\n"
        f"\t\tip daddr 127.0.0.0/8 tcp dport {PROXY} {OPENS} goto servers\n"
        "\t}\n"
        "\tchain forward {\n\t\ttype filter hook forward priority filter; policy accept;\n"
        f"{through}"
        f"\t\ttcp dport {{ {FILE_SERVERS}, {AGENTS} }} {OPENS} drop\n"
        "\t}\n"
        "}\n"
    )


def _owners(users: tuple[str, ...]) -> str:
    """Admit users, and refuse others at once. Only a socket without a file, which has no owner, passes both rules."""
    who = ", ".join(sorted(users))
    return f"\t\tmeta skuid {{ {who} }} accept\n\t\tmeta skuid != {{ {who} }} reject with icmpx admin-prohibited\n"
