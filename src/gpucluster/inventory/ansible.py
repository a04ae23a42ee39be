"""Convert a plan to a static Ansible inventory: the head, a group for each pool, and every variable of `playbooks/site.yml`. Pure.

It contains no secrets. Ansible takes no value for a template, because the spec allows no brace in a name, path or key.
Paths of the files beside it begin with Ansible's own `inventory_dir`, so the folder may be moved.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from gpucluster.plan import mounts, names
from gpucluster.plan.model import NfsFromHead, SlurmOnHosts
from gpucluster.shipment import CODE_MARK, WHEELS

HEAD, NODES = "head", "nodes"
BUNDLE, CODE, KNOWN_HOSTS = "bundle.tar.gz", "code.tar", "known_hosts"
FILE = "inventory.yml"
KEY_FOLDER = names.KEY_FOLDER

Values = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cargo:
    """The files beside the inventory, by digest; the trusted host keys, and the login user."""

    bundle_digest: str
    code_digest: str
    wheel: str  # path of our wheel on the host
    known_hosts: bool = False  # a file of ours beside the inventory, instead of the operator's own
    private_key: str | None = None  # path of a rehearsal's key; an operator uses the keys of the ssh agent


def inventory(plan: SlurmOnHosts, cargo: Cargo) -> Values:
    """Return the whole inventory as plain values."""
    pools = {_group(pool.name): pool for pool in plan.pools}
    children: Values = {
        HEAD: {
            "hosts": {plan.head.name: {"ansible_host": plan.head.address}},
            "vars": _of_head(plan),
        },
        NODES: {"children": {group: {} for group in pools}, "vars": _of_nodes(plan)},
    }
    for group, pool in pools.items():
        children[group] = {"hosts": {name: {"ansible_host": address} for name, address in pool.hosts()}}
    return {
        "all": {"vars": {**_reach(plan, cargo), **_places(), **_cluster(plan, cargo)}, "children": children}
    }


def _group(pool: str) -> str:
    """Return the name of a pool's group: Ansible refuses '-' in it, and a pool's name has no '_'."""
    return f"pool_{pool.replace('-', '_')}"


def _reach(plan: SlurmOnHosts, cargo: Cargo) -> Values:
    """Return ssh options that refuse a host with an unknown key, whatever the operator's own configuration says."""
    words = ["-o StrictHostKeyChecking=yes"]
    if cargo.known_hosts:
        words.append(
            f"""'-o UserKnownHostsFile="{{{{ inventory_dir }}}}/{KNOWN_HOSTS}"' -o GlobalKnownHostsFile=none"""
        )
    found: Values = {
        "ansible_user": plan.hosts.ssh_user,
        "ansible_port": plan.hosts.ssh_port,
        "ansible_become": True,
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_pipelining": True,  # modules and their arguments are not written to a disk
        "ansible_host_key_checking": True,
        "ansible_ssh_common_args": " ".join(words),
    }
    if cargo.private_key is not None:
        found |= {
            "ansible_ssh_private_key_file": cargo.private_key,
            "ansible_control_path_dir": "{{ inventory_dir }}/cp",  # another rehearsal may use the same addresses
            "ansible_ssh_args": "-C -o ControlMaster=auto -o ControlPersist=5s",  # so connections end soon after the run
        }
    return found


def _places() -> Values:
    return {
        "venv": names.VENV,
        "wheels": WHEELS,
        "code_mark": CODE_MARK,
        "command": names.MACHINE_COMMAND,
        "command_link": names.COMMAND_LINK,
        "agent_unit": names.AGENT_UNIT,
        "watch_timer": names.WATCH_TIMER,
        "machine_file": names.USER_DATA_FILE,
        "site_folder": names.SITE_DIR,
        "bundle_file": f"{names.SITE_DIR}/{names.BUNDLE_KEY}",
        "started_file": f"{names.SITE_DIR}/started",
        "munge_key": names.MUNGE_KEY,
        "key_folder": KEY_FOLDER,
        "folders": [  # Slurm's packages, slurmd, and on the head the agent create the other folders
            {"path": names.SITE_DIR, "owner": "root", "mode": "0755"},
            {"path": str(PurePosixPath(names.USER_DATA_FILE).parent), "owner": "root", "mode": "0755"},
        ],
    }


def _cluster(plan: SlurmOnHosts, cargo: Cargo) -> Values:
    return {
        "cluster": plan.name,
        "slurm_version": plan.slurm.version,
        "bundle_archive": f"{{{{ inventory_dir }}}}/{BUNDLE}",
        "bundle_digest": cargo.bundle_digest,
        "code_archive": f"{{{{ inventory_dir }}}}/{CODE}",
        "code_digest": cargo.code_digest,
        "our_wheel": cargo.wheel,
        "mount_points": sorted(mount.path for mount in plan.storage),
        "people_ids": [f"{user.name}:{user.uid}" for user in plan.users],
        "names_and_uids": [word for user in plan.users for word in (user.name, str(user.uid))],
        "people": [{"name": user.name, "uid": user.uid, "keys": list(user.keys)} for user in plan.users],
    }


def _of_head(plan: SlurmOnHosts) -> Values:
    shared = mounts.shares_homes(plan)
    return {
        "role": names.ROLE_HEAD,
        "exported": list(mounts.exports(plan)),
        "node_ssh": False,
        "modules": False,
        "accounting": plan.slurm.accounting is not None,
        "exports": mounts.export_lines(plan),
        "mounts": list(_mounts(plan, on_head=True)),
        "makes_homes": shared is None or isinstance(shared.source, NfsFromHead),
    }


def _of_nodes(plan: SlurmOnHosts) -> Values:
    return {
        "role": names.ROLE_NODE,
        "exported": [],
        "node_ssh": plan.slurm.node_ssh is not None,
        "modules": plan.slurm.software is not None and plan.slurm.software.modules is not None,
        "accounting": False,
        "mounts": list(_mounts(plan, on_head=False)),
        "makes_homes": mounts.shares_homes(plan) is None,
    }


def _mounts(plan: SlurmOnHosts, *, on_head: bool) -> Iterator[Mapping[str, str]]:
    """Return lines of fstab, outer mount points first."""
    for line in mounts.lines(plan, {}, on_head=on_head):
        yield {"path": line.path, "src": line.source, "fstype": line.type, "opts": line.fstab_options()}
