"""Faults of a live cluster: a removed spool, a termination that EC2 refuses, a reboot by Slurm, a slurmctld that hangs."""

import json

import pytest
from cluster import Cluster
from fault_runs import Stage

from gpucluster.agent.boot import boot_state
from gpucluster.plan import names

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(3000)]
PYTHON = ("/opt/gpucluster/venv/bin/python", "-m")
MALLORY = "nobody"  # an ordinary user, without a shell


def why(burst: Cluster, subject: str) -> str:
    return burst.exec("head", *PYTHON, "gpucluster.elastic.inspect.why", subject, check=False)


def active(burst: Cluster, unit: str) -> bool:
    return burst.exec("head", "systemctl", "is-active", unit, check=False).strip() == "active"


def pid(burst: Cluster, unit: str) -> str:
    return burst.exec("head", "systemctl", "show", unit, "--property=MainPID", "--value").strip()


def log(burst: Cluster, unit: str) -> str:
    return burst.exec("head", "journalctl", "-u", unit, "--no-pager", "-o", "cat")


def test_removed_spool_folder_is_made_again(burst: Cluster) -> None:
    """systemd ended each start with 226/NAMESPACE, for ever, and `why` promised an answer of EC2 within seconds."""
    burst.exec("head", "systemctl", "stop", "gpucluster-agent")
    burst.exec("head", "rm", "-rf", names.SPOOL)
    burst.exec("head", "systemctl", "restart", "gpucluster-elastic")
    burst.wait("the daemon starts without the agent", lambda: active(burst, "gpucluster-elastic"))
    assert burst.exec("head", "stat", "-c", "%U %a", f"{names.SPOOL}/new").strip() == "slurm 700"

    before = pid(burst, "gpucluster-elastic")
    burst.exec("head", "rm", "-rf", names.SPOOL)
    burst.exec("head", "systemctl", "start", "gpucluster-agent")
    burst.wait(
        "the agent starts a daemon that lost its folder",
        lambda: pid(burst, "gpucluster-elastic") not in (before, "0") and active(burst, "gpucluster-elastic"),
    )
    job = burst.sbatch("-N1", "--gres=gpu:8", script="true")
    burst.wait("a job runs", lambda: burst.state(job) == "COMPLETED")


def test_why_says_that_the_daemon_does_not_run(burst: Cluster) -> None:
    burst.exec("head", "systemctl", "stop", "gpucluster-agent", "gpucluster-elastic")
    job = burst.sbatch("-N1", "--gres=gpu:8", script="true")
    burst.wait("Slurm gives it a node", lambda: "CONFIGURING" in burst.state(job))
    said = why(burst, str(job))
    assert "nothing is launched: gpucluster-elastic does not act on this machine" in said
    assert "gpucluster-elastic of this machine does not run" in said
    assert "systemctl status gpucluster-elastic" in said
    assert "EC2 answers" not in said
    burst.exec("head", "systemctl", "start", "gpucluster-elastic", "gpucluster-agent")
    burst.wait("the job runs", lambda: burst.state(job) == "COMPLETED")


def test_slot_whose_instance_cannot_be_terminated_is_held(burst: Cluster) -> None:
    """A refused TerminateInstances came twice a second, and its slot went to new jobs."""
    job = burst.sbatch("-N1", "--gres=gpu:8", script="true")
    burst.wait("the job has run", lambda: burst.state(job) == "COMPLETED")
    (old,) = burst.instances()
    slot = burst.job(job)["nodes"]
    tag = [{"Key": names.TAG_ROLE, "Value": "changed"}]
    burst.ec2().create_tags(Resources=[old["id"]], Tags=tag)
    burst.power_down()
    held = f"gpucluster: [termination] {old['id']} cannot be terminated: UnauthorizedOperation"
    burst.wait("its slot is drained", lambda: burst.nodes()[slot]["reason"].startswith(held))
    refusals = log(burst, "gpucluster-elastic").count("termination-refused")
    said = why(burst, slot)
    assert f"{old['id']} cannot be terminated" in said
    assert f"{names.TAG_ROLE}={names.ROLE_NODE}" in said

    more = burst.sbatch("-N2", "--gres=gpu:8", "--exclusive", script="srun hostname")
    burst.wait("a later job runs", lambda: burst.state(more) == "COMPLETED")
    assert slot not in burst.job(more)["nodes"]
    metrics = burst.exec("head", "curl", "-s", f"http://127.0.0.1:{names.METRICS_PORT}/metrics")
    assert "\ngpucluster_instances_end_refused 1.0\n" in metrics
    assert log(burst, "gpucluster-elastic").count("termination-refused") - refusals <= 6

    burst.ec2().create_tags(Resources=[old["id"]], Tags=[{"Key": names.TAG_ROLE, "Value": names.ROLE_NODE}])
    burst.wait(
        "it is terminated, and the slot is free",
        lambda: (
            old["id"] not in {i["id"] for i in burst.instances()}
            and "DRAIN" not in burst.nodes()[slot]["state"]
        ),
    )


def test_stopped_slurmd_is_told_before_slurm_marks_its_node(burst: Cluster) -> None:
    """`status` and `why NODE` showed a used node until SlurmdTimeout; only `validate` saw it."""
    job = burst.sbatch("-N1", "--gres=gpu:8", script="sleep 900")
    slot = Stage(burst).until_script(job)  # else the launch fails without slurmd, and the job is requeued
    burst.exec(slot, "systemctl", "stop", "slurmd")
    burst.wait("the agent reports it", lambda: "slurmd does not run on it" in why(burst, slot))
    said = why(burst, slot)
    assert "slurmctld marks it DOWN by then (SlurmdTimeout is 3 min): its jobs end" in said, said
    assert f"{slot}: slurmd does not run on it" in why(burst, str(job))
    status = burst.exec("head", *PYTHON, "gpucluster.elastic.inspect.status")
    assert f"silent    {slot}: slurmd does not run on it, as its agent reports, since" in status
    metrics = burst.exec("head", "curl", "-s", f"http://127.0.0.1:{names.METRICS_PORT}/metrics")
    assert sum("gpucluster_nodes_silent" in x and x.endswith(" 1.0") for x in metrics.splitlines()) == 1
    burst.exec(slot, "systemctl", "restart", "slurmd")
    burst.wait("it runs again", lambda: "slurmd does not run on it" not in why(burst, slot))
    assert (burst.state(job), burst.job(job)["restart_cnt"]) == ("RUNNING", 0)
    burst.exec("head", "scancel", str(job))


def contact(burst: Cluster, machine: str, state: str) -> float:
    """When the agent of the machine last had an answer of the head, as this file says; 0 without the file."""
    text = burst.exec(machine, "cat", state, check=False)
    return float(json.loads(text)["last_contact_at"]) if text else 0.0


def test_agent_of_a_node_with_a_full_disk_and_a_full_run_starts_and_answers(burst: Cluster) -> None:
    """systemd started the agent every two seconds, and without heartbeats the node and its job were ended."""
    job = burst.sbatch("-N1", "--gres=gpu:8", script="sleep 900")
    burst.wait("the job runs", lambda: burst.state(job) == "RUNNING")
    node = burst.job(job)["nodes"]
    fill = f"""
        cp -a {names.STATE_DIR} /tmp/state && mount -t tmpfs -o size=16m tmpfs {names.STATE_DIR}
        cp -a /tmp/state/. {names.STATE_DIR}/
        mount -o remount,size=$(($(df --output=used -k /run | tail -1) + 512))k /run
        for folder in {names.STATE_DIR} /run; do ! head -c 17M /dev/zero >$folder/output; done
        ! echo x >/run/more; ! echo x >{names.STATE_DIR}/more"""
    burst.exec(node, "sh", "-e", "-c", fill)
    burst.exec(node, "systemctl", "restart", "gpucluster-agent")
    began = contact(burst, node, boot_state.RUN_STATE)
    burst.wait("its heartbeats are answered", lambda: contact(burst, node, boot_state.RUN_STATE) > began + 10)
    assert contact(burst, node, names.AGENT_STATE) <= began
    shown = burst.exec(node, "systemctl", "show", "gpucluster-agent", "--property=NRestarts,ActiveState")
    assert sorted(shown.split()) == ["ActiveState=active", "NRestarts=0"]

    burst.exec(node, "sh", "-e", "-c", f"rm /run/output {names.STATE_DIR}/output")
    burst.wait("the state is written", lambda: contact(burst, node, names.AGENT_STATE) > began + 10)
    assert (burst.state(job), burst.job(job)["restart_cnt"]) == ("RUNNING", 0)
    burst.exec("head", "scancel", str(job))
    burst.exec(node, "umount", "--lazy", names.STATE_DIR)


def test_scontrol_reboot_reboots_the_same_instance(burst: Cluster) -> None:
    """`scontrol reboot` was refused on AWS: slurm.conf had no RebootProgram."""
    job = burst.sbatch("-N1", "--gres=gpu:8", script="true")
    burst.wait("the job has run", lambda: burst.state(job) == "COMPLETED")
    slot, (before,) = burst.job(job)["nodes"], burst.instances()
    began = (
        burst.exec(slot, "cat", "/proc/sys/kernel/random/boot_id"),
        burst.nodes()[slot]["boot_time"]["number"],
    )
    burst.exec("head", "scontrol", "reboot", "ASAP", "nextstate=RESUME", "reason=a test", slot)
    burst.wait(
        "the node reboots", lambda: bool({"REBOOT_ISSUED", "REBOOT"} & set(burst.nodes()[slot]["state"]))
    )
    burst.wait(
        "the node is back",
        lambda: (
            burst.nodes()[slot]["state"] == ["IDLE", "CLOUD"]
            and burst.nodes()[slot]["boot_time"]["number"] > began[1]
        ),
    )
    assert [i["id"] for i in burst.instances()] == [before["id"]]
    assert "boot-failed" not in log(burst, "gpucluster-elastic")
    again = burst.sbatch("-N1", "--gres=gpu:8", "-w", slot, script="true")
    burst.wait("the next job runs on it", lambda: burst.state(again) == "COMPLETED")
    assert [i["id"] for i in burst.instances()] == [before["id"]]


def test_hung_slurmctld_is_restarted(burst: Cluster) -> None:
    """`scancel --ctld` of any user hangs slurmctld 24.11.5 (S19): it was silent until a person killed it."""
    running = burst.sbatch("-N1", "--gres=gpu:8", script="sleep 900")
    burst.wait("the job runs", lambda: burst.state(running) == "RUNNING")
    burst.saved(running)
    before = pid(burst, "slurmctld")
    attack = ("timeout", "5", "runuser", "-u", MALLORY, "--", "scancel", "--ctld", str(running))
    show = ("timeout", "5", "scontrol", "show", "job", str(running))

    def hangs() -> bool:
        """A single attack does not always hang it."""
        burst.exec("head", *attack, check=False)
        return "JobId" not in burst.exec("head", *show, check=False)

    burst.wait("slurmctld hangs", hangs)
    assert "is UP" in burst.exec("head", "scontrol", "ping")
    burst.wait(
        "slurmctld is killed and started again",
        lambda: pid(burst, "slurmctld") not in (before, "0"),
        poll=5,
    )
    burst.wait("it answers", lambda: burst.state(running) == "RUNNING")
    assert "slurmctld runs, but has not answered for" in log(burst, "gpucluster-agent")
    watched = json.loads(burst.exec("head", "cat", names.CONTROLLER_WATCH))
    assert (watched["silent_since"], len(watched["restarts"])) == (None, 1)
    told = burst.client("s3").get_object(Bucket=bucket(burst), Key=names.STATUS_KEY)["Body"].read()
    assert "slurmctld did not answer and was restarted once" in json.loads(told)["detail"]
    after = burst.sbatch("-N1", "--gres=gpu:8", script="true")
    burst.wait("a new job runs", lambda: burst.state(after) == "COMPLETED")


def bucket(burst: Cluster) -> str:
    return json.loads(burst.exec("head", "cat", names.USER_DATA_FILE))["bucket"]
