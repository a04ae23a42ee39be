"""Errors of what stands on AWS: sentence, changes to a_spec_text(), the one problem that they make."""

Change = tuple[str, str]


def at_top(text: str) -> Change:
    """Parts of the cluster, before its pools."""
    return ("pools:\n", f"{text}\npools:\n")


def of_aws(text: str) -> Change:
    """Parts of `aws`."""
    return ("  region: us-east-2\n", f"  region: us-east-2\n  {text}\n")


def of_network(text: str) -> Change:
    return ("    cidr: 10.42.0.0/16\n", f"    cidr: 10.42.0.0/16\n    {text}\n")


def of_head(text: str) -> Change:
    """Parts of `head`, which has its state on a volume unless it says so itself."""
    return ("  machine: m7i.2xlarge\n", f"  machine: m7i.2xlarge\n  {text}\n")


def of_pool(text: str) -> Change:
    return ("    idle: 5m\n", f"    idle: 5m\n    {text}\n")


def storage(*items: str) -> Change:
    return at_top("storage:\n" + "\n".join(f"  - {item}" for item in items))


SITE = (
    "    cidr: 10.42.0.0/16\n    zones: [us-east-2a, us-east-2b]\n",
    "    vpc: vpc-0123456789abcdef0\n    subnets: {us-east-2a: subnet-0123456789abcdef0, us-east-2b: subnet-0fedcba9876543210}\n",
)
EFS = "{mount: /home, efs: {}}"
APPS = "{mount: /apps, nfs: {from: head, size: 200GiB}}"
SMALL = ("10.42.0.0/16", "10.42.0.0/24")
SMALL_POOL = ("max: 16", "max: 4")
LOGIN, WAY = "login: {machine: m7i.xlarge}", "access: {ssm: true}"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHZpc2lvbnZpc2lvbnZpc2lvbnZpc2lvbnZpc2lvbnZp"
USER = f'users: [{{name: vision, uid: 5001, keys: ["{KEY}"]}}]'
STANDBY = "standby: {machine: m7i.2xlarge, zone: us-east-2b, state: /home}"
LDAP = "ldap: {uri: ldaps://ldap.example.org, base: 'dc=example,dc=org'}"

# Only the line's id, path and words are compared: the marks have their rows elsewhere.
AWS_ROWS: list[tuple[str, list[Change], str]] = [
    # --- ids, ARNs, tags and other leaves
    (
        "an image by a name",
        [of_aws("image: {ami: ubuntu}")],
        "error[bad-id] aws.image.ami: 'ubuntu' is not the id of an image: ami- and 17 digits of 0-9 and a-f, such as ami-0123456789abcdef0",
    ),
    (
        "an image for a system that nobody builds on",
        [of_aws("image: {os: windows}")],
        "error[unknown-os] aws.image.os: 'windows' is not a system that images are built on; expected ubuntu-24.04",
    ),
    (
        "an image that is two",
        [of_aws("image: {os: ubuntu-24.04, ami: ami-0123456789abcdef0}")],
        "error[image-kind] aws.image: exactly one of 'os' and 'ami' says what machines boot from",
    ),
    (
        "a pool's image that is none",
        [of_pool("image: {}")],
        "error[image-kind] pools[h200].image: exactly one of 'os' and 'ami' says what machines boot from",
    ),
    (
        "a tag of AWS's",
        [of_aws("tags: {'aws:x': y}")],
        "error[reserved-tag] aws.tags.'aws:x': 'aws:x' is a tag of AWS's own; take another key",
    ),
    (
        "a tag of ours",
        [of_aws("tags: {'gpucluster:pool': y}")],
        "error[reserved-tag] aws.tags.'gpucluster:pool': 'gpucluster:pool' is a tag of gpucluster's own; take another key",
    ),
    (
        "a tag with a tab",
        [of_aws('tags: {team: "a\\tb"}')],
        "error[bad-tag] aws.tags.team: 'a\\tb' is not the value of a tag: at most 256 of letters, digits, blanks and '_.:/=+-@'",
    ),
    (
        "more tags than AWS takes",
        [of_aws(f"tags: {{{', '.join(f'k{n}: v' for n in range(41))}}}")],
        "error[too-many-tags] aws.tags: 41 tags; AWS takes 50 on a resource, and 10 are the cluster's own",
    ),
    (
        "a boundary that is a role",
        [of_aws("boundary: arn:aws:iam::123456789012:role/x")],
        "error[bad-arn] aws.boundary: 'arn:aws:iam::123456789012:role/x' is not the ARN of a policy, such as arn:aws:iam::123456789012:policy/bound",
    ),
    (
        "a role for jobs that may do nothing",
        [of_aws("jobs: {}")],
        "error[missing-key] aws.jobs: neither 'read' nor 'write' is there: jobs would have a role that may do nothing",
    ),
    (
        "every bucket",
        [of_aws("jobs: {read: ['s3://*']}")],
        "error[bad-s3] aws.jobs.read[0]: 's3://*' is not a place in S3, such as s3://example-data/sets",
    ),
    (
        "a bucket by its ARN",
        [of_aws("jobs: {write: ['arn:aws:s3:::example-data']}")],
        "error[bad-s3] aws.jobs.write[0]: 'arn:aws:s3:::example-data' is not a place in S3, such as s3://example-data/sets",
    ),
    (
        "a variable of IAM's in a folder",
        [of_aws("jobs: {write: ['s3://example-data/${aws:username}']}")],
        "error[bad-s3] aws.jobs.write[0]: 's3://example-data/${aws:username}' is not a place in S3, such as s3://example-data/sets",
    ),
    (
        "a folder without a name",
        [of_aws("jobs: {read: ['s3://example-data//sets']}")],
        "error[bad-s3] aws.jobs.read[0]: 's3://example-data//sets' has an empty name between two slashes",
    ),
    (
        "a place that jobs read is one that they write",
        [of_aws("jobs: {read: ['s3://example-data/'], write: ['s3://example-data']}")],
        "error[repeated] aws.jobs.read[0]: 's3://example-data/' is named twice (aws.jobs.write), and has its rights",
    ),
    (
        "a folder within another",
        [of_aws("jobs: {read: ['s3://example-data', 's3://example-data/sets']}")],
        "error[repeated] aws.jobs.read[1]: 's3://example-data/sets' is within 's3://example-data/' (aws.jobs.read), and has its rights",
    ),
    (
        "more places than a policy can say",
        [of_aws(f"jobs: {{read: [{', '.join(f's3://data-{n}' for n in range(21))}]}}")],
        "error[too-many-places] aws.jobs: 21 places of 242 characters; a role's policy has room for 20 of 1600 characters in all: name the folder or the bucket above them",
    ),
    (
        "a machine of another kind of processor",
        [("  machine: m7i.2xlarge", "  machine: m7g.2xlarge")],
        "error[machine-refused] head.machine: 'm7g.2xlarge' is not offered: it is arm64, and the image that gpucluster builds is x86_64",
    ),
    (
        "an UltraServer",
        [("machines: [p5en.48xlarge], max", "machines: [p6e-gb200.36xlarge], max")],
        "error[machine-refused] pools[h200].capacity[1].machines[0]: 'p6e-gb200.36xlarge' is not offered: it is arm64, and the image that gpucluster builds is x86_64; it is also sold only as whole UltraServers of a capacity block",
    ),
    # --- network
    (
        "a network of both forms",
        [(SITE[0], f"    cidr: 10.42.0.0/16\n{SITE[1]}"), of_head("address: 10.42.0.10")],
        "error[network-form] aws.network.cidr: 'cidr' is for a VPC that is made; one that is there has its own ranges, zones and routes",
    ),
    (
        "a network of neither form",
        [("    cidr: 10.42.0.0/16\n", "    nat: one\n")],
        "error[missing-key] aws.network: 'cidr' is missing: the VPC's range",
    ),
    (
        "a VPC without its subnets",
        [("    cidr: 10.42.0.0/16\n    zones: [us-east-2a, us-east-2b]", "    vpc: vpc-0123456789abcdef0")],
        "error[missing-key] aws.network: 'subnets' is missing: its private subnets by zone",
    ),
    (
        "a NAT gateway in a VPC that is there",
        [(SITE[0], f"{SITE[1]}    nat: one\n"), of_head("address: 10.42.0.10")],
        "error[network-form] aws.network.nat: 'nat' is for a VPC that is made; one that is there has its own ranges, zones and routes",
    ),
    (
        "a subnet that is none",
        [(SITE[0], SITE[1].replace("subnet-0fedcba9876543210", "subnet-x")), of_head("address: 10.42.0.10")],
        "error[bad-id] aws.network.subnets.'us-east-2b': 'subnet-x' is not the id of a subnet: subnet- and 17 digits of 0-9 and a-f, such as subnet-0123456789abcdef0",
    ),
    (
        "a subnet for two zones",
        [
            (SITE[0], SITE[1].replace("0fedcba9876543210", "0123456789abcdef0")),
            of_head("address: 10.42.0.10"),
        ],
        "error[repeated] aws.network.subnets.'us-east-2b': the subnet 'subnet-0123456789abcdef0' is named twice",
    ),
    (
        "a public subnet in a zone without a private one",
        [
            (SITE[0], f"{SITE[1]}    public: {{us-east-2c: subnet-0aaaaaaaaaaaaaaaa}}\n"),
            of_head("address: 10.42.0.10"),
        ],
        "error[zone-not-in-network] aws.network.public.'us-east-2c': 'us-east-2c' is not one of the network's zones (us-east-2a, us-east-2b)",
    ),
    (
        "a head without an address in a VPC that is there",
        [SITE],
        "error[missing-key] head: 'address' is missing: in a VPC that is there nobody else knows which one is free",
    ),
    (
        "a head outside of its subnet",
        [of_head("address: 10.42.32.10")],
        "error[address-outside] head.address: 10.42.32.10 is none of us-east-2a's addresses, 10.42.0.0/19 but the first four and the last; leave it out for the 10th",
    ),
    (
        "a head on one of AWS's own addresses",
        [of_head("address: 10.42.0.3")],
        "error[address-outside] head.address: 10.42.0.3 is none of us-east-2a's addresses, 10.42.0.0/19 but the first four and the last; leave it out for the 10th",
    ),
    (
        "a NAT gateway by zone in a network that has one public subnet",
        [SMALL, SMALL_POOL, ("    zones:", "    nat: per-zone\n    zones:")],
        "error[network-too-small] aws.network.nat: a network smaller than a /22 has one public subnet, in us-east-2a; us-east-2b has none for a NAT gateway",
    ),
    (
        "a login machine where no public subnet is",
        [SMALL, SMALL_POOL, at_top(f"login: {{machine: m7i.xlarge, zone: us-east-2b}}\n{WAY}")],
        "error[network-too-small] login.zone: a network smaller than a /22 has one public subnet, in us-east-2a; us-east-2b has none for login machines",
    ),
    (
        "more login machines than a public subnet has places",
        [("10.42.0.0/16", "10.42.0.0/22"), at_top(f"login: {{machine: m7i.xlarge, count: 12}}\n{WAY}")],
        "error[network-too-small] login.count: us-east-2a gets the public 10.42.3.128/28, with room for 11, and 13 are wanted there",
    ),
    (
        "a network in which a file system takes the last places",
        [
            ("10.42.0.0/16", "10.42.0.0/25"),
            ("max: 16", "max: 10"),
            storage(EFS, "{mount: /data, other: {type: nfs, source: 'a:/b'}}"),
        ],
        "error[network-too-small] aws.network.cidr: us-east-2a gets 10.42.0.0/28, with room for 9 nodes, beside EFS, and the pools want up to 10 there",
    ),
    (
        "no way out, and a file system that may stand outside",
        [of_network("nat: none"), storage("{mount: /archive, other: {type: beegfs, source: 'x:/y'}}")],
        "warning[no-way-out] storage[0].other: without NAT nothing outside the VPC is reached; the file system must stand inside",
    ),
    (
        "a way out that is none",
        [of_network("nat: two")],
        "error[bad-nat] aws.network.nat: 'two' is not a way to the internet; expected one, per-zone, none",
    ),
    (
        "an endpoint that is none",
        [of_network("endpoints: [sqss]")],
        "error[unknown-endpoint] aws.network.endpoints[0]: 'sqss' is not a service that has an endpoint here; expected ec2, ec2messages, elasticfilesystem, fsx, logs, monitoring, secretsmanager, sqs, ssm, ssmmessages, sts",
    ),
    # --- head, standby, login, people
    (
        "a head whose state goes with it",
        [("accept: [{id: head-state, because: it lives as long as a test}]\n", "")],
        "advice[head-state] head: Slurm's state lies on the head's own disk and goes with it: `state: 100GiB` gives it a protected volume",
    ),
    (
        "a state that is too small for a disk",
        [of_head("state: 1GiB")],
        "error[out-of-range] head.state: a volume of EBS is 8GiB to 16384GiB",
    ),
    (
        "a standby without shared state",
        [of_head(STANDBY)],
        "error[standby-state] head.standby.state: '/home' is not a mount of EFS or of an NFS server that is not the head; there is none",
    ),
    (
        "a standby beside a state of the head's own",
        [
            of_head(f"state: 100GiB\n  {STANDBY}"),
            storage(EFS, "{mount: /data, nfs: {server: 192.0.2.5, export: /d}}"),
        ],
        "error[not-here] head.state: with a standby the state lies on `standby.state`, which both heads mount",
    ),
    (
        "a standby in the head's zone",
        [
            of_head(STANDBY.replace("2b", "2a")),
            storage(EFS, "{mount: /d, nfs: {server: 192.0.2.5, export: /d}}"),
        ],
        "warning[standby-zone] head.standby.zone: the head stands in us-east-2a, too: when the zone goes dark both do",
    ),
    (
        "a standby beside an export of the head",
        [of_head(STANDBY), storage(EFS, APPS)],
        "error[nfs-source] storage[1].nfs.from: with a standby no head exports: the other could not take over its disk; use EFS",
    ),
    (
        "a standby at the head's address",
        [
            of_head(
                "address: 10.42.0.20\n  " + STANDBY.replace("2b", "2a").replace("}", ", address: 10.42.0.20}")
            ),
            storage(EFS, "{mount: /d, nfs: {server: 192.0.2.5, export: /d}}"),
            ("accept: [", "accept: [{id: standby-zone, because: a test}, "),
        ],
        "error[duplicate-address] head.standby.address: 10.42.0.20 is the head's",
    ),
    (
        "a login machine without a way in",
        [at_top(LOGIN)],
        "warning[no-way-in] login: nobody can reach a login machine: write `access: {ssh_from: […]}` or `access: {ssm: true}`",
    ),
    (
        "a way in that leads nowhere",
        [at_top("access: {ssh_from: [198.51.100.0/24]}")],
        "warning[no-login] access.ssh_from: ssh leads to login machines, and there are none: write `login: {machine: …}`",
    ),
    (
        "ssh for nobody",
        [at_top(f"{LOGIN}\naccess: {{ssh_from: [198.51.100.0/24]}}")],
        "warning[nobody-to-log-in] access.ssh_from: nobody has an account that ssh opens: write `users` with `keys`, or `directory`",
    ),
    (
        "ssh for the world",
        [at_top(f"{LOGIN}\n{USER}\naccess: {{ssh_from: [0.0.0.0/0]}}")],
        "warning[open-to-all] access.ssh_from[0]: 0.0.0.0/0 lets most of the world try: name the site's own addresses",
    ),
    (
        "login machines that no address of the world leads to",
        [
            SITE,
            of_head("address: 10.42.0.10"),
            at_top(f"{LOGIN}\n{USER}\naccess: {{ssh_from: [198.51.100.0/24]}}"),
        ],
        "warning[login-not-public] access.ssh_from: us-east-2a has no public subnet in `aws.network.public`: ssh comes only by the site's own ways",
    ),
    (
        "a login machine in a zone elsewhere",
        [at_top(f"login: {{machine: m7i.xlarge, zone: us-east-2c}}\n{WAY}")],
        "error[zone-not-in-network] login.zone: 'us-east-2c' is not one of the network's zones (us-east-2a, us-east-2b)",
    ),
    (
        "people from two places",
        [at_top(f"users: [{{name: vision, uid: 5001}}]\ndirectory: {{{LDAP}}}")],
        "error[users-or-directory] directory: people come from `users` or from `directory`: two lists would give a name two uids",
    ),
    (
        "a directory without TLS",
        [at_top(f"directory: {{{LDAP.replace('ldaps:', 'ldap:')}}}")],
        "error[bad-uri] directory.ldap.uri: 'ldap://ldap.example.org' is not an LDAP server over TLS, such as ldaps://ldap.example.org",
    ),
    (
        "a directory without a base",
        [at_top(f"directory: {{{LDAP.replace('dc=example,dc=org', '*')}}}")],
        "error[bad-base] directory.ldap.base: '*' is not a search base, such as dc=example,dc=org",
    ),
    (
        "a user with the image's own uid",
        [at_top("users: [{name: vision, uid: 1000}]")],
        "error[out-of-range] users[vision].uid: 1000 is the image's own user, 'ubuntu'; take a higher one",
    ),
    (
        "a user without uid",
        [at_top("users: [{name: vision}]")],
        "error[missing-key] users[vision]: 'uid' is missing: the same on every host, for files and Slurm",
    ),
    (
        "an address of mail that is none",
        [
            at_top("budget: {monthly: 900000 USD, notify: [me]}"),
            ("region: us-east-2", "region: us-east-1"),
            ("[us-east-2a, us-east-2b]", "[us-east-1a, us-east-1b]"),
        ],
        "error[bad-mail] budget.notify[0]: 'me' is not an address of mail, such as hpc@example.org",
    ),
    (
        "more addresses than AWS Budgets tells",
        [
            at_top(
                f"budget: {{monthly: 900000 USD, notify: [{', '.join(f'a{n}@example.org' for n in range(11))}]}}"
            ),
            ("region: us-east-2", "region: us-east-1"),
            ("[us-east-2a, us-east-2b]", "[us-east-1a, us-east-1b]"),
        ],
        "error[too-many-addresses] budget.notify: 11 addresses; AWS Budgets tells at most 10 of one threshold",
    ),
    (
        "an address that is told twice",
        [
            at_top("budget: {monthly: 900000 USD, notify: [a@example.org, a@example.org]}"),
            ("region: us-east-2", "region: us-east-1"),
            ("[us-east-2a, us-east-2b]", "[us-east-1a, us-east-1b]"),
        ],
        "error[repeated] budget.notify[1]: the address 'a@example.org' is named twice",
    ),
    # --- storage
    (
        "a Lustre with a throughput that nobody sells",
        [storage("{mount: /d, fsx_lustre: {zone: us-east-2a, size: 2400GiB, throughput: 300MBps/TiB}}")],
        "error[bad-throughput] storage[0].fsx_lustre.throughput: '300MBps/TiB' is not a throughput that FSx sells: 125MBps/TiB, 250MBps/TiB, 500MBps/TiB, 1000MBps/TiB",
    ),
    (
        "a Lustre that is there, with a size",
        [storage("{mount: /d, fsx_lustre: {zone: us-east-2a, size: 2400GiB, id: fs-0123456789abcdef0}}")],
        "error[not-here] storage[0].fsx_lustre.size: 'size' is of a file system that is made; 'fs-0123456789abcdef0' is there and has its own",
    ),
    (
        "a Lustre too slow for its GPUs",
        [
            storage("{mount: /d, fsx_lustre: {zone: us-east-2a, size: 4800GiB, throughput: 250MBps/TiB}}"),
            ("accept: [", "accept: [{id: lustre-zone, because: a test}, "),
        ],
        "warning[lustre-slow] storage[0].fsx_lustre: 1171 MB/s for up to 128 GPUs is 9 MB/s each, and training reads 50 or more: a larger size or throughput",
    ),
    (
        "a Lustre in another zone than its pool",
        [storage("{mount: /d, fsx_lustre: {zone: us-east-2a, size: 9600GiB, throughput: 1000MBps/TiB}}")],
        "warning[lustre-zone] storage[0].fsx_lustre.zone: the pool 'h200' may stand in us-east-2b: its reads cross zones, slower and paid by the byte",
    ),
    (
        "a link to another store",
        [
            storage(
                "{mount: /d, fsx_lustre: {zone: us-east-2a, size: 9600GiB, link: [{path: /, s3: gs://x}]}}"
            )
        ],
        "error[bad-s3] storage[0].fsx_lustre.link[0].s3: 'gs://x' is not a place in S3, such as s3://example-data/sets",
    ),
    (
        "a link that follows strange changes",
        [
            storage(
                "{mount: /d, fsx_lustre: {zone: us-east-2a, size: 9600GiB, link: [{path: /, s3: s3://abc, import: all}]}}"
            )
        ],
        "error[bad-follow] storage[0].fsx_lustre.link[0].import: 'all' is not a change that a link follows; expected new, changed, deleted",
    ),
    (
        "links that hold one another",
        [
            storage(
                "{mount: /d, fsx_lustre: {zone: us-east-2a, size: 9600GiB, link: [{path: /a, s3: s3://abc}, {path: /a/b, s3: s3://abd}]}}"
            )
        ],
        "error[links-overlap] storage[0].fsx_lustre.link[1].path: /a/b and /a are not apart: each folder follows one place",
    ),
    (
        "more links than FSx takes",
        [
            storage(
                f"{{mount: /d, fsx_lustre: {{zone: us-east-2a, size: 9600GiB, link: [{', '.join(f'{{path: /{n}, s3: s3://abc}}' for n in range(9))}]}}}}"
            )
        ],
        "error[too-many-links] storage[0].fsx_lustre.link: 9 links; FSx takes 8",
    ),
    (
        "an export of the head without a size",
        [storage("{mount: /apps, nfs: {from: head}}")],
        "error[missing-key] storage[0].nfs: 'size' is missing: the head's protected volume for it, such as 200GiB",
    ),
    (
        "a server that is there, with a size",
        [storage("{mount: /apps, nfs: {server: 192.0.2.5, export: /apps, size: 1GiB}}")],
        "error[not-here] storage[0].nfs.size: 'size' is of the head's volume; a server that is there has its own",
    ),
    (
        "a server that is there, and no folder",
        [storage("{mount: /apps, nfs: {server: 192.0.2.5}}")],
        "error[missing-key] storage[0].nfs: 'export' is missing: the folder that the server exports",
    ),
    (
        "a mount over the system",
        [storage("{mount: /usr/bin, efs: {}}")],
        "error[mounted-over-system] storage[0].mount: nothing is mounted over /usr/bin: the machine would not live without it",
    ),
    (
        "a mount over the head's own state",
        [storage("{mount: /srv/gpucluster-state, efs: {}}")],
        "error[mounted-twice] storage[0].mount: /srv/gpucluster-state is the head's own state",
    ),
    (
        "a mount below the machine's own disks",
        [storage("{mount: /scratch, nvme: {}}", "{mount: /scratch/home, efs: {}}")],
        "error[mounted-within] storage[1].mount: /scratch is made of the machine's own disks at each boot; mount nothing below it",
    ),
    (
        "text where a mapping without keys belongs",
        [storage("{mount: /scratch, nvme: yes}")],
        "error[bad-type] storage[0].nvme: expected a mapping without keys: {}; found 'yes'",
    ),
    (
        "own disks on a machine that has none",
        [
            storage("{mount: /scratch, nvme: {}}"),
            (
                "partitions:\n",
                "  - {name: c, nodes: 1, capacity: [{from: spot, machines: [c7i.xlarge]}]}\npartitions:\n",
            ),
            ("pools: [h200]", "pools: [h200, c]"),
        ],
        "warning[no-own-disks] pools[c].capacity[0].machines[0]: 'c7i.xlarge' has no disks of its own: /scratch is a folder of its root volume there",
    ),
    (
        "nothing but homes in common",
        [storage(EFS)],
        "advice[checkpoints-on-home] storage[0].mount: the nodes of 'h200' share nothing but /home: checkpoints would fill it, and wait for it; add a file system for data",
    ),
    # --- placement, acceptances
    (
        "a placement that is none",
        [of_pool("placement: spread")],
        "error[bad-placement] pools[h200].placement: 'spread' is not a placement; expected none, cluster",
    ),
    (
        "what was bought ahead, forced into a group",
        [
            of_pool("placement: cluster"),
            ("      - {from: spot, machines: [p5en.48xlarge, p5e.48xlarge]}\n", ""),
            (
                "{from: on-demand, machines: [p5en.48xlarge], max: 4}",
                "{from: reservation, id: cr-0123456789abcdef0, machines: [p5en.48xlarge], zones: [us-east-2a]}",
            ),
        ],
        "error[placement-held] pools[h200].placement: what was bought ahead stands where it stands: forced into a group, it is often not found (T27)",
    ),
    (
        "one node near nobody",
        [of_pool("placement: cluster"), ("max: 16", "max: 1"), (", max: 4}", "}")],
        "error[placement-alone] pools[h200].placement: a pool of one node is near nobody; leave it out",
    ),
    (
        "nearness without EFA",
        [
            of_pool("placement: cluster"),
            ("[p5en.48xlarge, p5e.48xlarge]", "[g6e.xlarge]"),
            ("machines: [p5en.48xlarge], max", "machines: [g6e.xlarge], max"),
        ],
        "warning[no-efa] pools[h200].placement: 'g6e.xlarge' has no EFA: nearness gains little, and capacity is harder to have",
    ),
    (
        "an acceptance of nothing",
        [("accept: [", "accept: [{id: head-with-gpu, because: it had one}, ")],
        "advice[accept-unused] accept[0].id: nothing says 'head-with-gpu' any more: the line can go",
    ),
    (
        "an acceptance without a reason",
        [("accept: [", "accept: [{id: head-with-gpu}, ")],
        "error[missing-key] accept[0]: 'because' is missing: why it does not hold here",
    ),
]
