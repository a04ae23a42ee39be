"""Errors in the AWS part of a spec: sentence, changes to a_spec_text(), the only expected problem."""

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
    """Parts of `head`. Its state is on a volume unless the parts say otherwise."""
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
WITHOUT_WAY = (", {id: no-way-in, because: no person uses it}", "")
LOGIN, WAY = "login: {machine: m7i.xlarge}", "access: {ssm: true}"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHZpc2lvbnZpc2lvbnZpc2lvbnZpc2lvbnZpc2lvbnZp"
USER = f'users: [{{name: vision, uid: 5001, keys: ["{KEY}"]}}]'
STANDBY = "standby: {machine: m7i.2xlarge, zone: us-east-2b, state: /state}"
STATE = "{mount: /state, efs: {}}"
LDAP = "ldap: {uri: ldaps://ldap.example.org, base: 'dc=example,dc=org'}"

# Only the line's id, path and words are compared. Other rows test the marks.
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
        "error[image-kind] aws.image: write exactly one of 'os' and 'ami': the image that machines boot from",
    ),
    (
        "a pool's image that is none",
        [of_pool("image: {}")],
        "error[image-kind] pools[h200].image: write exactly one of 'os' and 'ami': the image that machines boot from",
    ),
    (
        "a tag of AWS's",
        [of_aws("tags: {'aws:x': y}")],
        "error[reserved-tag] aws.tags.'aws:x': 'aws:x' is reserved by AWS; choose another key",
    ),
    (
        "a tag of ours",
        [of_aws("tags: {'gpucluster:pool': y}")],
        "error[reserved-tag] aws.tags.'gpucluster:pool': 'gpucluster:pool' is reserved by gpucluster; choose another key",
    ),
    (
        "two tags that IAM takes for one",
        [of_aws("tags: {Team: x, team: y}")],
        "error[repeated] aws.tags.team: 'team' and 'Team' are one key for IAM, which does not compare letters by case, and refuses a role with both: keep one of them",
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
        "a boundary of another partition",
        [of_aws("boundary: arn:aws-us-gov:iam::123456789012:policy/bound")],
        "error[bad-arn] aws.boundary: 'arn:aws-us-gov:iam::123456789012:policy/bound' is in another partition of AWS, and the Regions of the catalog are in 'aws': write an ARN that begins with arn:aws:",
    ),
    (
        "a key of another partition",
        [of_aws("kms_key: arn:aws-cn:kms:cn-north-1:123456789012:alias/site")],
        "error[bad-arn] aws.kms_key: 'arn:aws-cn:kms:cn-north-1:123456789012:alias/site' is in another partition of AWS, and the Regions of the catalog are in 'aws': write an ARN that begins with arn:aws:",
    ),
    (
        "a key by its id",
        [of_aws("kms_key: 0123abcd-0123-0123-0123-0123456789ab")],
        "error[bad-key] aws.kms_key: '0123abcd-0123-0123-0123-0123456789ab' is not a key of KMS: an alias such as alias/research, or the ARN of a key or an alias",
    ),
    (
        "a key of AWS's",
        [of_aws("kms_key: alias/aws/ebs")],
        "error[key-of-aws] aws.kms_key: 'alias/aws/ebs' is a key that AWS manages: its policy cannot be changed; remove the field to use it",
    ),
    (
        "a key of AWS's by its ARN",
        [of_aws("kms_key: 'arn:aws:kms:us-east-2:123456789012:alias/aws/ebs'")],
        "error[key-of-aws] aws.kms_key: 'arn:aws:kms:us-east-2:123456789012:alias/aws/ebs' is a key that AWS manages: its policy cannot be changed; remove the field to use it",
    ),
    (
        "a key of another region",
        [of_aws("kms_key: 'arn:aws:kms:eu-west-1:123456789012:key/mrk-0123abcd0123abcd0123abcd0123abcd'")],
        "error[key-region] aws.kms_key: the key is in eu-west-1, and the cluster in us-east-2; volumes take only keys of their region",
    ),
    (
        "a role for jobs that may do nothing",
        [of_aws("jobs: {}")],
        "error[missing-key] aws.jobs: 'read' and 'write' are missing: the role of jobs would have no rights",
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
        "a boot script that a job can delete",
        [
            of_aws("jobs: {write: ['s3://example-site/data']}"),
            of_pool(f"on_boot: [{{script: 's3://example-site/data/boot.sh', sha256: {'a' * 64}}}]"),
        ],
        "error[script-is-writable] pools[h200].on_boot[0].script: 's3://example-site/data/boot.sh' is within 's3://example-site/data' of aws.jobs.write: who writes there deletes it, and no new node boots. Keep it in another folder",
    ),
    (
        "more places than a policy can say",
        [of_aws(f"jobs: {{read: [{', '.join(f's3://data-{n}' for n in range(21))}]}}")],
        "error[too-many-places] aws.jobs: 21 prefixes of 242 characters; a role's policy has room for 20 of 1600 characters in all: write the folder or the bucket above them",
    ),
    (
        "a machine of another kind of processor",
        [("  machine: m7i.2xlarge", "  machine: m7g.2xlarge")],
        "error[machine-refused] head.machine: 'm7g.2xlarge' is not supported: it is arm64, and gpucluster takes x86_64 alone: its image for Slurm is built for no other, and pods are tried on no other",
    ),
    (
        "an UltraServer",
        [("machines: [p5en.48xlarge], max", "machines: [p6e-gb200.36xlarge], max")],
        "error[machine-refused] pools[h200].capacity[1].machines[0]: 'p6e-gb200.36xlarge' is not supported: it is arm64, and gpucluster takes x86_64 alone: its image for Slurm is built for no other, and pods are tried on no other; it is also sold only as whole UltraServers of a capacity block",
    ),
    # --- network
    (
        "a network of both forms",
        [(SITE[0], f"    cidr: 10.42.0.0/16\n{SITE[1]}"), of_head("address: 10.42.0.10")],
        "error[network-form] aws.network.cidr: 'cidr' is for a new VPC; an existing one has its own ranges, zones and routes",
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
        "error[network-form] aws.network.nat: 'nat' is for a new VPC; an existing one has its own ranges, zones and routes",
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
        "error[missing-key] head: 'address' is missing: in an existing VPC only the site knows a free address",
    ),
    (
        "a head outside of its subnet",
        [of_head("address: 10.42.32.10")],
        "error[address-outside] head.address: 10.42.32.10 is not usable in us-east-2a: its subnet is 10.42.0.0/19, without the first four addresses and the last; without this key the head has the 10th",
    ),
    (
        "a head on one of AWS's own addresses",
        [of_head("address: 10.42.0.3")],
        "error[address-outside] head.address: 10.42.0.3 is not usable in us-east-2a: its subnet is 10.42.0.0/19, without the first four addresses and the last; without this key the head has the 10th",
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
        "error[network-too-small] login.count: us-east-2a gets the public 10.42.3.128/28, with room for 11, and 13 are needed there",
    ),
    (
        "a network in which a file system takes the last places",
        [
            ("10.42.0.0/16", "10.42.0.0/25"),
            ("max: 16", "max: 10"),
            storage(EFS, "{mount: /data, other: {type: nfs, source: 'a:/b'}}"),
        ],
        "error[network-too-small] aws.network.cidr: us-east-2a gets 10.42.0.0/28, with room for 9 nodes, beside EFS, and the pools need up to 10 there",
    ),
    (
        "an option that mount.lustre refuses",
        [
            storage(
                EFS,
                "{mount: /data, other: {type: lustre, source: '192.0.2.9@tcp:/a', options: [flock, nofail]}}",
            )
        ],
        "error[mount-options] storage[1].other.options: mount.lustre does not take 'nofail', and the mount fails; remove the option",
    ),
    (
        "no way out, and a file system that may stand outside",
        [of_network("nat: none"), storage("{mount: /archive, other: {type: beegfs, source: 'x:/y'}}")],
        "warning[no-way-out] storage[0].other: without NAT nothing outside the VPC can be reached; the file system must be inside",
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
        [("{id: head-state, because: it lives as long as a test}, ", "")],
        "advice[head-state] head: Slurm's state is on the head's root volume and is deleted with it: `state: 100GiB` adds a protected volume",
    ),
    (
        "a state that is too small for a disk",
        [of_head("state: 1GiB")],
        "error[out-of-range] head.state: an EBS volume has 8GiB to 16384GiB",
    ),
    (
        "a standby without shared state",
        [of_head(STANDBY)],
        "error[standby-state] head.standby.state: '/state' is not the mount point of an EFS or of an NFS server other than the head; there is none",
    ),
    (
        "a standby with its state on the homes",
        [of_head(STANDBY.replace("/state", "/home")), storage(EFS, STATE)],
        "error[standby-state] head.standby.state: only the heads mount the state, and /home is on every machine; give the state an EFS of its own, such as /state",
    ),
    (
        "a standby beside a state of the head's own",
        [
            of_head(f"state: 100GiB\n  {STANDBY}"),
            storage(EFS, STATE, "{mount: /data, nfs: {server: 192.0.2.5, export: /d}}"),
        ],
        "error[not-here] head.state: with a standby the state is on `standby.state`, which both heads mount",
    ),
    (
        "a standby in the head's zone",
        [
            of_head(STANDBY.replace("2b", "2a")),
            storage(EFS, STATE, "{mount: /d, nfs: {server: 192.0.2.5, export: /d}}"),
        ],
        "warning[standby-zone] head.standby.zone: the head is in us-east-2a, too: a failure of the zone stops both",
    ),
    (
        "a standby whose state is on an EFS of the site",
        [of_head(STANDBY), storage(EFS, STATE.replace("efs: {}", "efs: {id: fs-0123456789abcdef0}"))],
        "warning[standby-state-access] head.standby.state: /state is a file system of the site: its policy or its exports must admit the heads alone, "
        "because who reads it reads the queue, and who writes it runs jobs as other users",
    ),
    (
        "a standby beside an export of the head",
        [of_head(STANDBY), storage(EFS, STATE, APPS)],
        "error[nfs-source] storage[2].nfs.from: with a standby the head cannot export: the standby cannot attach its volume; use EFS",
    ),
    (
        "a standby at the head's address",
        [
            of_head(
                "address: 10.42.0.20\n  " + STANDBY.replace("2b", "2a").replace("}", ", address: 10.42.0.20}")
            ),
            storage(EFS, STATE, "{mount: /d, nfs: {server: 192.0.2.5, export: /d}}"),
            ("accept: [", "accept: [{id: standby-zone, because: a test}, "),
        ],
        "error[duplicate-address] head.standby.address: 10.42.0.20 is the address of the head",
    ),
    (
        "a cluster without a way in",
        [WITHOUT_WAY],
        "warning[no-way-in] head: no connection reaches this cluster: write `access: {ssm: true}`, or `login: {machine: …}` with `access: {ssh_from: […]}`",
    ),
    (
        "a login machine without a way in",
        [at_top(LOGIN), WITHOUT_WAY],
        "warning[no-way-in] login: no connection reaches the login machine: write `access: {ssh_from: […]}` or `access: {ssm: true}`",
    ),
    (
        "a way in that leads nowhere",
        [at_top("access: {ssh_from: [198.51.100.0/24]}")],
        "warning[no-login] access.ssh_from: 'ssh_from' opens login machines, and there are none: write `login: {machine: …}`",
    ),
    (
        "ssh for nobody",
        [at_top(f"{LOGIN}\naccess: {{ssh_from: [198.51.100.0/24]}}")],
        "warning[no-account] access.ssh_from: no account can log in by ssh: write `users` with `keys`, or `directory`",
    ),
    (
        "ssh for the world",
        [at_top(f"{LOGIN}\n{USER}\naccess: {{ssh_from: [0.0.0.0/0]}}")],
        "warning[open-to-all] access.ssh_from[0]: 0.0.0.0/0 is a large part of the internet: write the site's own address ranges",
    ),
    (
        "login machines that no address of the world leads to",
        [
            SITE,
            of_head("address: 10.42.0.10"),
            at_top(f"{LOGIN}\n{USER}\naccess: {{ssh_from: [198.51.100.0/24]}}"),
        ],
        "warning[login-not-public] access.ssh_from: us-east-2a has no public subnet in `aws.network.public`: ssh works only through the site's own network",
    ),
    (
        "a login machine in a zone elsewhere",
        [at_top(f"login: {{machine: m7i.xlarge, zone: us-east-2c}}\n{WAY}")],
        "error[zone-not-in-network] login.zone: 'us-east-2c' is not one of the network's zones (us-east-2a, us-east-2b)",
    ),
    (
        "people from two places",
        [at_top(f"users: [{{name: vision, uid: 5001}}]\ndirectory: {{{LDAP}}}")],
        "error[users-or-directory] directory: write `users` or `directory`, not both: two lists could give one name two uids",
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
        "error[out-of-range] users[vision].uid: 1000 is the uid of the image's own user 'ubuntu'; choose a higher one",
    ),
    (
        "an NVSwitch that the built image cannot start",
        [
            ("machines: [p5en.48xlarge, p5e.48xlarge]", "machines: [p6-b200.48xlarge]"),
            ("      - {from: on-demand, machines: [p5en.48xlarge], max: 4}\n", ""),
            ("region: us-east-2", "region: us-east-1"),
            ("[us-east-2a, us-east-2b]", "[us-east-1a, us-east-1b]"),
        ],
        "error[image-without-nvlsm] pools[h200].capacity[0].machines[0]: 'p6-b200.48xlarge' needs nvlsm, infiniband-diags for its NVSwitch, and an image without the part nvlsm does not have them: its GPUs would never be ready; run `gpucluster image build --with nvlsm`, and name the image by its id in `image: {ami: …}`",
    ),
    (
        "a user with the name of an agent's account",
        [at_top("users: [{name: ssm-user, uid: 5001}]")],
        "error[reserved-name] users[ssm-user].name: 'ssm-user' is a user or group of amazon-ssm-agent; choose another name",
    ),
    (
        "a user without uid",
        [at_top("users: [{name: vision}]")],
        "error[missing-key] users[vision]: 'uid' is missing: user id, the same on every host; write `uid: 5001`",
    ),
    (
        "a user without keys where ssh is open",
        [
            at_top(f"{LOGIN}\naccess: {{ssh_from: [198.51.100.0/24]}}"),
            at_top(f'users: [{{name: vision, uid: 5001, keys: ["{KEY}"]}}, {{name: speech, uid: 5002}}]'),
            WITHOUT_WAY,
        ],
        "warning[user-without-key] users[speech]: this user cannot log in by ssh: write `keys: [ssh-ed25519 …]`",
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
        "error[too-many-addresses] budget.notify: 11 addresses; AWS Budgets notifies at most 10 for one threshold",
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
        "error[not-here] storage[0].fsx_lustre.size: 'size' belongs to a new file system; 'fs-0123456789abcdef0' exists and has its own",
    ),
    (
        "a Lustre too slow for its GPUs",
        [
            storage("{mount: /d, fsx_lustre: {zone: us-east-2a, size: 4800GiB, throughput: 250MBps/TiB}}"),
            ("accept: [", "accept: [{id: lustre-zone, because: a test}, "),
        ],
        "warning[lustre-slow] storage[0].fsx_lustre: 1171 MB/s for up to 128 GPUs is 9 MB/s each, and training reads 50 or more: choose a larger size or throughput",
    ),
    (
        "a Lustre in another zone than its pool",
        [storage("{mount: /d, fsx_lustre: {zone: us-east-2a, size: 9600GiB, throughput: 1000MBps/TiB}}")],
        "warning[lustre-zone] storage[0].fsx_lustre.zone: the pool 'h200' can get nodes in us-east-2b: their reads cross zones, which is slower and has a price",
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
        "error[links-overlap] storage[0].fsx_lustre.link[1].path: /a/b and /a overlap: each folder has one link",
    ),
    (
        "more links than FSx takes",
        [
            storage(
                f"{{mount: /d, fsx_lustre: {{zone: us-east-2a, size: 9600GiB, link: [{', '.join(f'{{path: /{n}, s3: s3://abc}}' for n in range(9))}]}}}}"
            )
        ],
        "error[too-many-links] storage[0].fsx_lustre.link: 9 links; FSx takes at most 8",
    ),
    (
        "an export of the head without a size",
        [storage("{mount: /apps, nfs: {from: head}}")],
        "error[missing-key] storage[0].nfs: 'size' is missing: the size of the head's protected volume, such as 200GiB",
    ),
    (
        "a server that is there, with a size",
        [storage("{mount: /apps, nfs: {server: 192.0.2.5, export: /apps, size: 1GiB}}")],
        "error[not-here] storage[0].nfs.size: 'size' belongs to the head's volume; an existing server has its own",
    ),
    (
        "a server that is there, and no folder",
        [storage("{mount: /apps, nfs: {server: 192.0.2.5}}")],
        "error[missing-key] storage[0].nfs: 'export' is missing: the folder that the server exports",
    ),
    (
        "a mount over the system",
        [storage("{mount: /usr/bin, efs: {}}")],
        "error[mounted-over-system] storage[0].mount: /usr/bin cannot be a mount point: the machine needs it",
    ),
    (
        "a mount over the head's own state",
        [storage("{mount: /srv/gpucluster-state, efs: {}}")],
        "error[mounted-twice] storage[0].mount: /srv/gpucluster-state is the mount point of the head's state",
    ),
    (
        "a mount below the machine's own disks",
        [storage("{mount: /scratch, nvme: {}}", "{mount: /scratch/home, efs: {}}")],
        "error[mounted-within] storage[1].mount: /scratch is on the machine's own disks, which are formatted at each boot; choose a mount point outside it",
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
        "warning[no-own-disks] pools[c].capacity[0].machines[0]: 'c7i.xlarge' has no local disks: there /scratch is a folder of the root volume",
    ),
    (
        "nothing but homes in common",
        [storage(EFS)],
        "advice[checkpoints-on-home] storage[0].mount: the nodes of 'h200' share only /home: checkpoints would fill it and be slow; add a file system for data",
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
        "error[placement-reserved] pools[h200].placement: reserved capacity has a fixed place: a placement group often makes its launch fail (T27)",
    ),
    (
        "one node near nobody",
        [of_pool("placement: cluster"), ("max: 16", "max: 1"), (", max: 4}", "}")],
        "error[placement-alone] pools[h200].placement: a placement group has no effect on one node; remove this key",
    ),
    (
        "nearness without EFA",
        [
            of_pool("placement: cluster"),
            ("[p5en.48xlarge, p5e.48xlarge]", "[g6e.xlarge]"),
            ("machines: [p5en.48xlarge], max", "machines: [g6e.xlarge], max"),
        ],
        "warning[no-efa] pools[h200].placement: 'g6e.xlarge' has no EFA: a placement group helps little, and capacity is harder to get",
    ),
    (
        "an acceptance of nothing",
        [("accept: [", "accept: [{id: head-with-gpu, because: it had one}, ")],
        "advice[accept-unused] accept[0].id: no finding has the id 'head-with-gpu': delete this entry",
    ),
    (
        "an acceptance without a reason",
        [("accept: [", "accept: [{id: head-with-gpu}, ")],
        "error[missing-key] accept[0]: 'because' is missing: the reason",
    ),
]
