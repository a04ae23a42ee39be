"""A host that exists, head or node: from what Ansible brought to Slurm running; then the agent ends.

Nothing on such a host changes without Ansible or a boot, and both start the agent again. No cloud, no daemon, no
metadata service: the bundle is a file here, the key is where munge wants it, the name is the plan's.
"""

from gpucluster.node import bundles, controller, head_role, identity, key, mounts, naming, slurmd, state
from gpucluster.node.known import Known, of
from gpucluster.node.machine import Machine
from gpucluster.node.walk import Table
from gpucluster.plan import names

HEAD: Table = (
    ("machine", identity.of_host),
    ("bundle", controller.offered),
    ("slurm", controller.tried),
    ("hosts", naming.host),
    ("key", key.there),
    ("mounts", mounts.mounted),
    ("controller", controller.controller),
    ("ready", controller.answers),
)
NODE: Table = (
    ("machine", identity.of_host),
    ("bundle", bundles.fetch_and_apply),
    ("hosts", naming.host),
    ("key", key.there),
    ("mounts", mounts.mounted),
    ("name", slurmd.planned),
    ("devices", slurmd.devices),
    ("slurmd", slurmd.serve),
)
TABLES = {names.ROLE_HEAD: HEAD, names.ROLE_NODE: NODE}
AGAIN_S = 5.0


def live(machine: Machine) -> None:
    """Walk until all is so. A bundle that is refused stays refused until Ansible brings another: that is an end, too."""
    state.save(machine, state.load(machine))
    table = TABLES[of(identity.of_host(machine, Known()).identity).role]
    known, done, last = Known(), False, b""
    while not done:
        known, done, last = head_role.look(machine, table, known, last, key=names.SITE_STATUS)
        if not done:
            machine.pause(AGAIN_S)
