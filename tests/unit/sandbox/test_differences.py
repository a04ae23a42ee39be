"""What a rehearsal changes in the plan: the table's rows, and nothing beside them."""

from dataclasses import replace

import pytest
from builders import a_plan

from gpucluster import slurm
from gpucluster.sandbox import differences
from gpucluster.sandbox.host import CgroupMode

MODES = (CgroupMode.HYBRID, CgroupMode.UNIFIED)


def rendered(plan, path):
    text = next(a for a in slurm.render(plan) if a.path == path).content.decode()
    pairs = [line.partition("=") for line in text.splitlines() if line and not line.startswith("#")]
    return {key: value for key, _, value in pairs if key not in ("NodeName", "PartitionName")}


@pytest.mark.parametrize("mode", MODES)
def test_slurms_files_differ_in_the_tables_keys_alone(mode):
    plan = a_plan()
    ours = differences.apply(plan, mode, real_times=True)
    for file in ("slurm.conf", "cgroup.conf"):
        before, after = rendered(plan, f"slurm/{file}"), rendered(ours, f"slurm/{file}")
        changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        assert changed == {
            row.line.key for row in differences.rows(mode) if row.line and row.line.file == file
        }


def test_on_a_hybrid_host_the_jobs_devices_stay_constrained():
    found = rendered(differences.apply(a_plan(), CgroupMode.HYBRID), "slurm/cgroup.conf")
    assert (found["CgroupPlugin"], found["ConstrainDevices"]) == ("cgroup/v1", "yes")


def test_on_a_pure_v2_host_the_lack_is_said_in_one_line():
    said = differences.explain(a_plan(), CgroupMode.UNIFIED)
    assert len([line for line in said if "GPU ISOLATION IS NOT REAL" in line]) == 1
    assert not any("NOT REAL" in line for line in differences.explain(a_plan(), CgroupMode.HYBRID))


def test_node_reg_mem_percent_stands_last_because_slurm_misreads_what_follows_it():
    found = rendered(differences.apply(a_plan(), CgroupMode.HYBRID), "slurm/slurm.conf")
    assert found["SlurmctldParameters"].endswith(",node_reg_mem_percent=1")


def test_the_parameters_that_aws_has_too_are_all_kept():
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


def test_no_time_is_made_longer():
    plan = a_plan()
    quick = replace(plan, times=replace(plan.times, refusal_s=1.0), pools=(replace(plan.pools[0], idle_s=3),))
    ours = differences.apply(quick, CgroupMode.HYBRID)
    assert (ours.times.refusal_s, ours.pools[0].idle_s) == (1.0, 3)
    assert ours.times.suspend_timeout_s < plan.times.suspend_timeout_s


def test_the_shortened_times_are_ones_that_slurm_and_the_agent_can_live_with():
    ours = differences.apply(a_plan(), CgroupMode.HYBRID)
    assert ours.times.cred_expire_s >= 5  # Slurm's least
    assert ours.times.self_end_s > max(pool.boot_timeout_s for pool in ours.pools)
    assert ours.times.refusal_s <= ours.times.refusal_max_s


def test_every_shortened_time_is_told_with_the_plans_own():
    idle = differences.apply(a_plan(), CgroupMode.HYBRID).pools[0].idle_s
    assert idle < 300
    assert f"pools[h200].idle_s {idle} instead of 300" in differences.explain(a_plan(), CgroupMode.HYBRID)
    assert not any(
        "instead of" in said for said in differences.explain(a_plan(), CgroupMode.HYBRID, real_times=True)
    )


def test_every_row_has_a_reason():
    assert all(row.because for mode in MODES for row in differences.rows(mode))
