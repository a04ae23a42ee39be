"""Errors of a spec on existing hosts: sentence, changes to `builders.LAB`, the only expected problem."""

import base64

Change = tuple[str, str]

KIND = b"ssh-ed25519"
WORDS = len(KIND).to_bytes(4) + KIND + (32).to_bytes(4) + bytes(32)  # the key itself is 32 bytes of 0
GOOD_KEY = f"ssh-ed25519 {base64.b64encode(WORDS).decode()} me@example.org"
CUT_KEY = f"ssh-ed25519 {base64.b64encode(WORDS[:-9]).decode()}"
OTHER_KIND = GOOD_KEY.replace("ssh-ed25519", "ssh-rsa", 1)
USER = "{name: vision, uid: 5001}"
HOSTS = 'hosts: "gpu[01-04]"'
ADDRESSES = '"192.0.2.[11-14]"'
TREE = '{leaf1: "gpu[01-02]", leaf2: "gpu[03-04]"}'
OF_24_11 = (
    ('"26.05"', '"24.11"'),
    (
        "partitions:\n",
        "accept: [{id: slurm-support, because: it lacks this, until: 2099-12-31}]\npartitions:\n",
    ),
)
STORAGE = "storage:\n  - {mount: /home, nfs: {from: head, export: /srv/home}}\n"
AWS = "aws: {region: us-east-2, network: {cidr: 10.42.0.0/16, zones: [us-east-2a]}}"

HOST_ROWS: list[tuple[str, list[Change], str]] = [
    (
        "two ways to share a GPU",
        [
            ('"192.0.2.[11-14]"}', '"192.0.2.[11-14]", sharing: {shards: 2, mig: {1g.10gb: 7}}}'),
            ("count: 8}", "count: 8, memory: 80GiB}"),
        ],
        "15:97: error[sharing-one-way] pools[h100].sharing: write one of 'mig', 'mps' and 'shards': a GPU is shared in one way",
    ),
    (
        "MPS beside shards on a GPU",
        [('"192.0.2.[11-14]"}', '"192.0.2.[11-14]", sharing: {shards: 2, mps: 2}}')],
        "15:97: error[sharing-one-way] pools[h100].sharing: write one of 'mig', 'mps' and 'shards': a GPU is shared in one way",
    ),
    (
        "MPS beside MIG on a GPU",
        [
            ('"192.0.2.[11-14]"}', '"192.0.2.[11-14]", sharing: {mps: 100, mig: {1g.10gb: 7}}}'),
            ("count: 8}", "count: 8, memory: 80GiB}"),
        ],
        "15:97: error[sharing-one-way] pools[h100].sharing: write one of 'mig', 'mps' and 'shards': a GPU is shared in one way",
    ),
    (
        "sharing in no way",
        [('"192.0.2.[11-14]"}', '"192.0.2.[11-14]", sharing: {}}')],
        "15:97: error[sharing-one-way] pools[h100].sharing: write one of 'mig', 'mps' and 'shards': a GPU is shared in one way",
    ),
    (
        "MPS on a machine without GPUs",
        [
            ('"192.0.2.[11-14]"}', '"192.0.2.[11-14]", sharing: {mps: 100}}'),
            (", gpus: {model: h100, count: 8}}", "}"),
        ],
        "15:103: error[no-gpu-to-share] pools[h100].sharing.mps: 'hgx-h100' has no GPU to share",
    ),
    (
        "parts of MPS below a percent",
        [('"192.0.2.[11-14]"}', '"192.0.2.[11-14]", sharing: {mps: 101}}')],
        "15:103: error[mps-parts] pools[h100].sharing.mps: Slurm gives a job at least one percent of a GPU's threads, so a GPU has at most 100 parts",
    ),
    (
        "a partition of MPS and whole GPUs",
        [
            (
                '"192.0.2.[11-14]"}',
                '"192.0.2.[11-14]", sharing: {mps: 100}}\n  - {name: whole, machine: hgx-h100, hosts: "gpu[05-06]", addresses: "192.0.2.[15-16]"}',
            ),
            ("pools: [h100]", "pools: [h100, whole]"),
            (TREE, '{leaf1: "gpu[01-02]", leaf2: "gpu[03-06]"}'),
        ],
        "18:24: error[mps-alone] partitions[gpu].pools: the GPUs of 'h100' are shared by MPS, so each node of this partition is of one user at a time; put 'whole' into another partition",
    ),
    (
        "MIG on a GPU whose memory is not written",
        [('"192.0.2.[11-14]"}', '"192.0.2.[11-14]", sharing: {mig: {1g.10gb: 7}}}')],
        "15:103: error[mig-memory] pools[h100].sharing.mig: the profiles depend on the memory of the GPU; write it as `machines.hgx-h100.gpus.memory`",
    ),
    (
        "shards of a machine without GPUs",
        [
            ('"192.0.2.[11-14]"}', '"192.0.2.[11-14]", sharing: {shards: 2}}'),
            (", gpus: {model: h100, count: 8}}", "}"),
        ],
        "15:106: error[no-gpu-to-share] pools[h100].sharing.shards: 'hgx-h100' has no GPU to share",
    ),
    (
        "neither a cloud nor hosts",
        [("hosts: {ssh: {user: admin}, head: {name: ctl0, address: 192.0.2.10}}\n", "")],
        "1:1: error[missing-key] 'aws' or 'hosts' is missing: the place of the cluster",
    ),
    (
        "both",
        [("hosts: {ssh", f"{AWS}\nhosts: {{ssh"), (STORAGE, "")],
        "4:8: error[two-sites] hosts: a cluster is on `aws` or on `hosts`, not on both",
    ),
    (
        "a head of a cloud",
        [("machines:\n", "head: {machine: m7i.2xlarge}\nmachines:\n")],
        "11:7: error[hosts-or-cloud] head: on existing hosts the head is `hosts.head`",
    ),
    (
        "capacity beside hosts",
        [("machine: hgx-h100", "machine: hgx-h100, capacity: [{from: spot, machines: [p5.48xlarge]}]")],
        "15:47: error[hosts-or-cloud] pools[h100].capacity: 'capacity' is for cloud machines, and this cluster is on `hosts`",
    ),
    (
        "a number of nodes beside hosts",
        [("machine: hgx-h100", "machine: hgx-h100, nodes: 4")],
        "15:44: error[hosts-or-cloud] pools[h100].nodes: 'nodes' is for cloud machines, and this cluster is on `hosts`",
    ),
    (
        "a pool without its machine",
        [("machine: hgx-h100, ", "")],
        "15:5: error[missing-key] pools[h100]: 'machine' is missing: the kind of machine",
    ),
    (
        "a machine that nobody described",
        [("machine: hgx-h100", "machine: hgx-h10")],
        "15:27: error[unknown-machine] pools[h100].machine: 'hgx-h10' is not one of `machines`; did you mean 'hgx-h100'?",
    ),
    (
        "a machine that no pool is made of",
        [("  hgx-h100:", "  spare: {sockets: 1, cores_per_socket: 1, memory: 1GiB}\n  hgx-h100:")],
        "12:10: warning[unused-machine] machines.spare: no pool uses 'spare'",
    ),
    (
        "too few addresses",
        [(ADDRESSES, '"192.0.2.[11-13]"')],
        "15:69: error[addresses-differ] pools[h100].addresses: 3 addresses for 4 hosts: write one address for each host, in the same order",
    ),
    (
        "one host in two pools",
        [
            (
                "partitions:",
                "  - {name: b, machine: hgx-h100, hosts: gpu04, addresses: 192.0.2.15}\npartitions:",
            ),
            ("pools: [h100]", "pools: [h100, b]"),
        ],
        "16:41: error[duplicate-host] pools[b].hosts: the host 'gpu04' is named twice",
    ),
    (
        "the head as a node",
        [(HOSTS, 'hosts: "gpu[01-03],ctl0"'), (TREE, '{leaf1: "gpu[01-03],ctl0"}')],
        "15:44: error[duplicate-host] pools[h100].hosts: the host 'ctl0' is named twice",
    ),
    (
        "one host twice in a pool",
        [(HOSTS, 'hosts: "gpu[01-03],gpu03"'), (TREE, '{leaf1: "gpu[01-03]"}')],
        "15:44: error[duplicate-host] pools[h100].hosts: the host 'gpu03' is named twice",
    ),
    (
        "one address twice",
        [(ADDRESSES, '"192.0.2.[11-13],192.0.2.12"')],
        "15:69: error[duplicate-address] pools[h100].addresses: the address '192.0.2.12' is named twice",
    ),
    (
        "the head's address for a node",
        [(ADDRESSES, '"192.0.2.[11-13],192.0.2.10"')],
        "15:69: error[duplicate-address] pools[h100].addresses: the address '192.0.2.10' is named twice",
    ),
    (
        "loopback",
        [(ADDRESSES, '"192.0.2.[11-13],127.0.0.1"')],
        "15:69: error[address-out-of-reach] pools[h100].addresses: ssh cannot reach '127.0.0.1': it is each machine's own",
    ),
    (
        "no address",
        [(ADDRESSES, '"192.0.2.[11-13],0.0.0.0"')],
        "15:69: error[address-out-of-reach] pools[h100].addresses: ssh cannot reach '0.0.0.0': it is no host's",
    ),
    (
        "a group",
        [(ADDRESSES, '"192.0.2.[11-13],224.0.0.1"')],
        "15:69: error[address-out-of-reach] pools[h100].addresses: ssh cannot reach '224.0.0.1': it is a group's",
    ),
    (
        "link-local",
        [(ADDRESSES, '"192.0.2.[11-13],169.254.169.254"')],
        "15:69: error[address-out-of-reach] pools[h100].addresses: ssh cannot reach '169.254.169.254': it is not routed, and the metadata service of clouds is there",
    ),
    (
        "everybody",
        [(ADDRESSES, '"192.0.2.[11-13],255.255.255.255"')],
        "15:69: error[address-out-of-reach] pools[h100].addresses: ssh cannot reach '255.255.255.255': nobody has it",
    ),
    (
        "a name for an address",
        [("address: 192.0.2.10", "address: ctl0.example.org")],
        "3:57: error[bad-address] hosts.head.address: 'ctl0.example.org' is not an IPv4 address such as 192.0.2.10",
    ),
    (
        "a hostlist that would fill the memory",
        [(HOSTS, 'hosts: "gpu[1-99999999]"')],
        "15:44: error[hostlist-too-large] pools[h100].hosts: 'gpu[1-99999999]' is too large for a pool: it has 99999999 names, more than 65536",
    ),
    (
        "a hostlist that runs backwards",
        [(HOSTS, 'hosts: "gpu[04-01]"')],
        "15:44: error[bad-hostlist] pools[h100].hosts: 'gpu[04-01]' is not a hostlist: the range '04-01' runs backwards",
    ),
    (
        "no hostlist",
        [(HOSTS, 'hosts: "gpu[01-04"')],
        "15:44: error[bad-hostlist] pools[h100].hosts: 'gpu[01-04' is not a hostlist: expected names such as gpu[01-04], separated by commas",
    ),
    (
        "a host name with its domain",
        [(HOSTS, 'hosts: "gpu[01-04].example.org"')],
        "15:44: error[bad-host-name] pools[h100].hosts: 'gpu01.example.org' is not a short host name of a-z, 0-9 and '-', at most 63 characters",
    ),
    (
        "an option for a host name",
        [("name: ctl0", "name: -oProxyCommand=x")],
        "3:42: error[bad-host-name] hosts.head.name: '-oProxyCommand=x' is not a short host name of a-z, 0-9 and '-', at most 63 characters",
    ),
    (
        "a port that is none",
        [("user: admin}", "user: admin, port: 70000}")],
        "3:34: error[out-of-range] hosts.ssh.port: 70000 is not between 1 and 65535",
    ),
    (
        "a topology with a strange host",
        [(TREE, '{leaf1: "gpu[01-02]", leaf2: "gpu[03-05]"}')],
        "6:57: error[unknown-host] slurm.topology.tree.spine.leaf2: 'gpu05' is not a host of a pool; did you mean 'gpu04'?",
    ),
    (
        "a host on two leaves",
        [(TREE, '{leaf1: "gpu[01-03]", leaf2: "gpu[03-04]"}')],
        "6:57: error[duplicate-host] slurm.topology.tree.spine.leaf2: the host 'gpu03' is named twice",
    ),
    (
        "hosts on no leaf",
        [(TREE, '{leaf1: "gpu[01-02]"}')],
        "6:20: error[host-without-leaf] slurm.topology.tree: 'gpu03' and 1 more are on no leaf switch: Slurm would ignore the topology for them",
    ),
    (
        "a leaf of its spine's name",
        [(TREE, '{leaf1: "gpu[01-02]", spine: "gpu[03-04]"}')],
        "6:57: error[duplicate-switch] slurm.topology.tree.spine.spine: the switch 'spine' is named twice",
    ),
    (
        "a switch's name that Slurm would read as a list",
        [(TREE, '{"leaf[1-2]": "gpu[01-04]"}')],
        "6:29: error[bad-name] slurm.topology.tree.spine.'leaf[1-2]': 'leaf[1-2]' is not a name: use A-Z, a-z, 0-9, '.', '_' and '-', beginning and ending with a letter or digit, at most 64 characters",
    ),
    (
        "a list for a leaf's hosts",
        [(TREE, '{leaf1: [gpu01], leaf2: "gpu[01-04]"}')],
        "6:36: error[bad-type] slurm.topology.tree.spine.leaf1: expected text, found a list",
    ),
    (
        "an empty switch",
        [(TREE, '{leaf1: {}, leaf2: "gpu[01-04]"}')],
        "6:36: error[empty-mapping] slurm.topology.tree.spine.leaf1: the mapping is empty; it needs at least one key",
    ),
    (
        "a host deep in a tree that is on another leaf, too",
        [(TREE, '{row: {leaf1: "gpu[01-02]", leaf2: "gpu[03-04]"}, leaf3: gpu01}')],
        "6:85: error[duplicate-host] slurm.topology.tree.spine.leaf3: the host 'gpu01' is named twice",
    ),
    (
        "a tree and blocks",
        [
            (
                f"{{tree: {{spine: {TREE}}}}}",
                '{tree: {leaf: "gpu[01-04]"}, block: {blocks: {b1: "gpu[01-04]"}}}',
            )
        ],
        "6:13: error[one-topology] slurm.topology: expected one of tree, block and named, found tree and block",
    ),
    (
        "a host in no block",
        [(f"{{tree: {{spine: {TREE}}}}}", '{block: {blocks: {b1: "gpu[01-03]"}}}')],
        "6:21: error[host-without-leaf] slurm.topology.block: 'gpu04' is on no block: Slurm would ignore the topology for it",
    ),
    (
        "a size that is no multiple of the base",
        [
            (
                f"{{tree: {{spine: {TREE}}}}}",
                '{block: {blocks: {b1: "gpu[01-02]", b2: "gpu[03-04]"}, sizes: [2, 6]}}',
            )
        ],
        "6:79: error[block-size] slurm.topology.block.sizes[1]: 6 is not the base size 2 times a power of two (2 to 32768)",
    ),
    (
        "a block below the base size",
        [
            *OF_24_11,
            (f"{{tree: {{spine: {TREE}}}}}", '{block: {blocks: {b1: "gpu[01-03]", b2: gpu04}, sizes: [3]}}'),
        ],
        "6:53: error[small-block] slurm.topology.block.blocks.b2: the block has 1 host, fewer than the base size 3: slurmctld 24.11 ends. Slurm 26.05 takes it",
    ),
    (
        "several topologies before 25.05",
        [*OF_24_11, (f"{{tree: {{spine: {TREE}}}}}", "{named: {a: {flat: true, default: true}}}")],
        "6:21: error[slurm-lacks] slurm.topology.named: Slurm 24.11 cannot have several topologies; 26.05 can",
    ),
    (
        "a topology that the spec has not",
        [("pools: [h100]", "pools: [h100], topology: fast")],
        "17:42: error[unknown-topology] partitions[gpu].topology: 'fast' is not one of `slurm.topology.named`; there is none",
    ),
    (
        "no processors",
        [("sockets: 2", "sockets: 0")],
        "13:15: error[out-of-range] machines.'hgx-h100'.sockets: 0 is not between 1 and 64",
    ),
    (
        "sockets as a word",
        [("sockets: 2", "sockets: two")],
        "13:15: error[bad-type] machines.'hgx-h100'.sockets: expected a whole number, found 'two'",
    ),
    (
        "a strange fabric",
        [("count: 8}", "count: 8}, fabric: {kind: token-ring}")],
        "13:124: error[bad-fabric] machines.'hgx-h100'.fabric.kind: 'token-ring' is not a fabric; expected infiniband, roce, ethernet",
    ),
    (
        "a system's user",
        [("name: vision", "name: slurm")],
        "8:12: error[reserved-name] users[slurm].name: 'slurm' is a user or group of slurm; choose another name",
    ),
    (
        "Ansible's own user",
        [("name: vision", "name: admin")],
        "8:12: error[reserved-name] users[admin].name: 'admin' is the user of Ansible on the hosts; choose another name",
    ),
    (
        "a user's name with a blank",
        [("name: vision", 'name: "vi sion"')],
        "8:12: error[bad-user-name] users[0].name: 'vi sion' is not a user's name: use a-z, 0-9, '.', '_' and '-', beginning with a letter, not ending with '.', at most 31 characters",
    ),
    (
        "one user twice",
        [(USER, f"{USER}\n  - {{name: vision, uid: 5002}}")],
        "9:12: error[duplicate-name] users[vision].name: 'vision' is already the name of users[0]",
    ),
    (
        "one uid twice",
        [(USER, f"{USER}\n  - {{name: speech, uid: 5001}}")],
        "9:25: error[duplicate-uid] users[speech].uid: 5001 is already the uid of users[0]",
    ),
    (
        "a system's uid",
        [("uid: 5001", "uid: 999")],
        "8:25: error[out-of-range] users[vision].uid: 999 is not between 1000 and 2000000000",
    ),
    (
        "a package's uid",
        [("uid: 5001", "uid: 64030")],
        "8:25: error[out-of-range] users[vision].uid: 64030 is reserved for the operating system (60000 to 65535)",
    ),
    (
        "a key that is none",
        [("uid: 5001", "uid: 5001, keys: [ssh-ed25519 AAAA]")],
        "8:38: error[bad-key] users[vision].keys[0]: 'ssh-ed25519 AAAA' is not a public key such as 'ssh-ed25519 AAAA… name'",
    ),
    (
        "a key of another kind than it says",
        [("uid: 5001", f"uid: 5001, keys: [{OTHER_KIND}]")],
        "8:38: error[bad-key] users[vision].keys[0]: 'ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAA...' is not a public key such as 'ssh-ed25519 AAAA… name'",
    ),
    (
        "a private key",
        [("uid: 5001", 'uid: 5001, keys: ["-----BEGIN OPENSSH PRIVATE KEY-----\\nb3Bl"]')],
        "8:38: error[private-key] users[vision].keys[0]: this is a private key, which belongs in no file of others; write the .pub file's line",
    ),
    (
        "a mount over the system",
        [("mount: /home", "mount: /usr")],
        "10:13: error[mounted-over-system] storage[0].mount: /usr cannot be a mount point: /usr/bin is in it, and the host needs it",
    ),
    (
        "a mount over the export",
        [("mount: /home", "mount: /srv")],
        "10:45: error[export-hidden] storage[0].nfs.export: the mount /srv would hide the head's export /srv/home",
    ),
    (
        "a cloud's file system",
        [("nfs: {from: head, export: /srv/home}", "fsx_lustre: {zone: a, size: 1200GiB}")],
        "10:32: error[hosts-or-cloud] storage[0].fsx_lustre: FSx for Lustre is a service of AWS, and this cluster is on `hosts`",
    ),
    (
        "loopback's name for a host",
        [(HOSTS, 'hosts: "gpu[01-03],localhost"')],
        "15:44: error[reserved-name] pools[h100].hosts: 'localhost' cannot be a host name: it has another meaning in Ansible, Slurm or /etc/hosts",
    ),
    (
        "a node of the name of the head's group, to which the plays of the head would go",
        [(HOSTS, 'hosts: "gpu[01-03],head"'), (TREE, '{leaf1: "gpu[01-03],head"}')],
        "15:44: error[reserved-name] pools[h100].hosts: only the head can have the name 'head': it is a group name in Ansible",
    ),
    (
        "the name of slurm.conf's defaults",
        [("name: ctl0", "name: default")],
        "3:42: error[reserved-name] hosts.head.name: 'default' cannot be a host name: it has another meaning in Ansible, Slurm or /etc/hosts",
    ),
    (
        "a group of base-passwd, which useradd would refuse after half the work",
        [("name: vision", "name: video")],
        "8:12: error[reserved-name] users[video].name: 'video' is a user or group of base-passwd; choose another name",
    ),
    (
        "a key that was cut off where it was pasted",
        [("uid: 5001", f"uid: 5001, keys: [{CUT_KEY}]")],
        "8:38: error[bad-key] users[vision].keys[0]: 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAA...' is not a public key such as 'ssh-ed25519 AAAA… name'",
    ),
    (
        "a template in a key's comment",
        [("uid: 5001", f'uid: 5001, keys: ["{GOOD_KEY} {{{{x}}}}"]')],
        "8:38: error[bad-key] users[vision].keys[0]: 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAA...' is not a public key such as 'ssh-ed25519 AAAA… name'",
    ),
    (
        "a private key without its header",
        [("uid: 5001", "uid: 5001, keys: [b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ]")],
        "8:38: error[private-key] users[vision].keys[0]: this is a private key, which belongs in no file of others; write the .pub file's line",
    ),
    (
        "a leaf of a host's name",
        [(TREE, '{leaf1: "gpu[01-02]", gpu01: "gpu[03-04]"}')],
        "6:57: error[duplicate-switch] slurm.topology.tree.spine.gpu01: 'gpu01' is a host of a pool; choose another name for the switch",
    ),
    (
        "memory of which nothing is left for Slurm, to whom 0 is no limit",
        [("memory: 2000GiB", "memory: 1MiB")],
        "13:69: error[out-of-range] machines.'hgx-h100'.memory: 1 MiB is too small for slurmd; it needs 512 MiB",
    ),
    (
        "fewer CPUs than GPUs, which made DefCpuPerGPU 0",
        [("sockets: 2, cores_per_socket: 56, threads_per_core: 2", "sockets: 1, cores_per_socket: 4")],
        "13:83: error[gpus-above-cpus] machines.'hgx-h100'.gpus.count: 8 GPUs on 4 CPUs: a job takes at least one CPU for each GPU",
    ),
    (
        "groups of GPUs that do not fill a machine",
        [("count: 8", "count: 8, nvlink: 3")],
        "13:116: error[nvlink-groups] machines.'hgx-h100'.gpus.nvlink: 8 GPUs do not make groups of 3 that NVLink joins; write 2 or more, so that 8 is a multiple of it",
    ),
    (
        "a mount within the system",
        [("mount: /home", "mount: /usr/bin")],
        "10:13: error[mounted-over-system] storage[0].mount: /usr/bin cannot be a mount point: the host needs it",
    ),
    (
        "a mount around our own files",
        [("mount: /home", "mount: /opt")],
        "10:13: error[mounted-over-system] storage[0].mount: /opt cannot be a mount point: /opt/gpucluster is in it, and the host needs it",
    ),
    (
        "a mount where sshd keeps its keys",
        [("mount: /home", "mount: /etc/ssh")],
        "10:13: error[mounted-over-system] storage[0].mount: /etc/ssh cannot be a mount point: /etc contains it, and the host needs it",
    ),
    (
        "the munge key's folder exported",
        [("export: /srv/home", "export: /etc/munge")],
        "10:46: error[exported-system] storage[0].nfs.export: the head cannot export /etc/munge: /etc contains it, and every node could write there",
    ),
    (
        "another mount over the export",
        [(STORAGE, STORAGE + "  - {mount: /srv, nfs: {server: 192.0.2.5, export: /x}}\n")],
        "10:46: error[export-hidden] storage[0].nfs.export: the mount /srv would hide the head's export /srv/home",
    ),
    (
        "the head as a server that nobody told to export",
        [("from: head", "server: 192.0.2.10")],
        "10:34: error[nfs-source] storage[0].nfs.server: 192.0.2.10 is the head, which exports only with `from: head`: write that",
    ),
    (
        "spares of hosts",
        [("machine: hgx-h100", "machine: hgx-h100, spares: 1")],
        "15:45: error[hosts-or-cloud] pools[h100].spares: 'spares' is used by the elastic daemon, which manages cloud machines only",
    ),
    (
        "a termination on hosts",
        [("machine: hgx-h100", "machine: hgx-h100, termination: {lead: 20s}")],
        "15:50: error[hosts-or-cloud] pools[h100].termination: 'termination' is used by the elastic daemon, which manages cloud machines only",
    ),
    (
        "replacements of hosts",
        [("partitions:\n", "health: {replace_per_hour: 2}\npartitions:\n")],
        "16:28: error[hosts-or-cloud] health.replace_per_hour: 'replace_per_hour' is for cloud machines; nobody replaces an existing host",
    ),
    (
        "a budget for hosts",
        [("partitions:\n", "budget: {monthly: 250000 USD}\npartitions:\n")],
        "16:9: error[hosts-or-cloud] budget: existing hosts have no hourly price",
    ),
]
