"""The head's own folders over NFS, to the ranges in which the cluster's machines stand."""

from gpucluster.node import systemd
from gpucluster.node.known import Known, of
from gpucluster.node.machine import Machine
from gpucluster.plan import mounting

FILE = "/etc/exports.d/gpucluster.exports"
SERVER = "nfs-server"


def served(machine: Machine, known: Known) -> Known:
    """What the plan exports is exported, and nothing else of ours."""
    plan = of(known.bundle).plan
    paths, text = mounting.exports(plan), mounting.export_lines(plan)
    if not paths and not machine.read(FILE):
        return known
    for path in paths:
        machine.place(path).mkdir(parents=True, exist_ok=True)
    changed = machine.write(FILE, text)
    if paths:
        systemd.ensure(machine, SERVER)
    if changed:
        machine.run(["exportfs", "-r", "-a"])
    return known
