"""Each error of the spec by an example: its place and its exact text."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.account_rows import ACCOUNT_ROWS, ON_AWS_ROWS, SITE
from support.aws_rows import AWS_ROWS
from support.builders import SPEC, a_lab_text, a_spec_text, changed
from support.capacity_rows import CAPACITY_ROWS, PRICED
from support.host_rows import GOOD_KEY, HOST_ROWS
from support.kube_rows import CLUSTER_ROWS, WORKLOAD_ROWS
from support.reservation_rows import RESERVATION_ROWS, RESERVED

from gpucluster import catalog, spec
from gpucluster.spec import Level, inspect, inspect_text

Change = tuple[str, str]
HEAD_STATE = ("{id: head-state, because: it lives as long as a test}, ", "")
NAME_ROW = (
    "error[name-not-file] name: 'burst' is not the name of the file: write `name: other`, or name the file burst.yaml;"
    " `pulumi up -s NAME` reads stacks/NAME.yaml"
)
NAME_RULE = "use a-z, 0-9 and '-', beginning with a letter, not ending with '-', at most 24 characters"

# sentence, changes to the spec, the one problem that they make
WITHOUT_SUPPORT = (
    ", {id: slurm-support, because: it has facts of its own, until: 2099-12-31}",
    "",
)  # of `accept`
ROWS: list[tuple[str, list[Change], str]] = [
    (
        "a name that YAML reads as a number",
        [("name: burst", "name: 7")],
        "2:7: error[bad-type] name: expected text, found 7; quote it if it is meant as text",
    ),
    (
        "a date is text, but not a name",
        [("name: burst", "name: 2026-11-21")],
        f"2:7: error[bad-name] name: '2026-11-21' is not a name: {NAME_RULE}",
    ),
    (
        "a list where text belongs",
        [("region: us-east-2", "region: [us-east-2]")],
        "4:11: error[bad-type] aws.region: expected text, found a list",
    ),
    (
        "text where a list belongs",
        [("pools: [h200]", "pools: h200")],
        "20:24: error[bad-type] partitions[gpu].pools: expected a list, found 'h200'",
    ),
    (
        "text where a mapping belongs",
        [("{min: 0, max: 16}", "many")],
        "14:12: error[bad-type] pools[h200].nodes: expected a whole number or a mapping with min, max; found 'many'",
    ),
    (
        "yes is text in YAML 1.2",
        [("default: true", "default: yes")],
        "20:41: error[bad-type] partitions[gpu].default: expected true or false, found 'yes'; write true",
    ),
    (
        "a word where a number belongs",
        [("max: 4", "max: four")],
        "18:59: error[bad-type] pools[h200].capacity[1].max: expected a whole number, found 'four'",
    ),
    (
        "a key without a value",
        [("    idle: 5m", "    idle:")],
        "15:5: error[bad-type] pools[h200].idle: expected text, found nothing",
    ),
    (
        "a key that is missing",
        [("name: burst\n", "")],
        "1:1: error[missing-key] 'name' is missing: name of the cluster. It is part of every name and tag; write `name: burst`",
    ),
    (
        "a key that is missing in an item",
        [("    nodes: {min: 0, max: 16}\n", "")],
        "13:5: error[missing-key] pools[h200]: 'nodes' is missing: the number of nodes; write `nodes: {min: 0, max: 4}`",
    ),
    (
        "a list without items",
        [("pools: [h200]", "pools: []")],
        "20:24: error[empty-list] partitions[gpu].pools: the list is empty; it needs at least one item",
    ),
    (
        "a feature with a sign of a constraint",
        [("    idle: 5m", "    features: ['GPU_MEM:80GB', 'a&b']\n    idle: 5m")],
        "15:32: error[bad-name] pools[h200].features[1]: 'a&b' is not a feature: A-Z, a-z, 0-9 and '._:+@/=-', beginning with a letter, digit or '_', at most 64 characters",
    ),
    (
        "the name of a licence with its count",
        [("slurm:\n", "slurm:\n  licenses: {'matlab:4': 1}\n")],
        "9:14: error[bad-name] slurm.licenses.'matlab:4': 'matlab:4' is not the name of a licence: A-Z, a-z, 0-9 and '._+@-', beginning with a letter, digit or '_', at most 64 characters",
    ),
    (
        "the name of a QOS in capitals",
        [
            ("slurm:\n", "slurm:\n  accounting: {database: local}\n"),
            ("name: burst\n", "name: burst\nqos: [{name: Gpu_Long}]\n"),
        ],
        "3:14: error[bad-name] qos[0].name: 'Gpu_Long' is not the name of a QOS: a-z, 0-9, '.', '_' and '-', at most 64 characters, ending with a letter or digit, beginning with a letter",
    ),
    (
        "a misspelt key",
        [("idle: 5m", "idel: 5m")],
        "15:5: error[unknown-key] pools[h200].idel: unknown key 'idel'; did you mean 'idle'?",
    ),
    (
        "a key near no other",
        [("idle: 5m", "idle: 5m\n    colour: red")],
        "16:5: error[unknown-key] pools[h200].colour: unknown key 'colour'; known here are name, runs, nodes, idle, boot_timeout, capacity, spares, termination, job_heartbeat, breaker, on_boot, image, placement, sharing, machine, hosts, addresses, features, extra, remove",
    ),
    (
        "a boot script that is not in S3",
        [("idle: 5m", f"idle: 5m\n    on_boot: [{{script: /opt/boot.sh, sha256: {'a' * 64}}}]")],
        "16:24: error[bad-s3] pools[h200].on_boot[0].script: '/opt/boot.sh' is not an object in S3, such as s3://example-site/boot.sh",
    ),
    (
        "a boot script that is a bucket",
        [("idle: 5m", f'idle: 5m\n    on_boot: [{{script: "s3://example-site/", sha256: {"a" * 64}}}]')],
        "16:24: error[bad-s3] pools[h200].on_boot[0].script: 's3://example-site/' is not an object in S3, such as s3://example-site/boot.sh",
    ),
    (
        "a short hash of a boot script",
        [("idle: 5m", 'idle: 5m\n    on_boot: [{script: "s3://example-site/boot.sh", sha256: 9f86d0}]')],
        "16:61: error[bad-sha256] pools[h200].on_boot[0].sha256: '9f86d0' is not a SHA-256, 64 characters 0-9 and a-f, as `sha256sum boot.sh` prints it",
    ),
    (
        "a boot script without a hash",
        [("idle: 5m", 'idle: 5m\n    on_boot: [{script: "s3://example-site/boot.sh"}]')],
        "16:15: error[missing-key] pools[h200].on_boot[0]: 'sha256' is missing: its SHA-256: `sha256sum boot.sh`",
    ),
    (
        "a container runtime that Slurm does not start",
        [('version: "24.11"', 'version: "24.11"\n  containers: docker')],
        "10:15: error[bad-containers] slurm.containers: 'docker' is not a container runtime for jobs; one of apptainer, pyxis",
    ),
    (
        "modules that no machine shares",
        [('version: "24.11"', 'version: "24.11"\n  software: {modules: /apps/modulefiles}')],
        "10:23: error[software-not-shared] slurm.software.modules: /apps/modulefiles is not on a mount of `storage` that all machines share; the spec has no shared mount",
    ),
    (
        "conda on the disks of each node",
        [
            ('version: "24.11"', 'version: "24.11"\n  software: {conda: /scratch/conda}'),
            (
                "pools:\n  - name",
                "storage: [{mount: /scratch, nvme: {}}, {mount: /sw, efs: {}}]\npools:\n  - name",
            ),
        ],
        "10:21: error[software-not-shared] slurm.software.conda: /scratch/conda is not on a mount of `storage` that all machines share; shared are /sw",
    ),
    (
        "containers of all users in one /tmp",
        [('version: "24.11"', 'version: "24.11"\n  containers: pyxis\n  private_tmp: false')],
        "10:15: error[containers-shared-tmp] slurm.containers: pyxis needs `private_tmp`: Enroot keeps the containers of a job in its /tmp, and all users share this one",
    ),
    (
        "a source that is none",
        [("from: spot", "from: ebay")],
        "17:16: error[bad-source] pools[h200].capacity[0].from: 'ebay' is not a source of machines; expected one of spot, on-demand, reservation, capacity-block",
    ),
    (
        "a name with a space and capitals",
        [("name: burst", "name: Burst Cluster")],
        f"2:7: error[bad-name] name: 'Burst Cluster' is not a name: {NAME_RULE}",
    ),
    (
        "a name that would end a line of slurm.conf",
        [("name: burst", 'name: "a\\nSlurmUser=root"')],
        f"2:7: error[bad-name] name: 'a\\nSlurmUser=root' is not a name: {NAME_RULE}",
    ),
    (
        "a name with a control character",
        [("name: burst", 'name: "a\\e[2J"')],
        f"2:7: error[bad-name] name: 'a\\x1b[2J' is not a name: {NAME_RULE}",
    ),
    (
        "a name that is too long for a host",
        [("name: burst", "name: aaaaaaaaaaaaaaaaaaaaaaaaa")],
        f"2:7: error[bad-name] name: 'aaaaaaaaaaaaaaaaaaaaaaaaa' is not a name: {NAME_RULE}",
    ),
    (
        "a partition called default",
        [("{name: gpu,", "{name: default,")],
        "20:12: error[reserved-name] partitions[default].name: 'default' means the defaults of all partitions to Slurm; take another name",
    ),
    (
        "a Slurm version without quotes",
        [('"24.11"', "24.10"), WITHOUT_SUPPORT],
        '9:12: error[unquoted-version] slurm.version: 24.10 without quotes is a number in YAML, 24.1; write it in quotes: "24.10"',
    ),
    (
        "a Slurm version without quotes that loses nothing by it",
        [('"24.11"', "24.11"), WITHOUT_SUPPORT],
        '9:12: error[unquoted-version] slurm.version: 24.11 without quotes is a number in YAML; write it in quotes: "24.11"',
    ),
    (
        "a Slurm version that is not built yet",
        [('"24.11"', '"25.05"'), WITHOUT_SUPPORT],
        "9:12: error[slurm-version] slurm.version: Slurm 25.05 is known but not supported yet; supported: 24.11, 26.05",
    ),
    (
        "a Slurm version that never was",
        [('"24.11"', '"9.1"'), WITHOUT_SUPPORT],
        "9:12: error[slurm-version] slurm.version: '9.1' is not a known Slurm release (22.05, 23.02, 23.11, 24.05, 24.11, 25.05, 25.11, 26.05); supported: 24.11, 26.05",
    ),
    (
        "a Slurm version that SchedMD no longer supports",
        [WITHOUT_SUPPORT],
        '9:12: warning[slurm-support] slurm.version: SchedMD\'s support of Slurm 24.11 ended in 2026-05: it gets no fixes, not even of security faults; "26.05" has support until 2027-11',
    ),
    (
        "a folder for the /tmp of jobs that is private to each job itself",
        [('"24.11"', '"24.11"\n  private_tmp: {path: /tmp/jobs}')],
        "10:23: error[private-tmp-path] slurm.private_tmp.path: /tmp/jobs cannot hold the /tmp of jobs: /tmp is private to each job, or belongs to the kernel or to packages; choose a folder such as /var/lib/gpucluster-tmp",
    ),
    (
        "a folder for the /tmp of jobs on a file system that all nodes share",
        [
            ('"24.11"', '"24.11"\n  private_tmp: {path: /data/tmp}'),
            ("pools:\n  - name", "storage:\n  - {mount: /data, efs: {}}\npools:\n  - name"),
        ],
        "10:23: error[private-tmp-shared] slurm.private_tmp.path: /data/tmp is on /data, which all nodes share: the /tmp of a job must be on the node's own disk",
    ),
    (
        "a schema from the future",
        [("schema: 1", "schema: 2")],
        "1:9: error[schema-version] schema: this gpucluster reads schema 1, found 2",
    ),
    (
        "a region with swapped letters",
        [("region: us-east-2", "region: us-esat-2")],
        "4:11: error[unknown-region] aws.region: 'us-esat-2' is not a known region; did you mean 'us-east-2'?",
    ),
    (
        "a zone of another region",
        [("us-east-2b]", "us-west-2b]")],
        "7:25: error[zone-not-in-region] aws.network.zones[1]: 'us-west-2b' is not a zone of us-east-2 (us-east-2a to us-east-2c)",
    ),
    (
        "a zone twice",
        [("us-east-2b]", "us-east-2a]")],
        "7:25: error[repeated] aws.network.zones[1]: the zone 'us-east-2a' is named twice",
    ),
    (
        "a machine twice",
        [("[p5en.48xlarge, p5e.48xlarge]", "[p5en.48xlarge, p5en.48xlarge]")],
        "17:48: error[repeated] pools[h200].capacity[0].machines[1]: the machine 'p5en.48xlarge' is named twice",
    ),
    (
        "a network that is none",
        [("10.42.0.0/16", "ten")],
        "6:11: error[bad-cidr] aws.network.cidr: 'ten' is not an IPv4 network such as 10.42.0.0/16",
    ),
    (
        "a network with host bits",
        [("10.42.0.0/16", "10.42.0.1/16")],
        "6:11: error[bad-cidr] aws.network.cidr: '10.42.0.1/16' is not written as a network; did you mean '10.42.0.0/16'?",
    ),
    (
        "a network of the internet",
        [("10.42.0.0/16", "8.8.0.0/16")],
        "6:11: error[cidr-not-private] aws.network.cidr: '8.8.0.0/16' is not inside 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16",
    ),
    (
        "a network larger than a VPC",
        [("10.42.0.0/16", "10.0.0.0/8")],
        "6:11: error[cidr-size] aws.network.cidr: '10.0.0.0/8' is too large: AWS takes no larger VPC than a /16; write 10.0.0.0/16",
    ),
    (
        "a network that cannot be cut in eight",
        [("10.42.0.0/16", "10.42.0.0/26")],
        "6:11: error[cidr-size] aws.network.cidr: '10.42.0.0/26' must be a /16 to a /25: it is cut in eight, and AWS's least subnet is a /28",
    ),
    (
        "a network without room for the nodes",
        [("10.42.0.0/16", "10.42.0.0/25")],
        "6:11: error[network-too-small] aws.network.cidr: us-east-2a gets 10.42.0.0/28, with room for 10 nodes, and the pools need up to 16 there",
    ),
    (
        "a machine that nobody sells",
        [("machines: [p5en.48xlarge], max", "machines: [p5en.49xlarge], max")],
        "18:38: error[unknown-machine] pools[h200].capacity[1].machines[0]: 'p5en.49xlarge' is not in the catalog; did you mean 'p5en.48xlarge'?",
    ),
    (
        "a head machine that nobody sells",
        [("m7i.2xlarge", "m7i.2xlrage")],
        "11:12: error[unknown-machine] head.machine: 'm7i.2xlrage' is not in the catalog; did you mean 'm7i.2xlarge'?",
    ),
    (
        "a head that its region does not sell, which no other machine stands in for",
        [
            ("m7i.2xlarge", "m7a.2xlarge"),
            ("region: us-east-2", "region: us-west-1"),
            ("us-east-2a, us-east-2b", "us-west-1a"),
            ("p5en.48xlarge, p5e.48xlarge", "p5en.48xlarge"),
        ],
        "11:12: warning[machine-not-sold] head.machine: the catalog of 2026-11-21 has no zone of us-west-1 that offers 'm7a.2xlarge'; if that is still true, it cannot be launched",
    ),
    (
        "a head with GPUs",
        [("m7i.2xlarge", "p5.48xlarge")],
        "11:12: warning[head-with-gpu] head.machine: 'p5.48xlarge' has 8 GPUs, which no job uses on the head",
    ),
    (
        "an odd machine in a pool",
        [("machines: [p5en.48xlarge], max", "machines: [p4d.24xlarge], max")],
        "18:38: error[machines-differ] pools[h200].capacity[1].machines[0]: 'p4d.24xlarge' has 8 x a100 of 40960 MiB (x86_64), the others of the pool have 8 x h200 of 144384 MiB (x86_64); all nodes of a pool are equal",
    ),
    (
        "a machine without GPU among others",
        [("[p5en.48xlarge, p5e.48xlarge]", "[p5en.48xlarge, m7i.xlarge]")],
        "17:48: error[machines-differ] pools[h200].capacity[0].machines[1]: 'm7i.xlarge' has no GPU (x86_64), the others of the pool have 8 x h200 of 144384 MiB (x86_64); all nodes of a pool are equal",
    ),
    (
        "min above max",
        [("min: 0", "min: 17")],
        "14:18: error[min-above-max] pools[h200].nodes.min: min 17 is above max 16",
    ),
    (
        "a limit of drains without a unit that is known",
        [("partitions:\n", "health: {at_most: some}\npartitions:\n")],
        "19:19: error[bad-limit] health.at_most: 'some' is no limit; write a number of nodes, such as 2, or a share of the pool, such as 10%",
    ),
    (
        "checks more often than they take",
        [("partitions:\n", "health: {every: 30s}\npartitions:\n")],
        "19:17: error[out-of-range] health.every: 30s is not between 1m and 65535s",
    ),
    (
        "a default time above the limit",
        [("max_time: 1d", "max_time: 1d, default_time: 2d")],
        "20:75: error[default-time] partitions[gpu].default_time: 2d is above max_time 1d: slurmctld would set the shorter one for each job; set it at most to max_time",
    ),
    (
        "a partition that refuses all jobs of a pool",
        [
            (
                "partitions:\n",
                "  - {name: cpu, nodes: {min: 0, max: 4}, capacity: [{from: on-demand, machines: [m7i.2xlarge]}]}\npartitions:\n",
            ),
            ("pools: [h200]", "pools: [h200, cpu], requires_gpus: true"),
        ],
        "21:52: error[requires-gpus] partitions[gpu].requires_gpus: the pool 'cpu' has no GPUs: the partition would refuse every job that can run on it; remove the pool, or this key",
    ),
    (
        "less than a core",
        [("max_time: 1d", "max_time: 1d, max_cpus_per_node: 1")],
        "20:80: error[max-cpus-per-node] partitions[gpu].max_cpus_per_node: 1 is less than a core (2 CPUs), and a job gets whole cores: no job would start; write at least 2",
    ),
    (
        "a limit that makes jobs launch more machines",
        [("max_time: 1d", "max_time: 1d, max_cpus_per_node: 190")],
        "20:80: warning[cpu-limit-cost] partitions[gpu].max_cpus_per_node: nodes of the elastic pool 'h200' have 192 CPUs and 8 GPUs each: a node takes 190 CPUs of these jobs, and each 190 CPUs more launch another one; take a pool without GPUs, or one with a fixed number of nodes, or accept the cost",
    ),
    (
        "a limit that limits nothing",
        [("max_time: 1d", "max_time: 1d, max_cpus_per_node: 192")],
        "20:80: warning[no-cpu-limit] partitions[gpu].max_cpus_per_node: 192 limits nothing: a node has at most 192 CPUs; write less, or remove this key",
    ),
    (
        "a source above its pool",
        [("max: 4", "max: 40")],
        "18:59: error[max-above-pool] pools[h200].capacity[1].max: max 40 of a source is above the pool's max 16",
    ),
    (
        "a source in a zone without subnet",
        [("max: 4", "max: 4, zones: [us-east-2c]")],
        "18:70: error[zone-not-in-network] pools[h200].capacity[1].zones[0]: 'us-east-2c' is not one of the network's zones (us-east-2a, us-east-2b)",
    ),
    (
        "a time without unit",
        [("idle: 5m", "idle: 300")],
        "15:11: error[no-unit] pools[h200].idle: 300 has no unit; write 30s, 5m, 2h or 7d",
    ),
    (
        "a time in words",
        [("idle: 5m", "idle: 5 minutes")],
        "15:11: error[bad-duration] pools[h200].idle: '5 minutes' is not a time; write 30s, 5m, 2h or 7d",
    ),
    (
        "a time that no idle node should wait",
        [("idle: 5m", "idle: 90d")],
        "15:11: error[out-of-range] pools[h200].idle: 90d is not between 1s and 30d",
    ),
    (
        "a pool of no nodes",
        [("{min: 0, max: 16}", "0")],
        "14:12: error[out-of-range] pools[h200].nodes: 0 is not between 1 and 10000",
    ),
    (
        "an unknown pool",
        [("  - {name: gpu, pools: [h200]", "  - {name: all, pools: [h200]}\n  - {name: gpu, pools: [h100]")],
        "21:25: error[unknown-pool] partitions[gpu].pools[0]: 'h100' is not a pool; did you mean 'h200'?",
    ),
    (
        "an unknown pool near no other",
        [("  - {name: gpu, pools: [h200]", "  - {name: all, pools: [h200]}\n  - {name: gpu, pools: [abc]")],
        "21:25: error[unknown-pool] partitions[gpu].pools[0]: 'abc' is not a pool; there are h200",
    ),
    (
        "a pool without partition",
        [
            (
                "partitions:",
                "  - {name: b, nodes: 2, capacity: [{from: spot, machines: [p5.48xlarge]}]}\npartitions:",
            )
        ],
        "19:12: error[unused-pool] pools[b].name: no partition uses the pool 'b', so no job can run on it",
    ),
    (
        "two partitions of one name",
        [("max_time: 1d}", "max_time: 1d}\n  - {name: gpu, pools: [h200]}")],
        "21:12: error[duplicate-name] partitions[gpu].name: 'gpu' is already the name of partitions[0]",
    ),
    (
        "two default partitions",
        [("max_time: 1d}", "max_time: 1d}\n  - {name: b, pools: [h200], default: true}")],
        "21:39: error[two-defaults] partitions[b].default: a cluster has at most one default partition, and partitions[0] is it already",
    ),
    (
        "a machine that the region does not sell",
        [
            ("region: us-east-2", "region: us-west-1"),
            ("us-east-2a, us-east-2b", "us-west-1a"),
            ("p5en.48xlarge, p5e.48xlarge", "p5en.48xlarge, p5e.48xlarge"),
        ],
        "17:48: warning[machine-not-sold] pools[h200].capacity[0].machines[1]: the catalog of 2026-11-21 has no zone of us-west-1 that offers 'p5e.48xlarge'; if that is still true, launches skip it",
    ),
    (
        "a pool of one machine alone, which the region does not sell",
        [
            ("region: us-east-2", "region: us-west-1"),
            ("us-east-2a, us-east-2b", "us-west-1a"),
            ("p5en.48xlarge, p5e.48xlarge", "p5e.48xlarge"),
            ("      - {from: on-demand, machines: [p5en.48xlarge], max: 4}\n", ""),
        ],
        "17:33: warning[machine-not-sold] pools[h200].capacity[0].machines[0]: the catalog of 2026-11-21 has no zone of us-west-1 that offers 'p5e.48xlarge'; if that is still true, the pool never gets a node",
    ),
    (
        "a machine sold in fewer zones than wished",
        [
            ("region: us-east-2", "region: us-west-2"),
            ("us-east-2a, us-east-2b", "us-west-2a, us-west-2b"),
            ("p5en.48xlarge, p5e.48xlarge", "p5e.48xlarge"),
        ],
        "17:33: warning[machine-not-sold] pools[h200].capacity[0].machines[0]: 'p5e.48xlarge' is offered in 1 zone of us-west-2, fewer than the 2 here (catalog of 2026-11-21); other zones skip it",
    ),
    (
        "the same key twice",
        [("idle: 5m", "idle: 5m\n    idle: 6m")],
        "16:5: error[duplicate-key] 'idle' is already given on line 15",
    ),
    ("a tag", [("name: burst", "name: !x burst")], "2:7: error[tag] the tag '!x' is not allowed"),
    (
        "a Python tag on a list",
        [("pools: [h200]", "pools: !!python/object:os.system [h200]")],
        "20:24: error[tag] the tag 'tag:yaml.org,2002:python/object:os.system' is not allowed",
    ),
    (
        "a key that is a number",
        [("idle: 5m", "idle: 5m\n    5: 5m")],
        "16:5: error[bad-key] a key is text, found '5'",
    ),
    (
        "a merge of a number",
        [("idle: 5m", "idle: 5m\n    <<: 5")],
        "16:9: error[bad-merge] `<<` takes a mapping or a list of mappings",
    ),
    (
        "a broken list",
        [("pools: [h200]", "pools: [h200")],
        "20:58: error[yaml] expected ',' or ']', but got '}', while parsing a flow sequence that begins on line 20",
    ),
    (
        "a tab as indent",
        [("    idle: 5m", "\tidle: 5m")],
        "15:1: error[yaml] a tab: YAML allows only spaces for indentation; replace it",
    ),
    (
        "an alias to nothing",
        [("name: burst", "name: *nope")],
        "2:7: error[yaml] found undefined alias 'nope'",
    ),
    ("an empty file", [(SPEC, "")], "1:1: error[yaml] the file is empty"),
    ("a file of comments", [(SPEC, "# later\n")], "1:1: error[yaml] the file is empty"),
    (
        "an unclosed mapping",
        [("nodes: {min: 0, max: 16}", "nodes: {min: 0, max: 16")],
        "15:9: error[yaml] expected ',' or '}', but got ':', while parsing a flow mapping that begins on line 14",
    ),
    (
        "a range of an address that is larger than a VPC",
        [("10.42.0.0/16", "10.50.0.0/8")],
        "6:11: error[cidr-size] aws.network.cidr: '10.50.0.0/8' is too large: AWS takes no larger VPC than a /16; write 10.50.0.0/16",
    ),
    (
        "a region that is similar to several",
        [("region: us-east-2", "region: us-east-9")],
        "4:11: error[unknown-region] aws.region: 'us-east-9' is not a known region; similar are us-east-1, us-east-2, us-west-2",
    ),
    (
        "an unknown region and a budget",
        [("region: us-east-2", "region: us-esat-2"), ("accept:", "budget: {monthly: 900 USD}\naccept:")],
        "4:11: error[unknown-region] aws.region: 'us-esat-2' is not a known region; did you mean 'us-east-2'?",
    ),
    (
        "a time of Slurm",
        [("max_time: 1d", "max_time: 1-00:00:00")],
        "20:57: error[bad-duration] partitions[gpu].max_time: '1-00:00:00' is not a time; write 30s, 5m, 2h or 7d; Slurm's 1-00:00:00 is 1d here",
    ),
    (
        "a time of Slurm without days",
        [("max_time: 1d", 'max_time: "01:30:00"')],
        "20:57: error[bad-duration] partitions[gpu].max_time: '01:30:00' is not a time; write 30s, 5m, 2h or 7d; Slurm's 01:30:00 is 90m here",
    ),
    (
        "a size in decimal units",
        [("machine: m7i.2xlarge", "machine: m7i.2xlarge\n  state: 100GB"), HEAD_STATE],
        "12:10: error[bad-size] head.state: '100GB' is not a size; write 512MiB, 2000GiB or 2TiB; did you mean 100GiB?",
    ),
    (
        "a pool of the name of another, and a partition with the name that is left",
        [
            (
                "partitions:",
                "  - {name: h200, nodes: 2, capacity: [{from: spot, machines: [p5.48xlarge]}]}\npartitions:",
            ),
            ("pools: [h200]", "pools: [h200, h100]"),
        ],
        "19:12: error[duplicate-name] pools[h200].name: 'h200' is already the name of pools[0]",
    ),
    (
        "no partition",
        [("partitions:\n  - {name: gpu, pools: [h200], default: true, max_time: 1d}\n", "")],
        "1:1: error[missing-key] 'partitions' is missing: Slurm's queues; write `partitions: [{name: gpu, pools: [h100], default: true}]`",
    ),
    (
        "a pool with the name of a GPU and no GPU",
        [
            ("[p5en.48xlarge, p5e.48xlarge]", "[m7i.4xlarge]"),
            ("[p5en.48xlarge], max", "[m7i.4xlarge], max"),
        ],
        "13:11: advice[pool-without-gpu] pools[h200].name: the pool has the name of a GPU, and 'm7i.4xlarge' has no GPU",
    ),
    (
        "a character that YAML does not allow",
        [("name: burst", "name: bu\x07rst")],
        "2:9: error[yaml] the character '\\x07' is not allowed in YAML",
    ),
    ("YAML 1.1", [("schema: 1", "%YAML 1.1\n---\nschema: 1")], "2:1: error[yaml] a spec is YAML 1.2"),
    (
        "two documents",
        [("schema: 1", "a: 1\n---\nschema: 1")],
        "1:1: error[yaml] a spec is one YAML document, found 2",
    ),
    (
        "an acceptance until a day that no month has",
        [("until: 2099-12-31", "until: 2099-02-30")],
        "21:171: error[bad-date] accept[2].until: '2099-02-30' is not a date such as 2027-05-31",
    ),
    (
        "an acceptance until a day in another form",
        [("until: 2099-12-31", "until: 31.12.2099")],
        "21:171: error[bad-date] accept[2].until: '31.12.2099' is not a date such as 2027-05-31",
    ),
    (
        "an acceptance of a warning about security without an end",
        [(", until: 2099-12-31", "")],
        "21:110: warning[accept-without-end] accept[2]: 'slurm-support' is about security, so its acceptance needs an end: write `until: YYYY-MM-DD`, the last day of it",
    ),
    (
        "a reason for an acceptance that is false on AWS",
        [("because: it has facts of its own", "because: Debian mends it")],
        "21:139: error[reason-untrue] accept[2].because: on AWS `gpucluster image build` installs SchedMD's own release of Slurm 24.11, and no distribution mends it: write a reason that names no distribution",
    ),
    (
        "a list too deep",
        [("name: burst", "name: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]")],
        "2:30: error[too-large] a spec is at most 24 levels deep",
    ),
]


@pytest.mark.parametrize(("changes", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_error_has_place_and_reason(changes: list[Change], expected: str) -> None:
    report = inspect_text(a_spec_text(*changes), "spec.yaml", catalog.load())
    assert [str(problem).splitlines()[0] for problem in report.problems] == [f"spec.yaml:{expected}"]
    assert (report.spec is None) == ("error[" in expected)


def test_supported_version_has_no_finding() -> None:
    report = inspect_text(a_spec_text(('"24.11"', '"26.05"'), WITHOUT_SUPPORT), "spec.yaml", catalog.load())
    assert report.problems == ()


@pytest.mark.parametrize(("written", "found"), [("2026-05-31", ()), ("2026-06-01", ("slurm-support",))])
def test_support_ends_with_its_last_month(written: str, found: tuple[str, ...]) -> None:
    """The end of Slurm 24.11 is 2026-05. The day counts on which the list of releases was read."""
    known = replace(catalog.load(), slurm_date=written)
    report = inspect_text(a_spec_text(WITHOUT_SUPPORT), "spec.yaml", known)
    assert tuple(problem.id for problem in report.problems) == found


# Each is the one item of `storage`; what only disappoints is said beside it.
STORAGE_ROWS: list[tuple[str, str, str]] = [
    (
        "no kind",
        "{mount: /d}",
        "error[storage-kind] storage[0]: write exactly one of nfs, efs, fsx_lustre, nvme, other",
    ),
    ("two servers", "{mount: /d, nfs: {from: head, server: 192.0.2.1, export: /d}}", "error[nfs-source]"),
    (
        "a strange exporter",
        "{mount: /d, nfs: {from: login, export: /d}}",
        "error[nfs-source] storage[0].nfs.from",
    ),
    (
        "a size that is not sold",
        "{mount: /d, fsx_lustre: {zone: us-east-2a, size: 1300GiB}}",
        "error[lustre-size]",
    ),
    ("a size without a unit", "{mount: /d, fsx_lustre: {zone: us-east-2a, size: 1200}}", "error[no-unit]"),
    (
        "no size",
        "{mount: /d, fsx_lustre: {zone: us-east-2a, size: big}}",
        "error[bad-size] storage[0].fsx_lustre.size",
    ),
    (
        "a zone elsewhere",
        "{mount: /d, fsx_lustre: {zone: us-east-2c, size: 1200GiB}}",
        "error[zone-not-in-network]",
    ),
    (
        "a path upwards",
        "{mount: /d/../etc, nfs: {from: head, export: /d, size: 9GiB}}",
        "error[bad-path] storage[0].mount",
    ),
    ("a name for an address", "{mount: /d, nfs: {server: nas, export: /d}}", "error[bad-address]"),
    ("a blank in a word", "{mount: /d, other: {type: beegfs, source: 'a b'}}", "error[bad-word]"),
    (
        "one place twice",
        "{mount: /d, nfs: {from: head, size: 9GiB}}\n  - {mount: /d, nfs: {from: head, export: /e, size: 9GiB}}",
        "error[mounted-twice] storage[1].mount",
    ),
]


@pytest.mark.parametrize(
    ("item", "expected"), [row[1:] for row in STORAGE_ROWS], ids=[r[0] for r in STORAGE_ROWS]
)
def test_storage_error_has_place_and_reason(item: str, expected: str) -> None:
    text = a_spec_text(("pools:\n  - name", f"storage:\n  - {item}\npools:\n  - name"))
    problems = inspect_text(text, "spec.yaml", catalog.load()).problems
    (said,) = (str(problem).splitlines()[0] for problem in problems if problem.level is Level.ERROR)
    assert expected in said


@pytest.mark.parametrize(
    ("changes", "expected"), [row[1:] for row in CAPACITY_ROWS], ids=[row[0] for row in CAPACITY_ROWS]
)
def test_capacity_error_has_place_and_reason(changes: list[Change], expected: str) -> None:
    problems = inspect_text(changed(PRICED, *changes), "spec.yaml", catalog.load()).problems
    said = [str(problem).splitlines()[0].removeprefix("spec.yaml:") for problem in problems]
    assert [line for line in said if line == expected or "machine-not-sold" not in line] == [expected]


@pytest.mark.parametrize(("changes", "expected"), [r[1:] for r in HOST_ROWS], ids=[r[0] for r in HOST_ROWS])
def test_hosts_error_has_place_and_reason(changes: list[Change], expected: str) -> None:
    report = inspect_text(a_lab_text(*changes), "lab.yaml", catalog.load())
    assert [str(problem).splitlines()[0] for problem in report.problems] == [f"lab.yaml:{expected}"]


@pytest.mark.parametrize(("changes", "expected"), [row[1:] for row in AWS_ROWS], ids=[r[0] for r in AWS_ROWS])
def test_aws_error_has_place_and_reason(changes: list[Change], expected: str) -> None:
    problems = inspect_text(a_spec_text(*changes), "spec.yaml", catalog.load()).problems
    said = [str(problem).splitlines()[0].partition(": ")[2] for problem in problems]
    assert expected in said
    level = expected.partition("[")[0]
    assert [line for line in said if line.startswith(("error", level))] == [expected]


def test_site_with_accounts_has_no_finding() -> None:
    assert inspect_text(SITE, "lab.yaml", catalog.load()).problems == ()


@pytest.mark.parametrize(
    ("changes", "expected"), [row[1:] for row in ACCOUNT_ROWS], ids=[row[0] for row in ACCOUNT_ROWS]
)
def test_account_error_has_place_and_reason(changes: list[Change], expected: str) -> None:
    problems = inspect_text(changed(SITE, *changes), "lab.yaml", catalog.load()).problems
    assert [str(problem).splitlines()[0] for problem in problems] == [f"lab.yaml:{expected}"]


@pytest.mark.parametrize(
    ("changes", "expected"), [row[1:] for row in RESERVATION_ROWS], ids=[row[0] for row in RESERVATION_ROWS]
)
def test_reservation_error_has_place_and_reason(changes: list[Change], expected: str) -> None:
    assert inspect_text(RESERVED, "lab.yaml", catalog.load()).problems == ()
    problems = inspect_text(changed(RESERVED, *changes), "lab.yaml", catalog.load()).problems
    assert [str(problem).splitlines()[0] for problem in problems] == [f"lab.yaml:{expected}"]


@pytest.mark.parametrize(
    ("changes", "expected"), [row[1:] for row in ON_AWS_ROWS], ids=[row[0] for row in ON_AWS_ROWS]
)
def test_accounting_error_on_aws_has_place_and_reason(changes: list[Change], expected: str) -> None:
    problems = inspect_text(changed(SPEC, *changes), "spec.yaml", catalog.load()).problems
    assert [str(problem).splitlines()[0] for problem in problems] == [f"spec.yaml:{expected}"]


@pytest.mark.parametrize("place", ["stacks/burst.yaml", "other.yaml", "tests/other.yaml"])
def test_name_of_a_stack_is_the_name_of_its_file(place: str, tmp_path: Path) -> None:
    assert inspect(_written(tmp_path / place)).problems == ()


def test_other_name_than_that_of_the_file_is_refused(tmp_path: Path) -> None:
    """Regression: `check` accepted it, and `pulumi up -s NAME` deployed a cluster of another name."""
    file = _written(tmp_path / "stacks/other.yaml")
    (problem,) = inspect(file).problems
    assert str(problem).splitlines()[0] == f"{file}:2:7: {NAME_ROW}"


def _written(file: Path) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(a_spec_text())
    return file


def test_accept_does_not_silence_an_error() -> None:
    changes = [("accept: [", "accept: [{id: min-above-max, because: we like it}, "), ("min: 0", "min: 17")]
    report = inspect_text(a_spec_text(*changes), "spec.yaml", catalog.load())
    assert [(p.path, p.id) for p in report.errors] == [
        ("pools[h200].nodes.min", "min-above-max"),
        ("accept[0].id", "not-acceptable"),
    ]


def test_only_the_accepted_warning_is_silent() -> None:
    gpus = ("  machine: m7i.2xlarge", "  machine: g6e.xlarge")
    told = inspect_text(a_spec_text(gpus), "spec.yaml", catalog.load()).problems
    accepting = ("accept: [", "accept: [{id: head-with-gpu, because: it is what we have}, ")
    silent = inspect_text(a_spec_text(gpus, accepting), "spec.yaml", catalog.load()).problems
    assert ([p.id for p in told], [p.id for p in silent]) == (["head-with-gpu"], [])


def test_private_key_is_in_no_message() -> None:
    text = a_lab_text(("uid: 5001", 'uid: 0, keys: ["-----BEGIN OPENSSH PRIVATE KEY-----\\nc2VjcmV0"]'))
    found = inspect_text(text, "lab.yaml", catalog.load()).problems
    assert [problem.id for problem in found] == ["out-of-range", "private-key"]
    assert not any("c2VjcmV0" in str(problem) + problem.source for problem in found)
    (broken,) = inspect_text(f"{text}\n] c2VjcmV0", "lab.yaml", catalog.load()).problems
    assert "c2VjcmV0" not in str(broken) + broken.source


@pytest.mark.parametrize("comment", ["me@example.org", "Ada on her (old) laptop, 2026", ""])
def test_public_key_can_have_any_comment_of_ssh_keygen(comment: str) -> None:
    key = f"{' '.join(GOOD_KEY.split()[:2])} {comment}".strip()
    text = a_lab_text(("uid: 5001", f"uid: 5001, keys: ['{key}']"))
    assert inspect_text(text, "lab.yaml", catalog.load()).problems == ()


@pytest.mark.parametrize(
    ("old", "new", "at"),
    [
        ("  version:", '  topology: {tree: {s: {l: "a1"}}}\n  version:', "slurm.topology"),
        ("pools:\n", "machines: {m: {sockets: 1, cores_per_socket: 1, memory: 1GiB}}\npools:\n", "machines"),
        ("    idle: 5m", "    idle: 5m\n    hosts: gpu01", "pools[h200].hosts"),
    ],
)
def test_keys_of_hosts_are_refused_on_aws(old: str, new: str, at: str) -> None:
    report = inspect_text(a_spec_text((old, new)), "spec.yaml", catalog.load())
    assert [(p.path, p.id) for p in report.errors] == [(at, "hosts-or-cloud")]


# Ids whose rows need another cluster or files: tests/unit/spec/test_kubernetes_errors.py.
ELSEWHERE = [
    ("", "", f"[{name}]")
    for name in (
        "checkpoint-above-notice",
        "checkpoint-above-queue",
        "cluster-not-read",
        "default-topology",
        "doubled-dollar",
        "eks-quota",
        "extra-key",
        "extra-needs",
        "extra-tree-width",
        "extra-twice",
        "extra-value",
        "extra-without-slurm",
        "gang-above-domain",
        "name-not-file",
        "no-kubernetes",
        "not-acceptable",
        "services-above-quota",
        "too-many",
        "too-little-memory",
        "too-many-pools",
        "too-many-sources",
        "unequal-efa",
    )
]


def test_every_id_has_a_row() -> None:
    sources = "".join(path.read_text() for path in Path(spec.__file__).parent.rglob("*.py"))
    ids = set(
        re.findall(
            r'(?:refuse\(\s*|(?:matching|word_of|_chosen|_form)\([^":]*|id=|_note\([^"]*|_refuse\([^"]*)"([a-z]+(?:-[a-z]+)*)"',
            sources,
        )
    )
    shown = {
        match[1]
        for row in (
            *ROWS,
            *STORAGE_ROWS,
            *CAPACITY_ROWS,
            *HOST_ROWS,
            *AWS_ROWS,
            *CLUSTER_ROWS,
            *WORKLOAD_ROWS,
            *ACCOUNT_ROWS,
            *RESERVATION_ROWS,
            *ON_AWS_ROWS,
            *ELSEWHERE,
        )
        if (match := re.search(r"\[([a-z-]+)\]", str(row[2])))
    }
    assert len(ids) > 30
    assert ids == shown


def test_source_line_and_a_caret_follow() -> None:
    report = inspect_text(a_spec_text(("p5e.48xlarge", "p5e.49xlarge")), "spec.yaml", catalog.load())
    assert str(report.problems[0]).splitlines()[1:] == [
        "        - {from: spot, machines: [p5en.48xlarge, p5e.49xlarge]}",
        "                                                 ^",
    ]


def test_long_line_is_cut_around_the_caret() -> None:
    report = inspect_text(
        a_spec_text(("zones: [", "zones: [" + "us-east-2a, " * 40)), "spec.yaml", catalog.load()
    )
    _, line, caret = str(report.problems[-1]).splitlines()
    assert len(line) < 200
    assert line[caret.index("^") :].startswith("us-east-2a")


def test_control_character_never_reaches_the_terminal() -> None:
    report = inspect_text(
        a_spec_text(("name: burst", 'name: "\u202e\x85bad\x1b[2J"  #\u202e')), "s.yaml", catalog.load()
    )
    assert report.problems
    assert all(c.isprintable() or c == "\n" for problem in report.problems for c in str(problem))


def test_all_mistakes_are_reported_together() -> None:
    """Field rules and cross rules report in one run, in the order of the file, for all parts that parsed."""
    changes = [
        ("name: burst", "name: 1"),
        ("us-east-2b]", "us-west-2b]"),
        ("idle: 5m", "idle: 5"),
        ("max: 16", "max: sixteen"),
        ("p5e.48xlarge", "p5e.49xlarge"),
        ("pools: [h200]", "pools: [h100]"),
        ("max_time: 1d", "max_tme: 1d"),
    ]
    report = inspect_text(a_spec_text(*changes), "spec.yaml", catalog.load())
    assert [(p.mark.line, p.id) for p in report.problems] == [
        (2, "bad-type"),
        (7, "zone-not-in-region"),
        (13, "unused-pool"),
        (14, "bad-type"),
        (15, "no-unit"),
        (17, "unknown-machine"),
        (20, "unknown-pool"),
        (20, "unknown-key"),
    ]


def test_rule_ignores_fields_that_did_not_parse() -> None:
    """`max` is not a number, so the max of the source is not compared with a default."""
    report = inspect_text(
        a_spec_text(("max: 16", "max: x"), ("max: 4", "max: 40")), "spec.yaml", catalog.load()
    )
    assert [p.id for p in report.problems] == ["bad-type"]
