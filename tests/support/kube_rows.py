"""Errors of a Kubernetes spec and of workloads by example: sentence, changes, the only expected problem."""

Change = tuple[str, str]
Row = tuple[str, list[Change], str]

SERVICE_ROLE = "arn:aws:iam::123456789012:role/aws-service-role/eks.amazonaws.com/AWSServiceRoleForAmazonEKS"
PRINCIPAL = "arn:aws:iam::123456789012:role/platform"
_NO_STORAGE = ("storage:\n  - {mount: /data, fsx_lustre: {zone: us-west-2a, size: 2400GiB}}\n", "")
BOTH = [
    _NO_STORAGE,
    (
        "pools:\n",
        'slurm: {version: "26.05"}\nhead: {machine: m7i.xlarge, state: 8GiB}\naccess: {ssm: true}\npartitions: [{name: gpu, pools: [tune]}]\npools:\n',
    ),
]

CLUSTER_ROWS: list[Row] = [
    (
        "a pool with the name of another pool's part",
        [("    nodes: 4\n", "    nodes: {min: 0, max: 4}\n"), ("name: serve\n", "name: tune-2a\n")],
        "18:11: error[duplicate-name] pools[tune-2a].name: 'tune-2a' is the name of a runtime and a test of 'tune.2a', the part of a pool in one zone",
    ),
    (
        "a service account without a place",
        [("{nvidia.com/gpu: 32}}", "{nvidia.com/gpu: 32}, service_accounts: [{name: reader}]}")],
        "11:72: error[missing-key] kubernetes.teams[research].service_accounts[reader]: 'read' and 'write' are missing: its pods would have no rights",
    ),
    (
        "a service account that names a place twice",
        [
            (
                "{nvidia.com/gpu: 32}}",
                "{nvidia.com/gpu: 32}, service_accounts: [{name: reader, read: ['s3://example-data/a'], write: ['s3://example-data']}]}",
            )
        ],
        "11:94: error[repeated] kubernetes.teams[research].service_accounts[reader].read[0]: 's3://example-data/a' is within 's3://example-data/' (write), and has its rights",
    ),
    (
        "two service accounts of one name",
        [
            (
                "{nvidia.com/gpu: 32}}",
                "{nvidia.com/gpu: 32}, service_accounts: [{name: a, read: ['s3://example-data']}, {name: a, read: ['s3://example-data']}]}",
            )
        ],
        "11:119: error[duplicate-name] kubernetes.teams[research].service_accounts[a].name: 'a' is already the name of service_accounts[0]",
    ),
    (
        "the service account of every namespace",
        [
            (
                "{nvidia.com/gpu: 32}}",
                "{nvidia.com/gpu: 32}, service_accounts: [{name: default, read: ['s3://example-data']}]}",
            )
        ],
        "11:79: error[reserved-name] kubernetes.teams[research].service_accounts[default].name: 'default' is the account of pods that name none; take another name",
    ),
    (
        "a service account in a cluster of the site",
        [
            (
                "{nvidia.com/gpu: 32}}",
                "{nvidia.com/gpu: 32}, service_accounts: [{name: a, read: ['s3://example-data']}]}",
            ),
            ("control_plane: eks", "existing: {context: prod, eks_name: prod}"),
        ],
        "11:71: error[not-supported] kubernetes.teams[research].service_accounts: gpucluster makes pod identity associations only for its own EKS cluster (`control_plane: eks`)",
    ),
    (
        "a borrowing limit of a team that borrows nothing",
        [("{nvidia.com/gpu: 32}}", "{nvidia.com/gpu: 32}, borrowing_limit: {nvidia.com/gpu: 8}}")],
        "11:70: error[borrows-nothing] kubernetes.teams[research].borrowing_limit: the team borrows nothing; write `may_borrow: true`, or remove this key",
    ),
    (
        "a borrowing limit of a resource without a quota",
        [("may_borrow: true}", "may_borrow: true, borrowing_limit: {nvidia.com/gpu: 8}}")],
        "10:112: error[unknown-resource] kubernetes.teams[serving].borrowing_limit.'nvidia.com/gpu': the team has no quota of nvidia.com/gpu, so it cannot borrow it; `nvidia.com/gpu: 0` in 'quota' lets it",
    ),
    (
        "a borrowing limit that limits nothing",
        [("may_borrow: true}", "may_borrow: true, borrowing_limit: {nvidia.com/mig-1g.10gb: 308}}")],
        "10:120: error[limit-without-effect] kubernetes.teams[serving].borrowing_limit.'nvidia.com/mig-1g.10gb': quota and limit reach all 336 of nvidia.com/mig-1g.10gb, so the limit has no effect; remove it",
    ),
    (
        "half a slice as a borrowing limit",
        [("may_borrow: true}", "may_borrow: true, borrowing_limit: {nvidia.com/mig-1g.10gb: 500m}}")],
        "10:120: error[bad-amount] kubernetes.teams[serving].borrowing_limit.'nvidia.com/mig-1g.10gb': nvidia.com/mig-1g.10gb is counted in whole numbers",
    ),
    (
        "a share of a team that borrows nothing",
        [("{nvidia.com/gpu: 32}}", "{nvidia.com/gpu: 32}, share: 3}")],
        "11:60: error[share-without-effect] kubernetes.teams[research].share: it divides what teams borrow, and the team borrows nothing; write `may_borrow: true`, or remove this key",
    ),
    (
        "a share without fair sharing",
        [
            ("may_borrow: true}", "may_borrow: true, share: 3}"),
            ("control_plane: eks", "control_plane: eks\n  fair_sharing: false"),
        ],
        "11:85: error[share-without-effect] kubernetes.teams[serving].share: without fair sharing Kueue does not use it; remove this key or `fair_sharing: false`",
    ),
    (
        "a share of nothing",
        [("may_borrow: true}", "may_borrow: true, share: 0}")],
        "10:85: error[out-of-range] kubernetes.teams[serving].share: 0 is not between 1 and 1000000",
    ),
    (
        "preemption by borrowers with fair sharing",
        [("control_plane: eks", "control_plane: eks\n  preemption: {borrow_within_cohort: lower-priority}")],
        "9:38: error[bad-preemption] kubernetes.preemption.borrow_within_cohort: Kueue uses it only without fair sharing, which decides by `share`; remove it, or write `fair_sharing: false`",
    ),
    (
        "preemption by borrowers where nothing is reclaimed",
        [
            (
                "control_plane: eks",
                "control_plane: eks\n  fair_sharing: false\n  preemption: {borrow_within_cohort: lower-priority, reclaim_within_cohort: never}",
            )
        ],
        "10:38: error[bad-preemption] kubernetes.preemption.borrow_within_cohort: Kueue refuses it with `reclaim_within_cohort: never`",
    ),
    (
        "a word that is no preemption",
        [("control_plane: eks", "control_plane: eks\n  preemption: {reclaim_within_cohort: always}")],
        "9:39: error[bad-preemption] kubernetes.preemption.reclaim_within_cohort: 'always' is not what may be preempted; expected any, lower-priority, never",
    ),
    (
        "a priority of every cluster",
        [("control_plane: eks", "control_plane: eks\n  priorities: [{name: gang, priority: 5}]")],
        "9:23: error[reserved-name] kubernetes.priorities[gang].name: 'gang' is the priority of workloads that name none; take another name",
    ),
    (
        "two priorities of one name",
        [
            (
                "control_plane: eks",
                "control_plane: eks\n  priorities: [{name: a, priority: 5}, {name: a, priority: 6}]",
            )
        ],
        "9:47: error[duplicate-name] kubernetes.priorities[a].name: 'a' is already the name of priorities[0]",
    ),
    (
        "a Kubernetes version from the future",
        [('"1.36"', '"1.99"')],
        "7:12: error[kubernetes-version] kubernetes.version: '1.99' is not a known Kubernetes release (1.34, 1.35, 1.36, 1.37)",
    ),
    (
        "a Kubernetes version without quotes",
        [('"1.36"', "1.40")],
        '7:12: error[unquoted-version] kubernetes.version: 1.40 without quotes is a number in YAML, 1.4; write it in quotes: "1.40"',
    ),
    (
        "two control planes",
        [("control_plane: eks", "control_plane: eks\n  existing: {context: prod, eks_name: prod}")],
        "7:3: error[control-plane] kubernetes: write exactly one of 'control_plane' and 'existing'",
    ),
    (
        "no control plane",
        [("  control_plane: eks\n", "")],
        "7:3: error[control-plane] kubernetes: write exactly one of 'control_plane' and 'existing'",
    ),
    (
        "admins of a cluster that exists",
        [("control_plane: eks", f"existing: {{context: prod, eks_name: prod}}\n  admins: [{PRINCIPAL}]")],
        "9:11: error[not-here] kubernetes.admins: 'admins' is for a control plane that gpucluster creates; the owner of an existing cluster decides it",
    ),
    (
        "members of a team of a cluster that exists",
        [
            ("control_plane: eks", "existing: {context: prod, eks_name: prod}"),
            ("may_borrow: true", f"may_borrow: true, members: [{PRINCIPAL}]"),
        ],
        "10:87: error[not-here] kubernetes.teams[serving].members: 'members' is for a control plane that gpucluster creates; the owner of an existing cluster decides it",
    ),
    (
        "a machine of the add-ons that nobody sells",
        [("control_plane: eks", "control_plane: eks\n  system: {machine: m7i.xlargee}")],
        "9:21: error[unknown-machine] kubernetes.system.machine: 'm7i.xlargee' is not in the catalog; did you mean 'm7i.xlarge'?",
    ),
    (
        "a machine of the add-ons with GPUs",
        [("control_plane: eks", "control_plane: eks\n  system: {machine: g6e.xlarge}")],
        "9:21: error[gpu-without-use] kubernetes.system.machine: g6e.xlarge has GPUs, which no add-on uses: write a machine without GPUs",
    ),
    (
        "an admin who is named twice",
        [("control_plane: eks", f"control_plane: eks\n  admins: [{PRINCIPAL}, {PRINCIPAL}]")],
        f"9:53: error[repeated] kubernetes.admins[1]: the principal '{PRINCIPAL}' is named twice",
    ),
    (
        "an admin by the ARN of a session",
        [
            (
                "control_plane: eks",
                "control_plane: eks\n  admins: ['arn:aws:sts::123456789012:assumed-role/platform/me']",
            )
        ],
        "9:12: error[bad-arn] kubernetes.admins[0]: 'arn:aws:sts::123456789012:assumed-role/platform/me' is not the ARN of an IAM role or user, such as arn:aws:iam::123456789012:role/platform",
    ),
    (
        "an API server that is open to the internet",
        [("control_plane: eks", "control_plane: eks\n  api_from: [10.0.0.0/8, 0.0.0.0/0]")],
        "9:26: warning[open-to-all] kubernetes.api_from[1]: 0.0.0.0/0 is a large part of the internet: write the site's own address ranges",
    ),
    (
        "addresses that no machine on the internet has",
        [("control_plane: eks", "control_plane: eks\n  api_from: [192.0.0.0/9, 192.128.0.0/9]")],
        "9:27: error[bad-cidr] kubernetes.api_from[1]: 192.128.0.0/9 has addresses of 192.168.0.0/16, and EKS takes no reserved ones in a public range: write ranges without them, or a private range",
    ),
    (
        "a public range that is reserved",
        [("control_plane: eks", "control_plane: eks\n  api_from: [223.255.255.0/24, 224.0.0.0/32]")],
        "9:32: error[bad-cidr] kubernetes.api_from[1]: 224.0.0.0/32 has addresses of 224.0.0.0/3, and EKS takes no reserved ones in a public range: write ranges without them, or a private range",
    ),
    (
        "a queueing system of a later release",
        [("control_plane: eks", "control_plane: eks\n  queueing: volcano")],
        "9:13: error[not-supported] kubernetes.queueing: 'volcano' is not supported yet; supported: kueue",
    ),
    (
        "a GPU stack of a later release",
        [("control_plane: eks", "control_plane: eks\n  gpu_stack: dra")],
        "9:14: error[not-supported] kubernetes.gpu_stack: 'dra' is not supported yet; supported: device-plugin",
    ),
    (
        "a control plane that nobody runs",
        [("control_plane: eks", "control_plane: gke")],
        "8:18: error[bad-choice] kubernetes.control_plane: 'gke' is none of eks",
    ),
    (
        "a source for which the sources before it leave no node",
        [
            (
                "[{from: spot, machines: [p4de.24xlarge]}]",
                "[{from: on-demand, machines: [p4de.24xlarge]}, {from: spot, machines: [p4de.24xlarge]}]",
            )
        ],
        "21:62: error[source-without-nodes] pools[serve].capacity[1]: the sources before it take all 5 nodes beside the always-on ones, because Karpenter counts each source alone; write 'max' there",
    ),
    (
        "sources that give fewer nodes than the max",
        [
            (
                "[{from: spot, machines: [p4de.24xlarge]}]",
                "[{from: spot, machines: [p4de.24xlarge], max: 4}]",
            )
        ],
        "21:15: error[sources-below-max] pools[serve].capacity: the sources give at most 4 of max 6 nodes, and the quotas count on all",
    ),
    (
        "a node image that is no release",
        [("control_plane: eks", "control_plane: eks\n  node_image: latest")],
        "9:15: error[bad-release] kubernetes.node_image: 'latest' is not a release of EKS's images such as v20260903 or 1.36.3-20260903",
    ),
    (
        "a node image whose release of node groups nobody wrote down",
        [("control_plane: eks", "control_plane: eks\n  node_image: v20261110")],
        "9:15: error[node-image] kubernetes.node_image: the catalog has no release of node groups for v20261110 and Kubernetes 1.36; write it with its patch version, such as 1.36.3-20261110 (the release page of awslabs/amazon-eks-ami names it)",
    ),
    (
        "a node image of another version",
        [("control_plane: eks", "control_plane: eks\n  node_image: 1.35.8-20261110")],
        "9:15: error[node-image] kubernetes.node_image: '1.35.8-20261110' is not for Kubernetes 1.36",
    ),
    (
        "a Kubernetes version without a known node image",
        [('"1.36"', '"1.37"'), ("{min: 1, max: 6}", "6")],
        "7:3: warning[node-image] kubernetes: no release of EKS's image is known for Kubernetes 1.37, so nodes take the newest one, and the nodes of a gang can differ in the driver; write 'node_image', such as 1.37.3-20260903\n"
        "7:12: warning[addon-version] kubernetes.version: no version of the add-ons vpc-cni, kube-proxy, eks-pod-identity-agent, coredns, eks-node-monitoring-agent, aws-ebs-csi-driver, aws-fsx-csi-driver is known for Kubernetes 1.37, so EKS installs its default of the day, and two clusters of this spec can differ",
    ),
    (
        "an elastic pool on a Kubernetes that Karpenter refuses",
        [
            ('"1.36"', '"1.37"'),
            ("control_plane: eks", "existing: {context: mine, eks_name: mine}\n  node_image: v20261110"),
        ],
        "20:12: error[karpenter-version] pools[serve].nodes: Karpenter 1.14.1 launches nodes up to Kubernetes 1.36, and the cluster has 1.37: write `min` and `max` alike, or an older version",
    ),
    (
        "EKS without a way out of its network",
        [("zones: [us-west-2a]", "zones: [us-west-2a], nat: none")],
        "5:59: error[no-way-out] aws.network.nat: nodes of EKS and the charts need a way out: their images are in public registries; write 'nat: one' or leave it out",
    ),
    (
        "a network without room for the addresses of pods",
        [("10.60.0.0/16", "10.60.0.0/24"), _NO_STORAGE],
        "5:19: error[network-too-small] aws.network.cidr: us-west-2a gets 10.60.0.0/27, with 0 free addresses, beside the control plane, beside the nodes of add-ons, and the pools need up to 170 there: a node of Kubernetes holds 16 for pods",
    ),
    (
        "an admin of another partition",
        [
            (
                "control_plane: eks",
                "control_plane: eks\n  admins: ['arn:aws-cn:iam::123456789012:role/platform']",
            )
        ],
        "9:12: error[bad-arn] kubernetes.admins[0]: 'arn:aws-cn:iam::123456789012:role/platform' is in another partition of AWS, and the Regions of the catalog are in 'aws': write an ARN that begins with arn:aws:",
    ),
    (
        "an admin that is the role of the own nodes",
        [
            (
                "control_plane: eks",
                "control_plane: eks\n  admins: ['arn:aws:iam::123456789012:role/kube-kubernetes-node']",
            )
        ],
        "9:12: error[bad-arn] kubernetes.admins[0]: 'arn:aws:iam::123456789012:role/kube-kubernetes-node' is the role of this cluster's nodes, which `pulumi up` makes with an access entry of its own, and EKS makes no second one: write a role that people or programs assume",
    ),
    (
        "a member that is a role of a service",
        [("{name: research", f"{{name: research, members: ['{SERVICE_ROLE}']")],
        "11:34: error[bad-arn] kubernetes.teams[research].members[0]: 'arn:aws:iam::123456789012:role/aws-service-role/eks.amazo...' is a role of a service, and EKS makes no access entry for one: write a role that people or programs assume",
    ),
    (
        "a tag by which Karpenter knows its nodes",
        [("region: us-west-2\n", "region: us-west-2\n  tags: {karpenter.sh/nodepool: x}\n")],
        "5:33: error[reserved-tag] aws.tags.'karpenter.sh/nodepool': 'karpenter.sh/nodepool' is reserved by Karpenter, which knows its nodes by it and ends those without a claim; choose another key",
    ),
    (
        "a tag of a cluster, which Karpenter compares",
        [("region: us-west-2\n", "region: us-west-2\n  tags: {kubernetes.io/cluster/kube: owned}\n")],
        "5:38: error[reserved-tag] aws.tags.'kubernetes.io/cluster/kube': 'kubernetes.io/cluster/kube' is reserved by Karpenter, which knows its nodes by it and ends those without a claim; choose another key",
    ),
    (
        "a key of the site whose policy must know EC2 Auto Scaling",
        [("region: us-west-2\n", "region: us-west-2\n  kms_key: alias/research\n")],
        "5:12: warning[key-of-nodes] aws.kms_key: EC2 Auto Scaling launches the nodes of node groups: the policy of the key must allow AWSServiceRoleForAutoScaling to use it and to make grants. Volumes of claims have the account's default key",
    ),
    (
        "a key of the site on a cluster of the site, where Karpenter launches",
        [
            ("region: us-west-2\n", "region: us-west-2\n  kms_key: alias/research\n"),
            ("control_plane: eks", "existing: {context: prod, eks_name: prod}"),
        ],
        "5:12: warning[key-of-nodes] aws.kms_key: Karpenter launches the nodes of elastic pools, and their disks have the key: the role of its controller must be allowed to use it and to make grants",
    ),
    (
        "a Kubernetes version without known add-ons",
        [('"1.36"', '"1.34"'), _NO_STORAGE],
        "7:12: warning[addon-version] kubernetes.version: no version of the add-ons vpc-cni, kube-proxy, eks-pod-identity-agent, coredns, eks-node-monitoring-agent, aws-ebs-csi-driver is known for Kubernetes 1.34, so EKS installs its default of the day, and two clusters of this spec can differ",
    ),
    (
        "two teams of one name",
        [("name: research", "name: serving")],
        "11:14: error[duplicate-name] kubernetes.teams[serving].name: 'serving' is already the name of teams[0]",
    ),
    (
        "a team whose name is no namespace's",
        [("name: research", "name: Research_1")],
        "11:14: error[bad-name] kubernetes.teams[1].name: 'Research_1' is not a name: use a-z, 0-9 and '-', beginning with a letter, not ending with '-', at most 24 characters",
    ),
    (
        "a team in the system's own namespace",
        [("name: research", "name: kube-system")],
        "11:14: error[reserved-name] kubernetes.teams[kube-system].name: the namespace 'kube-system' belongs to Kubernetes or a controller; choose another name",
    ),
    (
        "a team in the namespace of a controller",
        [("name: research", "name: cert-manager")],
        "11:14: error[reserved-name] kubernetes.teams[cert-manager].name: the namespace 'cert-manager' belongs to Kubernetes or a controller; choose another name",
    ),
    (
        "a team in a namespace that may have another program",
        [("name: research", "name: monitoring")],
        "11:14: warning[shared-namespace] kubernetes.teams[monitoring].name: other programs are often in a namespace 'monitoring'; the team's quota and network policies would stop them. If one is there or will be, choose another name",
    ),
    (
        "a team with a name as of a controller",
        [("name: research", "name: vision-system")],
        "11:14: warning[shared-namespace] kubernetes.teams[vision-system].name: other programs are often in a namespace 'vision-system'; the team's quota and network policies would stop them. If one is there or will be, choose another name",
    ),
    (
        "a quota above the pools",
        [("nvidia.com/gpu: 32", "nvidia.com/gpu: 33")],
        "11:48: error[quota-above-pools] kubernetes.teams[research].quota.'nvidia.com/gpu': 33 of nvidia.com/gpu is more than the pools have at their max: 32",
    ),
    (
        "a quota of nothing after a quota above the pools",
        [
            ("{nvidia.com/mig-1g.10gb: 28}", "{nvidia.com/mig-1g.10gb: 28, nvidia.com/gpu: 33}"),
            ("{nvidia.com/gpu: 32}", "{nvidia.com/gpu: 0}, may_borrow: true"),
        ],
        "10:75: error[quota-above-pools] kubernetes.teams[serving].quota.'nvidia.com/gpu': 33 of nvidia.com/gpu is more than the pools have at their max: 32",
    ),
    (
        "a Secret of Trainer's image that is named twice",
        [
            (
                "  control_plane: eks\n",
                "  control_plane: eks\n  trainer: {image: 'x:1', pull_secrets: [a, b, a]}\n",
            )
        ],
        "9:48: error[repeated] kubernetes.trainer.pull_secrets[2]: the Secret 'a' is named twice",
    ),
    (
        "quotas that together are above the pools",
        [("{nvidia.com/mig-1g.10gb: 28}", "{nvidia.com/mig-1g.10gb: 28, nvidia.com/gpu: 8}")],
        "11:48: error[quota-above-pools] kubernetes.teams[research].quota.'nvidia.com/gpu': 32 of nvidia.com/gpu is more than the pools have at their max: 32, of which earlier teams leave 24",
    ),
    (
        "a quota of slices that no pool has",
        [("mig-1g.10gb: 28", "mig-1g.20gb: 28")],
        "10:55: error[unknown-resource] kubernetes.teams[serving].quota.'nvidia.com/mig-1g.20gb': no pool has quotas of 'nvidia.com/mig-1g.20gb'; did you mean 'nvidia.com/mig-1g.10gb'?",
    ),
    (
        "a quota of what follows the GPUs, where another pool has none",
        [
            ("{nvidia.com/gpu: 32}", "{nvidia.com/gpu: 32, cpu: 5, memory: 1Ti}"),
            (
                "pools:\n",
                "pools:\n  - {name: plain, nodes: 2, capacity: [{from: spot, machines: [m7i.xlarge]}]}\n",
            ),
        ],
        "11:68: error[unknown-resource] kubernetes.teams[research].quota.memory: no pool has quotas of 'memory' (cpu, memory and EFA follow the GPUs); there are cpu, nvidia.com/gpu, nvidia.com/mig-1g.10gb",
    ),
    (
        "a quota of what follows the GPUs",
        [("{nvidia.com/gpu: 32}", "{nvidia.com/gpu: 32, memory: 1Ti}")],
        "11:60: error[unknown-resource] kubernetes.teams[research].quota.memory: no pool has quotas of 'memory' (cpu, memory and EFA follow the GPUs); there are nvidia.com/gpu, nvidia.com/mig-1g.10gb",
    ),
    (
        "half a GPU",
        [("nvidia.com/gpu: 32", "nvidia.com/gpu: 500m")],
        "11:48: error[bad-amount] kubernetes.teams[research].quota.'nvidia.com/gpu': nvidia.com/gpu is counted in whole numbers",
    ),
    (
        "a quota that is no quantity",
        [("nvidia.com/gpu: 32", "nvidia.com/gpu: many")],
        "11:48: error[bad-quantity] kubernetes.teams[research].quota.'nvidia.com/gpu': 'many' is not a quantity such as 4, 500m or 16Gi",
    ),
    (
        "a resource that is no name",
        [("nvidia.com/gpu: 32", '"nvidia.com/gpu x": 32')],
        "11:32: error[bad-resource] kubernetes.teams[research].quota.'nvidia.com/gpu x': 'nvidia.com/gpu x' is not a resource such as cpu, memory or nvidia.com/gpu",
    ),
    (
        "a quota of nothing",
        [
            ("{nvidia.com/gpu: 32}", "{}"),
            ("{nvidia.com/mig-1g.10gb: 28}", "{nvidia.com/mig-1g.10gb: 28, nvidia.com/gpu: 8}"),
        ],
        "11:31: error[empty-mapping] kubernetes.teams[research].quota: the mapping is empty; it needs at least one key",
    ),
    (
        "a team with nothing",
        [("{nvidia.com/gpu: 32}", "{nvidia.com/gpu: 0}")],
        "11:31: error[team-without-quota] kubernetes.teams[research].quota: the team has no quota and may not borrow, so none of its pods can run",
    ),
    (
        "MIG on a GPU without it",
        [("{from: spot, machines: [p4de.24xlarge]}", "{from: spot, machines: [g6e.48xlarge]}")],
        "20:20: error[no-mig] pools[serve].sharing.mig: the l40s of 45776 MiB of 'g6e.48xlarge' does not support MIG",
    ),
    (
        "MIG without a GPU",
        [
            ("{from: spot, machines: [p4de.24xlarge]}", "{from: spot, machines: [m7i.xlarge]}"),
            ("{nvidia.com/mig-1g.10gb: 28}", "{cpu: 4}"),
        ],
        "20:20: error[no-mig] pools[serve].sharing.mig: 'm7i.xlarge' has no GPU for MIG",
    ),
    (
        "a profile that the GPU lacks",
        [("{1g.10gb: 7}", "{1g.10gb: 2, 1g.18gb: 1}")],
        "20:42: error[unknown-profile] pools[serve].sharing.mig.'1g.18gb': the a100 of 81920 MiB has no profile '1g.18gb'; it has 1g.10gb, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb",
    ),
    (
        "shards in a pool of Kubernetes",
        [
            ("sharing: {mig: {1g.10gb: 7}}", "sharing: {shards: 4}"),
            ("{nvidia.com/mig-1g.10gb: 28}", "{nvidia.com/gpu: 0}"),
        ],
        "20:23: error[not-here] pools[serve].sharing.shards: 'shards' are of Slurm; a pool of Kubernetes shares its GPUs by 'mig'",
    ),
    (
        "MPS in a pool of Kubernetes",
        [
            ("sharing: {mig: {1g.10gb: 7}}", "sharing: {mps: 4}"),
            ("{nvidia.com/mig-1g.10gb: 28}", "{nvidia.com/gpu: 0}"),
        ],
        "20:20: error[not-here] pools[serve].sharing.mps: 'mps' is of Slurm here; a pool of Kubernetes shares its GPUs by 'mig'",
    ),
    (
        "a profile that is none",
        [("{1g.10gb: 7}", "{1g.10gb: 2, tiny: 1}"), ("{nvidia.com/mig-1g.10gb: 28}", "{nvidia.com/gpu: 0}")],
        "20:33: error[bad-profile] pools[serve].sharing.mig.tiny: 'tiny' is not a MIG profile such as 1g.10gb",
    ),
    (
        "more slices than a GPU has",
        [("{1g.10gb: 7}", "{1g.10gb: 4, 3g.40gb: 2}")],
        "20:20: error[too-many-slices] pools[serve].sharing.mig: one GPU has 7 compute slices and 8 memory slices; these profiles take 10 and 12 (at most 7 of 1g.10gb, at most 2 of 3g.40gb)",
    ),
    (
        "no slices",
        [("{1g.10gb: 7}", "{}"), ("{nvidia.com/mig-1g.10gb: 28}", "{nvidia.com/gpu: 0}")],
        "20:20: error[empty-mapping] pools[serve].sharing.mig: the mapping is empty; it needs at least one key",
    ),
    (
        "a pool that nobody is promised",
        [("{nvidia.com/mig-1g.10gb: 28}", "{nvidia.com/gpu: 0}")],
        "18:11: warning[pool-without-quota] pools[serve].name: no team has a quota for the pool 'serve' (nvidia.com/mig-1g.10gb)",
    ),
    (
        "a boot timeout where Karpenter watches",
        [("    nodes: 4\n", "    nodes: 4\n    boot_timeout: 30m\n")],
        "17:19: error[not-here] pools[tune].boot_timeout: Karpenter limits the boot time of Kubernetes nodes, and its limit cannot be set",
    ),
    (
        "a pool for Slurm in a cluster without it",
        [
            ("    nodes: 4\n", "    nodes: 4\n    runs: slurm\n"),
            ("quota: {nvidia.com/gpu: 32}", "quota: {nvidia.com/mig-1g.10gb: 1}"),
        ],
        "17:11: error[who-runs] pools[tune].runs: the cluster has no 'slurm' part",
    ),
    (
        "partitions without Slurm",
        [("storage:\n", "partitions: [{name: gpu, pools: [tune]}]\nstorage:\n")],
        "12:13: error[no-slurm] partitions: 'partitions' needs a 'slurm' part, and the cluster has none",
    ),
    (
        "a role for jobs without Slurm",
        [("aws:\n", "aws:\n  jobs: {read: ['s3://example-data']}\n")],
        "4:9: error[no-slurm] aws.jobs: 'jobs' needs a 'slurm' part, and the cluster has none",
    ),
    (
        "a partition over a pool of Kubernetes",
        [
            *BOTH,
            ("    nodes: 4\n", "    nodes: 4\n    runs: kubernetes\n"),
            ("    nodes: {min: 1, max: 6}\n", "    nodes: {min: 1, max: 6}\n    runs: kubernetes\n"),
            (
                "pools:\n  - name: tune",
                "pools:\n  - {name: old, runs: slurm, nodes: 1, capacity: [{from: spot, machines: [m7i.xlarge]}]}\n  - name: tune",
            ),
            ("pools: [tune]", "pools: [old, tune]"),
        ],
        "15:39: error[two-orchestrators] partitions[gpu].pools[1]: the pool 'tune' runs Kubernetes, and a pool has one orchestrator",
    ),
    (
        "two orchestrators, and a pool that does not say whose it is",
        [
            *BOTH,
            ("    nodes: 4\n", "    nodes: 4\n    runs: slurm\n"),
            ("quota: {nvidia.com/gpu: 32}", "quota: {nvidia.com/mig-1g.10gb: 1}"),
        ],
        "21:5: error[who-runs] pools[serve]: 'runs' is missing: the cluster has two orchestrators, so write `runs: slurm` or `runs: kubernetes`",
    ),
    (
        "slices in a pool of Slurm whose machines have EFA",
        [
            *BOTH,
            ("    nodes: 4\n", "    nodes: 4\n    runs: slurm\n    sharing: {mig: {1g.10gb: 7}}\n"),
            ("    nodes: {min: 1, max: 6}\n", "    nodes: {min: 1, max: 6}\n    runs: kubernetes\n"),
            ("quota: {nvidia.com/gpu: 32}", "quota: {nvidia.com/mig-1g.10gb: 1}"),
        ],
        "20:20: warning[mig-fabric] pools[tune].sharing.mig: a MIG slice has neither NVLink nor peer-to-peer, so NCCL cannot join slices, and no job of slices uses the EFA of this pool; take machines without EFA, or whole GPUs",
    ),
    (
        "a pool twice, once for each orchestrator",
        [
            *BOTH,
            ("    nodes: 4\n", "    nodes: 4\n    runs: slurm\n"),
            ("name: serve\n", "name: tune\n    runs: kubernetes\n"),
            ("quota: {nvidia.com/gpu: 32}", "quota: {nvidia.com/mig-1g.10gb: 1}"),
            ("[{name: gpu, pools: [tune]}]", "[{name: gpu, pools: [tune]}]"),
        ],
        "21:11: error[duplicate-name] pools[tune].name: 'tune' is already the name of pools[0]",
    ),
    (
        "Kubernetes without a pool",
        [
            *BOTH,
            ("    nodes: 4\n", "    nodes: 4\n    runs: slurm\n"),
            ("    nodes: {min: 1, max: 6}\n", "    nodes: {min: 1, max: 6}\n    runs: slurm\n"),
            ("    sharing: {mig: {1g.10gb: 7}}\n", ""),
            ("pools: [tune]", "pools: [tune, serve]"),
            ("{nvidia.com/mig-1g.10gb: 28}", "{nvidia.com/gpu: 0}"),
            ("{nvidia.com/gpu: 32}", "{nvidia.com/gpu: 1}"),
        ],
        "7:3: error[no-pool] kubernetes: no pool runs Kubernetes, so no pod could start",
    ),
    (
        "a file system that pods cannot mount",
        [("fsx_lustre: {zone: us-west-2a, size: 2400GiB}", "other: {type: beegfs, source: x}")],
        "13:27: error[not-supported] storage[0].other: pods can mount NFS and FSx for Lustre; for another kind add a volume beside these manifests",
    ),
    (
        "an export of a head that is not there",
        [("fsx_lustre: {zone: us-west-2a, size: 2400GiB}", "nfs: {from: head, export: /srv}")],
        "13:32: error[nfs-source] storage[0].nfs.from: this cluster has no head that can export it",
    ),
    (
        "a price limit for pods",
        [("from: spot,", "from: spot, max_price: 20 USD/h,")],
        "21:40: error[not-here] pools[serve].capacity[0].max_price: Karpenter launches spot at any price up to on-demand; a limit cannot be set",
    ),
    (
        "spares of Kubernetes",
        [("nodes: 4\n", "nodes: {min: 1, max: 4}\n    spares: 1\n")],
        "17:13: error[not-here] pools[tune].spares: 'spares' is used by Slurm's elastic daemon; Kubernetes and Karpenter do not use it",
    ),
    (
        "a termination of pods",
        [("nodes: 4\n", "nodes: 4\n    termination: {signal: USR2}\n")],
        "17:18: error[not-here] pools[tune].termination: 'termination' is used by Slurm's elastic daemon; Kubernetes and Karpenter do not use it",
    ),
    (
        "a budget for pods",
        [("pools:\n", "budget: {monthly: 250000 USD}\npools:\n")],
        "14:9: error[not-here] budget: the budget is enforced by Slurm's elastic daemon, and no pool runs Slurm",
    ),
    (
        "an elastic pool in a cluster without a name in EKS",
        [("control_plane: eks", "existing: {context: prod}")],
        "8:13: error[missing-key] kubernetes.existing: 'eks_name' is missing: the pool 'serve' is elastic, and Karpenter needs the name of its cluster in EKS",
    ),
    (
        "a name that no EKS cluster has",
        [("control_plane: eks", "existing: {context: prod, eks_name: a.b}")],
        "8:39: error[bad-name] kubernetes.existing.eks_name: 'a.b' is no name of an EKS cluster: letters, digits, '-' and '_'",
    ),
]

WORKLOAD_ROWS: list[Row] = [
    (
        "none of a resource, with shared memory",
        [("mig-1g.10gb: 1}", "mig-1g.10gb: 0}\n    shm: 8Mi")],
        "7:41: error[bad-amount] serve[chat].resources.'nvidia.com/mig-1g.10gb': 0 is not an amount; remove this key",
    ),
    (
        "none of a resource for replicas of several nodes",
        [("{nvidia.com/mig-1g.10gb: 1}", "{nvidia.com/gpu: 0}\n    nodes: 2")],
        "7:33: error[bad-amount] serve[chat].resources.'nvidia.com/gpu': 0 is not an amount; remove this key",
    ),
    (
        "a variable that is set after its use",
        [("gpus_per_node: 8", "gpus_per_node: 8\n    env: {A: $(B), B: x}")],
        "16:14: warning[unknown-variable] train[tune].env.A: `$(B)` stays as it is, because 'B' is set after it; Kubernetes replaces it by a variable before it",
    ),
    (
        "a variable that nothing sets",
        [("mig-1g.10gb: 1}", "mig-1g.10gb: 1}\n    env: {A: '$(HOME)/x'}")],
        "8:14: warning[unknown-variable] serve[chat].env.A: `$(HOME)` stays as it is, because 'HOME' is no variable of the container; Kubernetes replaces it by a variable before it",
    ),
    (
        "a test of NCCL for nobody",
        [("serve:\n", "nccl_test: {team: resarch, image: x}\nserve:\n")],
        "3:19: error[unknown-team] nccl_test.team: 'resarch' is not a team of the cluster; did you mean 'research'?",
    ),
    (
        "a test of NCCL without two nodes of whole GPUs",
        [("serve:\n", "nccl_test: {team: serving, image: x}\nserve:\n")],
        "3:19: error[no-gpus] nccl_test.team: no pool of the team 'serving' has two nodes with whole GPUs within its quota",
    ),
    (
        "a TrainJob without Trainer",
        [("gpus_per_node: 8", "gpus_per_node: 8\n    kind: TrainJob")],
        "16:11: error[no-trainer] train[tune].kind: the cluster has no Kubeflow Trainer; add `kubernetes.trainer` to its spec",
    ),
    (
        "a kind that is no gang",
        [("gpus_per_node: 8", "gpus_per_node: 8\n    kind: MPIJob")],
        "16:11: error[bad-choice] train[tune].kind: 'MPIJob' is none of JobSet, TrainJob",
    ),
    (
        "a variable of replicas of several nodes, in one pod",
        [("mig-1g.10gb: 1}", "mig-1g.10gb: 1}\n    env: {A: $(LWS_LEADER_ADDRESS)}")],
        "8:14: warning[unknown-variable] serve[chat].env.A: `$(LWS_LEADER_ADDRESS)` stays as it is, because 'LWS_LEADER_ADDRESS' is no variable of the container; Kubernetes replaces it by a variable before it",
    ),
    (
        "a variable of NCCL in one pod, for which gpucluster sets none",
        [("mig-1g.10gb: 1}", "mig-1g.10gb: 1}\n    env: {B: $(NCCL_SOCKET_IFNAME)}")],
        "8:14: warning[unknown-variable] serve[chat].env.B: `$(NCCL_SOCKET_IFNAME)` stays as it is, because 'NCCL_SOCKET_IFNAME' is no variable of the container; Kubernetes replaces it by a variable before it",
    ),
    (
        "a variable that the controller of replicas of several nodes drops",
        [
            ("team: serving", "team: research"),
            (
                "{nvidia.com/mig-1g.10gb: 1}",
                "{nvidia.com/gpu: 8}\n    nodes: 2\n    env: {LWS_GROUP_SIZE: '3', A: $(LWS_WORKER_INDEX)}",
            ),
            ("{min: 2, max: 8}", "{min: 1, max: 2}"),
        ],
        "9:27: error[reserved-name] serve[chat].env.LWS_GROUP_SIZE: 'LWS_GROUP_SIZE' is set by the controller of the LeaderWorkerSet, which drops this one; use another name",
    ),
    (
        "a Secret of an image that is named twice",
        [("gpus_per_node: 8", "gpus_per_node: 8\n    pull_secrets: [registry, registry]")],
        "16:30: error[repeated] train[tune].pull_secrets[1]: the Secret 'registry' is named twice",
    ),
    (
        "a Secret of the image for NCCL that is named twice",
        [("serve:\n", "nccl_test: {team: research, image: x, pull_secrets: [a, a]}\nserve:\n")],
        "3:57: error[repeated] nccl_test.pull_secrets[1]: the Secret 'a' is named twice",
    ),
    (
        "a gang with the name of a test",
        [("name: tune", "name: nccl-test-tune")],
        "11:11: error[reserved-name] train[nccl-test-tune].name: names with 'nccl-test-' are of the jobs that test NCCL; take another name",
    ),
    (
        "replicas of several nodes above the quota",
        [
            ("team: serving", "team: research"),
            ("{nvidia.com/mig-1g.10gb: 1}", "{nvidia.com/gpu: 8}\n    nodes: 2"),
            ("{min: 2, max: 8}", "{min: 1, max: 3}"),
        ],
        "7:33: error[above-quota] serve[chat].resources.'nvidia.com/gpu': 3 replicas of 2 nodes take 48 of nvidia.com/gpu, the team has 32",
    ),
    (
        "replicas of several nodes without GPUs",
        [("{nvidia.com/mig-1g.10gb: 1}", "{nvidia.com/mig-1g.10gb: 1}\n    nodes: 2")],
        "8:12: error[nodes-without-gpus] serve[chat].nodes: a replica of 2 nodes needs nvidia.com/gpu; without it one pod can do its work",
    ),
    (
        "a command for workers that a replica lacks",
        [("    scale_on:", "    worker_command: [run]\n    scale_on:")],
        "9:21: error[no-workers] serve[chat].worker_command: a replica has one pod, so there is no other; write `nodes`",
    ),
    (
        "a gang with the name of a service's group",
        [
            ("team: serving", "team: research"),
            ("{nvidia.com/mig-1g.10gb: 1}", "{nvidia.com/gpu: 8}\n    nodes: 2"),
            ("{min: 2, max: 8}", "{min: 1, max: 2}"),
            ("name: tune", "name: chat-group"),
        ],
        "12:11: error[duplicate-name] train[chat-group].name: 'chat-group' is already the name of serve[0]",
    ),
    (
        "shared memory that leaves none to the program",
        [("gpus_per_node: 8", "gpus_per_node: 8\n    shm: 1046Gi")],
        "16:10: error[shm-above-memory] train[tune].shm: shared memory counts as memory of the pod, and the pod has 1063224Mi; leave some to the program",
    ),
    (
        "shared memory of a replica above its own",
        [
            (
                "resources: {nvidia.com/mig-1g.10gb: 1}",
                "resources: {nvidia.com/mig-1g.10gb: 1, memory: 16Gi}\n    shm: 16Gi",
            )
        ],
        "8:10: error[shm-above-memory] serve[chat].shm: shared memory counts as memory of the pod, and the pod has 16Gi; leave some to the program",
    ),
    (
        "shared memory in bytes",
        [("gpus_per_node: 8", "gpus_per_node: 8\n    shm: 16")],
        "16:10: error[bad-amount] train[tune].shm: memory is counted in MiB or more, such as 16Gi",
    ),
    (
        "a checkpoint on a file system that pods do not mount",
        [("gpus_per_node: 8", "gpus_per_node: 8\n    checkpoint: {mount: /scratch, takes: 5m}")],
        "16:25: error[unknown-mount] train[tune].checkpoint.mount: '/scratch' is no file system of the pods; pods mount /data",
    ),
    (
        "a checkpoint and its variable",
        [
            (
                "gpus_per_node: 8",
                "gpus_per_node: 8\n    checkpoint: {mount: /data, takes: 5m}\n    env: {CHECKPOINT_DIR: x}",
            )
        ],
        "16:17: error[reserved-name] train[tune].checkpoint: 'CHECKPOINT_DIR' is set by gpucluster for the checkpoint; use another name",
    ),
    (
        "a checkpoint without an end",
        [("gpus_per_node: 8", "gpus_per_node: 8\n    checkpoint: {mount: /data, takes: 1d}")],
        "16:39: error[out-of-range] train[tune].checkpoint.takes: 1d is not between 1s and 6h",
    ),
    (
        "a signal that is none",
        [("gpus_per_node: 8", "gpus_per_node: 8\n    checkpoint: {mount: /data, takes: 5m, signal: KILL}")],
        "16:51: error[bad-signal] train[tune].checkpoint.signal: 'KILL' is not a signal for a batch script; one of USR1, USR2, TERM, INT, HUP",
    ),
    (
        "a service account that the team lacks",
        [("team: serving", "team: serving\n    service_account: reader")],
        "6:22: error[unknown-service-account] serve[chat].service_account: 'reader' is not a service account of the team 'serving'; it has none",
    ),
    (
        "a priority that the cluster lacks",
        [("team: serving", "team: serving\n    priority: urgent")],
        "6:15: error[unknown-priority] serve[chat].priority: 'urgent' is not a priority of the cluster; there are service, gang",
    ),
    (
        "an unknown team",
        [("team: serving", "team: servin")],
        "5:11: error[unknown-team] serve[chat].team: 'servin' is not a team of the cluster; did you mean 'serving'?",
    ),
    (
        "another cluster",
        [("cluster: kube", "cluster: cube")],
        "2:10: error[unknown-cluster] cluster: stacks/cube.yaml has the name 'kube'",
    ),
    (
        "nothing that runs",
        [("serve:\n", "x-unused: &x\n"), ("train:\n", "x-more: &y\n")],
        "1:1: error[missing-key] 'serve' or 'train' is missing: the workloads",
    ),
    (
        "a service and a gang of one name in one team",
        [
            ("name: tune", "name: chat"),
            ("team: serving", "team: research"),
            ("nvidia.com/mig-1g.10gb: 1", "nvidia.com/gpu: 1"),
        ],
        "11:11: error[duplicate-name] train[chat].name: 'chat' is already the name of serve[0]",
    ),
    (
        "min above max",
        [("min: 2", "min: 9")],
        "8:21: error[min-above-max] serve[chat].replicas.min: min 9 is above max 8",
    ),
    (
        "replicas that nothing scales",
        [("    scale_on: {queue_depth: 10}\n", "")],
        "8:15: error[never-scaled] serve[chat].replicas: 'scale_on' is missing: the reason to scale between min and max, such as `scale_on: {queue_depth: 10}`",
    ),
    (
        "an image that is none",
        [("registry.example.org/chat:1.4", "'registry.example.org/Chat: 1.4'")],
        "6:12: error[bad-image] serve[chat].image: 'registry.example.org/Chat: 1.4' is not an image such as registry.example.org/team/name:1.4",
    ),
    (
        "a port of the system",
        [("image: registry.example.org/chat:1.4", "image: chat\n    port: 80")],
        "7:11: error[bad-port] serve[chat].port: '80' is not a port from 1024 to 65535",
    ),
    (
        "an unknown resource",
        [("mig-1g.10gb: 1", "mig-1g.11gb: 1")],
        "7:41: error[unknown-resource] serve[chat].resources.'nvidia.com/mig-1g.11gb': no pool offers 'nvidia.com/mig-1g.11gb'; did you mean 'nvidia.com/mig-1g.10gb'?",
    ),
    (
        "a bad quantity",
        [("mig-1g.10gb: 1", "mig-1g.10gb: 1, memory: 16 GB")],
        "7:52: error[bad-quantity] serve[chat].resources.memory: '16 GB' is not a quantity such as 4, 500m or 16Gi",
    ),
    (
        "memory in bytes",
        [("mig-1g.10gb: 1", "mig-1g.10gb: 1, memory: 16")],
        "7:52: error[bad-amount] serve[chat].resources.memory: memory is counted in MiB or more, such as 16Gi",
    ),
    (
        "none of a resource",
        [("mig-1g.10gb: 1", "mig-1g.10gb: 0")],
        "7:41: error[bad-amount] serve[chat].resources.'nvidia.com/mig-1g.10gb': 0 is not an amount; remove this key",
    ),
    (
        "resources without any, which the schema refused and check let pass",
        [("{nvidia.com/mig-1g.10gb: 1}", "{}")],
        "7:16: error[empty-mapping] serve[chat].resources: the mapping is empty; it needs at least one key",
    ),
    (
        "GPUs and slices",
        [("mig-1g.10gb: 1", "mig-1g.10gb: 1, nvidia.com/gpu: 1")],
        "7:16: error[two-accelerators] serve[chat].resources: a replica can have one kind of GPU or slice, found two",
    ),
    (
        "a replica larger than a node",
        [
            ("mig-1g.10gb: 1", "mig-1g.10gb: 57"),
            ("{min: 2, max: 8}", "{min: 1, max: 1}"),
            ("    scale_on: {queue_depth: 10}\n", ""),
        ],
        "7:16: error[no-room] serve[chat].resources: one replica fits on no node of the team's pools",
    ),
    (
        "a team without a quota of GPUs",
        [("team: research", "team: serving")],
        "12:11: error[no-gpus] train[tune].team: the team 'serving' has no quota of nvidia.com/gpu",
    ),
    (
        "a gang above its team's quota",
        [("nodes: 4", "nodes: 5")],
        "14:12: error[above-quota] train[tune].nodes: 5 x 8 = 40 GPUs, the team has 32",
    ),
    (
        "GPUs that do not divide a node's",
        [("gpus_per_node: 8", "gpus_per_node: 3")],
        "15:20: error[gpus-per-node] train[tune].gpus_per_node: 3 does not divide the 8 GPUs of a node",
    ),
    (
        "more GPUs than a node has",
        [("gpus_per_node: 8", "gpus_per_node: 16")],
        "15:20: error[gpus-per-node] train[tune].gpus_per_node: 16 does not divide the 8 GPUs of a node",
    ),
    (
        "a level that the topology lacks",
        [("required: block", "required: rack")],
        "16:26: error[unknown-level] train[tune].topology.required: 'rack' is not a level of the topology; there are zone, spine, block, leaf",
    ),
    (
        "a place that is required and preferred",
        [("required: block", "required: block, preferred: leaf")],
        "16:15: error[topology] train[tune].topology: write exactly one of 'required' and 'preferred'",
    ),
    (
        "a framework of a later release",
        [("gpus_per_node: 8", "gpus_per_node: 8\n    framework: jax")],
        "16:16: error[not-supported] train[tune].framework: 'jax' is not supported yet; supported: torch",
    ),
    (
        "a framework that is none",
        [("gpus_per_node: 8", "gpus_per_node: 8\n    framework: tourch")],
        "16:16: error[bad-choice] train[tune].framework: 'tourch' is none of torch",
    ),
    (
        "a literal token in a variable",
        [("gpus_per_node: 8", "gpus_per_node: 8\n    env: {HF_TOKEN: abcdefgh1234}")],
        "16:21: error[literal-secret] train[tune].env.HF_TOKEN: the value of 'HF_TOKEN' looks like a secret, and everybody who reads the file or the pod sees it; write `secrets: {HF_TOKEN: {name: SECRET, key: KEY}}`",
    ),
    (
        "a literal access key in a variable of any name",
        [("gpus_per_node: 8", "gpus_per_node: 8\n    env: {ID: AKIAABCDEFGHIJKLMNOP}")],
        "16:15: error[literal-secret] train[tune].env.ID: the value of 'ID' looks like a secret, and everybody who reads the file or the pod sees it; write `secrets: {ID: {name: SECRET, key: KEY}}`",
    ),
    (
        "a literal token in an argument",
        [("gpus_per_node: 8", "gpus_per_node: 8\n    args: [--token=hf_abcdefghijklmnopqrstuvwx]")],
        "16:12: error[literal-secret] train[tune].args[0]: this looks like a secret, and everybody who reads the file or the pod sees it; give it as a variable by `secrets`",
    ),
    (
        "a variable with a value and a secret",
        [("gpus_per_node: 8", "gpus_per_node: 8\n    env: {A: x}\n    secrets: {A: {name: s, key: k}}")],
        "17:18: error[duplicate-name] train[tune].secrets.A: 'A' is already in 'env'",
    ),
    (
        "a secret variable that is ours",
        [("gpus_per_node: 8", "gpus_per_node: 8\n    secrets: {MASTER_ADDR: {name: s, key: k}}")],
        "16:28: error[reserved-name] train[tune].secrets.MASTER_ADDR: 'MASTER_ADDR' is set by gpucluster for the gang; use another name",
    ),
    (
        "a Secret whose name is none",
        [("gpus_per_node: 8", "gpus_per_node: 8\n    secrets: {A: {name: S_, key: k}}")],
        "16:25: error[bad-name] train[tune].secrets.A.name: 'S_' is not the name of an object: use a-z, 0-9, '-' and '.'",
    ),
    (
        "a key of a Secret that begins with two dots",
        [("gpus_per_node: 8", "gpus_per_node: 8\n    secrets: {A: {name: s, key: ..data}}")],
        "16:33: error[bad-key] train[tune].secrets.A.key: '..data' is not a key of a Secret: use A-Z, a-z, 0-9, '-', '_' and '.', and no '..' at the beginning",
    ),
    (
        "a variable that is ours",
        [("gpus_per_node: 8", "gpus_per_node: 8\n    env: {MASTER_ADDR: x}")],
        "16:24: error[reserved-name] train[tune].env.MASTER_ADDR: 'MASTER_ADDR' is set by gpucluster for the gang; use another name",
    ),
    (
        "a variable that is none",
        [("gpus_per_node: 8", 'gpus_per_node: 8\n    env: {"A-B": x}')],
        "16:11: error[bad-variable] train[tune].env.'A-B': 'A-B' is not a variable's name: use A-Z, a-z, 0-9 and '_'",
    ),
    (
        "a control character in a variable",
        [("gpus_per_node: 8", 'gpus_per_node: 8\n    env: {A: "\\e[2J"}')],
        "16:14: error[bad-text] train[tune].env.A: '\\x1b[2J' has control characters, or is longer than 4096",
    ),
    (
        "a key of the cluster's",
        [("cluster: kube", "cluster: kube\nbudget: 1")],
        "3:1: error[unknown-key] budget: unknown key 'budget'; known here are schema, cluster, serve, train, nccl_test",
    ),
]
