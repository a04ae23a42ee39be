"""One cluster from `up` to nothing, in the order in which a site meets it. `make test` runs this file of the sandbox alone.

The other files of this folder try each of its parts with more cases (`make test-all`).
"""

import pytest
from cluster import UNTIL_LET_GO, Cluster, gpucluster
from fault_runs import AGENT, DAEMON, RUNS, judge
from validation import of_verdict, only_these_fail, paused, run_remedy, validated

pytestmark = [pytest.mark.sandbox, pytest.mark.in_order, pytest.mark.timeout(3000)]

HEALS = ("spot notice during a job by metadata and queue", "no capacity of one machine")
SPEAKS = "srun --ntasks-per-node=1 sh -c 'echo $SLURMD_NODENAME has GPUs $CUDA_VISIBLE_DEVICES'"


def test_gang_bursts_and_runs_on_all_its_nodes(shared_cluster: Cluster) -> None:
    assert shared_cluster.instances() == []
    job = shared_cluster.sbatch(
        "-N2", "--gres=gpu:8", "--output=/home/researcher/%j.out", script=f"{SPEAKS}\n{UNTIL_LET_GO}"
    )
    shared_cluster.wait("the job runs", lambda: shared_cluster.state(job) == "RUNNING")
    first, where = shared_cluster.job(job)["batch_host"], shared_cluster.job(job)["nodes"]
    assert [i["market"] for i in shared_cluster.instances()] == ["spot", "spot"]

    def spoken() -> list[str]:
        return sorted(
            shared_cluster.exec(
                first, "cat", f"/home/researcher/{job}.out", check=False, user="researcher"
            ).splitlines()
        )

    shared_cluster.wait("both nodes have spoken", lambda: len(spoken()) == 2)
    nodes = [line.removesuffix(" has GPUs 0,1,2,3,4,5,6,7") for line in spoken()]
    assert sorted(shared_cluster.exec("head", "scontrol", "show", "hostnames", where).split()) == nodes
    assert len({node.rpartition("-")[0] for node in nodes}) == 1, "a gang is in one zone"
    shared_cluster.let_go(job)
    shared_cluster.wait("the job is done", lambda: shared_cluster.state(job) == "COMPLETED")
    shared_cluster.wait("the nodes are gone", shared_cluster.all_gone)


def test_validate_finds_no_fault(shared_cluster: Cluster) -> None:
    results = validated(shared_cluster, code=0)
    assert of_verdict(results, "pass") == results.keys()
    assert {"job.multi[h200]", "burst.rt[h200]"} <= results.keys()
    shared_cluster.wait("its nodes are gone", shared_cluster.all_gone)


@pytest.mark.parametrize("name", HEALS)
def test_job_survives_what_the_cloud_does(shared_cluster: Cluster, name: str) -> None:
    (run,) = (run for run in RUNS if run.name == name)
    judge(shared_cluster, run).check()


def test_sabotage_is_found_and_its_remedy_heals_it(shared_cluster: Cluster) -> None:
    with paused(shared_cluster, AGENT, "head"):  # it would start the daemon again
        shared_cluster.exec("head", "systemctl", "stop", DAEMON)
        results = validated(shared_cluster, "--tier", "0", code=1)
        run_remedy(shared_cluster, results["svc.active[head]"]["remedy"])
    only_these_fail(results, {"svc.active[head]"})
    assert f"{DAEMON} inactive" in results["svc.active[head]"]["found"]
    healed = validated(shared_cluster, "--tier", "0", code=0)
    assert of_verdict(healed, "pass") == healed.keys()


def test_down_leaves_nothing_in_the_cloud(shared_cluster: Cluster) -> None:
    """With a node in use: without a yes nothing changes, then `down` ends it first. The capsule itself ends after this file (conftest)."""
    job = shared_cluster.sbatch("-N1", "--gres=gpu:8", script="sleep 600")
    shared_cluster.wait("the job runs", lambda: shared_cluster.state(job) == "RUNNING")
    name = shared_cluster.name
    refused = gpucluster("down", name, check=False)
    assert refused.returncode == 2
    assert refused.stderr.count(f"down destroys {name} in the sandbox '{name}' on this machine, ") == 1
    assert "  jobs       1 running: researcher 1\n" in refused.stderr
    assert f"next: gpucluster down {name} --sandbox --yes" in refused.stderr
    assert shared_cluster.state(job) == "RUNNING"
    gpucluster("down", name, "--sandbox", "--yes")
    assert {instance["state"] for instance in shared_cluster.everything()} == {"terminated"}
    ec2, ours = shared_cluster.ec2(), [{"Name": "tag:gpucluster:cluster", "Values": [shared_cluster.name]}]
    assert ec2.describe_vpcs(Filters=ours)["Vpcs"] == []
    assert ec2.describe_security_groups(Filters=ours)["SecurityGroups"] == []
    assert ec2.describe_volumes(Filters=ours)["Volumes"] == []
    assert ec2.describe_launch_templates()["LaunchTemplates"] == []
    assert shared_cluster.client("s3").list_buckets()["Buckets"] == []
    assert shared_cluster.client("secretsmanager").list_secrets()["SecretList"] == []
    roles = shared_cluster.client("iam").list_roles()["Roles"]
    assert [role["RoleName"] for role in roles if shared_cluster.name in role["RoleName"]] == []
