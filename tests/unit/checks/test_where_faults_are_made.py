"""Each check has a test that makes its fault on a real cluster or in a cloud, and sees the check find it."""

import re
from pathlib import Path

import pytest

from gpucluster.checks.node_health import NODE_CHECKS
from gpucluster.validate.expectation import EVERY_CHECK

TESTS = Path(__file__).parents[2]
FILES = {  # file -> checks whose faults it makes
    "sandbox/test_validate.py": """acct.log auth.rt auth.secret cfg.bundle cfg.same clock.sync cloud.journal cloud.orphans ctl.conf ctl.ping ctl.resv
        disk elastic.ping elastic.scales files.modes files.ours files.setuid fs.exports fs.mount gpu.count hook.run imds.guard job.gres job.limits job.tmp net.names node.health
        node.limits node.strays nodes.hw nodes.state part.up path.slurm slurmd.ping svc.active svc.agent topo.place users.root""",
    "sandbox/test_research.py": """acct.db acct.qos acct.tree cloud.machines job.home sshd.conf users.acct users.home users.keys""",
    "slurm/test_containers.py": "ctr.run",
    "sandbox/test_desk.py": "login.user",
    "sandbox/test_shell.py": "cfg.spec",
    "unit/validate/test_cloud.py": "cloud.images cloud.network cloud.rules cloud.templates",
    "unit/validate/test_cloud_eks.py": "cloud.eks",
    "unit/checks/test_protocols.py": "net.protocols",
    "unit/checks/test_mount_options.py": "job.mounts",
    "unit/checks/test_name_resolution.py": "net.resolve",
    "unit/checks/test_ports.py": "net.ports",
    "unit/cli/test_validate.py": "cfg.accept",
    "unit/validate/test_cloud_stores.py": "cloud.bucket cloud.file_systems cloud.queue cloud.roles cloud.secret",
    "kubernetes/test_rehearsal.py": "kube.added kube.controllers kube.nodes kube.objects kube.rights",
    "kubernetes/test_pods.py": "kube.dns kube.isolation kube.metadata kube.reach kube.volumes",
    "unit/validate/test_kubernetes.py": "kube.api kube.charts kube.gpus kube.instances kube.launchers kube.offer kube.queues kube.workloads",
}
HEALTH = "slurm/test_health.py"  # what Slurm's health programs check, node by node
ELSEWHERE = {
    "burst.rt": "its fault is a node that does not start or end; tests/sandbox/test_validate.py makes the latter",
    "hw.real": "a rehearsal's machines share this host's hardware, so slurm.conf overrides it and the check is left out",
    "job.multi": "it fails if no job runs, and what stops a job is the fault of another check",
    "job.part": "a partition that takes no job is found by part.up, and a node by nodes.state",
    "login.slurm": "its own fault is a network that loses packets between login and head, which no test makes",
}


def test_each_check_is_in_one_row() -> None:
    rows = [check for checks in FILES.values() for check in checks.split()] + [*ELSEWHERE]
    assert sorted(rows) == sorted(EVERY_CHECK)


@pytest.mark.parametrize("file", FILES)
def test_file_names_its_checks(file: str) -> None:
    text = (TESTS / file).read_text()
    assert [
        check for check in FILES[file].split() if not re.search(rf"[\"'{{ ]{re.escape(check)}\b", text)
    ] == []


def test_each_check_of_the_health_programs_has_its_fault() -> None:
    text = (TESTS / HEALTH).read_text()
    assert [check for check in NODE_CHECKS if f'"{check}"' not in text] == []
