"""How jobs of one node are kept apart: the folder of their /tmp, and who may log in to the node."""

from collections.abc import Iterable

from gpucluster.plan import names
from gpucluster.plan.model import NodeSsh, Software
from gpucluster.spec.hosts import Hosts
from gpucluster.spec.isolation import NodeSsh as NodeSshSpec
from gpucluster.spec.isolation import PrivateTmp
from gpucluster.spec.isolation import Software as SoftwareSpec
from gpucluster.spec.storage import Storage


def private_tmp(requested: PrivateTmp | None, storage: Iterable[Storage]) -> str | None:
    """Return the base folder of the private /tmp: on the NVMe mount if the spec has one, and never the mount itself. None: private /tmp is off."""
    if requested is not None and not requested.enabled:
        return None
    disks = [one.mount for one in storage if one.nvme is not None]
    path = None if requested is None else requested.path
    if path is not None and path not in disks:
        return path
    if not disks:
        return names.PRIVATE_TMP
    return f"{path or disks[0]}/{names.PRIVATE_TMP_ON_DISKS}"  # the folder is root's, and users write to the mount


def software(requested: SoftwareSpec | None) -> Software | None:
    """Return the folders with software; None if the spec names none."""
    if requested is None or (requested.modules is None and requested.conda is None):
        return None
    return Software(modules=requested.modules, conda=requested.conda)


def node_ssh(requested: NodeSshSpec | None, hosts: Hosts | None) -> NodeSsh | None:
    """Return who may log in to nodes without a job; None if it is off. Ansible's account must always get in."""
    if requested is not None and not requested.enabled:
        return None
    named = () if requested is None else requested.operators
    ansible = () if hosts is None else (hosts.ssh.user,)
    return NodeSsh(operators=tuple(dict.fromkeys((*ansible, *named))))
