"""What must hold, from a plan alone: a cloud's nodes may be off, hosts must be up."""

from pathlib import Path

import builders
import pytest

from gpucluster.checks.table import CHECKS
from gpucluster.cli.desk import resolve_file
from gpucluster.plan import codec
from gpucluster.plan.model import Bindings
from gpucluster.validate import expectations
from gpucluster.validate.expect import gangs, needed_tier, select

STACKS = Path(__file__).parents[3] / "stacks"
BINDINGS = Bindings(
    schema=1, region="us-east-2", bucket="b", secret="arn", subnets={"us-east-2a": "subnet-1"}, templates={}
)


def ids(plan, **more):
    return [e.id for e in expectations(plan, **more)]


def test_a_burst_cluster_is_asked_on_its_head_and_in_a_job_of_ours():
    found = expectations(builders.a_plan(), BINDINGS, bundle="f" * 64)
    by_id = {e.id: e for e in found}
    assert len(by_id) == len(found)
    assert {"ctl.ping[head]", "elastic.ping[head]", "cfg.bundle[head]", "imds.guard[head]"} <= by_id.keys()
    assert {
        "gpu.count[h200/1]",
        "auth.rt[h200/2]",
        "hw.real[h200/1]",
        "burst.rt[h200]",
        "job.part[gpu]",
    } <= by_id.keys()
    assert by_id["cloud.orphans[cloud]"].want.subnets == ("subnet-1",)
    assert len(by_id["nodes.state[head]"].want.elastic) == 32
    assert by_id["burst.rt[h200]"].want.down_s > 300
    order = [e.check for e in found]
    assert (
        order.index("job.multi")
        < order.index("gpu.count")
        < order.index("burst.rt")
        < order.index("cloud.orphans")
    )


def test_a_rehearsals_folders_are_of_no_type_and_login_machines_and_the_standby_are_known():
    """A healthy sandbox with EFS, NFS and a login machine was said to have six faults, and the login machine to be ended."""
    plan = resolve_file(STACKS / "research.yaml").plan
    asked = {e.id: e.want for e in expectations(plan, folders=True)}
    known = {m.path: (m.types, m.source) for m in asked["fs.mount[small/1]"].mounts}
    assert known["/home"] == known["/apps"] == known["/data"] == ((), "")
    assert known["/dev/shm"] == (("tmpfs",), "")
    real = {m.path: m.types for e in expectations(plan) if e.id == "fs.mount[small/1]" for m in e.want.mounts}
    assert (real["/home"], real["/data"]) == (("nfs", "nfs4"), ("lustre",))
    assert asked["cloud.orphans[cloud]"].beside == ("research-login-1",)


def test_what_happens_to_be_up_is_asked_too_and_strangers_are_not():
    found = ids(builders.a_plan(), up=["h200-2a-3", "nobody-1"])
    assert "gpu.count[h200-2a-3]" in found
    assert not [ident for ident in found if "nobody" in ident]


def test_always_on_nodes_must_be_up_and_a_fresh_boot_is_made_of_the_others():
    plan = builders.a_plan(("{min: 0, max: 16}", "{min: 2, max: 3}"), (", max: 4}", "}"))
    by_id = {e.id: e for e in expectations(plan)}
    assert by_id["nodes.state[head]"].want.static == ("h200-2a-1", "h200-2a-2")
    assert {"disk[h200-2a-2]", "disk[h200/1]"} <= by_id.keys()
    assert "disk[h200/2]" not in by_id
    assert gangs(plan)[0].nodes == 1


def test_a_pool_that_is_always_on_boots_nothing():
    found = ids(builders.a_plan(("{min: 0, max: 16}", "{min: 2, max: 2}"), (", max: 4}", "}")))
    assert "job.multi[h200]" in found
    assert not [ident for ident in found if ident.startswith("burst.rt") or "/" in ident]


def test_hosts_are_all_asked_and_nothing_of_a_cloud_is():
    found = expectations(builders.a_lab_plan())
    by_id = {e.id: e for e in found}
    assert {f"gpu.count[gpu0{n}]" for n in range(1, 5)} <= by_id.keys()
    assert not {e.check for e in found} & {
        "imds.guard",
        "elastic.ping",
        "burst.rt",
        "cloud.orphans",
        "cfg.bundle",
    }
    assert by_id["nodes.state[head]"].want.elastic == ()
    home = by_id["fs.mount[gpu01]"].want.mounts[-1]
    assert (home.path, home.source, home.types) == ("/home", "192.0.2.10:/srv/home", ("nfs", "nfs4"))
    assert by_id["fs.mount[head]"].want.mounts[-1].source == ""  # its own disk, bound there
    assert by_id["topo.place[h100]"].want.leaf["gpu03"] == "leaf2"


def test_a_machines_own_disks_are_looked_at_and_need_be_no_mount():
    """Each cluster with `nvme` was unhealthy: a machine without disks, such as the head, has a folder."""
    by_id = {e.id: e.want for e in expectations(resolve_file(STACKS / "research.yaml").plan)}
    for machine in ("head", "h100-1a-1", "small/1"):
        paths = {mount.path for mount in by_id[f"fs.mount[{machine}]"].mounts}
        assert {"/home", "/data", "/archive"} <= paths
        assert "/scratch" not in paths
        assert "/scratch" in by_id[f"disk[{machine}]"].paths


def test_a_cluster_without_slurm_is_not_asked():
    with pytest.raises(ValueError, match="no such part"):
        expectations(builders.a_kube_plan())


def test_tiers_and_a_choice():
    every = expectations(builders.a_plan())
    calm = select(every, tier=0)
    assert {e.target for e in calm} == {"head", "cloud"}
    assert all(needed_tier(e) == 0 for e in calm)
    assert [e.id for e in select(every, tier=1, only=["gpu.count", "disk[head]"])] == [
        "disk[head]",
        "gpu.count[h200/1]",
        "gpu.count[h200/2]",
    ]
    for word, hint in (
        ("gpu.cuont", "did you mean gpu.count"),
        ("disk[haed]", r"disk\[head\]"),
        ("?", "ctl.ping"),
    ):
        with pytest.raises(ValueError, match=hint):
            select(every, tier=1, only=[word])


@pytest.mark.parametrize("plan", [builders.a_plan(), builders.a_lab_plan()], ids=["burst", "lab"])
def test_every_want_survives_json_and_every_question_is_a_list_of_words(plan):
    for expectation in expectations(plan, BINDINGS, bundle="f" * 64):
        check = CHECKS[expectation.check]
        assert codec.from_json(check.want, codec.to_json(expectation.want)) == expectation.want
        for ask in check.question(expectation.want):
            assert all(isinstance(word, str) for word in ask.argv)
            assert ask.limit_s > 0


def test_every_check_of_the_table_is_expected_somewhere():
    plans = (builders.a_plan(), builders.a_lab_plan())
    assert {e.check for plan in plans for e in expectations(plan, bundle="f" * 64)} == CHECKS.keys()
