"""Clauses of `diff` that several recorded rows hold: CPUs of one node, limits of partitions, accounts that become needed or are no more."""

import pytest
from support.account_rows import SITE
from support.builders import LAB, changed, on_hosts
from support.identity_edits import EDITS, recorded
from support.reviewed import a_diff, a_side

from gpucluster.gitops import requests
from gpucluster.gitops.model import Clause, Effects
from gpucluster.slurm.recorded import RECORDED
from gpucluster.slurm.request_table import Outcome, Way, fates_of

each_version = pytest.mark.parametrize("version", RECORDED)
_VERSION = 'version: "26.05"'
_FEWER_CPUS = ("cores_per_socket: 56", "cores_per_socket: 48")
_FREE = changed(LAB, (_VERSION, f"{_VERSION}\n  accounting: {{database: local}}"))
_NEEDED = f"{_FREE}accounts: [{{name: research, users: [vision]}}]\n"


def _effects(old: str, new: str, version: str = "26.05") -> Effects:
    before, after = (text.replace(_VERSION, f'version: "{version}"') for text in (old, new))
    found = a_diff(before, after).effects
    assert found is not None
    return found


def _clause(found: Effects, row: str, subject: str = "queued") -> Clause:
    (clause,) = (one for one in found.clauses if one.subject == subject and row in one.rows)
    return clause


def _is_that_of_its_rows(clause: Clause, version: str) -> None:
    for row in clause.rows:
        for way in Way:
            fates = fates_of(row, version, way)
            if clause.subject == "running":
                assert fates.running is not None
                assert fates.running.outcome is Outcome.GOES_ON
            elif clause.subject == "queued" and fates.queued.outcome is Outcome.WAITS:
                assert f"wait with {fates.queued.reason}" in clause.text
            elif clause.subject == "queued":
                assert fates.queued.outcome is Outcome.STARTS
                assert " start" in clause.text
            if clause.subject == "queued" and "sbatch refuses" in clause.text:
                assert fates.new.outcome is Outcome.REFUSED


# --- CPUs of one node ---------------------------------------------------------------------------------
_OF_NODE = ("node-cpus-task", "node-cpus-task-any", "node-cpus-tasks", "node-cpus-tasks-per-node")


@each_version
def test_jobs_that_ask_for_more_cpus_of_a_node_than_any_has_are_told(version: str) -> None:
    """Only the sum of the partition was compared."""
    found = _effects(LAB, changed(LAB, _FEWER_CPUS), version)
    waits, starts = _clause(found, "node-cpus-task"), _clause(found, "node-cpus-tasks-any")
    assert waits.rows == _OF_NODE
    assert waits.text == (
        "those in gpu that ask for more than 192 CPUs of one node, or for one task, wait with BadConstraints, "
        "and never start: cancel them (sbatch refuses new ones)"
    )
    assert (
        starts.text
        == "others in gpu that ask for as many for tasks which several nodes hold (-n without -N) start"
    )
    for clause in (waits, starts):
        _is_that_of_its_rows(clause, version)
        assert clause.text in found.queued
    assert found.queued.index(waits.text) < found.queued.index(starts.text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (changed(LAB, _FEWER_CPUS), LAB),
        (LAB, changed(LAB, ("default: true", "default: true, max_time: 1d"))),
    ],
    ids=["more", "as many"],
)
def test_nodes_with_as_many_cpus_keep_every_job(old: str, new: str) -> None:
    assert "CPUs of one node" not in _effects(old, new).queued


def test_partition_of_one_node_is_told_of_its_cpus_once() -> None:
    """There PartitionConfig is the reason: S51."""
    one = changed(
        LAB,
        ('hosts: "gpu[01-04]", addresses: "192.0.2.[11-14]"', 'hosts: "gpu01", addresses: "192.0.2.11"'),
        ('{spine: {leaf1: "gpu[01-02]", leaf2: "gpu[03-04]"}}', '{leaf1: "gpu01"}'),
    )
    found = _effects(one, changed(one, _FEWER_CPUS))
    assert "those in gpu that need more CPUs than are left wait with PartitionConfig" in found.queued
    assert "CPUs of one node" not in found.queued


# --- limits of a partition ----------------------------------------------------------------------------
_GPU = "pools: [h100], default: true"
_NEVER = "and never start: cancel them (sbatch refuses new ones)"
_LIMITS = {
    "MinNodes: 2": (
        ("partition-min-nodes", "partition-min-nodes-task", "partition-min-nodes-tasks"),
        f"those in gpu that ask for fewer than 2 nodes, or name no number of them (also if their tasks fill 2), wait with PartitionNodeLimit, {_NEVER}",
    ),
    "MaxNodes: 2": (
        ("partition-max-nodes",),
        f"those in gpu that ask for more than 2 nodes wait with PartitionNodeLimit, {_NEVER}",
    ),
    "MaxMemPerNode: 500000": (
        ("partition-max-memory",),
        f"those in gpu that ask for more than 500000 MiB of a node wait with MaxMemPerLimit, {_NEVER}",
    ),
    "AllowGroups: root": (
        ("partition-groups",),
        f"those in gpu of users who are not in the group root wait with PartitionConfig, {_NEVER}",
    ),
}


def _with_extra(extra: str) -> str:
    return changed(SITE, (_GPU, f"{_GPU}, extra: {{{extra}}}"))


@each_version
@pytest.mark.parametrize("extra", _LIMITS)
def test_recorded_limit_of_extra_is_told_as_its_rows(extra: str, version: str) -> None:
    """`what Slurm does to them is not recorded` was said of three of them."""
    rows, said = _LIMITS[extra]
    found, back = _effects(SITE, _with_extra(extra), version), _effects(_with_extra(extra), SITE, version)
    queued, running = _clause(found, rows[0]), _clause(found, rows[0], "running")
    assert (queued.rows, queued.text) == (rows, said)
    assert (running.rows, running.text) == (rows, "the new limits of gpu end no job")
    for clause in (queued, running):
        _is_that_of_its_rows(clause, version)
    assert queued.text in found.queued
    assert running.text in found.running
    assert "is not recorded" not in found.queued
    assert not [one for one in back.clauses if set(one.rows) & set(rows)]
    assert "end no job" not in back.running


@pytest.mark.parametrize("value", ["NO", "ALL"])
@pytest.mark.parametrize("extra", _LIMITS)
def test_new_jobs_above_a_limit_are_refused_only_if_slurm_enforces_it(extra: str, value: str) -> None:
    """job_mgr.c of 26.05.3 looks at each of these limits at submission only with EnforcePartLimits."""
    line = f"{_VERSION}\n  extra: {{EnforcePartLimits: '{value}'}}"
    found = _effects(*(changed(text, (_VERSION, line)) for text in (SITE, _with_extra(extra))))
    assert ("sbatch refuses" in _clause(found, _LIMITS[extra][0][0]).text) is (value == "ALL")


def _cluster(*extra: str) -> str:
    return changed(SITE, (_VERSION, f"{_VERSION}\n  extra: {{{', '.join(extra)}}}"))


@each_version
def test_limit_of_memory_of_the_whole_cluster_is_told_of_its_partitions(version: str) -> None:
    """Only that of a partition's `extra` was. Slurm takes it where a partition has no limit of its own."""
    new = _cluster("MaxMemPerNode: 500000")
    clause = _clause(_effects(SITE, new, version), "partition-max-memory")
    assert clause.text.startswith("those in gpu and debug that ask for more than 500000 MiB of a node")
    own = (_GPU, f"{_GPU}, extra: {{MaxMemPerNode: 900000}}")
    found = _effects(changed(SITE, own), changed(new, own), version)
    assert _clause(found, "partition-max-memory").text.startswith(
        "those in debug that ask for more than 500000"
    )
    assert "wait with MaxMemPerLimit" in clause.text
    none = (_GPU, f"{_GPU}, extra: {{MaxMemPerNode: 0}}")
    told = _clause(_effects(changed(SITE, none), changed(new, none), version), "partition-max-memory")
    assert told.text == clause.text, "0 is no limit of its own"
    assert "MaxMemPerLimit" not in _effects(new, _cluster("MaxMemPerNode: 600000"), version).queued
    of_cpu = _effects(SITE, _cluster("MaxMemPerCPU: 4000"), version).queued
    assert "a job in debug gets at most 4000 MiB for each CPU" in of_cpu
    assert "a job in gpu gets at most 4000 MiB for each CPU" in of_cpu


def test_notes_of_fields_name_their_partitions() -> None:
    """Beside a partition whose jobs start, nobody knew which wait."""
    short = ("max_time: 30m", "max_time: 10m")
    found = _effects(SITE, changed(SITE, short))
    assert "those in debug with a time limit above max_time wait with PartitionTimeLimit" in found.queued
    assert "a lower max_time of debug ends no job" in found.running
    both = _effects(SITE, changed(SITE, short, (_GPU, f"{_GPU}, max_time: 1d")))
    assert "those in debug and gpu with a time limit above max_time wait" in both.queued
    assert both.queued.count("PartitionTimeLimit") == 1
    accounts = _effects(SITE, changed(SITE, (_GPU, f"{_GPU}, accounts: [research]")))
    assert "those in gpu of an account or QOS that may not use the partition wait with" in accounts.queued
    clause = _clause(accounts, "partition-accounts")
    assert clause.text in accounts.queued


@pytest.mark.parametrize(
    ("before", "after", "wait"),
    [
        ("research", "research, serving", False),
        ("research, serving", "serving, research", False),
        ("research, serving", "serving", True),
        ("research", "serving", True),
    ],
)
def test_queue_waits_for_accounts_that_a_partition_loses_alone(before: str, after: str, wait: bool) -> None:
    """Regression: jobs were said to wait where a partition only gets one account more."""
    two = changed(SITE, ("accounts:\n", "accounts:\n  - {name: serving, users: [vision]}\n"))
    was, now = (changed(two, (_GPU, f"{_GPU}, accounts: [{accounts}]")) for accounts in (before, after))
    found = _effects(was, now)
    assert ("account or QOS that may not use the partition" in found.queued) is wait


# --- accounts -----------------------------------------------------------------------------------------
_BEGINS = {
    "stranger": "those without an association wait with InvalidAccount, and never start: cancel them",
    "group": "those above GrpTRES of their account wait with AssocGrpGRES, until others end, and one that is above it alone never starts",
    "minutes": "those with a time limit above what is left of GrpTRESMins of their account wait with AssocGrpGRESMinutes",
    "qos": "those of a QOS that their account lacks wait with InvalidQOS, until they get another QOS (sbatch refuses new ones)",
    "known": "others with an association start",
}


def test_accounts_are_enforced_by_the_words_of_the_rows() -> None:
    """The rows `enforce-safe-` were recorded with these words, and no `extra` changes them."""
    for plan, words in ((SITE, "associations,limits,qos,safe"), (_FREE, "")):
        conf = next(one.content.decode() for one in a_side(plan).artifacts if one.path.endswith("slurm.conf"))
        found = [line.partition("=")[2] for line in conf.splitlines() if "StorageEnforce=" in line]
        assert found == [words for _ in found]
        assert bool(found) is bool(words)


@each_version
@pytest.mark.parametrize("who", _BEGINS)
def test_queue_is_told_what_each_word_of_enforcement_does(who: str, version: str) -> None:
    """It had no row, and named a reason that Slurm does not show there."""
    found = _effects(_FREE, _NEEDED, version)
    clause = _clause(found, f"enforce-safe-{who}")
    assert clause.text == _BEGINS[who]
    assert clause.text in found.queued
    _is_that_of_its_rows(clause, version)
    assert "PartitionConfig" not in found.queued


@each_version
def test_running_and_new_jobs_are_told_that_accounts_are_needed(version: str) -> None:
    found = _effects(_FREE, _NEEDED, version)
    running, new = (_clause(found, "enforce-safe-stranger", one) for one in ("running", "new"))
    assert running.text == "those without an association, or above a limit, go on"
    assert running.text in found.running
    _is_that_of_its_rows(running, version)
    assert new.text == "after the change, sbatch refuses those of users without an account"
    assert fates_of(new.rows[0], version, Way.RESTART).new.outcome is Outcome.REFUSED


@each_version
def test_queue_is_told_which_jobs_start_when_accounts_are_no_more_needed(version: str) -> None:
    for new in (_FREE, LAB):
        clause = _clause(_effects(_NEEDED, new, version), "enforce-off-group")
        assert clause.rows == ("enforce-off-group", "enforce-off-minutes")
        assert clause.text == "those above a limit of accounts or QOS start, as none holds any more"
        _is_that_of_its_rows(clause, version)


def test_jobs_that_start_without_limits_are_others_beside_those_that_wait() -> None:
    model = ("model: h100", "model: h200")
    found = _effects(_NEEDED, changed(_FREE, model))
    assert "others above a limit of accounts or QOS start, as none holds any more" in found.queued
    closed = (_GPU, f"{_GPU}, extra: {{State: DOWN}}")
    for old, new in ((_NEEDED, _FREE), (_FREE, _NEEDED)):
        told = _effects(changed(old, closed), changed(new, closed)).queued
        assert "those in gpu wait with PartitionDown, until it is UP" in told
        assert "those above a limit of accounts or QOS start" not in told


def test_users_in_none_of_several_groups_are_told() -> None:
    found = _effects(SITE, _with_extra('AllowGroups: "root,wheel"'))
    assert "those in gpu of users who are in none of the groups root and wheel wait with" in found.queued


@pytest.mark.parametrize("edit", ["renamed, with accounting", "accounting added"])
def test_reason_of_jobs_without_an_association_is_the_one_that_was_recorded(edit: str) -> None:
    """`InvalidAccount or PartitionConfig` was said of both."""
    seen = {one["queued"] for one in recorded() if one["edit"] == edit}
    old, new = (a_side(text).plan for text in EDITS[edit])
    (clause,) = (
        one
        for one in requests.clauses(old, new, Way.RESTART, starts=True)  # type: ignore[arg-type]
        if one.subject == "queued"
    )
    assert [
        f"wait with {one.removeprefix('PENDING (').rstrip(')')}, and never" in clause.text for one in seen
    ] == [True]
    assert " or " not in clause.text


# --- what jobs without a row are told -----------------------------------------------------------------
_WITHOUT = {
    "those that do not start before": "tests/slurm/test_cluster_identity.py",
    "is not recorded": "slurm.conf(5)",
    "that ask for no GPUs": "job_submit.lua",
}


def test_clauses_without_a_row_are_known() -> None:
    """Each says why: it was recorded elsewhere, or is none of Slurm's rules."""
    edits = (
        (LAB, _NEEDED),
        (_FREE, _NEEDED),
        (_NEEDED, _FREE),
        (SITE, _with_extra("DenyAccounts: product, MinNodes: 2")),
        (LAB, changed(LAB, (_GPU, f"{_GPU}, requires_gpus: true"))),
    )
    for old, new in edits:
        plans = on_hosts(a_side(old).plan), on_hosts(a_side(new).plan)
        for one in requests.clauses(*plans, Way.RESTART, starts=True):
            assert bool(one.rows) is not any(words in one.text for words in _WITHOUT), one
