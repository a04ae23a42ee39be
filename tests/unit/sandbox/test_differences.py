"""The changes of a rehearsal to the plan: exactly the rows of the table."""

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from support.builders import a_lab_plan, a_plan

from gpucluster.artifacts import unpack
from gpucluster.aws.bundle import bundle
from gpucluster.plan.model import Containers, Nfs
from gpucluster.sandbox import differences
from gpucluster.sandbox.host_checks import CgroupMode
from gpucluster.slurm.config.render import render

TABLE = Path(differences.__file__).with_suffix(".toml")
BINDINGS = '{"bucket": "the same in both"}\n'
CHANGED = {"plan.json", "slurm/slurm.conf", "slurm/cgroup.conf"}
MODES = (CgroupMode.HYBRID, CgroupMode.UNIFIED)


def rendered(plan, path):
    text = next(a for a in render(plan) if a.path == path).content.decode()
    pairs = [line.partition("=") for line in text.splitlines() if line and not line.startswith("#")]
    return {key: value for key, _, value in pairs if key not in ("NodeName", "PartitionName")}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("plan", [a_plan(), a_lab_plan()], ids=["aws", "hosts"])
def test_slurms_files_differ_in_the_tables_keys_alone(mode, plan):
    ours = differences.apply(plan, mode, real_times=True)
    for file in ("slurm.conf", "cgroup.conf"):
        before, after = rendered(plan, f"slurm/{file}"), rendered(ours, f"slurm/{file}")
        changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        assert changed == {
            row.line.key
            for row in differences.rows(mode, differences.mode_of(plan))
            if row.line and row.line.file == file and (row.of != "accounting" or plan.slurm.accounting)
        }


def test_hosts_have_their_own_differences_and_nfs_is_a_stand_in():
    plan = differences.apply(a_lab_plan(), CgroupMode.HYBRID, real_times=True)
    assert [mount.source.stand_in for mount in plan.storage if isinstance(mount.source, Nfs)] == [True]
    said = " ".join(differences.explain(plan, CgroupMode.HYBRID, real_times=True))
    assert "NFS is a stand-in" in said
    assert "packages come from a folder" in said
    for word in ("EC2", "AWS API", "idle_on_node_suspend", "cloud-init"):
        assert word not in said
    assert "NFS" not in " ".join(differences.explain(a_plan(), CgroupMode.HYBRID))


@pytest.mark.parametrize("plan", [a_plan(), a_lab_plan()], ids=["aws", "hosts"])
def test_containers_are_left_out_and_this_is_said(plan):
    """Without Pyxis in the image slurmd ends at the line `required` of plugstack.conf, so no node would boot."""
    with_pyxis = replace(plan, slurm=replace(plan.slurm, containers=Containers.PYXIS))
    assert "slurm/plugstack.conf" in {artifact.path for artifact in render(with_pyxis)}
    ours = differences.apply(with_pyxis, CgroupMode.HYBRID, real_times=True)
    assert ours == differences.apply(plan, CgroupMode.HYBRID, real_times=True)
    said = differences.explain(with_pyxis, CgroupMode.HYBRID)
    assert [line for line in said if line.startswith("containers of jobs are left out")]
    assert not [line for line in differences.explain(plan, CgroupMode.HYBRID) if "plugstack" in line]


def test_on_a_hybrid_host_the_jobs_devices_stay_constrained():
    found = rendered(differences.apply(a_plan(), CgroupMode.HYBRID), "slurm/cgroup.conf")
    assert (found["CgroupPlugin"], found["ConstrainDevices"]) == ("cgroup/v1", "yes")


def test_missing_controllers_of_a_v2_host_are_one_line():
    said = differences.explain(a_plan(), CgroupMode.UNIFIED)
    assert len([line for line in said if "GPU ISOLATION IS NOT REAL" in line]) == 1
    assert not any("NOT REAL" in line for line in differences.explain(a_plan(), CgroupMode.HYBRID))


def test_node_reg_mem_percent_is_last_because_slurm_misreads_what_follows_it():
    found = rendered(differences.apply(a_plan(), CgroupMode.HYBRID), "slurm/slurm.conf")
    assert found["SlurmctldParameters"].endswith(",node_reg_mem_percent=1")


def test_parameters_of_aws_are_all_kept():
    before = rendered(a_plan(), "slurm/slurm.conf")["SlurmctldParameters"].split(",")
    after = rendered(differences.apply(a_plan(), CgroupMode.HYBRID), "slurm/slurm.conf")[
        "SlurmctldParameters"
    ]
    kept = [word for word in before if not word.startswith("node_reg_mem_percent")]
    assert [word for word in after.split(",") if word in before] == kept


def test_real_times_leaves_every_time_as_the_plan_has_it():
    plan = a_plan()
    ours = differences.apply(plan, CgroupMode.HYBRID, real_times=True)
    assert replace(ours, slurm=plan.slurm) == plan


def test_no_time_becomes_longer():
    plan = a_plan()
    quick = replace(plan, times=replace(plan.times, refusal_s=1.0), pools=(replace(plan.pools[0], idle_s=3),))
    ours = differences.apply(quick, CgroupMode.HYBRID)
    assert (ours.times.refusal_s, ours.pools[0].idle_s) == (1.0, 3)
    assert ours.times.suspend_timeout_s < plan.times.suspend_timeout_s


def test_shortened_times_are_long_enough_for_slurm_and_agent():
    ours = differences.apply(a_plan(), CgroupMode.HYBRID)
    assert ours.times.cred_expire_s >= 5  # Slurm's least
    assert ours.times.self_termination_s > max(pool.boot_timeout_s for pool in ours.pools)
    assert ours.times.refusal_s <= ours.times.refusal_max_s


def test_every_shortened_time_is_reported_with_the_original():
    idle = differences.apply(a_plan(), CgroupMode.HYBRID).pools[0].idle_s
    assert idle < 300
    assert f"pools[h200].idle_s {idle} instead of 300" in differences.explain(a_plan(), CgroupMode.HYBRID)
    assert not any(
        "instead of" in said for said in differences.explain(a_plan(), CgroupMode.HYBRID, real_times=True)
    )


def test_every_row_has_a_reason():
    assert all(row.because for mode in MODES for row in differences.rows(mode))


def both_bundles(mode, *, real_times):
    """Return the bundles of AWS and of the sandbox, as the program packs them: path -> bytes."""
    plan = a_plan()
    ours = differences.apply(plan, mode, real_times=real_times)
    packed = (bundle(each, BINDINGS) for each in (plan, ours))
    return tuple({a.path: a.content for a in unpack(each)} for each in packed)


def without_the_tables_lines(path, content, mode):
    """Return the file without the lines of keys that differences.toml names. The test reads the table itself."""
    rows = tomllib.loads(TABLE.read_text())["slurm"]
    named = {r["key"] for r in rows if f"slurm/{r['file']}" == path and r.get("when", mode) == mode}
    return [line for line in content.splitlines(keepends=True) if line.split(b"=")[0].decode() not in named]


def without_the_tables_wishes(content):
    """Return plan.json without the lines of the table and with empty times."""
    plan, times = json.loads(content), tomllib.loads(TABLE.read_text())["times"]
    plan["slurm"]["lines"] = []
    plan["times"] |= dict.fromkeys(times["cluster"])
    plan["pools"] = [pool | dict.fromkeys(times["pool"]) for pool in plan["pools"]]
    return plan


@pytest.mark.parametrize("mode", MODES)
def test_both_bundles_are_the_same_byte_for_byte_outside_the_table(mode):
    aws, sandbox = both_bundles(mode, real_times=True)
    assert aws.keys() == sandbox.keys() >= {"plan.json", "bindings.json", "slurm/slurm.conf", "head/hosts"}
    assert {path for path in aws if aws[path] != sandbox[path]} <= CHANGED
    for path in CHANGED - {"plan.json"}:
        assert aws[path] != sandbox[path]
        assert without_the_tables_lines(path, aws[path], mode) == without_the_tables_lines(
            path, sandbox[path], mode
        )
    assert without_the_tables_wishes(aws["plan.json"]) == without_the_tables_wishes(sandbox["plan.json"])


@pytest.mark.parametrize("mode", MODES)
def test_shorter_times_reach_slurm_in_its_own_times_alone(mode):
    real, short = (both_bundles(mode, real_times=real)[1] for real in (True, False))
    assert {path for path in real if real[path] != short[path]} == {"plan.json", "slurm/slurm.conf"}
    before, after = (bundle["slurm/slurm.conf"].decode().splitlines() for bundle in (real, short))
    pairs = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    assert {blank_times(a) for a, _ in pairs} == {blank_times(b) for _, b in pairs}


def blank_times(line):
    return re.sub(
        r"\b(SuspendTime|SuspendTimeout|ResumeTimeout|PrologEpilogTimeout|ttl|cred_expire)=\d+", r"\1=", line
    )
