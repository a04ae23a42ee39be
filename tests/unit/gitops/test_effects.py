"""Tests of the merged effects of a diff: one text for each subject, and commands in their order."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.audited_edits import STACKS
from support.builders import SPEC, a_lab_text, a_spec_text, changed
from support.expert_pairs import KUBE, LAB
from support.reviewed import a_diff, a_side, a_side_with_workloads

from gpucluster.agent.disks.block_devices import state_root
from gpucluster.gitops.diff import DOWN, diff
from gpucluster.gitops.effects import UNAFFECTED
from gpucluster.gitops.field_effects import BY_CLASS_OF_PODS
from gpucluster.gitops.model import Effects, Revision
from gpucluster.gitops.steps import copies, restores
from gpucluster.gitops.storage_events import Loss
from gpucluster.spec import UpdateClass

STATE = ("  machine: m7i.2xlarge", "  machine: m7i.2xlarge\n  state: 100GiB")
NO_ADVICE = ("{id: head-state, because: it lives as long as a test}, ", "")
AMI = ("aws:\n", "aws:\n  image: {ami: ami-0123456789abcdef0}\n")
LOGIN = ("pools:\n", "login: {machine: m7i.xlarge}\naccess: {ssm: true}\npools:\n")


def _effects(old: str, new: str) -> Effects:
    found = a_diff(old, new).effects
    assert found is not None
    return found


def test_each_class_has_an_effect_on_pods() -> None:
    assert set(BY_CLASS_OF_PODS) == set(UpdateClass)


def test_live_change_affects_nothing_and_has_one_command() -> None:
    found = _effects(SPEC, a_spec_text(("max: 16", "max: 32")))
    assert found.lines() == UNAFFECTED.lines()
    assert found.steps == ("pulumi up --stack burst",)


def test_no_change_has_no_effects() -> None:
    assert a_diff(SPEC, SPEC).effects is None


def test_login_machine_loses_no_job() -> None:
    """Regression: another login machine said `Running jobs are lost`."""
    found = _effects(a_spec_text(LOGIN), a_spec_text(LOGIN, ("machine: m7i.xlarge", "machine: m7i.2xlarge")))
    assert (found.running, found.queued, found.data) == ("go on", "stay in the queue", UNAFFECTED.data)
    assert "on login machines that stop or leave end" in found.sessions


def test_new_image_loses_jobs_only_without_state() -> None:
    """Regression: `Running jobs are lost` was said also of a head that keeps its state."""
    lost = _effects(SPEC, a_spec_text(AMI))
    assert lost.running.startswith("are lost")
    assert lost.queued.startswith("are lost")
    kept = _effects(a_spec_text(STATE, NO_ADVICE), a_spec_text(STATE, NO_ADVICE, AMI))
    assert "are lost" not in kept.running + kept.queued
    assert "go on while the head is replaced" in kept.running


def test_what_is_lost_hides_weaker_sentences_about_the_same_subject() -> None:
    found = _effects(SPEC, a_spec_text(AMI, ("max: 16", "max: 8")))
    assert found.running == _effects(SPEC, a_spec_text(AMI)).running
    assert "srun session is a running job" not in found.sessions
    assert "with srun lose their jobs" in found.sessions


def test_commands_stand_before_and_after_the_apply() -> None:
    found = _effects(SPEC, a_spec_text(('version: "24.11"', 'version: "26.05"')))
    place = found.steps.index("pulumi up --stack burst")
    assert found.steps[0].startswith("squeue --all")
    assert found.steps[1].startswith("scontrol update partitionname=PARTITION state=down")
    assert found.steps[place + 1 :] == ("gpucluster status burst --wait",), (
        "a new slurmctld has all partitions up"
    )


@pytest.mark.parametrize(
    "line", ["private_tmp: false", "accounting: {database: local}"], ids=["nodes start anew", "no queue"]
)
def test_partition_that_the_spec_closes_is_not_opened(line: str) -> None:
    """`import` writes `State: DOWN` where access cannot be kept; `drain` and `up` of each partition gave it."""
    closed = "  - {name: closed, pools: [h100], extra: {State: DOWN}}\n"
    old = a_lab_text(("partitions:\n", f"partitions:\n{closed}"))
    accounts = ("partitions:\n", "accounts: [{name: r, users: [vision]}]\npartitions:\n")
    new = changed(
        old, ('version: "26.05"\n', f'version: "26.05"\n  {line}\n'), *([accounts] if "acc" in line else [])
    )
    steps = [step for step in _effects(old, new).steps if "partitionname=PARTITION" in step]
    assert len(steps) == 2
    assert "# each partition that is UP: " in steps[0]
    assert steps[1].endswith("# each partition that was UP")


def test_removed_nodes_name_the_command_that_does_not_wait() -> None:
    found = _effects(SPEC, a_spec_text(("max: 16", "max: 8")))
    assert found.steps[0] == "pulumi up --stack burst"
    assert found.steps[1].startswith("gpucluster bundle show -c burst")
    assert found.steps[2].startswith("gpucluster bundle apply DIGEST --now -c burst")


def test_hosts_are_applied_by_ansible_and_pods_by_kubectl() -> None:
    hosts = _effects(LAB, LAB.replace("gpu[01-04]", "gpu[01-03]").replace("[11-14]", "[11-13]").replace("gpu[03-04]", "gpu03"))  # fmt: skip
    assert "ansible-playbook -i site/inventory.yml playbooks/site.yml" in hosts.steps
    assert not any("power_down" in step for step in hosts.steps), "no host is powered down"
    pods = _effects(KUBE, KUBE.replace("may_borrow: true, share: 2", "may_borrow: false"))
    waves = "gpucluster k8s up kube --bindings bindings.json"
    ids = "pulumi stack output bindings --stack kube > bindings.json"
    assert pods.steps == ("pulumi up --stack kube", ids, waves)
    accounts = KUBE[KUBE.index("      service_accounts:") : KUBE.index("storage:")]
    existing = KUBE.replace("control_plane: eks", "existing: {context: prod, eks_name: prod}").replace(
        accounts, ""
    )
    alone = _effects(existing, existing.replace("may_borrow: true, share: 2", "may_borrow: false"))
    assert alone.steps == (f"{waves}    # with the ids of the file systems",)


def test_another_name_leaves_the_old_cluster_alone() -> None:
    found = _effects(a_spec_text(STATE, NO_ADVICE), a_spec_text(("name: burst", "name: other")))
    assert {what for _, what in found.lines()[:3]} == {"stay on the old cluster, until it is deleted"}
    assert found.steps == ("pulumi up --stack other", DOWN.format("burst"))


def test_another_name_of_kubernetes_is_a_cluster_that_kubectl_does_not_know() -> None:
    found = _effects(KUBE, KUBE.replace("name: kube", "name: other"))
    assert found.steps == (
        "pulumi up --stack other",
        "aws eks update-kubeconfig --name other --region us-west-2",
        "pulumi stack output bindings --stack other > bindings.json",
        "gpucluster k8s up other --bindings bindings.json",
        DOWN.format("kube"),
    )


def test_a_volume_that_leaves_the_head_is_refused_until_its_protection_is_removed() -> None:
    """tests/engine/test_removed_volume.py makes it happen. Regression: no sentence said that the head stays stopped."""
    apps = ("partitions:", "storage: [{mount: /apps, nfs: {from: head, size: 10GiB}}]\npartitions:")
    found = _effects(a_spec_text(apps), SPEC)
    assert "until the head is started by hand" in found.sessions
    assert any(step.startswith("pulumi state unprotect URN ") for step in found.steps)
    assert found.steps[-1].startswith("aws ec2 start-instances --instance-ids HEAD")


def test_pods_are_told_nothing_of_a_head_or_a_bundle() -> None:
    """Regression: a smaller pool of Kubernetes said that the head applies the bundle."""
    smaller = a_diff(KUBE, KUBE.replace("max: 6", "max: 3"))
    (change,) = smaller.spec
    assert (change.path, change.update) == ("pools[serve].nodes.max", UpdateClass.NEW_NODES)
    other = KUBE.replace("machines: [p4de.24xlarge]", "machines: [p5.48xlarge]")
    for found in (smaller, a_diff(KUBE, other)):
        texts = [one.why for one in found.spec] + [one.message for one in found.consequences]
        assert not [text for text in texts if "bundle" in text or "jobs" in text]


@pytest.mark.parametrize("stack", ["kube", "hybrid"])
@pytest.mark.parametrize(
    ("edit", "running", "sentence", "step"),
    [
        (("chat:1.4", "chat:1.5"), "of a changed service are replaced one after another; others go on", "`kubectl apply` gets", "gpucluster k8s up"),
        (("train:2.0", "train:2.1"), "of a workload that is deleted and created again end; others go on", "the old ones are deleted first", "kubectl delete -f FILE"),
        (("{required: block}", "{preferred: block}"), "of a workload that is deleted and created again end; others go on", "the old ones are deleted first", "kubectl delete -f FILE"),
    ],
)  # fmt: skip
def test_workloads_have_subjects_and_steps(
    stack: str, edit: tuple[str, str], running: str, sentence: str, step: str
) -> None:
    """Regression: beside Slurm a new image of a gang said `go on`, and its manifests were not applied."""
    text = (STACKS.parent / f"workloads/{stack}.yaml").read_text()
    assert edit[0] in text
    found = diff(_with_workloads(stack, text), _with_workloads(stack, text.replace(*edit)))
    assert found.effects is not None
    assert running in found.effects.running
    assert found.effects.running.startswith("go on; pods of") is (stack == "hybrid")
    assert sentence in (found.effect or "")
    assert any(one.startswith(step) for one in found.effects.steps)
    assert found.effects.steps[-1] == f"gpucluster k8s up {stack} --bindings bindings.json"
    assert not any(one.startswith("pulumi up") for one in found.effects.steps), "no resource changes"


def _with_workloads(stack: str, text: str) -> Revision:
    return a_side_with_workloads((STACKS / f"{stack}.yaml").read_text(), text)


def test_removed_standby_leaves_the_state_where_it_is() -> None:
    """Regression: `the state moves back to the head's own disk`. The agent copies nothing where the plan names no place for it."""
    shared = ("partitions:", "storage: [{mount: /state, efs: {}}]\npartitions:")
    pair = (
        "  machine: m7i.2xlarge",
        "  machine: m7i.2xlarge\n  standby: {machine: m7i.2xlarge, zone: us-east-2b, state: /state}",
    )
    old, new = a_spec_text(shared, pair, NO_ADVICE), a_spec_text(shared)
    after = a_side(new).plan
    assert after.slurm is not None
    assert state_root(after) is None
    found = _effects(old, new)
    assert found.queued == (
        "stay in the queue, and start after the change; those that still wait when the head next restarts are lost: it then has "
        "an older state of its own disk"
    ), "D11: it said `stay` and `they are lost` of the same jobs"
    assert "is not copied back" in found.data


ACCOUNTED = ('version: "24.11"', 'version: "24.11"\n  accounting: {database: local}')
ACCOUNTS = (
    "partitions:\n",
    "accounts: [{name: vision, limits: {gpus: 16, gpu_hours_per_month: 100}}]\npartitions:\n",
)


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ((("gpus: 16,", "gpus: 32,"),), ""),
        ((("gpus: 16, ", ""),), ""),
        (((", limits: {gpus: 16, gpu_hours_per_month: 100}", ""),), ""),
        ((("gpus: 16,", "gpus: 8,"),), "those above the limit wait"),
        ((("gpus: 16,", "gpus: 16, gpus_per_user: 8,"),), "those above the limit wait"),
        (
            (("gpus: 16,", "gpus: 32,"), ("month: 100", "month: 50")),
            "those above the new gpu_hours_per_month wait",
        ),
        ((("max_time: 1d", "max_time: 2d"),), ""),
        ((("max_time: 1d", "max_time: 12h"),), "with a time limit above max_time wait"),
    ],
)
def test_raised_limit_has_no_words_of_a_lowered_one(edits: tuple[tuple[str, str], ...], words: str) -> None:
    """D16: `those above the limit wait` was said where the limit rises or leaves."""
    queued = _effects(a_spec_text(ACCOUNTED, ACCOUNTS), a_spec_text(ACCOUNTED, ACCOUNTS, *edits)).queued
    assert (words in queued) if words else queued == UNAFFECTED.queued


@pytest.mark.parametrize("pods", [False, True])
def test_backup_and_restore_are_commands_that_work(tmp_path: Path, *, pods: bool) -> None:
    """D16: a step said `back up the data that is lost`, without a command, and nothing brought it back."""
    home = tmp_path / "home"
    (home / "ada").mkdir(parents=True)
    (home / "ada/results").write_text("42\n")
    lost = (Loss(str(home), replaced=True, shared=True),)
    copy, back = (
        line.partition("    # ")[0] for line in (*copies(lost, pods=pods), *restores(lost, pods=pods))
    )
    ssh = tmp_path / "bin/ssh"
    ssh.parent.mkdir()
    ssh.write_text(f'#!/bin/sh\n[ "$1" = HOST ] && cd {tmp_path} && exec sh -c "$2"\n')
    ssh.chmod(0o755)
    kubectl = ssh.with_name("kubectl")
    kubectl.write_text(
        '#!/bin/sh\n[ "$1" = exec ] || exit 1\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n'
    )
    kubectl.chmod(0o755)
    environment = {"PATH": f"{ssh.parent}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-ec", copy], check=True, env=environment, cwd=tmp_path)  # noqa: S607
    shutil.rmtree(home)
    subprocess.run(["sh", "-ec", back], check=True, env=environment, cwd=tmp_path)  # noqa: S607
    assert (home / "ada/results").read_text() == "42\n"


def test_data_that_is_lost_is_copied_first_and_back_last() -> None:
    """A store that only leaves has nothing to copy back to."""
    gone = (Loss("/home", replaced=False, shared=True), Loss("/scratch", replaced=True, shared=True))
    assert [line.partition(" | ")[2].partition("    #")[0] for line in copies(gone)] == [
        "ssh HOST 'cat > home.tar'", "ssh HOST 'cat > scratch.tar'"
    ]  # fmt: skip
    assert [line.partition(" | ")[0] for line in restores(gone)] == ["ssh HOST 'cat scratch.tar'"]


@pytest.mark.parametrize(
    "more", ["  software: {modules: /home/modules}\n", "  node_ssh: {operators: [ops]}\n"]
)
def test_edit_of_hosts_waits_for_no_launch(more: str) -> None:
    """Regression: it reached only nodes that are launched later, and nobody launches a host."""
    line = '  version: "26.05"\n'
    found = a_diff(a_lab_text(), a_lab_text((line, f"{line}{more}")))
    assert found.worst is UpdateClass.LIVE
    assert "launched later" not in str(found.effects)


def test_who_is_told_of_the_budget_stops_no_launch() -> None:
    """Regression: another address for mails was said to keep nodes from queued jobs."""
    research = (STACKS / "research.yaml").read_text()
    new = changed(research, ("notify: [hpc@example.org]", "notify: [ops@example.org]"))
    assert _effects(research, new).queued == UNAFFECTED.queued
    less = changed(research, ("monthly: 250000 USD", "monthly: 200000 USD"))
    assert "while the budget stops launches" in _effects(research, less).queued
