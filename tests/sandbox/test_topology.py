"""The head's topology.conf follows the switches that EC2 reports above always-on nodes (T28), while other nodes power up."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from cluster import Cluster, gpucluster

pytestmark = [pytest.mark.sandbox, pytest.mark.in_order, pytest.mark.timeout(3000)]
NAME = "topology"
ALWAYS = frozenset({"gpu-1a-1", "gpu-1a-2", "gpu-1a-3"})
LATE = ("gpu-1a-5", "gpu-1a-6")
# The other nodes finish their boot when the test lets them.
SCRIPT = """\
#!/bin/sh
case $GPUCLUSTER_NODE in *-[1-4]) exit 0 ;; esac
until [ -e /run/go-on ]; do sleep 0.2; done
"""
SPEC = f"""\
schema: 1
name: {NAME}
aws: {{region: us-east-1, network: {{cidr: 10.62.0.0/16, zones: [us-east-1a]}}}}
slurm: {{version: "24.11"}}
head: {{machine: m7i.large}}
pools:
  - name: gpu
    nodes: {{min: 3, max: 6}}
    idle: 5m
    boot_timeout: 30m
    on_boot: [{{script: "s3://example-site/wait.sh", sha256: {hashlib.sha256(SCRIPT.encode()).hexdigest()}}}]
    capacity: [{{from: on-demand, machines: [g6e.2xlarge]}}]
partitions:
  - {{name: debug, pools: [gpu], default: true, max_time: 1h}}
"""
Switches = frozenset[frozenset[str]]


class Placed(Cluster):
    """A cluster with both sides of its topology: EC2's answer, and what slurmctld has read."""

    def instance_of(self) -> Mapping[str, str]:
        """The running instance of each always-on node that Slurm can use."""
        up = {name for name, node in self.nodes().items() if "IDLE" in node["state"]} & ALWAYS
        found = [i for i in self.instances() if i["node"] in up and i["state"] == "running"]
        return {i["node"]: i["id"] for i in found}

    def paths(self) -> Mapping[str, tuple[str, ...]]:
        """The switches above each always-on node, as EC2 answers the operator."""
        node_of = {instance: node for node, instance in self.instance_of().items()}
        answer: list[dict[str, Any]] = []

        def answers() -> bool:
            """EC2 refuses too many requests, and the daemon asks it, too."""
            try:
                answer[:] = self.ec2().describe_instance_topology(InstanceIds=sorted(node_of))["Instances"]
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") != "RequestLimitExceeded":
                    raise
                return False
            return True

        self.wait("EC2 answers with the topology", answers, poll=2)
        return {node_of[one["InstanceId"]]: tuple(one["NetworkNodes"]) for one in answer}

    def switches_of_slurm(self) -> Switches:
        """The always-on nodes of each lowest switch that slurmctld shows. Before the first answer all have one switch."""
        found = set[frozenset[str]]()
        for line in self.exec("head", "scontrol", "show", "topology").splitlines():
            if match := re.search(r"Level=0 .*\bNodes=(\S+)", line):
                names = frozenset(self.exec("head", "scontrol", "show", "hostnames", match[1]).split())
                found.add(names & ALWAYS)
        return frozenset(found - {frozenset()})

    def in_step(self) -> bool:
        """Whether all always-on nodes are up, and slurmctld has them below the switches of EC2's answer."""
        paths = self.paths() if self.instance_of().keys() == ALWAYS else {}
        wanted = {
            path: frozenset(n for n, other in paths.items() if other == path) for path in paths.values()
        }
        return bool(paths) and self.switches_of_slurm() == frozenset(wanted.values())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Placed]:
    folder = tmp_path_factory.mktemp("stack")
    spec = folder / f"{NAME}.yaml"
    spec.write_text(SPEC)
    (folder / "scripts").mkdir()
    (folder / "scripts/wait.sh").write_text(SCRIPT)
    # With the sandbox's shorter times the held nodes would be given up while another machine is replaced.
    gpucluster("sandbox", "up", str(spec), "--real-times", timeout=1500)
    try:
        yield Placed(NAME)
    finally:
        gpucluster("sandbox", "down", NAME)
        assert not Path("/var/lib/gpucluster-sandbox", NAME).exists()


def test_slurmctld_has_the_switches_of_ec2(cluster: Placed) -> None:
    cluster.wait("slurmctld has EC2's switches", cluster.in_step, poll=2)


def test_a_new_machine_changes_the_topology_and_nodes_that_power_up_stay(cluster: Placed) -> None:
    """The reconfigure comes while two nodes of a job boot: they keep their instances, and the job runs once on them."""
    job = cluster.sbatch("-N2", f"--nodelist={','.join(LATE)}", "--gres=gpu:1", script="sleep 1")
    cluster.wait("its nodes boot", lambda: len(_booting(cluster)) == len(LATE), poll=1)
    booting = _booting(cluster)
    before = cluster.paths()["gpu-1a-3"]
    for _ in range(8):  # one of four switches is drawn for each new machine
        _replace(cluster, "gpu-1a-3")
        if cluster.paths()["gpu-1a-3"] != before:
            break
    assert cluster.paths()["gpu-1a-3"] != before
    cluster.wait("slurmctld has the new switch", cluster.in_step, poll=2)
    assert _booting(cluster) == booting
    assert "CONFIGURING" in cluster.state(job)
    for instance in booting:
        cluster.exec(instance, "touch", "/run/go-on")
    cluster.wait("the job has ended", lambda: cluster.ended(job), poll=1)
    assert cluster.state(job) == "COMPLETED"
    assert cluster.job(job)["restart_cnt"] == 0


def _replace(cluster: Placed, node: str) -> None:
    """Replace the machine of an idle always-on node, and wait until the new one is up."""
    old = cluster.instance_of()[node]
    gpucluster("node", "replace", node, "-c", NAME)
    cluster.wait(
        f"{node} is up on another machine",
        lambda: cluster.instance_of().get(node, old) != old,
        within=900,
        poll=2,
    )


def _booting(cluster: Placed) -> frozenset[str]:
    """The instances that are neither always-on nodes nor usable yet."""
    always = set(cluster.instance_of().values())
    known = {i["id"]: i["node"] for i in cluster.instances() if i["state"] == "running"}
    return frozenset(i for i, node in known.items() if i not in always and node not in ALWAYS)
