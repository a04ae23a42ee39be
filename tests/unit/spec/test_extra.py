"""`extra` and `remove`: what `check` says, the rendered line, the explanation and the update class."""

import re
from pathlib import Path

import pytest
from support.builders import KUBE, LAB, a_lab_plan, a_lab_text, changed
from support.extra_rows import OF_SLURM

from gpucluster import catalog
from gpucluster.gitops.refine import refined
from gpucluster.gitops.walk import walk
from gpucluster.plan.explain import explain
from gpucluster.plan.model import SlurmOnHosts
from gpucluster.plan.resolve import resolve
from gpucluster.slurm.config.render import render
from gpucluster.slurm.owned_keys import DEFAULTS, LISTS, OWNED
from gpucluster.spec import UpdateClass, inspect_text
from gpucluster.spec.rules.extra_needs import UNKILLABLE_S

GOLDEN = Path(__file__).parents[2] / "golden"
POOL, PARTITION = '"192.0.2.[11-14]"}', "default: true}"
EXTRA = (
    ('version: "26.05"', 'version: "26.05"\n  extra: {KillWait: 60, SchedulerParameters: {bf_max_job_user: 50, bf_resolution: 120}, messageTimeout: 20, SlurmctldParameters: max_powered_nodes=9}\n  remove: [MaxArraySize]'),
    (POOL, '"192.0.2.[11-14]", extra: {MemSpecLimit: 4096, Weight: 77}}'),
    (PARTITION, "default: true, extra: {GraceTime: 120, LLN: true}, remove: [DefMemPerCPU]}"),
)  # fmt: skip


def said(text: str) -> list[str]:
    problems = inspect_text(text, "lab.yaml", catalog.load()).problems
    return [str(one).splitlines()[0] for one in problems if one.id != "slurm-support"]


@pytest.mark.parametrize(("version", "fields", "expected"), [row[1:] for row in OF_SLURM], ids=[row[0] for row in OF_SLURM])  # fmt: skip
def test_extra_of_slurm(version: str, fields: str, expected: str) -> None:
    text = a_lab_text(('version: "26.05"', f'version: "{version}"\n  {fields}'))
    found = [re.sub(r"^lab.yaml:\d+:\d+: ", "", one) for one in said(text)]
    assert found[: 1 if expected else None] == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (POOL, '"192.0.2.[11-14]", extra: {Gres: "gpu:1"}}', "extra-owned"),
        (POOL, '"192.0.2.[11-14]", extra: {KillWait: 3}}', "extra-unknown"),
        (POOL, '"192.0.2.[11-14]", remove: [CPUs]}', "extra-owned"),
        (POOL, '"192.0.2.[11-14]", remove: [MemSpecLimit]}', "remove-unknown"),
        (PARTITION, "default: true, extra: {MaxTime: 5}}", "extra-owned"),
        (PARTITION, "default: true, extra: {GraceTime: soon}}", "extra-value"),
        (PARTITION, "default: true, extra: {State: SLEEPING}}", "extra-value"),
        (PARTITION, "default: true, extra: {OverTimeLimit: -1}}", "extra-value"),
        (PARTITION, "default: true, extra: {CpuBind: nonsense}}", "extra-value"),
        (PARTITION, "default: true, extra: {DenyQos: other}}", "extra-needs"),
        (PARTITION, "default: true, extra: {DefMemPerNode: 5, DefMemPerCPU: 5}}", "extra-needs"),
        (POOL, '"192.0.2.[11-14]", extra: {CoreSpecCount: 1.5}}', "extra-value"),
        (POOL, '"192.0.2.[11-14]", extra: {MemSpecLimit: 4000000}}', "extra-needs"),
        (POOL, '"192.0.2.[11-14]", extra: {CPUSpecList: "0,224"}}', "extra-needs"),
    ],
)
def test_extra_of_pools_and_partitions_is_checked(old: str, new: str, expected: str) -> None:
    (found,) = said(a_lab_text((old, new)))
    assert f"error[{expected}]" in found


@pytest.mark.parametrize(
    ("slices", "gpus"), [("", 8), (", sharing: {mig: {1g.10gb: 4, 3g.40gb: 1}}", 40)], ids=["GPUs", "slices"]
)
def test_memory_of_a_gpu_is_at_most_the_share_of_a_node(slices: str, gpus: int) -> None:
    """With more, slurmctld refuses each job for all GPUs that asks for no memory (run on 24.11.5 and 26.05.5)."""
    most = a_lab_plan().pools[0].shape.job_memory_mib // gpus
    model = ("model: h100, count: 8}", "model: h100, count: 8, memory: 80GiB}")
    pool = (POOL, f'"192.0.2.[11-14]"{slices}}}')

    def found(value: int) -> list[str]:
        own = (PARTITION, f"default: true, extra: {{DefMemPerGPU: {value}}}, remove: [DefMemPerCPU]}}")
        return [one for one in said(a_lab_text(model, pool, own)) if "DefMemPerGPU" in one]

    assert found(most) == []
    (refused,) = found(most + 1)
    assert "error[extra-needs]" in refused
    assert f"a value of at most {most}: on no node" in refused


def test_memory_of_the_system_is_below_the_memory_of_the_node() -> None:
    memory = a_lab_plan().pools[0].shape.real_memory_mib
    of_system = '"192.0.2.[11-14]", extra: {MemSpecLimit: %s}}'
    assert memory % 1024 == 0
    for last in (memory - 1, f"{memory // 1024 - 1}k"):
        assert said(a_lab_text((POOL, of_system % last))) == []
    for first in (memory, f"{memory // 1024}k"):
        (found,) = said(a_lab_text((POOL, of_system % first)))
        assert f"below the memory of the node, {memory} MiB" in found


def test_extra_without_slurm_is_refused() -> None:
    text = changed(KUBE, ("    nodes: 4\n", "    nodes: 4\n    extra: {MemSpecLimit: 3}\n"))
    assert any("error[extra-without-slurm]" in one for one in said(text))


def slurm_conf(plan: SlurmOnHosts) -> list[str]:
    return next(a.content for a in render(plan) if a.path == "slurm/slurm.conf").decode().splitlines()


def test_extra_is_in_the_rendered_file_once() -> None:
    lines = slurm_conf(a_lab_plan(*EXTRA))
    assert [x for x in lines if x.lower().startswith("messagetimeout")] == ["MessageTimeout=20"]
    assert lines.count("KillWait=60") == 1
    assert not [x for x in lines if x.startswith("MaxArraySize")]
    (scheduler,) = [x for x in lines if x.startswith("SchedulerParameters")]
    assert "bf_max_job_user=50" in scheduler
    assert scheduler.count("bf_resolution=") == 1
    assert "bf_resolution=120" in scheduler
    (parameters,) = [x for x in lines if x.startswith("SlurmctldParameters")]
    assert parameters.endswith(",max_powered_nodes=9,node_reg_mem_percent=100")
    (node,) = [x for x in lines if x.startswith("NodeName=")]
    assert node.count("Weight=77") == node.count("Weight=") == 1
    assert "MemSpecLimit=4096" in node
    (partition,) = [x for x in lines if x.startswith("PartitionName=")]
    assert "GraceTime=120" in partition
    assert "LLN=YES" in partition
    assert "DefMemPerCPU" not in partition


@pytest.mark.parametrize(
    ("changes", "site_wide"),
    [
        (('version: "26.05"', 'version: "26.05"\n  extra: {DefMemPerCPU: 4000}'), "DefMemPerCPU=4000"),
        (('version: "26.05"', 'version: "26.05"\n  extra: {DefMemPerNode: 9000}'), "DefMemPerNode=9000"),
    ],
)
def test_a_site_wide_default_counts_in_every_partition(changes: tuple[str, str], site_wide: str) -> None:
    """The partition lines had DefMemPerCPU of ours, which overrules that of slurm.conf."""
    lines = slurm_conf(a_lab_plan(changes))
    assert lines.count(site_wide) == 1
    assert not [x for x in lines if x.startswith("PartitionName=") and "DefMemPerCPU" in x]
    assert [x for x in lines if x.startswith("PartitionName=") and "DefCpuPerGPU" in x]


@pytest.mark.parametrize(
    ("key", "gone"), [("DefMemPerNode", "DefMemPerCPU"), ("MaxMemPerNode", "MaxMemPerCPU")]
)
def test_a_key_replaces_our_default_of_the_same_meaning(key: str, gone: str) -> None:
    """Slurm takes one of the two, and reports the other as an error."""
    plan = a_lab_plan((PARTITION, f"default: true, max_cpus_per_node: 8, extra: {{{key}: 5000}}}}"))
    (line,) = [x for x in slurm_conf(plan) if x.startswith("PartitionName=")]
    assert f" {key}=5000" in line
    assert gone not in line


def test_limits_of_resources_replace_their_exceptions() -> None:
    lines = slurm_conf(
        a_lab_plan(('version: "26.05"', 'version: "26.05"\n  extra: {PropagateResourceLimits: NONE}'))
    )
    assert "PropagateResourceLimits=NONE" in lines
    assert not [x for x in lines if x.startswith("PropagateResourceLimitsExcept")]


def test_each_setting_is_explained() -> None:
    spec = inspect_text(a_lab_text(*EXTRA), "lab.yaml", catalog.load()).result()
    notes = {
        n.path: (n.value, n.reason) for n in explain(spec, catalog.load(), resolve(spec, catalog.load()))
    }
    assert notes["slurm.extra.KillWait"] == ("60", "set by the spec, after `scontrol reconfigure`")
    assert notes["pools[h100].extra.MemSpecLimit"][0] == "4096"
    assert notes["partitions[gpu].remove"][0] == "DefMemPerCPU"


@pytest.mark.parametrize(
    ("change", "instead"),
    [
        ((PARTITION, "default: true, extra: {DefMemPerNode: 5000}}"), "DefMemPerNode of the partition"),
        (
            ('version: "26.05"', 'version: "26.05"\n  extra: {DefMemPerCPU: 4000}'),
            "DefMemPerCPU of slurm.conf",
        ),
    ],
)
def test_a_default_that_another_key_replaces_is_explained(change: tuple[str, str], instead: str) -> None:
    """The note said that the spec leaves it out, and that Slurm's own default holds."""
    spec = inspect_text(a_lab_text(change), "lab.yaml", catalog.load()).result()
    (note,) = [
        n
        for n in explain(spec, catalog.load(), resolve(spec, catalog.load()))
        if n.path == "partitions[gpu].remove"
    ]
    assert (note.value, instead in note.reason) == ("DefMemPerCPU", True)


@pytest.mark.parametrize(
    ("key", "update"),
    [("KillWait: 60", UpdateClass.LIVE), ("CommunicationParameters: EnableIPv6", UpdateClass.RESTART)],
)
def test_diff_has_the_class_of_the_key(key: str, update: UpdateClass) -> None:
    old = inspect_text(LAB, "lab.yaml", catalog.load())
    new = inspect_text(a_lab_text(('version: "26.05"', f'version: "26.05"\n  extra: {{{key}}}')), "lab.yaml", catalog.load())  # fmt: skip
    assert old.document is not None
    assert new.document is not None
    (found,) = [refined(one) for one in walk(old.result(), new.result(), old.document, new.document)]
    assert (found.path, found.update) == (f"slurm.extra[{key.partition(':')[0]}]", update)


def test_every_rendered_key_has_an_owner() -> None:
    """A key that a template writes is owned, a default or a list; a new one needs its row in slurm/owned_keys.py."""
    rendered = {"slurm.conf": set[str](), "node": set[str](), "partition": set[str]()}
    for path in GOLDEN.glob("*/slurm/slurm.conf"):
        for line in path.read_text().splitlines():
            words = [word.partition("=")[0].lower() for word in line.split() if "=" in word]
            kind = {"nodename": "node", "partitionname": "partition"}.get(words[0] if words else "", "")
            if line.startswith("#") or not words:
                continue
            rendered[kind or "slurm.conf"] |= set(words) if kind else {words[0]}
    for kind, keys in rendered.items():
        lists = LISTS if kind == "slurm.conf" else {}
        assert keys <= {*OWNED[kind], *DEFAULTS[kind], *lists}, kind


def test_time_of_the_rule_is_that_of_the_rendered_files() -> None:
    assert f"\nUnkillableStepTimeout={UNKILLABLE_S}\n" in (GOLDEN / "lab/slurm/slurm.conf").read_text()


def test_the_tables_name_keys_of_slurm() -> None:
    for kind in OWNED:
        begins = {"node": "nodename", "partition": "partitionname"}.get(kind, "clustername")
        known = {*catalog.slurm_key_names(kind), begins}
        assert {*OWNED[kind], *DEFAULTS[kind]} <= known, kind
    assert LISTS.keys() <= catalog.slurm_key_names("slurm.conf").keys()
