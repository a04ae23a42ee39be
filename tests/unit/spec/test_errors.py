"""Each error of the spec by an example: where it points and what it says, word for word."""

import re
from pathlib import Path

import pytest
from aws_rows import AWS_ROWS
from builders import a_lab_text, a_spec_text, changed
from capacity_rows import CAPACITY_ROWS, PRICED
from host_rows import GOOD_KEY, HOST_ROWS
from kube_rows import CLUSTER_ROWS, WORKLOAD_ROWS

from gpucluster import catalog, spec
from gpucluster.spec import Level, inspect_text

Change = tuple[str, str]
NAME_RULE = "use a-z, 0-9 and '-', beginning with a letter, not ending with '-', at most 24 characters"

# sentence, changes to the spec, the one problem that they make
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
        "20:41: error[bad-type] partitions[gpu].default: expected true or false, found 'yes'",
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
        "1:1: error[missing-key] 'name' is missing: name of the cluster, in every name and tag",
    ),
    (
        "a key that is missing in an item",
        [("    nodes: {min: 0, max: 16}\n", "")],
        "13:5: error[missing-key] pools[h200]: 'nodes' is missing: how many nodes",
    ),
    (
        "a list without items",
        [("pools: [h200]", "pools: []")],
        "20:24: error[empty-list] partitions[gpu].pools: the list is empty; it needs at least one item",
    ),
    (
        "a misspelt key",
        [("idle: 5m", "idel: 5m")],
        "15:5: error[unknown-key] pools[h200].idel: unknown key 'idel'; did you mean 'idle'?",
    ),
    (
        "a key near no other",
        [("idle: 5m", "idle: 5m\n    colour: red")],
        "16:5: error[unknown-key] pools[h200].colour: unknown key 'colour'",
    ),
    (
        "a key of a later release",
        [("idle: 5m", "idle: 5m\n    on_boot: a")],
        "16:5: error[not-supported] pools[h200].on_boot: 'on_boot' is not supported yet",
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
        [('"24.11"', "24.10")],
        '9:12: error[unquoted-version] slurm.version: 24.10 without quotes is a number in YAML, 24.1; write it in quotes: "24.10"',
    ),
    (
        "a Slurm version without quotes that loses nothing by it",
        [('"24.11"', "24.11")],
        '9:12: error[unquoted-version] slurm.version: 24.11 without quotes is a number in YAML; write it in quotes: "24.11"',
    ),
    (
        "a Slurm version that is not built yet",
        [('"24.11"', '"25.05"')],
        "9:12: error[slurm-version] slurm.version: Slurm 25.05 is known but not supported yet; supported: 24.11",
    ),
    (
        "a Slurm version that never was",
        [('"24.11"', '"9.1"')],
        "9:12: error[slurm-version] slurm.version: '9.1' is not a Slurm release that we know (22.05, 23.02, 23.11, 24.05, 24.11, 25.05, 25.11, 26.05); supported: 24.11",
    ),
    (
        "a schema from the future",
        [("schema: 1", "schema: 2")],
        "1:9: error[schema-version] schema: this gpucluster reads schema 1, found 2",
    ),
    (
        "a region with swapped letters",
        [("region: us-east-2", "region: us-esat-2")],
        "4:11: error[unknown-region] aws.region: 'us-esat-2' is not a region we know; did you mean 'us-east-2'?",
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
        "6:11: error[cidr-size] aws.network.cidr: '10.0.0.0/8' must be a /16 to a /25: AWS takes no larger VPC",
    ),
    (
        "a network that cannot be cut in eight",
        [("10.42.0.0/16", "10.42.0.0/26")],
        "6:11: error[cidr-size] aws.network.cidr: '10.42.0.0/26' must be a /16 to a /25: it is cut in eight, and AWS's least subnet is a /28",
    ),
    (
        "a network without room for the nodes",
        [("10.42.0.0/16", "10.42.0.0/25")],
        "6:11: error[network-too-small] aws.network.cidr: us-east-2a gets 10.42.0.0/28, with room for 10 nodes, and the pools want up to 16 there",
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
        "11:12: warning[machine-not-sold] head.machine: the catalog of 2026-11-21 has no zone of us-west-1 that sells 'm7a.2xlarge'; if so, it cannot be launched",
    ),
    (
        "a head with GPUs",
        [("m7i.2xlarge", "p5.48xlarge")],
        "11:12: warning[head-with-gpu] head.machine: 'p5.48xlarge' has 8 GPUs, and no job runs on the head",
    ),
    (
        "an odd machine in a pool",
        [("machines: [p5en.48xlarge], max", "machines: [p4d.24xlarge], max")],
        "18:38: error[machines-differ] pools[h200].capacity[1].machines[0]: 'p4d.24xlarge' has 8 x a100 of 40960 MiB (x86_64), the others of the pool have 8 x h200 of 144384 MiB (x86_64); a pool's nodes are alike",
    ),
    (
        "a machine without GPU among others",
        [("[p5en.48xlarge, p5e.48xlarge]", "[p5en.48xlarge, m7i.xlarge]")],
        "17:48: error[machines-differ] pools[h200].capacity[0].machines[1]: 'm7i.xlarge' has no GPU (x86_64), the others of the pool have 8 x h200 of 144384 MiB (x86_64); a pool's nodes are alike",
    ),
    (
        "min above max",
        [("min: 0", "min: 17")],
        "14:18: error[min-above-max] pools[h200].nodes.min: min 17 is above max 16",
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
        "19:12: error[unused-pool] pools[b].name: no partition uses the pool 'b', so no job could reach it",
    ),
    (
        "two partitions of one name",
        [("max_time: 1d}", "max_time: 1d}\n  - {name: gpu, pools: [h200]}")],
        "21:12: error[duplicate-name] partitions[gpu].name: 'gpu' is already the name of partitions[0]",
    ),
    (
        "two default partitions",
        [("max_time: 1d}", "max_time: 1d}\n  - {name: b, pools: [h200], default: true}")],
        "21:39: error[two-defaults] partitions[b].default: there can be one default partition, and partitions[0] already is it",
    ),
    (
        "a machine that the region does not sell",
        [
            ("region: us-east-2", "region: us-west-1"),
            ("us-east-2a, us-east-2b", "us-west-1a"),
            ("p5en.48xlarge, p5e.48xlarge", "p5en.48xlarge, p5e.48xlarge"),
        ],
        "17:48: warning[machine-not-sold] pools[h200].capacity[0].machines[1]: the catalog of 2026-11-21 has no zone of us-west-1 that sells 'p5e.48xlarge'; if so, it is passed over",
    ),
    (
        "a pool of one machine alone, which the region does not sell",
        [
            ("region: us-east-2", "region: us-west-1"),
            ("us-east-2a, us-east-2b", "us-west-1a"),
            ("p5en.48xlarge, p5e.48xlarge", "p5e.48xlarge"),
            ("      - {from: on-demand, machines: [p5en.48xlarge], max: 4}\n", ""),
        ],
        "17:33: warning[machine-not-sold] pools[h200].capacity[0].machines[0]: the catalog of 2026-11-21 has no zone of us-west-1 that sells 'p5e.48xlarge'; if so, the pool never gets a node",
    ),
    (
        "a machine sold in fewer zones than wished",
        [
            ("region: us-east-2", "region: us-west-2"),
            ("us-east-2a, us-east-2b", "us-west-2a, us-west-2b"),
            ("p5en.48xlarge, p5e.48xlarge", "p5e.48xlarge"),
        ],
        "17:33: warning[machine-not-sold] pools[h200].capacity[0].machines[0]: 'p5e.48xlarge' is sold in 1 zone of us-west-2, fewer than the 2 here (by the catalog of 2026-11-21); elsewhere it is passed over",
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
        "20:58: error[yaml] expected ',' or ']', but got '}', while parsing a flow sequence",
    ),
    (
        "a tab as indent",
        [("    idle: 5m", "\tidle: 5m")],
        "15:1: error[yaml] found character '\\t' that cannot start any token, while scanning for the next token",
    ),
    (
        "an alias to nothing",
        [("name: burst", "name: *nope")],
        "2:7: error[yaml] found undefined alias 'nope'",
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
        "a list too deep",
        [("name: burst", "name: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]")],
        "2:30: error[too-large] a spec is at most 24 levels deep",
    ),
]


@pytest.mark.parametrize(("changes", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_an_error_says_where_and_what(changes: list[Change], expected: str) -> None:
    report = inspect_text(a_spec_text(*changes), "spec.yaml", catalog.load())
    assert [str(problem).splitlines()[0] for problem in report.problems] == [f"spec.yaml:{expected}"]
    assert (report.spec is None) == ("error[" in expected)


# Each is the one item of `storage`; what only disappoints is said beside it.
STORAGE_ROWS: list[tuple[str, str, str]] = [
    (
        "no kind",
        "{mount: /d}",
        "error[storage-kind] storage[0]: exactly one of nfs, efs, fsx_lustre, nvme, other",
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
def test_an_error_of_storage_says_where_and_what(item: str, expected: str) -> None:
    text = a_spec_text(("pools:\n  - name", f"storage:\n  - {item}\npools:\n  - name"))
    problems = inspect_text(text, "spec.yaml", catalog.load()).problems
    (said,) = (str(problem).splitlines()[0] for problem in problems if problem.level is Level.ERROR)
    assert expected in said


@pytest.mark.parametrize(
    ("changes", "expected"), [row[1:] for row in CAPACITY_ROWS], ids=[row[0] for row in CAPACITY_ROWS]
)
def test_an_error_of_capacity_says_where_and_what(changes: list[Change], expected: str) -> None:
    problems = inspect_text(changed(PRICED, *changes), "spec.yaml", catalog.load()).problems
    said = [str(problem).splitlines()[0].removeprefix("spec.yaml:") for problem in problems]
    assert [line for line in said if line == expected or "machine-not-sold" not in line] == [expected]


@pytest.mark.parametrize(("changes", "expected"), [r[1:] for r in HOST_ROWS], ids=[r[0] for r in HOST_ROWS])
def test_an_error_of_hosts_says_where_and_what(changes: list[Change], expected: str) -> None:
    report = inspect_text(a_lab_text(*changes), "lab.yaml", catalog.load())
    assert [str(problem).splitlines()[0] for problem in report.problems] == [f"lab.yaml:{expected}"]


@pytest.mark.parametrize(("changes", "expected"), [row[1:] for row in AWS_ROWS], ids=[r[0] for r in AWS_ROWS])
def test_an_error_of_aws_says_where_and_what(changes: list[Change], expected: str) -> None:
    problems = inspect_text(a_spec_text(*changes), "spec.yaml", catalog.load()).problems
    said = [str(problem).splitlines()[0].partition(": ")[2] for problem in problems]
    assert expected in said
    level = expected.partition("[")[0]
    assert [line for line in said if line.startswith(("error", level))] == [expected]


def test_an_error_is_not_accepted() -> None:
    changes = [("accept: [", "accept: [{id: min-above-max, because: we like it}, "), ("min: 0", "min: 17")]
    report = inspect_text(a_spec_text(*changes), "spec.yaml", catalog.load())
    assert [(p.path, p.id) for p in report.errors] == [
        ("pools[h200].nodes.min", "min-above-max"),
        ("accept[0].id", "not-acceptable"),
    ]


def test_a_warning_that_is_accepted_is_silent_and_no_other_is() -> None:
    gpus = ("  machine: m7i.2xlarge", "  machine: g6e.xlarge")
    told = inspect_text(a_spec_text(gpus), "spec.yaml", catalog.load()).problems
    accepting = ("accept: [", "accept: [{id: head-with-gpu, because: it is what we have}, ")
    silent = inspect_text(a_spec_text(gpus, accepting), "spec.yaml", catalog.load()).problems
    assert ([p.id for p in told], [p.id for p in silent]) == (["head-with-gpu"], [])


def test_a_private_key_is_shown_nowhere_not_even_by_a_finding_beside_it() -> None:
    text = a_lab_text(("uid: 5001", 'uid: 0, keys: ["-----BEGIN OPENSSH PRIVATE KEY-----\\nc2VjcmV0"]'))
    found = inspect_text(text, "lab.yaml", catalog.load()).problems
    assert [problem.id for problem in found] == ["out-of-range", "private-key"]
    assert not any("c2VjcmV0" in str(problem) + problem.source for problem in found)
    (broken,) = inspect_text(f"{text}\n] c2VjcmV0", "lab.yaml", catalog.load()).problems
    assert "c2VjcmV0" not in str(broken) + broken.source


@pytest.mark.parametrize("comment", ["me@example.org", "Ada on her (old) laptop, 2026", ""])
def test_a_key_may_have_any_comment_that_ssh_keygen_takes(comment: str) -> None:
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
def test_what_only_hosts_have_is_refused_on_aws(old: str, new: str, at: str) -> None:
    report = inspect_text(a_spec_text((old, new)), "spec.yaml", catalog.load())
    assert [(p.path, p.id) for p in report.errors] == [(at, "hosts-or-cloud")]


# Ids whose rows need another cluster or files: tests/unit/spec/test_kubernetes_errors.py.
ELSEWHERE = [
    ("", "", f"[{name}]")
    for name in ("cluster-not-read", "gang-above-domain", "no-kubernetes", "not-acceptable", "too-many")
]


def test_every_id_has_a_row() -> None:
    sources = "".join(path.read_text() for path in Path(spec.__file__).parent.rglob("*.py"))
    ids = set(
        re.findall(
            r'(?:refuse\(\s*|(?:matching|word_of|_chosen)\([^":]*|id=|_note\([^"]*|_refuse\([^"]*)"([a-z]+(?:-[a-z]+)*)"',
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
            *ELSEWHERE,
        )
        if (match := re.search(r"\[([a-z-]+)\]", str(row[2])))
    }
    assert len(ids) > 30
    assert ids == shown


def test_the_source_line_and_a_caret_follow() -> None:
    report = inspect_text(a_spec_text(("p5e.48xlarge", "p5e.49xlarge")), "spec.yaml", catalog.load())
    assert str(report.problems[0]).splitlines()[1:] == [
        "        - {from: spot, machines: [p5en.48xlarge, p5e.49xlarge]}",
        "                                                 ^",
    ]


def test_a_long_line_is_cut_around_the_caret() -> None:
    report = inspect_text(
        a_spec_text(("zones: [", "zones: [" + "us-east-2a, " * 40)), "spec.yaml", catalog.load()
    )
    _, line, caret = str(report.problems[-1]).splitlines()
    assert len(line) < 200
    assert line[caret.index("^") :].startswith("us-east-2a")


def test_a_control_character_never_reaches_the_terminal() -> None:
    report = inspect_text(
        a_spec_text(("name: burst", 'name: "\u202e\x85bad\x1b[2J"  #\u202e')), "s.yaml", catalog.load()
    )
    assert report.problems
    assert all(c.isprintable() or c == "\n" for problem in report.problems for c in str(problem))


def test_one_mistake_hides_no_other() -> None:
    """Field rules and cross rules speak in one run, in the file's order, as far as their parts have parsed."""
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


def test_a_rule_is_silent_about_what_did_not_parse() -> None:
    """max is not a number: the source's own max is compared with nothing, not with a default."""
    report = inspect_text(
        a_spec_text(("max: 16", "max: x"), ("max: 4", "max: 40")), "spec.yaml", catalog.load()
    )
    assert [p.id for p in report.problems] == ["bad-type"]
