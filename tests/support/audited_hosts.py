"""Edits of existing hosts that an auditor tried, and what `diff` must say of each. `audited_edits` has the form."""

from support.audited_edits import GOES_ON, STAYS, STAYS_OPEN, STAYS_QUEUED, Audited

_PLAYBOOK = "ansible-playbook -i site/inventory.yml"
_TOPOLOGY = (', topology: {tree: {spine: {leaf1: "gpu[01-02]", leaf2: "gpu[03-04]"}}}', "")
_HOME = "{mount: /home, nfs: {from: head, export: /srv/home}}"
_APPS = "{mount: /apps, nfs: {server: 192.0.2.5, export: /srv/apps}}"
_TOOLS = "{mount: /tools, nfs: {from: head, export: /srv/tools}}"
_DATABASE = ('version: "24.11"', 'version: "24.11", accounting: {database: local}')
_OTHER_HEAD = ("{name: ctl0, address: 192.0.2.10}", "{name: ctl1, address: 192.0.2.20}")
_DOWN = "scontrol update partitionname=PARTITION state=down"
_UP = "scontrol update partitionname=PARTITION state=up"
_OF_A_CLOUD = ("launched", "when it starts", "new head", "nodes of a cloud")

EDITS = (
    Audited(
        id="head-moves-to-another-host",
        stack="lab",
        changes=(_OTHER_HEAD,),
        worst="stop-fleet",
        is_exactly={
            "running": "must have ended before: let them end, or cancel them",
            "queued": "are lost if slurmctld's state is not copied from ctl0 to ctl1 before the playbook; else they start after the change",
            "data": "of slurmctld and /home stays on ctl0, and ctl1 has only what is copied there",
        },
        says={"sessions": "Slurm's commands wait until slurmctld runs on ctl1, and ctl0 has none"},
        never=_OF_A_CLOUD,
        steps=(
            _DOWN,
            "squeue --states=running",
            "systemctl disable --now gpucluster-watch.timer gpucluster-accounts.timer gpucluster-agent.service slurmctld ",
            "apt-get install munge slurmctld ",
            "ssh -p 22 admin@192.0.2.10 sudo tar -C / --acls --xattrs -cf - var/spool/slurmctld etc/munge/munge.key srv/home |",
            "umount /home ",
            "gpucluster inventory lab",
            _PLAYBOOK,
            _UP,
        ),
        no_steps=("# if",),
    ),
    Audited(
        id="head-with-a-database-moves",
        stack="lab",
        base=(_DATABASE,),
        changes=(_OTHER_HEAD,),
        worst="stop-fleet",
        is_exactly={
            "data": "of slurmctld, its database and /home stays on ctl0, and ctl1 has only what is copied there"
        },
        steps=(
            "systemctl disable --now gpucluster-watch.timer gpucluster-accounts.timer gpucluster-agent.service slurmctld slurmdbd",
            "apt-get install munge slurmctld mariadb-server",
            "ssh -p 22 admin@192.0.2.10 sudo mariadb-dump --single-transaction --databases slurm_acct_db --skip-add-drop-table | mariadb",
            _PLAYBOOK,
        ),
    ),
    Audited(
        id="head-gets-another-address",
        stack="lab",
        changes=(("192.0.2.10", "192.0.2.20"),),
        worst="stop-fleet",
        says={
            "queued": "is not copied from 192.0.2.10 to 192.0.2.20",
            "data": "stays on 192.0.2.10, and 192.0.2.20 has only what is copied there",
        },
        steps=(
            "# if 192.0.2.20 is the same machine with another address",
            "systemctl disable",
            "ssh -p 22 admin@192.0.2.10 sudo tar",
            _PLAYBOOK,
        ),
    ),
    Audited(
        id="slurm-newer-on-hosts",
        stack="lab",
        base=(_DATABASE,),
        changes=(('"24.11"', '"26.05"'),),
        worst="stop-fleet",
        says={"sessions": "Slurm's commands wait while slurmctld restarts"},
        never=_OF_A_CLOUD,
        steps=(
            _DOWN,
            "squeue --states=running",
            "mariadb-dump --single-transaction --databases slurm_acct_db > backup.sql",
            "apt-get install --only-upgrade slurm-client slurmdbd slurmctld",
            "apt-get install --only-upgrade slurm-client slurmd",
            "gpucluster inventory lab",
            _PLAYBOOK,
            _UP,
        ),
        no_steps=("mv ", "ssh "),
    ),
    Audited(
        id="slurm-older-on-hosts",
        stack="lab",
        base=(('"24.11"', '"26.05"'), ("accept: [{id: slurm-support", "#accept: [{id:")),
        changes=(('"26.05"', '"24.11"'), ("#accept: [{id:", "accept: [{id: slurm-support")),
        worst="data-loss",
        is_exactly={"queued": "are lost with slurmctld's state; users submit them again"},
        steps=(
            _DOWN,
            "squeue --states=running",
            "systemctl stop gpucluster-watch.timer slurmctld",
            "mv /var/spool/slurmctld /var/spool/slurmctld.newer",
            "apt-get install --allow-downgrades slurm-client=VERSION slurmctld=VERSION",
            _PLAYBOOK,
        ),
        no_steps=(_UP,),
    ),
    Audited(
        id="host-with-a-job-leaves-for-another",
        stack="lab",
        base=(_TOPOLOGY,),
        changes=(
            (
                '"gpu[01-04]", addresses: "192.0.2.[11-14]"',
                '"gpu[01-03,05]", addresses: "192.0.2.[11-13,15]"',
            ),
        ),
        worst="drain",
        says={"running": "finish on the nodes that are removed or changed"},
        never=_OF_A_CLOUD,
        steps=(
            "gpucluster inventory lab",
            _PLAYBOOK,
            "gpucluster bundle show -c lab",
            "gpucluster bundle apply DIGEST --now -c lab",
            "ansible-playbook -i site/inventory.yml playbooks/site.yml    # again when they have ended",
            "systemctl disable --now gpucluster-agent.service slurmd    # on gpu04,",
        ),
        no_steps=(_DOWN,),
    ),
    Audited(
        id="hosts-with-less-memory",
        stack="lab",
        changes=(("2000GiB", "1000GiB"),),
        worst="drain",
        steps=(_PLAYBOOK, "ansible-playbook -i site/inventory.yml playbooks/site.yml    # again"),
        no_steps=("systemctl disable",),
    ),
    Audited(
        id="uid-on-hosts",
        stack="lab",
        changes=(("uid: 5002", "uid: 6002"),),
        worst="drain",
        is_exactly={
            "running": "go on; those of this user must have ended: usermod refuses while a process of his runs",
            "queued": "stay in the queue; those of speech keep the uid 5002, which no user has then",
        },
        never=("the head applies the bundle",),
        steps=("usermod -u UID USER", "chown -R -h", "gpucluster inventory lab", _PLAYBOOK),
    ),
    Audited(
        id="user-removed-on-hosts",
        stack="lab",
        changes=((", {name: speech, uid: 5002}", ""),),
        worst="drain",
        says={"sessions": "a password and ~/.ssh/authorized_keys still let him in"},
        never=("is refused",),
        steps=(_PLAYBOOK, "usermod --lock --expiredate 1 USER"),
    ),
    Audited(
        id="keys-changed-on-hosts",
        stack="lab",
        changes=(
            (
                "{name: speech, uid: 5002}",
                '{name: speech, uid: 5002, keys: ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHZpc2lvbnZpc2lvbnZpc2lvbnZpc2lvbnZpc2lvbnZp"]}',
            ),
        ),
        says={"sessions": "a key in ~/.ssh/authorized_keys"},
        is_exactly={"running": GOES_ON, "queued": STAYS_QUEUED, "data": STAYS},
    ),
    Audited(
        id="user-renamed-on-hosts",
        stack="lab",
        changes=(("{name: speech, uid: 5002}", "{name: sound, uid: 5002}"),),
        worst="drain",
        says={
            "running": "those of speech must have ended: usermod refuses while a process of his runs",
            "sessions": "those of speech must have ended: usermod refuses while a process of his runs",
        },
        steps=("usermod -l sound -d /home/sound -e '' speech && groupmod -n sound speech", _PLAYBOOK),
        no_steps=("usermod --lock",),
    ),
    Audited(
        id="uids-exchanged-on-hosts",
        stack="lab",
        changes=(
            ("uid: 5001", "uid: 5999"),
            ("uid: 5002", "uid: 5001"),
            ("uid: 5999", "uid: 5002"),
        ),
        worst="drain",
        steps=("usermod -u SPARE OTHER && groupmod -g SPARE OTHER", "usermod -u UID USER", _PLAYBOOK),
    ),
    Audited(
        id="slurm-with-a-database-older-on-hosts",
        stack="lab",
        base=(
            ('version: "24.11"', 'version: "26.05", accounting: {database: local}'),
            ("accept: [{id: slurm-support", "#accept: [{id:"),
        ),
        changes=(('"26.05"', '"24.11"'), ("#accept: [{id:", "accept: [{id: slurm-support")),
        worst="data-loss",
        is_exactly={
            "data": "in the accounting database, what only the newer slurmdbd knows is lost: the older one removes its columns"
        },
    ),
    Audited(
        id="fewer-hosts-in-a-partition",
        stack="lab",
        base=(_TOPOLOGY,),
        changes=(
            ('"gpu[01-04]", addresses: "192.0.2.[11-14]"', '"gpu[01-03]", addresses: "192.0.2.[11-13]"'),
        ),
        worst="drain",
        says={"queued": "those in gpu that need more nodes than are left wait with PartitionNodeLimit"},
    ),
    Audited(
        id="all-hosts-of-a-partition-change",
        stack="lab",
        changes=(("2000GiB", "1000GiB"),),
        says={"queued": "wait until the bundle is applied; those in gpu that ask for more than"},
        never=("other nodes", "removed node"),
    ),
    Audited(
        id="containers-of-pyxis-added-on-hosts",
        stack="lab",
        changes=(('version: "24.11"', 'version: "24.11", containers: pyxis'),),
        worst="drain",
        says={"running": "on a node without Pyxis slurmd ends when the bundle is applied"},
        never=("anew", "image"),
        steps=(
            "test -e /usr/local/lib/slurm/spank_pyxis.so    # on every host",
            "gpucluster inventory lab",
            _PLAYBOOK,
        ),
    ),
    Audited(
        id="containers-of-pyxis-removed-beside-a-smaller-host",
        stack="lab",
        base=(('version: "24.11"', 'version: "24.11", containers: pyxis'),),
        changes=((", containers: pyxis", ""), ("2000GiB", "1000GiB")),
        worst="drain",
        says={
            "running": "a step with --container-image fails",
            "queued": "those that were submitted with --container-image start outside of their container",
        },
        steps=("scancel JOB", _PLAYBOOK),
    ),
    Audited(
        id="mount-added-on-hosts",
        stack="lab",
        changes=((f"storage: [{_HOME}]", f"storage: [{_HOME}, {_APPS}]"),),
        worst="drain",
        is_exactly={
            "running": "go on; the playbook mounts /apps on running hosts at once",
            "queued": STAYS_QUEUED,
            "sessions": STAYS_OPEN,
            "data": STAYS,
        },
    ),
    Audited(
        id="last-export-of-hosts-removed",
        stack="lab",
        changes=((f"storage: [{_HOME}]\n", ""),),
        worst="drain",
        is_exactly={
            "running": "go on; hosts keep their mount of /home, also after they restart, as its line of fstab stays; the head ends its export of /home when it restarts, and jobs on nodes that use it fail",
            "queued": f"{STAYS_QUEUED}; those that use /home fail where it is unmounted",
            "data": "of what was mounted at /home stays there, and is not copied",
        },
        never=("lost", *_OF_A_CLOUD),
        steps=(_PLAYBOOK, "umount /home"),
    ),
    Audited(
        id="one-export-of-hosts-removed",
        stack="lab",
        base=((f"storage: [{_HOME}]", f"storage: [{_HOME}, {_TOOLS}]"),),
        changes=((f", {_TOOLS}", ""),),
        worst="drain",
        says={"running": "the head ends its export of /tools at once, and jobs on nodes that use it fail"},
    ),
    Audited(
        id="mount-of-hosts-changed",
        stack="lab",
        base=((f"storage: [{_HOME}]", f"storage: [{_HOME}, {_APPS}]"),),
        changes=(("192.0.2.5", "192.0.2.6"),),
        says={
            "running": "the playbook remounts /apps; where that needs an unmount, it fails while a process uses it"
        },
        never=("until they start anew", *_OF_A_CLOUD),
    ),
)
