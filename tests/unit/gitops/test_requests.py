"""What `diff` says of jobs whose request leaves: each clause is that of its rows in the recorded table, and each row that an edit can make is said."""

import re
from dataclasses import dataclass

import pytest
from support.account_rows import SITE
from support.builders import LAB, changed
from support.reviewed import a_diff

from gpucluster.gitops import sentences
from gpucluster.gitops.field_effects import ROWS, Note
from gpucluster.gitops.model import Clause, Effects
from gpucluster.slurm.recorded import RECORDED
from gpucluster.slurm.request_table import Fate, Outcome, Way, fates_of

_GPUS = "gpus: {model: h100, count: 8}"
_SIZED = "gpus: {model: h100, count: 8, memory: 80GiB}"
_VERSION = 'version: "26.05"'
_POOL = 'addresses: "192.0.2.[11-14]"}'


def shared(sharing: str) -> tuple[tuple[str, str], ...]:
    """The spec with this sharing of its GPUs; empty: none."""
    more = f", sharing: {sharing}" if sharing else ""
    return ((_GPUS, _SIZED), (_POOL, f"{_POOL[:-1]}{more}}}"))


@dataclass(frozen=True)
class Case:
    """Two specs, the row of the table, and the jobs that its clause names."""

    row: str
    old: str
    new: str
    jobs: str


def _sharing(row: str, old: str, new: str, jobs: str) -> Case:
    return Case(row, changed(LAB, *shared(old)), changed(LAB, *shared(new)), jobs)


def _lab(row: str, jobs: str, *changes: tuple[str, str], base: tuple[tuple[str, str], ...] = ()) -> Case:
    return Case(row, changed(LAB, *base), changed(changed(LAB, *base), *changes), jobs)


def _site(row: str, jobs: str, *changes: tuple[str, str], base: tuple[tuple[str, str], ...] = ()) -> Case:
    return Case(row, changed(SITE, *base), changed(changed(SITE, *base), *changes), jobs)


_SLICES, _PARTS = "{mig: {1g.10gb: 7}}", "{shards: 4}"
_FEWER = (
    (
        'hosts: "gpu[01-04]", addresses: "192.0.2.[11-14]"',
        'hosts: "gpu[01-03]", addresses: "192.0.2.[11-13]"',
    ),
    ('leaf2: "gpu[03-04]"', 'leaf2: "gpu03"'),
)
_RESEARCH = "{name: research, parent"
_HOURS, _ALSO_GPUS = "limits: {gpu_hours_per_month: 5000}", "limits: {gpus: 64}"
_H100 = '{name: h100, machine: hgx-h100, hosts: "gpu[01-04]", addresses: "192.0.2.[11-14]"}'
_SPARE = '{name: spare, machine: hgx-h100, hosts: "gpu[05-06]", addresses: "192.0.2.[15-16]"}'
_TWO_POOLS = (
    ('leaf2: "gpu[03-04]"', 'leaf2: "gpu[03-06]"'),
    (
        "pools:\n",
        "  plain: {sockets: 2, cores_per_socket: 56, threads_per_core: 2, memory: 2000GiB}\npools:\n",
    ),
    (_H100, f"{_H100}\n  - {_SPARE}"),
    ("default: true}", "default: true}\n  - {name: rest, pools: [spare]}"),
)


def _of_two_pools(*changes: tuple[str, str], base: tuple[tuple[str, str], ...] = ()) -> tuple[str, str]:
    old = changed(changed(LAB, *_TWO_POOLS), *base)
    return old, changed(old, *changes)


def _elsewhere() -> tuple[str, str]:
    """The partition gets the nodes of the other pool."""
    both = (("pools: [spare]}", "pools: [spare, h100]}"),)
    return _of_two_pools(("pools: [h100], default", "pools: [spare], default"), base=both)


def _part_leaves(sharing: str) -> tuple[str, str]:
    """Both pools share their GPUs, then only the second."""
    both = tuple((pool, f"{pool[:-1]}, sharing: {sharing}}}") for pool in (_H100, _SPARE))
    return _of_two_pools((both[0][1], both[0][0]), base=((_GPUS, _SIZED), *both))


_GROUP = "that bring its jobs above 8 GPUs (QOS few)"
_OF_USER = "that bring a user above 8 GPUs (QOS few)"


def _own_qos(limits: str) -> tuple[str, str]:
    """The partition gets a QOS of its own with these limits."""
    old = changed(SITE, ("accounts:\n", f"  - {{name: few, limits: {{{limits}}}}}\naccounts:\n"))
    return old, changed(old, ("pools: [h100], default: true", "pools: [h100], default: true, qos: few"))


def _below_a_limit() -> tuple[str, str]:
    """The account moves below one with a limit."""
    old = changed(SITE, ("limits: {gpu_hours_per_month: 5000}", "limits: {gpus: 16}"))
    return old, changed(old, ("parent: science, share: 2", "parent: product, share: 2, qos: [normal]"))


CASES = (
    _site("licence-removed", "those that ask for the licence matlab", ("  licenses: {matlab: 3}\n", "")),
    _site("licence-too-few", "those that ask for more than 1 of the licence matlab", ("{matlab: 3}", "{matlab: 1}")),
    _lab("gpus-too-few", "those in gpu that ask for more than 4 gpu:h100 of a node", ("count: 8}", "count: 4}")),
    _lab("gpu-model", "those in gpu that ask for gpu:h100", ("model: h100", "model: h200")),
    _lab("gpu-model-any", "others in gpu that ask for GPUs without their model have h200, and", ("model: h100", "model: h200")),
    _lab("last-gpus-removed", "those in gpu that ask for GPUs", (f", {_GPUS}", "")),
    _sharing("mig-added", "", _SLICES, "those in gpu that ask for gpu:h100"),
    _sharing("mig-added-any", "", _SLICES, "others in gpu that ask for GPUs without their model have a MIG slice for each, and"),
    _sharing("mig-removed", _SLICES, "", "those in gpu that ask for gpu:1g.10gb"),
    _sharing("mig-profile", _SLICES, "{mig: {3g.40gb: 2}}", "those in gpu that ask for gpu:1g.10gb"),
    _sharing("mps-to-shards", "{mps: 100}", _PARTS, "those in gpu that ask for gres/mps"),
    _sharing("last-mps-removed", "{mps: 100}", "", "those in gpu that ask for gres/mps"),
    _sharing("last-shards-removed", _PARTS, "", "those in gpu that ask for gres/shard"),
    _sharing("shards-to-mig", _PARTS, _SLICES, "those in gpu that ask for gres/shard"),
    _sharing("shards-too-few", _PARTS, "{shards: 2}", "those in gpu that ask for more than 16 shards of a node"),
    _sharing("shards-too-few-of-gpu", _PARTS, "{shards: 2}", "others in gpu that ask for more than 2 shards"),
    _sharing("mps-too-few", "{mps: 100}", "{mps: 50}", "those in gpu that ask for more than 400 parts of MPS of a node"),
    _sharing("mps-too-few-of-gpu", "{mps: 100}", "{mps: 50}", "others in gpu that ask for more than 50 parts of MPS"),
    _lab("nodes-too-few", "those in gpu that need more nodes than are left", *_FEWER),
    _lab("nodes-too-few-cpus", "those in gpu that need more CPUs than are left", *_FEWER),
    _lab("cpus-too-few", "those in gpu that need more CPUs than are left", ("cores_per_socket: 56", "cores_per_socket: 48")),
    _lab("partition-down", "those in gpu", ("default: true", "default: true, extra: {State: DOWN}")),
    _lab("partition-drain", "those in gpu", ("default: true", "default: true, extra: {State: DRAIN}")),
    _lab("memory-too-low", " MiB of a node", ("memory: 2000GiB", "memory: 1000GiB")),
    _site("account-renamed", "those of the account research", (_RESEARCH, "{name: learning, parent")),
    Case("gpus-removed", *_of_two_pools((_H100, _H100.replace("hgx-h100", "plain"))), "those in gpu that ask for GPUs"),
    Case("shards-removed", *_part_leaves(_PARTS), "those in gpu that ask for gres/shard"),
    Case("mps-removed", *_part_leaves("{mps: 100}"), "those in gpu that ask for gres/mps"),
    _lab("partition-inactive", "those in gpu", ("default: true", "default: true, extra: {State: INACTIVE}")),
    _lab("partition-max-nodes", "those in gpu that ask for more than 2 nodes", ("default: true", "default: true, extra: {MaxNodes: 2}")),
    _lab("feature-removed", "those in gpu that need the feature ib", (f"{_POOL[:-1]}, features: [ib]}}", _POOL), base=((_POOL, f"{_POOL[:-1]}, features: [ib]}}"),)),
    Case("partition-other-nodes", *_elsewhere(), "others in gpu that wait for nodes that leave the partition"),
    Case("partition-too-few", *_elsewhere(), "those in gpu that need more nodes than are left"),
    Case("partition-too-few-cpus", *_elsewhere(), "those in gpu that need more CPUs than are left"),
    Case("partition-own-qos", *_own_qos("gpus: 8"), f"those in gpu {_GROUP}"),
    Case("partition-own-qos-user", *_own_qos("gpus_per_user: 8"), f"those in gpu {_OF_USER}"),
    Case("partition-own-qos-cpus", *_own_qos("cpus_per_user: 8"), "those in gpu that bring a user above 8 CPUs (QOS few)"),
    Case("partition-own-qos-minutes", *_own_qos("gpu_hours_per_month: 8"), "those in gpu that bring its jobs above 8 GPU hours of the month (QOS few)"),
    _site("account-moved", "others of the account research", ("parent: science, share: 2", "share: 2, qos: [normal]")),
    Case("account-moved-limit", *_below_a_limit(), "those of the account research that bring the jobs of product above 16 GPUs"),
    _site("account-closed", "those of the account research", (_RESEARCH, "{name: learning, parent"), ("users: [vision, speech]", "users: [vision]")),
    _site("account-left", "those of speech in the account research", ("users: [vision, speech]", "users: [vision]")),
    _site("qos-of-account", "those of the QOS normal in the account product", (_ALSO_GPUS, _HOURS), base=((_HOURS, _ALSO_GPUS),)),
    _site("qos-of-account", "those of the QOS product-normal in the account product", (_HOURS, _ALSO_GPUS)),
    _site("qos-of-account", "those of the QOS urgent in the account research", ("qos: [normal, urgent]", "qos: [normal]")),
)  # fmt: skip
_ALWAYS = {*sentences.DRAINS, *sentences.ALL_DRAIN}
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.row)
each_version = pytest.mark.parametrize("version", RECORDED)


def _effects(case: Case, version: str) -> Effects:
    old, new = (text.replace(_VERSION, f'version: "{version}"') for text in (case.old, case.new))
    found = a_diff(old, new).effects
    assert found is not None
    return found


def _asked(found: Effects | None) -> list[Clause]:
    """The clauses about what jobs ask for. `test_clauses` has the others."""
    assert found is not None
    return [one for one in found.clauses if not set(one.rows) <= _ALWAYS]


@each_version
@each_case
def test_queue_is_told_what_slurm_did(case: Case, version: str) -> None:
    found = _effects(case, version)
    clause = next(one for one in found.clauses if one.rows == (case.row,))
    assert case.jobs in clause.text
    assert clause.text in found.queued


@each_version
@each_case
def test_clause_has_the_outcome_and_the_reason_of_its_row(case: Case, version: str) -> None:
    for clause in _asked(_effects(case, version)):
        for row in clause.rows if clause.subject == "queued" and len(clause.rows) == 1 else ():
            fates = fates_of(row, version, Way.RECONFIGURE)
            words = {
                Outcome.WAITS: f"wait with {fates.queued.reason}",
                Outcome.STARTS: "start",
                Outcome.STARTS_WITHOUT: "start without it",
                Outcome.ENDED: "are ended",
            }[fates.queued.outcome]
            assert words in clause.text
            assert ("sbatch refuses" in clause.text) is (fates.new.outcome is Outcome.REFUSED)


_TWO_PARTITIONS = changed(LAB, *_TWO_POOLS)
_NO_DEFAULT = ("pools: [h100], default: true}", "pools: [h100]}")
_DEFAULTS = {
    "default-removed": (_NO_DEFAULT, "after the change, sbatch refuses new ones that name no partition: none is the default"),
    "default-moved": (("pools: [spare]}", "pools: [spare], default: true}"), "after the change, new ones that name no partition go to rest"),
}  # fmt: skip


@each_version
@pytest.mark.parametrize("row", _DEFAULTS)
def test_jobs_that_name_no_partition_are_told(row: str, version: str) -> None:
    """Nothing was said of them when the default partition went: Slurm refuses them, or gives them another one."""
    (change, said), old = _DEFAULTS[row], _TWO_PARTITIONS.replace(_VERSION, f'version: "{version}"')
    found = a_diff(old, changed(old, _NO_DEFAULT, *(() if change == _NO_DEFAULT else (change,)))).effects
    assert _asked(found) == [Clause(subject="new", text=said, rows=(row,))]
    assert found is not None
    assert found.queued == f"stay in the queue; {said}"
    for way in Way:
        fates = fates_of(row, version, way)
        assert (fates.running, fates.queued) == (
            Fate(outcome=Outcome.GOES_ON),
            Fate(outcome=Outcome.STARTS),
        )
        assert fates.new.outcome is (Outcome.REFUSED if "refuses" in said else Outcome.TAKEN_ELSEWHERE)


def test_new_jobs_are_told_when_the_default_partition_is_removed() -> None:
    gone = "  - {name: gpu, pools: [h100], default: true}\n"
    new = changed(_TWO_PARTITIONS, (gone, ""), ("pools: [spare]}", "pools: [spare, h100]}"))
    found = a_diff(_TWO_PARTITIONS, new).effects
    assert found is not None
    assert _DEFAULTS["default-removed"][1] in found.queued


def test_first_default_partition_takes_no_job_from_another_one() -> None:
    without = changed(_TWO_PARTITIONS, _NO_DEFAULT)
    assert _asked(a_diff(without, _TWO_PARTITIONS).effects) == []


def test_request_that_can_still_be_met_is_not_named() -> None:
    """More licences, GPUs and memory, and a partition that is UP again."""
    for case in CASES:
        if case.row in {
            "licence-too-few",
            "gpus-too-few",
            "memory-too-low",
            "partition-down",
            "shards-too-few",
            "nodes-too-few",
        }:
            back = a_diff(case.new, case.old).effects
            assert _asked(back) == []


@each_version
@pytest.mark.parametrize("row", ["licence-removed", "licence-too-few"])
def test_release_of_a_job_that_slurm_holds_is_told(row: str, version: str) -> None:
    """It said that they wait until they are released, and not that they start then without their licence."""
    clause = _asked(_effects(next(c for c in CASES if c.row == row), version))[0]
    released = fates_of(row, version, Way.RECONFIGURE).released
    assert ("releases (scontrol release JOB)" in clause.text) is (released is not None)
    if released is not None:
        words = (
            released.outcome.value
            if released.outcome is not Outcome.WAITS
            else f"waits with {released.reason}"
        )
        assert f"releases (scontrol release JOB) {words}" in clause.text


@each_version
def test_jobs_that_depend_on_one_that_never_starts_are_told(version: str) -> None:
    case = next(one for one in CASES if one.row == "gpu-model")
    found = _effects(case, version)
    clause = next(one for one in found.clauses if "afterok-waits" in one.rows)
    assert clause.rows == ("afterok-waits", "afterany-waits", "afterok-cancelled", "afterany-cancelled")
    for row in clause.rows:
        fate = fates_of(row, version, Way.RECONFIGURE).queued
        assert fate.reason in clause.text
        assert (fate.outcome is Outcome.STARTS) is (row == "afterany-cancelled")
    assert clause.text in found.queued


@each_version
def test_jobs_on_nodes_that_leave_their_partition_are_told(version: str) -> None:
    found = _effects(next(one for one in CASES if one.row == "partition-other-nodes"), version)
    clause = next(one for one in _asked(found) if one.subject == "running")
    assert clause.text == "those on nodes that leave gpu go on"
    assert clause.text in found.running
    assert all(
        fates_of(row, version, Way.RECONFIGURE).running == Fate(outcome=Outcome.GOES_ON)
        for row in clause.rows
    )


_WITH_ROWS = [(row.note, name) for row in ROWS for name in row.note.rows]


@each_version
@pytest.mark.parametrize("way", list(Way))
@pytest.mark.parametrize(("note", "row"), _WITH_ROWS, ids=[name for _, name in _WITH_ROWS])
def test_note_about_jobs_is_that_of_its_rows(version: str, way: Way, note: Note, row: str) -> None:
    found = fates_of(row, version, way)
    if "wait with" in note.queued:
        assert f"wait with {found.queued.reason}" in note.queued
    elif note.queued and found.queued.outcome is Outcome.WAITS:
        assert "wait" in note.queued or "keep it" in note.queued
    if note.queued:
        assert ("sbatch refuses" in note.queued) is (found.new.outcome is Outcome.REFUSED)
    if note.running and found.running is not None:
        assert ("requeued" in note.running) is (found.running.outcome is Outcome.REQUEUED)


_MONTH = "until the next month"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (", " + _HOURS, "", False),
        ("", ", " + _HOURS, False),
        (f", {_ALSO_GPUS}", f", {_HOURS}", False),
        (f", {_ALSO_GPUS}", f", {_ALSO_GPUS[:-1]}, gpu_hours_per_month: 5000}}", False),
        (", " + _HOURS, f", {_HOURS}".replace("5000", "4000"), True),
    ],
)
def test_only_jobs_that_keep_their_qos_wait_for_the_next_month(old: str, new: str, told: bool) -> None:
    """An account that gets GPU hours of the month gets a QOS of its own, and none of its queued jobs has it."""
    before, after = (changed(SITE, (", " + _HOURS, limits)) for limits in (old, new))
    found = a_diff(before, after).effects
    assert found is not None
    assert (_MONTH in found.queued) is told
    assert ("InvalidQOS" in found.queued) is not told


def test_qos_with_new_gpu_hours_keeps_its_jobs_until_the_next_month() -> None:
    new = changed(SITE, ("{cpus_per_user: 8}", "{cpus_per_user: 8, gpu_hours_per_month: 50}"))
    found = a_diff(SITE, new).effects
    assert found is not None
    assert _MONTH in found.queued


_FREE = changed(LAB, (_VERSION, f"{_VERSION}\n  accounting: {{database: local}}"))
_ENFORCED = f"{_FREE}accounts: [{{name: research, users: [vision]}}]\n"
_NEED_ACCOUNTS = "those without an association wait with InvalidAccount, and never start: cancel them"
_ABOVE_LIMITS = "those above a limit of accounts or QOS start, as none holds any more"


def test_queue_is_told_when_accounts_are_needed_first() -> None:
    """S50: jobs of slurmctld's state without an association never start once associations are enforced."""
    found = a_diff(_FREE, _ENFORCED).effects
    assert found is not None
    assert _NEED_ACCOUNTS in found.queued
    assert "after the change, sbatch refuses those of users without an account" in found.queued
    assert "those that depend on one that never starts" in found.queued


def test_queue_is_told_when_no_limit_holds_any_more() -> None:
    found = a_diff(_ENFORCED, _FREE).effects
    assert found is not None
    assert _ABOVE_LIMITS in found.queued


def test_new_need_of_accounts_is_told_once() -> None:
    """`identity` has the cluster that the head refuses."""
    for old, reason in (
        (LAB, "PartitionConfig"),
        (_FREE.replace("name: lab", "name: old"), "InvalidAccount"),
    ):
        found = a_diff(old, _ENFORCED).effects
        assert found is not None
        assert found.queued.count(f"wait with {reason}") == 1
        assert found.queued.count("and never start") == 1
    for new in (_ENFORCED.replace("[vision]", "[vision], share: 2"), _FREE):
        found = a_diff(_ENFORCED, new).effects
        assert found is not None
        assert "InvalidAccount" not in found.queued


_TO_FOUR = ("count: 8}", "count: 4}")
_MODEL_AND_FOUR = changed(LAB, ("model: h100", "model: h200"), _TO_FOUR)
_LESS_UNTYPED = {
    "another model": (LAB, _MODEL_AND_FOUR, "more than 4 GPUs of a node"),
    "MIG to whole GPUs": (changed(LAB, *shared(_SLICES)), changed(LAB, *shared("")), "more than 8 GPUs of a node"),
    "MIG to shards": (changed(LAB, *shared(_SLICES)), changed(LAB, *shared(_PARTS)), "more than 8 GPUs of a node"),
    "larger slices": (changed(LAB, *shared(_SLICES)), changed(LAB, *shared("{mig: {3g.40gb: 2}}")), "more than 16 GPUs of a node"),
    "the same model": (LAB, changed(LAB, _TO_FOUR), "more than 4 GPUs of a node"),
}  # fmt: skip


@each_version
@pytest.mark.parametrize("edit", _LESS_UNTYPED)
def test_jobs_that_ask_for_more_gpus_than_a_node_has_never_start(edit: str, version: str) -> None:
    """Without a model any GPU and slice counts. It said that they start on the other GPUs."""
    old, new, jobs = _LESS_UNTYPED[edit]
    found = _effects(Case("", old, new, ""), version)
    clause = next(one for one in _asked(found) if jobs in one.text)
    assert clause.rows == ("gpus-too-few",)
    assert (
        f"those in gpu that ask for {jobs} without their model wait with BadConstraints, and never start"
        in clause.text
    )
    places = [one.text for one in _asked(found)]
    any_model = [one for one in places if "GPUs without their model have" in one]
    assert all(
        one.startswith("others in gpu") and places.index(one) > places.index(clause.text) for one in any_model
    )


def test_partition_that_keeps_as_many_gpus_of_a_node_loses_none() -> None:
    """Slices of another profile, as many; and another model."""
    for old, new in (
        (LAB, changed(LAB, ("model: h100", "model: h200"))),
        (LAB, changed(LAB, *shared(_SLICES))),
    ):
        found = a_diff(old, new).effects
        assert found is not None
        assert "GPUs of a node" not in found.queued


@pytest.mark.parametrize("state", ["DOWN", "INACTIVE"])
def test_partition_that_is_closed_says_only_that(state: str) -> None:
    """It said besides that some of its jobs start, and that others never start."""
    old, new = _elsewhere()
    (clause,) = _asked(
        a_diff(old, changed(new, ("default: true", f"default: true, extra: {{State: {state}}}"))).effects
    )[:1]
    assert clause.text.startswith(f"those in gpu wait with Partition{state.capitalize()}, until it is UP")
    found = a_diff(
        old,
        changed(
            new,
            ("model: h100", "model: h200"),
            ("default: true", f"default: true, extra: {{State: {state}}}"),
        ),
    ).effects
    assert found is not None
    assert not re.search(r"in gpu[^;]*never start|in gpu[^;]* start\b", found.queued)


@each_version
def test_jobs_that_start_are_told_after_those_that_wait_as_others(version: str) -> None:
    """`those of the account research start` stood before those of it that wait."""
    for row in ("account-moved-limit", "partition-too-few", "gpu-model-any"):
        asked = _asked(_effects(next(one for one in CASES if one.row == row), version))
        queued = [one for one in asked if one.subject == "queued" and len(one.rows) == 1]
        outcomes = [fates_of(one.rows[0], version, Way.RECONFIGURE).queued.outcome for one in queued]
        assert outcomes == sorted(outcomes, key=lambda one: one is not Outcome.WAITS)
        starts = [
            one.text for one, outcome in zip(queued, outcomes, strict=True) if outcome is not Outcome.WAITS
        ]
        assert starts
        assert all(one.startswith("others ") for one in starts)


def test_jobs_that_start_are_no_others_where_none_waits() -> None:
    case = next(one for one in CASES if one.row == "account-left")
    assert [one.text.startswith("those of speech") for one in _asked(a_diff(case.old, case.new).effects)] == [
        True
    ]


@pytest.mark.parametrize(
    "field", ["extra: {AllowGroups: root}", "accounts: [research]", "allow_qos: [normal]"]
)
def test_who_may_use_a_partition_is_access(field: str) -> None:
    """`extra` refuses AllowAccounts and AllowQos: they are fields."""
    found = a_diff(
        SITE, changed(SITE, ("pools: [h100], default: true", f"pools: [h100], default: true, {field}"))
    )
    (path,) = (one.path for one in found.access)
    assert path.startswith("partitions[gpu].")
