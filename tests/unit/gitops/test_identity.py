"""Another name, and another accounting database: what `diff` says is what tests/slurm/test_cluster_identity.py recorded."""

import pytest
from support.builders import LAB, changed
from support.edits import BASE
from support.identity_edits import EDITS, LAB_WITH, recorded
from support.reviewed import a_diff, a_side

from gpucluster.gitops.identity import COPY, is_another
from gpucluster.gitops.model import Diff, Effects, Kind, ResourceChange
from gpucluster.spec import UpdateClass

RECORDED = recorded()


def effects(edit: str) -> Effects:
    found = a_diff(*EDITS[edit]).effects
    assert found is not None
    return found


def test_every_edit_was_recorded_on_both_versions():
    assert [(one["edit"], one["version"]) for one in RECORDED] == [
        (edit, version) for edit in EDITS for version in ("24.11", "26.05")
    ]


@pytest.mark.parametrize("seen", RECORDED, ids=lambda one: f"{one['edit']}-{one['version']}")
def test_each_sentence_is_what_happened(seen):
    said = effects(seen["edit"])
    assert (seen["refused"] in said.refused) is True
    assert bool(seen["refused"]) is ("the head refuses the bundle" in said.refused)
    assert bool(seen["refused"]) is any(COPY in step for step in said.steps)
    assert (seen["running"], seen["starts"], said.running) == ("RUNNING (None)", 1, "go on")
    assert seen["restart"] == "", "slurmctld starts again with the new bundle"
    assert ("and never start" in said.queued) is (seen["queued"] != "starts")
    if seen["queued"] != "starts":
        assert seen["queued"].removeprefix("PENDING (").rstrip(")") in said.queued
        assert seen["queued, with an account"] == seen["queued"]
    if seen.get("history") == "not shown":
        assert "history and fair-share of accounting stay" in said.data
    if seen["edit"] == "another database with a copy":
        assert (seen["history"], seen["record of the running job"]) == ("shown", "COMPLETED")
    if seen.get("record of the running job") == "none" and seen["edit"] == "another database":
        assert "records of jobs that run now may be lost" in said.data


def test_renamed_hosts_are_the_same_cluster():
    """The report said that a new cluster is created, and that jobs stay on the old one."""
    found: Diff = a_diff(*EDITS["renamed"])
    assert (found.worst, found.stays_beside) == (UpdateClass.RESTART, "")
    assert found.effects is not None
    assert found.effects.lines() == (
        ("running jobs", "go on"),
        ("queued jobs", "stay in the queue"),
        ("sessions", "stay open; Slurm's commands wait while slurmctld restarts"),
        ("data", "of slurmctld as it was stays in /var/spool/slurmctld.before-labor"),
    )
    assert [step.partition("    #")[0] for step in found.effects.steps] == [
        "gpucluster inventory labor --to site",
        "ansible-playbook -i site/inventory.yml playbooks/site.yml",
    ]


def test_other_changes_of_renamed_hosts_have_their_effects():
    """They had the class none, as those of another cluster."""
    found = a_diff(LAB, LAB.replace("name: lab", "name: labor").replace("gpu[01-04]", "gpu[01-03]").replace("[11-14]", "[11-13]").replace('"gpu[03-04]"', "gpu03"))  # fmt: skip
    assert UpdateClass.DRAIN in {one.update for one in found.spec}


@pytest.mark.parametrize(
    ("old", "new", "another"),
    [
        (LAB, LAB.replace("name: lab", "name: labor"), False),
        (BASE, BASE, False),
        (BASE, BASE.replace("name: edits", "name: other"), True),
        (LAB, BASE, True),
        (BASE, LAB, True),
    ],
)
def test_one_fact_says_whether_it_is_another_cluster(old, new, another):
    assert is_another(a_side(old).plan, a_side(new).plan) is another
    found = a_diff(old, new).effects
    assert found is None or ("stay on the" in found.running) is another


def test_commands_of_another_database_come_when_the_head_has_refused_the_bundle():
    steps = [step.partition("    #")[0] for step in effects("another database").steps]
    assert steps == [
        "pulumi up --stack edits",
        "mariadb --host=db.example.org --port=3306 --ssl-ca=/etc/ssl/ca.pem --user=USER --password --execute 'SELECT MAX(id_job) FROM slurm_acct_db.`edits_job_table`'",
        "scontrol show config | grep -E 'NEXT_JOB_ID|FirstJobId'",
        "systemctl stop gpucluster-agent.service slurmctld",
        "mariadb-dump --single-transaction --databases slurm_acct_db --skip-add-drop-table | mariadb --host=db.example.org --port=3306 --ssl-ca=/etc/ssl/ca.pem --user=USER --password",
        COPY,
        "systemctl start gpucluster-agent.service",
    ]


def test_queue_is_emptied_before_its_associations_are_lost():
    steps = [step.partition("    #")[0] for step in effects("renamed, with accounting").steps]
    assert steps == [
        "scontrol update partitionname=PARTITION state=drain",
        "squeue --states=pending",
        "systemctl start mariadb && mariadb --execute 'SELECT MAX(id_job) FROM slurm_acct_db.`labor_job_table`'",
        "scontrol show config | grep -E 'NEXT_JOB_ID|FirstJobId'",
        "systemctl stop gpucluster-watch.timer gpucluster-agent.service slurmctld",
        COPY,
        "gpucluster inventory labor --to site",
        "ansible-playbook -i site/inventory.yml playbooks/site.yml",
        "scontrol update partitionname=PARTITION state=up",
    ]


_RENAMED = ("name: lab", "name: labor")
_TOGETHER = {
    "renamed, with an extra that needs a restart": (LAB, changed(LAB, _RENAMED, ('version: "26.05"\n', 'version: "26.05"\n  extra: {CommunicationParameters: host_unreach_retry_count=3}\n'))),
    "renamed, and accounting added": (LAB, changed(LAB_WITH, _RENAMED)),
    "renamed, and an older version": (LAB_WITH, changed(LAB_WITH, _RENAMED, ('"26.05"', '"24.11"'))),
    "renamed, and another head": (LAB, changed(LAB, _RENAMED, ("ctl0", "ctl1"), ("192.0.2.10", "192.0.2.20"))),
}  # fmt: skip


@pytest.mark.parametrize("edit", [*EDITS, *_TOGETHER])
def test_wait_of_slurms_commands_is_said_once(edit):
    """Beside another change that restarts slurmctld it was said twice."""
    found = a_diff(*(EDITS | _TOGETHER)[edit]).effects
    assert found is not None
    assert found.sessions.count("Slurm's commands wait") == (edit != "shorter keep")


def test_commands_of_another_name_do_not_follow_a_state_that_has_moved():
    """An older slurmctld starts without the state: `cp` of the moved folder failed."""
    found = a_diff(*_TOGETHER["renamed, and an older version"]).effects
    assert found is not None
    assert not [step for step in found.steps if step.startswith(COPY)]
    assert found.refused == ""
    assert "history and fair-share of accounting stay under the name lab" in found.data


@pytest.mark.parametrize("edit", [edit for edit in EDITS if edit != "shorter keep"])
def test_clustername_is_removed_after_the_job_ids_of_the_database_are_compared(edit):
    """Jobs got ids that jobs in the database have. Without accounting there are no ids to compare."""
    steps = effects(edit).steps
    removes = [at for at, step in enumerate(steps) if COPY in step]
    assert bool(removes) is any("SELECT MAX(id_job)" in step for step in steps)
    if removes:
        at = next(at for at, step in enumerate(steps) if "NEXT_JOB_ID" in step)
        assert "SELECT MAX(id_job)" in steps[at - 1]
        assert at < next(one for one, step in enumerate(steps) if "systemctl stop" in step) < removes[0]


WITH_STATE = ("head: {machine: m7i.xlarge", "head: {machine: m7i.xlarge, state: 100GiB")
NEW_HEAD = ResourceChange(
    kind=Kind.REPLACED,
    type="aws:ec2/instance:Instance",
    name="edits-head",
    update=UpdateClass.REPLACE,
    why="its image changes",
)


@pytest.mark.parametrize(
    ("state", "head", "said"),
    [
        (False, "stays", "the head refuses the bundle, and goes on with the old one"),
        (True, "stays", "the head refuses the bundle, and goes on with the old one"),
        (False, "is replaced", ""),
        (True, "is replaced", "another head cannot get another accounting database in one edit"),
    ],
)
def test_refusal_is_said_of_a_head_that_has_the_old_bundle_and_its_state(state, head, said):
    """A new head has no old bundle to go on with, and on its own root volume it has no state. Here its image is looked up."""
    old, new = (one.replace(*WITH_STATE) if state else one for one in EDITS["another database"])
    found = a_diff(old, new, (NEW_HEAD,) if head == "is replaced" else ()).effects
    assert found is not None
    assert found.refused.startswith(said)
    assert ("goes on with the old one" in found.refused) is (head == "stays")
    if (state, head) == (False, "is replaced"):
        assert found.refused == ""
        assert not any(COPY in step for step in found.steps)


def test_shorter_keep_names_the_files():
    """tests/slurm/test_records.py moves records to files and reads one back."""
    assert effects("shorter keep").data == (
        "records of accounting that are older than 30d move to files: `sacctmgr archive load` reads one back"
    )
    short, long = EDITS["shorter keep"]
    longer = a_diff(long, short).effects
    assert longer is not None
    assert longer.data == "stays where it is"


_ADDRESS = ("machine: m7i.xlarge", "address: 10.63.0.60, machine: m7i.xlarge")
_ONE_NODE = ("max: 2", "max: 1")


@pytest.mark.parametrize(
    "edit", ["another database", "accounting added", "accounting added without accounts"]
)
@pytest.mark.parametrize("removes", [False, True])
def test_nothing_starts_on_another_head_with_the_state_of_another_database(edit, removes):
    """It said that queued jobs start when the new head is up, and that jobs on removed nodes are ended."""
    old, new = (one.replace(*WITH_STATE) for one in EDITS[edit])
    found = a_diff(old, (new.replace(*_ONE_NODE, 1) if removes else new).replace(*_ADDRESS, 1)).effects
    assert found is not None
    assert found.split.startswith("another head cannot get another accounting database")
    assert found.running.startswith(
        "go on without slurmctld; a job that reads a file system of the head waits for it"
    )
    wait = "wait until slurmctld runs: with the old state it does not on the new head"
    assert found.queued == wait
    assert f"Slurm's commands {wait}" in found.sessions
    assert "when the new head is up" not in " ".join(what for _, what in found.lines())
    assert not [one for one in found.clauses if one.rows != ("nothing-leaves",)]


_NO_SPARE = ("  - {name: night, pools: [spare], max_time: 8h}\n", "")
_REFUSED = {
    "AWS, a node": (EDITS["another database"][0], EDITS["another database"][1].replace(*_ONE_NODE, 1)),
    "AWS, a partition": (EDITS["another database"][0], EDITS["another database"][1].replace(*_NO_SPARE).replace("pools: [small]", "pools: [small, spare]")),
    "hosts": (LAB, changed(LAB_WITH, ("count: 8}", "count: 4}"))),
}  # fmt: skip


@pytest.mark.parametrize("edit", _REFUSED)
def test_head_that_refuses_a_bundle_does_not_wait_for_jobs(edit):
    """It said that jobs on what is removed finish, and that the head applies the bundle after them."""
    found = a_diff(*_REFUSED[edit]).effects
    assert found is not None
    assert "cannot come in the edit that removes or changes nodes or partitions" in found.split
    assert found.running == "go on: the head refuses the bundle, and goes on with the old one"
    assert found.queued == "stay in the queue: the head refuses the bundle, and goes on with the old one"
    assert found.sessions == "stay open"
    assert not [one for one in found.clauses if one.rows != ("nothing-leaves",)]


@pytest.mark.parametrize("edit", _REFUSED)
def test_reason_of_a_single_change_is_that_the_head_refuses_the_bundle(edit):
    """The line of a removed partition, or of other hardware, said that the head applies the bundle when jobs have ended."""
    found = a_diff(*_REFUSED[edit])
    said = [*(one.why for one in found.spec), *(one.message for one in found.consequences)]
    assert not [one for one in said if "the head applies the bundle" in one or "then running nodes" in one]
    refuses = "the head refuses the bundle, and goes on with the old one"
    assert [one for one in said if one.endswith(f": {refuses}")]
    kept = a_diff(_REFUSED[edit][0], _SAME_REMOVAL[edit])
    held = [*(one.why for one in kept.spec), *(one.message for one in kept.consequences)]
    assert [one for one in held if "the head applies the bundle" in one], "it does not refuse this one"


_BEFORE = EDITS["another database"][0]
_SAME_REMOVAL = {
    "AWS, a node": _BEFORE.replace(*_ONE_NODE, 1),
    "AWS, a partition": _BEFORE.replace(*_NO_SPARE).replace("pools: [small]", "pools: [small, spare]"),
    "hosts": changed(LAB, ("count: 8}", "count: 4}")),
}
