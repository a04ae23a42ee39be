"""What dies in the middle of a burst: the job still runs, nothing is left over, no slot is launched twice for one life."""

import json

import pytest

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(300)]


def launched(burst):
    """Instances that ever were, by the cloud's own list."""
    return {i["id"] for i in burst.everything() if i["role"] == "node"}


def assert_two_instances_for_two_slots(burst, before):
    assert len(launched(burst) - before) == 2


@pytest.mark.parametrize("moment", ["placed", "launched", "registered"])
def test_a_daemon_killed_in_mid_burst_goes_on_where_it_was(burst, moment):
    before = launched(burst)
    job = burst.sbatch("-N2", "--gres=gpu:8", script="sleep 3")
    burst.wait(f"the journal says {moment}", lambda: moment in burst.told(job), poll=0.05)
    burst.exec("head", "systemctl", "kill", "-s", "KILL", "gpucluster-elastic")
    burst.wait("the job is done", lambda: burst.state(job) == "COMPLETED")
    assert_two_instances_for_two_slots(burst, before)


def test_a_slurmctld_killed_in_mid_burst_loses_neither_job_nor_instance(burst):
    before = launched(burst)
    job = burst.sbatch("-N2", "--gres=gpu:8", script="sleep 3")
    submitted = burst.job(job)["submit_time"]["number"]
    burst.wait("instances are there", lambda: len(launched(burst) - before) == 2, poll=0.05)
    burst.wait("slurmctld has saved the job", lambda: saved_since(burst, submitted))
    burst.exec("head", "systemctl", "kill", "-s", "KILL", "slurmctld")
    burst.wait("the job is done", lambda: burst.state(job) == "COMPLETED", within=150)
    burst.wait("the nodes are gone", burst.all_gone, within=120)
    assert_never_two_for_one_slot(burst, job, launched(burst) - before)


def assert_never_two_for_one_slot(burst, job, instances):
    """A second life of a slot may need a second instance, but only when the first is gone; the cloud has no other."""
    script = ("/opt/gpucluster/venv/bin/python", "-m", "gpucluster.elastic.timeline", str(job), "--json")
    living, seen = {}, set()
    for moment in json.loads(burst.exec("head", *script)):
        if moment["what"] == "launched":
            assert moment["slot"] not in living, f"launched over {living[moment['slot']]}"
            living[moment["slot"]] = moment["instance"]
            seen.add(moment["instance"])
        elif moment["what"] == "gone":
            living.pop(moment["slot"], None)
    assert seen == instances


def saved_since(burst, moment):
    """slurmctld saves its jobs at most each 5 s: one that it has not saved yet is Slurm's own to lose."""
    return int(burst.exec("head", "stat", "-c", "%Y", "/var/spool/slurmctld/job_state")) > moment


def test_a_launch_whose_answer_is_lost_is_made_once(burst):
    before = launched(burst)
    burst.control().lose_reply("RunInstances")
    job = burst.sbatch("-N2", "--gres=gpu:8", script="sleep 1")
    burst.wait("the job is done", lambda: burst.state(job) == "COMPLETED")
    assert_two_instances_for_two_slots(burst, before)


def test_a_node_whose_instance_vanishes_is_replaced_and_its_job_runs_again(burst):
    job = burst.sbatch("-N2", "--gres=gpu:8", script="sleep 20")
    burst.wait("the job runs", lambda: burst.state(job) == "RUNNING")
    victim = burst.instances()[0]
    burst.ec2().terminate_instances(InstanceIds=[victim["id"]])
    burst.wait("the job was requeued and runs again", lambda: running_again(burst, job), within=120)
    burst.exec("head", "scancel", str(job))


def running_again(burst, job):
    seen = burst.job(job)
    return seen["restart_cnt"] == 1 and seen["job_state"] == ["RUNNING"]


def test_an_instance_that_no_request_owns_ends_after_the_grace(burst):
    bindings = json.loads(burst.exec("head", "cat", "/var/lib/gpucluster/bundle/bindings.json"))
    template = bindings["templates"]["h200-0-p5en.48xlarge"]
    answer = burst.ec2().run_instances(
        MinCount=1,
        MaxCount=1,
        LaunchTemplate={"LaunchTemplateId": template["id"], "Version": str(template["version"])},
        InstanceType="p5en.48xlarge",
        SubnetId=bindings["subnets"]["us-east-1a"],
        TagSpecifications=[
            {
                "ResourceType": "instance",
                "Tags": [
                    {"Key": "gpucluster:cluster", "Value": burst.name},
                    {"Key": "gpucluster:role", "Value": "node"},
                ],
            }
        ],
    )
    stray = answer["Instances"][0]["InstanceId"]
    burst.wait("the stray lives", lambda: stray in {i["id"] for i in burst.instances()})
    burst.wait("the stray is gone", lambda: stray not in {i["id"] for i in burst.instances()})


def test_a_boot_that_fails_is_replaced_inside_the_same_allocation(burst):
    """The cloud takes the instance back while it boots: another one comes, and the job is not requeued."""
    before = launched(burst)
    job = burst.sbatch("-N1", "--gres=gpu:8", script="sleep 1")
    burst.wait("the instance is there", lambda: len(launched(burst) - before) == 1, poll=0.05)
    first = next(iter(launched(burst) - before))
    burst.ec2().terminate_instances(InstanceIds=[first])
    burst.wait("the job is done", lambda: burst.state(job) == "COMPLETED", within=120)
    assert burst.job(job)["restart_cnt"] == 0


def test_a_node_that_slurm_itself_drains_is_replaced_and_its_job_runs(burst):
    """It stood drained and paid for without end: no job could use it, and nothing powered it down."""
    first = burst.sbatch("-N1", "--gres=gpu:8", "-w", "h200-1a-1", script="sleep 1")
    burst.wait("the node is up", lambda: burst.state(first) == "COMPLETED")
    broken = "rm /opt/gpucluster/bin/prolog; printf '#!/bin/sh\nexit 1\n' > /opt/gpucluster/bin/prolog"
    burst.exec("h200-1a-1", "sh", "-c", f"{broken}; chmod 755 /opt/gpucluster/bin/prolog")
    job = burst.sbatch("-N1", "--gres=gpu:8", "-w", "h200-1a-1", script="sleep 1")
    burst.wait("slurmctld drained it", lambda: burst.nodes()["h200-1a-1"]["reason"] == "Prolog error")
    burst.wait("the job is done", lambda: burst.state(job) == "COMPLETED")
