"""nft rules that protect the metadata service, which gives out the credentials of the machine's role, and file servers.

Only root reaches it, and on the head also the user of the elastic daemon. `gpucluster-guard.service` of the image loads
the strict rules at every boot before the network is up. The agent loads them again, in case something removed them.
The rules match the owner of the socket (`meta skuid`), also in a user namespace. Forwarded packets, for example of
containers behind a bridge, have no owner and are dropped.

NFS and Lustre trust the uid that a client sends, so a job with its own client program is root on /home. Only root reaches
the ports of file servers and the local ports of EFS's TLS proxy. A socket that the kernel opens may have no file, and then it has
no owner (net/netfilter/nft_meta.c): such are the TCP socket inside a user's AF_SMC socket, the client of Lustre, and that of NFS
on older kernels (on Debian's 6.1 it has a file of root). The two clients pass because they come from ports below 1024, which only
root binds. Nothing else passes: no such socket opens a connection to the metadata service, or to the daemon.

Only root reaches the elastic daemon's port for nodes, in both tables of rules: a job that opens many connections there from
a shared node would take the places of the node's agent.
"""

from gpucluster.agent.boot.boot_state import BootState
from gpucluster.agent.machine import Machine
from gpucluster.plan import guard_rules, names

RULES = f"{names.AGENT_RUN}/guard.nft"


def root_only(machine: Machine, state: BootState) -> BootState:
    """Admit only root."""
    return _load(machine, state, guard_rules.rules(guard_rules.NODE_USERS))


def root_and_daemon(machine: Machine, state: BootState) -> BootState:
    """Admit root and the user of the elastic daemon."""
    return _load(machine, state, guard_rules.rules(guard_rules.HEAD_USERS))


def _load(machine: Machine, state: BootState, text: str) -> BootState:
    machine.write(RULES, text)
    machine.run(["nft", "-f", str(machine.path(RULES))], timeout_s=10)
    return state
