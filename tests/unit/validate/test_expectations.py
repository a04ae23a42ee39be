"""Expectations of a plan: cloud nodes may be off, hosts must be up."""

from dataclasses import replace
from pathlib import Path

import pytest
from support import builders
from support.account_rows import STANDBY, a_site_plan, with_containers
from support.builders import on_aws
from support.eks_plans import the_stack
from support.kube_steps import kube_steps
from support.spec_sources import ACCEPTED, REVIEWED

from gpucluster.agent.boot.sshd import settings as sshd_settings
from gpucluster.agent.roles import login
from gpucluster.checks.files import evaluate_files
from gpucluster.checks.jobs import query_small
from gpucluster.checks.remedies import restart
from gpucluster.checks.slurmctld import LeastRelease
from gpucluster.checks.sshd import Admission
from gpucluster.cli.context import resolve_file
from gpucluster.plan import codec, names
from gpucluster.plan.model import Bindings, Containers, Efs, Mount, SlurmOnAws, SlurmOnHosts
from gpucluster.plan.model.bindings import FileSystemBinding
from gpucluster.validate import expectations, login_expectations
from gpucluster.validate.expect import needed_tier, select
from gpucluster.validate.expectation import EVERY_CHECK as CHECKS
from gpucluster.validate.kubernetes_expectations import kubernetes_expectations
from gpucluster.validate.pool_jobs import pool_jobs

STACKS = Path(__file__).parents[3] / "stacks"
BINDINGS = Bindings(
    schema=1, region="us-east-2", bucket="b", secret="arn", subnets={"us-east-2a": "subnet-1"}, templates={}
)


def ids(plan, **more):
    return [e.id for e in expectations(plan, **more)]


def test_burst_cluster_has_checks_on_head_and_job_nodes():
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
    assert not by_id["job.gres[h200]"].want.stand_ins
    assert by_id["slurmd.ping[h200/1]"].want.release == by_id["ctl.conf[head]"].want.release == "24.11"
    least = {by_id[one].want.least for one in ("slurmd.ping[h200/1]", "ctl.conf[head]")}
    assert least == {LeastRelease(version="24.11.5", mends="CVE-2025-43904")}
    assert by_id["cloud.orphans[cloud]"].want.place.subnets == ("subnet-1",)
    assert len(by_id["nodes.state[head]"].want.elastic) == 32
    assert by_id["burst.rt[h200]"].want.down_s > 300
    order = [e.check for e in found]
    assert (
        order.index("job.multi")
        < order.index("gpu.count")
        < order.index("burst.rt")
        < order.index("cloud.orphans")
    )


def test_rehearsal_checks_no_mount_types_and_knows_login_machines_and_standby():
    """Regression: a healthy sandbox with EFS, NFS and a login machine had six failed checks."""
    plan = on_aws(resolve_file(STACKS / "research.yaml").plan)
    asked = {e.id: e.want for e in expectations(plan, folders=True)}
    known = {m.path: (m.types, m.source) for m in asked["fs.mount[small/1]"].mounts}
    assert known["/home"] == known["/apps"] == known["/data"] == ((), "")
    assert known["/dev/shm"] == (("tmpfs",), "")
    real = {m.path: m.types for e in expectations(plan) if e.id == "fs.mount[small/1]" for m in e.want.mounts}
    assert (real["/home"], real["/data"]) == (("nfs", "nfs4"), ("lustre",))
    assert asked["cloud.orphans[cloud]"].fixed == ("research-login-1",)


def test_standby_has_the_checks_of_its_machine_and_none_of_the_cluster():
    """Before, `validate` did not look at the second head: its munge key could be another's."""
    plan = builders.a_plan(STANDBY)
    name = names.standby_name(plan.name)
    mine = {e.check: e.want for e in expectations(plan, bundle="1" * 64) if e.target == name}
    assert {
        "svc.active",
        "auth.rt",
        "cfg.same",
        "cfg.bundle",
        "files.modes",
        "fs.mount",
        "disk",
        "imds.guard",
    } <= mine.keys()
    assert not {"ctl.ping", "ctl.conf", "nodes.state", "elastic.ping", "hook.run"} & mine.keys()
    assert mine["imds.guard"].users == ("root", "slurm")
    assert "slurmd.service" in mine["svc.active"].off
    assert plan.head.standby is not None
    assert plan.head.standby.state in {mount.path for mount in mine["fs.mount"].mounts}
    assert names.MUNGE_KEY in {file.path for file in mine["files.modes"].files}
    assert not [e for e in expectations(builders.a_plan()) if "standby" in e.target]


def test_up_nodes_of_the_plan_are_checked():
    found = ids(builders.a_plan(), up=["h200-2a-3", "nobody-1"])
    assert "gpu.count[h200-2a-3]" in found
    assert not [ident for ident in found if "nobody" in ident]


def test_always_on_nodes_must_be_up_and_other_nodes_boot():
    plan = builders.a_plan(("{min: 0, max: 16}", "{min: 2, max: 3}"), (", max: 4}", "}"))
    by_id = {e.id: e for e in expectations(plan)}
    assert by_id["nodes.state[head]"].want.always_on == ("h200-2a-1", "h200-2a-2")
    assert {"disk[h200-2a-2]", "disk[h200/1]"} <= by_id.keys()
    assert "disk[h200/2]" not in by_id
    assert pool_jobs(plan)[0].nodes == 1


@pytest.mark.parametrize(("stack", "compared"), [("research", False), ("burst", True)])
def test_topology_is_compared_where_the_head_does_not_divide_it(stack: str, *, compared: bool):
    """Regression: `validate` failed on each cluster whose reserved nodes are below several switches of EC2."""
    plan = on_aws(resolve_file(STACKS / f"{stack}.yaml").plan)
    (head,) = [e for e in expectations(plan, bindings=None, bundle="") if e.id == "cfg.same[head]"]
    assert ("/etc/slurm/topology.conf" in head.want.sha256) is compared
    assert "/etc/slurm/slurm.conf" in head.want.sha256


def test_always_on_pool_has_no_power_saving_check():
    found = ids(builders.a_plan(("{min: 0, max: 16}", "{min: 2, max: 2}"), (", max: 4}", "}")))
    assert "job.multi[h200]" in found
    assert not [ident for ident in found if ident.startswith("burst.rt") or "/" in ident]


def test_hosts_have_all_checks_but_those_of_the_cloud():
    found = expectations(builders.a_lab_plan())
    by_id = {e.id: e for e in found}
    assert {f"gpu.count[gpu0{n}]" for n in range(1, 5)} <= by_id.keys()
    assert not {e.check for e in found} & {
        "imds.guard",
        "elastic.ping",
        "burst.rt",
        "cloud.orphans",
        "cloud.journal",
        "cloud.machines",
        "cloud.rules",
        "cloud.bucket",
        "cloud.queue",
        "cloud.secret",
        "cloud.file_systems",
        "cfg.bundle",
    }
    assert by_id["nodes.state[head]"].want.elastic == ()
    home = by_id["fs.mount[gpu01]"].want.mounts[-1]
    assert (home.path, home.source, home.types) == ("/home", "192.0.2.10:/srv/home", ("nfs", "nfs4"))
    assert by_id["fs.mount[head]"].want.mounts[-1].source == ""  # its own disk, bound there
    assert by_id["fs.mount[gpu01]"].want.asked == by_id["disk[gpu01]"].want.storage == ("/home",)
    assert (by_id["fs.mount[head]"].want.exports, by_id["fs.mount[gpu01]"].want.exports) == (
        ("/srv/home",),
        (),
    )
    assert "nfs-server.service" in by_id["svc.active[head]"].want.units
    assert by_id["topo.place[h100]"].want.leaf["gpu03"] == "leaf2"


def test_local_disks_need_no_mount():
    """Regression: a machine without disks, such as the head, has a folder and failed the check."""
    by_id = {e.id: e.want for e in expectations(on_aws(resolve_file(STACKS / "research.yaml").plan))}
    for machine in ("head", "h100-1a-1", "small/1"):
        paths = {mount.path for mount in by_id[f"fs.mount[{machine}]"].mounts}
        assert {"/home", "/data", "/archive"} <= paths
        assert "/scratch" not in paths
        assert "/scratch" in by_id[f"disk[{machine}]"].paths


def test_select_by_tier_and_name():
    every = expectations(builders.a_plan())
    quick = select(every, tier=0)
    assert {e.target for e in quick} == {"head", "cloud"}
    assert all(needed_tier(e) == 0 for e in quick)
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
def test_every_want_survives_json_and_every_query_is_argv(plan):
    for expectation in expectations(plan, BINDINGS, bundle="f" * 64):
        check = CHECKS[expectation.check]
        assert codec.from_json(check.want, codec.to_json(expectation.want)) == expectation.want
        for ask in check.query(expectation.want):
            assert all(isinstance(word, str) for word in ask.argv)
            assert ask.limit_s > 0


def test_every_check_of_the_table_is_expected_somewhere():
    bindings = replace(
        BINDINGS, queue="https://queue", file_systems={"/home": FileSystemBinding(id="fs-1", dns_name="fs")}
    )
    plans = (
        builders.a_plan(),
        replace(builders.a_plan(), storage=(Mount(path="/home", source=Efs()),)),
        builders.a_lab_plan(("\npools:", "\nhealth: {}\npools:")),
        with_containers(a_site_plan(), Containers.PYXIS),
        on_aws(resolve_file(STACKS / "research.yaml").plan),
    )
    every = (
        expectations(plan, bindings, bundle="f" * 64, reviewed=REVIEWED, accepted=ACCEPTED) for plan in plans
    )
    of_slurm = {e.check for some in every for e in some}
    of_kubernetes = {
        e.check for e in kubernetes_expectations(the_stack(), kube_steps(), charts=True, containers=True)
    }
    assert of_slurm | of_kubernetes == CHECKS.keys()
    assert of_slurm & of_kubernetes == {"cloud.rules"}  # its groups are the network's, with or without Slurm


def test_a_partition_that_requires_gpus_gets_jobs_with_gpus():
    """The jobs of validation are accepted also where the submission script refuses jobs without GPUs."""
    shared = "partitions:\n  - {name: prep, pools: [h200], max_cpus_per_node: 16}\n"
    plan = builders.a_plan(("partitions:\n", shared))
    by_id = {e.id: e.want for e in expectations(plan)}
    assert "--gpus=1" in query_small(by_id["job.part[gpu]"])[0].argv
    assert not [word for word in query_small(by_id["job.part[prep]"])[0].argv if "gpu" in word]
    assert [job.partition for job in pool_jobs(plan)] == ["gpu"], (
        "all GPUs of a node need more CPUs than prep has"
    )
    on_head, on_node = (by_id[f"cfg.same[{at}]"].sha256 for at in ("head", "h200/1"))
    assert "/etc/slurm/job_submit.lua" in on_head
    assert not [path for path in on_node if path.endswith(".lua")]
    assert len(on_node) == len(on_head) - 1


def test_job_of_a_pool_of_slices_asks_for_one_slice():
    """Regression: it asked for no GPU, and the submission script refuses that where jobs without GPUs have a partition."""
    slices = ('"192.0.2.[11-14]"}', '"192.0.2.[11-14]", sharing: {mig: {1g.10gb: 4, 3g.40gb: 1}}}')
    memory = ("{model: h100, count: 8}", "{model: h100, count: 8, memory: 80GiB}")
    (job,) = pool_jobs(builders.a_lab_plan(slices, memory))
    assert (job.gpus, job.gres) == (0, "gpu:3g.40gb:1")


def test_login_machine_has_services_files_mounts_users_and_sshd_after_the_cloud_s_answer():
    """Regression: a stopped login machine was healthy."""
    plan = on_aws(resolve_file(STACKS / "research.yaml").plan)
    found = expectations(plan, BINDINGS, bundle="f" * 64)
    here = {e.check: e.want for e in found if e.target == "research-login-1"}
    assert here.keys() == {
        "svc.active", "svc.agent", "auth.rt", "clock.sync", "cfg.same", "cfg.bundle", "files.modes", "login.slurm", "login.user", "sshd.conf",
        "users.acct", "users.keys", "imds.guard", "fs.mount", "disk", "net.names", "net.ports", "net.resolve", "files.ours",
        "users.root", "fs.exports", "path.slurm", "files.setuid", "net.protocols",
    }  # fmt: skip
    assert {"sackd.service", "ssh.service"} < set(here["svc.active"].units)
    assert here["cfg.same"].sha256.keys() == {
        f"/run/slurm/conf/{name}.conf" for name in ("slurm", "plugstack")
    }
    edited = evaluate_files({}, here["cfg.same"])
    assert edited.remedy == f"on {{machine}}: {restart('sackd')}", "no slurmd runs there"
    targets = [e.target for e in found]
    assert targets.index("cloud") < targets.index("research-login-1")
    settings = {
        words[0].lower(): words[1]
        for line in sshd_settings(ldap=False).splitlines()
        if len(words := line.split()) == 2
    }
    wanted = here["sshd.conf"].values
    assert {key: settings[key] for key in wanted.keys() & settings.keys()} == {
        key: wanted[key] for key in wanted.keys() & settings.keys()
    }
    assert wanted.keys() - settings.keys() == {
        *(
            "authorizedkeyscommand",
            "trustedusercakeys",
            "pubkeyauthentication",
            "forcecommand",
            "chrootdirectory",
        )
    }
    assert not settings.keys() & set(here["sshd.conf"].unset)
    assert login_expectations.SACKD_SINCE == login.SACKD_SINCE


def test_users_are_checked_on_every_machine_and_shared_homes_on_the_head():
    plan = on_aws(resolve_file(STACKS / "research.yaml").plan)
    by_id = {e.id: e.want for e in expectations(plan)}
    for machine in ("head", "h100-1a-1", "small/1", "research-login-1"):
        assert [user.uid for user in by_id[f"users.acct[{machine}]"].users] == [5001, 5002, 5003, 5004]
        assert by_id[f"users.keys[{machine}]"].keys.keys() == {"vision", "speech", "recsys"}
    assert [ident for ident in by_id if ident.startswith("users.home")] == ["users.home[head]"]
    assert by_id["users.acct[h100-1a-1]"].only_own_group
    assert not by_id["users.acct[h200/1]"].only_own_group, "its script at boot may give other groups"
    assert by_id["sshd.conf[small/1]"].admission == Admission(operators=("root",))
    assert "sshd.conf[head]" not in by_id
    assert by_id["job.home[small]"].nodes == 2


@pytest.mark.parametrize("stack", ["burst", "research", "steady", "lab"])
def test_every_check_comes_after_those_that_it_needs_and_its_causes_at_its_target(stack: str) -> None:
    """Regression: `users.home` came before `fs.mount`, so an unmounted /home was two faults."""
    plan = resolve_file(STACKS / f"{stack}.yaml").plan
    assert isinstance(plan, SlurmOnAws | SlurmOnHosts)
    every = expectations(plan)
    order = [one.id for one in every]
    for one in every:
        for need in (*one.of.needs, *one.of.causes):
            before = f"{need.partition(':')[0]}[{one.target}]"
            if before in order:
                assert order.index(before) < order.index(one.id), (before, one.id)


def test_additions_are_judged_where_the_image_is_ours() -> None:
    """An existing host has the site's own programs, exports and rules of sudo."""
    plan = on_aws(resolve_file(STACKS / "research.yaml").plan)
    by_id = {e.id: e.want for e in expectations(plan)}
    scripted = {pool.name for pool in plan.pools if pool.on_boot}
    assert scripted == {"h200"}
    for check in ("users.root", "files.setuid", "path.slurm", "fs.exports"):
        assert by_id[f"{check}[h200/1]"].scripts
        assert not by_id[f"{check}[head]"].scripts
    found = {e.check for e in expectations(builders.a_lab_plan())}
    assert "users.root" in found
    assert not found & {"files.setuid", "path.slurm", "fs.exports"}
