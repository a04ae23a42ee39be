"""Real slurmctld takes the topologies of hosts, and places jobs by them.

Each leaf and each block has every second host, so that the order of names alone would spread a job over both.
"""

import re

import pytest
from real_slurm import USER, VERSIONS, RealSlurm
from support.builders import a_lab_plan, a_plan

from gpucluster.plan.model import SlurmOnHosts
from gpucluster.slurm import observed_switches
from gpucluster.slurm.hostlist import expand_slurm

ODD, EVEN = "gpu[01,03,05,07]", "gpu[02,04,06,08]"
HOSTS = expand_slurm("gpu[01-08]")
TREE = f'topology: {{tree: {{core: {{row1: {{leaf1: "{ODD}"}}, row2: {{mid: {{leaf2: "{EVEN}"}}}}}}}}}}'
BLOCKS = f'topology: {{block: {{blocks: {{b1: "{ODD}", b2: "{EVEN}"}}, sizes: [4, 8]}}}}'


def a_plan_with(topology: str) -> SlurmOnHosts:
    """The lab with eight hosts."""
    return a_lab_plan(
        ('topology: {tree: {spine: {leaf1: "gpu[01-02]", leaf2: "gpu[03-04]"}}}', topology),
        ('hosts: "gpu[01-04]"', 'hosts: "gpu[01-08]"'),
        ('"192.0.2.[11-14]"', '"192.0.2.[11-18]"'),
    )


def start(slurm: RealSlurm) -> None:
    slurm.start_controller()
    assert slurm.errors() == []  # later 24.11 sometimes cannot read its own node_reg_mem_percent
    slurm.start_nodes(*HOSTS)
    wait_idle(slurm)


def wait_idle(slurm: RealSlurm) -> None:
    idle = {f"{node} idle" for node in HOSTS}
    slurm.wait(
        lambda: (
            {line.strip() for line in slurm.must("sinfo", "-h", "-N", "-o", "%N %t").splitlines()} == idle
        ),
        "eight idle nodes",
    )


def nodes_of_job(slurm: RealSlurm, *options: str) -> set[str]:
    """The nodes of a job when all hosts are idle. While an earlier job completes, Slurm joins leaves of a tree instead."""
    wait_idle(slurm)
    return set(slurm.must("srun", *options, "hostname", user=USER).split())


@pytest.mark.parametrize("version", VERSIONS)
def test_job_of_four_lands_in_one_leaf_of_a_deep_tree(version: str) -> None:
    with RealSlurm(version, a_plan_with(TREE)) as slurm:
        start(slurm)
        found = {row["SwitchName"]: row for row in slurm.show("topology")}
        assert {name: int(row["Level"]) for name, row in found.items()} == {
            "leaf1": 0, "leaf2": 0, "mid": 1, "row1": 1, "row2": 2, "core": 3,
        }  # fmt: skip
        assert set(expand_slurm(found["core"]["Nodes"])) == set(HOSTS)
        assert nodes_of_job(slurm, "-N4") in ({*expand_slurm(ODD)}, {*expand_slurm(EVEN)})
        assert nodes_of_job(slurm, "-N6") < set(HOSTS)  # the top joins the leaves


@pytest.mark.parametrize("version", VERSIONS)
def test_job_of_four_lands_in_one_block(version: str) -> None:
    with RealSlurm(version, a_plan_with(BLOCKS)) as slurm:
        start(slurm)
        shown = slurm.must("scontrol", "show", "topology")
        assert sorted(re.findall(r"BlockName=(\S+)", shown))[:2] == ["b1", "b2"]
        assert nodes_of_job(slurm, "-N4") in ({*expand_slurm(ODD)}, {*expand_slurm(EVEN)})
        assert nodes_of_job(slurm, "-N8", "--segment=4") == set(HOSTS)


@pytest.mark.parametrize("version", VERSIONS)
def test_blocks_with_imex_run_jobs(version: str) -> None:
    """Without the driver slurmd has no channels to give, says so, and jobs run."""
    with RealSlurm(
        version, a_plan_with(BLOCKS.replace("sizes: [4, 8]", "sizes: [4, 8], imex: true"))
    ) as slurm:
        start(slurm)
        assert slurm.show("config")[0]["SwitchType"] == "switch/nvidia_imex"
        assert nodes_of_job(slurm, "-N4") in ({*expand_slurm(ODD)}, {*expand_slurm(EVEN)})


SEVERAL = f'topology: {{named: {{fabric: {{tree: {{core: {{leaf1: "{ODD}", leaf2: "{EVEN}"}}}}, default: true}}, nvl: {{block: {{blocks: {{b1: "gpu[01-04]", b2: "gpu[05-08]"}}, sizes: [4, 8]}}}}, any: {{flat: true}}}}}}'


def test_each_partition_has_the_topology_that_it_names() -> None:
    """Several topologies need topology.yaml, which 25.05 has first."""
    plan = a_lab_plan(
        ('topology: {tree: {spine: {leaf1: "gpu[01-02]", leaf2: "gpu[03-04]"}}}', SEVERAL),
        ('hosts: "gpu[01-04]"', 'hosts: "gpu[01-08]"'),
        ('"192.0.2.[11-14]"', '"192.0.2.[11-18]"'),
        ("partitions:\n", "partitions:\n  - {name: rack, pools: [h100], topology: nvl}\n"),
    )
    with RealSlurm("26.05", plan) as slurm:
        start(slurm)
        shown = slurm.must("scontrol", "show", "topology")
        assert {"SwitchName=leaf1", "SwitchName=core"} <= set(shown.split())
        blocks = slurm.must("scontrol", "show", "topology", "nvl")
        assert {"BlockName=b1", "BlockName=b2"} <= set(blocks.split())
        assert nodes_of_job(slurm, "-N4", "-p", "rack") in (
            {*expand_slurm("gpu[01-04]")},
            {*expand_slurm("gpu[05-08]")},
        )
        assert nodes_of_job(slurm, "-N4", "-p", "gpu") in ({*expand_slurm(ODD)}, {*expand_slurm(EVEN)})


@pytest.mark.parametrize("version", VERSIONS)
def test_two_switches_at_the_top_share_no_job(version: str) -> None:
    apart = f'topology: {{tree: {{leaf1: "{ODD}", leaf2: "{EVEN}"}}}}'
    with RealSlurm(version, a_plan_with(apart)) as slurm:
        start(slurm)
        refused = slurm.run("srun", "--immediate=5", "-N6", "hostname", user=USER)
        assert refused.code != 0
        assert re.search("Requested (node|topology) configuration is not available", refused.err)


@pytest.mark.parametrize("version", VERSIONS)
def test_changed_topology_loses_no_node_that_powers_up(version: str) -> None:
    """The head's agent divides a leaf by what EC2 reports, while a job's nodes power up (S35)."""
    plan = a_plan()
    with RealSlurm(version, plan) as slurm:
        slurm.start_controller()
        options = ("-N2", "--gpus-per-node=8", "-o", "/tmp/out", "--wrap", "srun hostname")
        slurm.must("sbatch", *options, user=USER)
        ((_, nodes),) = slurm.wait(slurm.calls, "ResumeProgram is called")
        file = slurm.path("/etc/slurm/topology.conf")
        places = dict(zip(nodes, (("nn-aaaaaaaa",), ("nn-bbbbbbbb",)), strict=True))
        file.write_text(observed_switches.divided(file.read_text(), plan.leaves, places))
        slurm.must("scontrol", "reconfigure")
        leaf = nodes[0].rpartition("-")[0]
        shown = {row["SwitchName"]: row for row in slurm.show("topology")}
        assert shown[leaf]["Level"] == "1"
        assert {f"{leaf}-aaaaaaaa", f"{leaf}-bbbbbbbb", f"{leaf}-elsewhere"} <= shown.keys()
        slurm.start_nodes(*nodes)
        slurm.wait(lambda: slurm.run("squeue", "-h").out == "", "the job has ended")
        assert sorted(slurm.path("/tmp/out").read_text().split()) == sorted(nodes)
        assert slurm.calls() == [("resume", list(nodes))]
