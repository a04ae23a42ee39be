"""What `diff` says of jobs whose request leaves: each clause is that of its rows in the recorded table, and each row that an edit can make is said."""

from dataclasses import dataclass

import pytest
from support.account_rows import SITE
from support.builders import LAB, changed
from support.reviewed import a_diff

from gpucluster.gitops.field_effects import ROWS, Note
from gpucluster.gitops.model import Effects
from gpucluster.slurm.request_table import RECORDED, Outcome, Way, fates_of

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


def _site(row: str, jobs: str, *changes: tuple[str, str]) -> Case:
    return Case(row, SITE, changed(SITE, *changes), jobs)


_SLICES, _PARTS = "{mig: {1g.10gb: 7}}", "{shards: 4}"
_FEWER = (
    (
        'hosts: "gpu[01-04]", addresses: "192.0.2.[11-14]"',
        'hosts: "gpu[01-03]", addresses: "192.0.2.[11-13]"',
    ),
    ('leaf2: "gpu[03-04]"', 'leaf2: "gpu03"'),
)
_RESEARCH = "{name: research, parent"
CASES = (
    _site("licence-removed", "those that ask for the licence matlab", ("  licenses: {matlab: 3}\n", "")),
    _site("licence-too-few", "those that ask for more than 1 of the licence matlab", ("{matlab: 3}", "{matlab: 1}")),
    _lab("gpus-too-few", "those in gpu that ask for more than 4 gpu:h100 of a node", ("count: 8}", "count: 4}")),
    _lab("gpu-model", "those in gpu that ask for gpu:h100", ("model: h100", "model: h200")),
    _lab("gpu-model-any", "those in gpu that ask for GPUs without their model have h200, and", ("model: h100", "model: h200")),
    _lab("last-gpus-removed", "those in gpu that ask for GPUs", (f", {_GPUS}", "")),
    _sharing("mig-added", "", _SLICES, "those in gpu that ask for gpu:h100"),
    _sharing("mig-added-any", "", _SLICES, "those in gpu that ask for GPUs without their model have a MIG slice for each, and"),
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
    _site("account-closed", "those of the account research", (_RESEARCH, "{name: learning, parent"), ("users: [vision, speech]", "users: [vision]")),
)  # fmt: skip
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.row)
each_version = pytest.mark.parametrize("version", RECORDED)


def _effects(case: Case, version: str) -> Effects:
    old, new = (text.replace(_VERSION, f'version: "{version}"') for text in (case.old, case.new))
    found = a_diff(old, new).effects
    assert found is not None
    return found


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
    for clause in _effects(case, version).clauses:
        for row in clause.rows if clause.subject == "queued" else ():
            fates = fates_of(row, version, Way.RECONFIGURE)
            words = {
                Outcome.WAITS: f"wait with {fates.queued.reason}",
                Outcome.STARTS: "start",
                Outcome.STARTS_WITHOUT: "start without it",
                Outcome.ENDED: "are ended",
            }[fates.queued.outcome]
            assert words in clause.text
            assert ("sbatch refuses" in clause.text) is (fates.new.outcome is Outcome.REFUSED)


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
            assert back is not None
            assert back.clauses == ()


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
    if note.running and found.running is not None:
        assert ("requeued" in note.running) is (found.running.outcome is Outcome.REQUEUED)
