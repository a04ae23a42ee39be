"""What `diff` says of partitions that are closed, limits of their `extra`, associations and the order of clauses."""

import re

import pytest
from support.account_rows import SITE
from support.builders import LAB, SPEC, changed, on_hosts
from support.reviewed import a_diff, a_side

from gpucluster.gitops import requests
from gpucluster.gitops.field_effects import ROWS
from gpucluster.gitops.model import Clause, Effects
from gpucluster.slurm.recorded import RECORDED
from gpucluster.slurm.request_table import Outcome, Way, fates_of

_VERSION = 'version: "26.05"'
_H100 = '{name: h100, machine: hgx-h100, hosts: "gpu[01-04]", addresses: "192.0.2.[11-14]"}'
_SPARE = '{name: spare, machine: hgx-h100, hosts: "gpu[05-06]", addresses: "192.0.2.[15-16]"}'
_PLAIN = "  plain: {sockets: 2, cores_per_socket: 56, threads_per_core: 2, memory: 2000GiB}\n"
_TWO_PARTITIONS = changed(
    LAB,
    ('leaf2: "gpu[03-04]"', 'leaf2: "gpu[03-06]"'),
    ("pools:\n", f"{_PLAIN}pools:\n"),
    (_H100, f"{_H100}\n  - {_SPARE}"),
    ("default: true}", "default: true}\n  - {name: rest, pools: [spare]}"),
)
_NO_DEFAULT = ("pools: [h100], default: true}", "pools: [h100]}")
_FOUR, _THREE = (
    'hosts: "gpu[01-04]", addresses: "192.0.2.[11-14]"',
    'hosts: "gpu[01-03]", addresses: "192.0.2.[11-13]"',
)
_FEWER = ((_FOUR, _THREE), ('leaf2: "gpu[03-04]"', 'leaf2: "gpu03"'))
_LEFT = ("users: [vision, speech]", "users: [vision]")
_FREE = changed(LAB, (_VERSION, f"{_VERSION}\n  accounting: {{database: local}}"))
_ENFORCED = f"{_FREE}accounts: [{{name: research, users: [vision]}}]\n"
each_version = pytest.mark.parametrize("version", RECORDED)


def _effects(old: str, new: str, version: str) -> Effects:
    before, after = (text.replace(_VERSION, f'version: "{version}"') for text in (old, new))
    found = a_diff(before, after).effects
    assert found is not None
    return found


def _new(found: Effects) -> Clause:
    (clause,) = (one for one in found.clauses if one.subject == "new")
    return clause


def _elsewhere() -> tuple[str, str]:
    """The partition gets the nodes of the other pool, of which that one has both."""
    old = changed(_TWO_PARTITIONS, ("pools: [spare]}", "pools: [spare, h100]}"))
    return old, changed(old, ("pools: [h100], default", "pools: [spare], default"))


_GPU_CLOSED = ("default: true", "default: true, extra: {State: %s}")


def _with_state(text: str, state: str) -> str:
    return changed(text, (_GPU_CLOSED[0], _GPU_CLOSED[1] % state))


@each_version
def test_no_job_starts_in_a_partition_that_stays_closed(version: str) -> None:
    """It said that those that wait for other nodes start, and those of a closed account."""
    for state, reason in (("DOWN", "PartitionDown"), ("INACTIVE", "PartitionInactive")):
        old, new = (_with_state(text, state) for text in _elsewhere())
        found = _effects(old, new, version)
        assert not re.search(r"in gpu[^;]* start\b", found.queued)
        assert f"those in gpu wait with {reason}, until it is UP" not in found.queued, (
            "no other clause starts"
        )
        before, after = (_with_state(text, state) for text in (SITE, changed(SITE, _LEFT)))
        told = _effects(before, after, version).queued
        assert f"those in gpu wait with {reason}, until it is UP" in told
        assert "others of speech in the account research start" in told


@pytest.mark.parametrize("version", RECORDED)
def test_jobs_of_a_closed_partition_are_excepted_from_those_that_start(version: str) -> None:
    """`stay in the queue, and start on other nodes of their partition` was all that was said."""
    old, new = (_with_state(text, "DOWN") for text in (LAB, changed(LAB, *_FEWER)))
    found = _effects(old, new, version)
    assert "start" in found.queued
    assert "those in gpu wait with PartitionDown, until it is UP" in found.queued
    quiet = _effects(old, changed(old, ("default: true", "default: true, max_time: 1d")), version)
    assert "PartitionDown" not in quiet.queued


@each_version
@pytest.mark.parametrize("state", ["DRAIN", "INACTIVE", "DOWN"])
def test_default_partition_that_is_closed_takes_jobs_as_its_row_says(state: str, version: str) -> None:
    """It said that new jobs go to a partition that refuses them."""
    new = changed(
        _TWO_PARTITIONS,
        _NO_DEFAULT,
        ("pools: [spare]}", f"pools: [spare], default: true, extra: {{State: {state}}}}}"),
    )
    found = _effects(_TWO_PARTITIONS, new, version)
    clause = _new(found)
    refused = fates_of(f"partition-{state.lower()}", version, Way.RECONFIGURE).new.outcome is Outcome.REFUSED
    assert (
        clause.text
        == f"after the change, sbatch refuses new ones that name no partition: rest, the default one, is {state}"
    ) is refused
    assert ("go to rest" in clause.text) is not refused
    assert f"partition-{state.lower()}" in clause.rows


@pytest.mark.parametrize("removed", ["gpu", "rest"])
def test_drain_of_a_removed_default_partition_is_said_to_refuse_jobs(removed: str) -> None:
    """The commands set it to DRAIN, and sbatch refuses those that name no partition until the bundle is applied."""
    lines = {
        "gpu": "  - {name: gpu, pools: [h100], default: true}\n",
        "rest": "  - {name: rest, pools: [spare]}\n",
    }
    kept = (
        ("pools: [spare]}", "pools: [spare, h100], default: true}")
        if removed == "gpu"
        else ("pools: [h100],", "pools: [h100, spare],")
    )
    found = a_diff(_TWO_PARTITIONS, changed(_TWO_PARTITIONS, (lines[removed], ""), kept)).effects
    assert found is not None
    (step,) = (one for one in found.steps if "state=drain" in one)
    words = "until the bundle is applied, sbatch refuses jobs that name no partition"
    assert (words in step) is (removed == "gpu")
    assert fates_of("partition-drain", RECORDED[0], Way.RECONFIGURE).new.outcome is Outcome.REFUSED


_EXTRA = {
    "MaxMemPerCPU: 4000": "a job in gpu gets at most 4000 MiB for each CPU: what Slurm does to queued ones that ask for more is not recorded",
    "DenyAccounts: product": "the account product may not use gpu: what Slurm does to its queued jobs is not recorded",
    "DenyQos: urgent": "the QOS urgent may not use gpu: what Slurm does to its queued jobs is not recorded",
    "ReqResv: YES": "a job in gpu must name a reservation: what Slurm does to queued ones without one is not recorded",
}  # fmt: skip


def _with_extra(extra: str) -> str:
    return changed(
        SITE, ("pools: [h100], default: true", f"pools: [h100], default: true, extra: {{{extra}}}")
    )


@pytest.mark.parametrize("extra", _EXTRA)
def test_limit_of_extra_without_a_row_is_told_as_the_manual_has_it(extra: str) -> None:
    """Nothing was said of them, as if no job could wait for them."""
    new = _with_extra(extra)
    found, back = a_diff(SITE, new).effects, a_diff(new, SITE).effects
    assert found is not None
    assert back is not None
    assert _EXTRA[extra] in found.queued
    assert "is not recorded" not in back.queued


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("MinNodes: 3", "MinNodes: 2"),
        ("MaxMemPerNode: 500000", "MaxMemPerNode: UNLIMITED"),
        ("MaxMemPerCPU: 4000", "MaxMemPerCPU: 5000"),
        ("AllowGroups: root", 'AllowGroups: "root,wheel"'),
        ('DenyAccounts: "product,research"', "DenyAccounts: product"),
        ("ReqResv: YES", "ReqResv: NO"),
        ("Hidden: NO", "Hidden: YES"),
    ],
)
def test_limit_of_extra_that_is_no_lower_is_not_told(old: str, new: str) -> None:
    found = a_diff(_with_extra(old), _with_extra(new)).effects
    assert found is not None
    assert "is not recorded" not in found.queued
    assert "wait with" not in found.queued


def test_extra_of_a_partition_that_names_who_may_use_it_denies_nobody() -> None:
    """slurm.conf(5): with AllowAccounts Slurm enforces no DenyAccounts."""
    allows = ("pools: [h100], default: true", "pools: [h100], default: true, accounts: [research]")
    old, new = changed(SITE, allows), changed(_with_extra("DenyAccounts: product"), allows)
    found = a_diff(old, new).effects
    assert found is not None
    assert "DenyAccounts" not in found.queued
    assert "is not recorded" not in found.queued


_FEWER_CPUS = ("pools: [h100], default: true", "pools: [h100], default: true, max_cpus_per_node: 100")


def test_lower_max_cpus_per_node_is_told() -> None:
    found = a_diff(LAB, changed(LAB, _FEWER_CPUS)).effects
    assert found is not None
    assert (
        "all jobs in gpu together get at most 100 CPUs of a node: what Slurm does to queued ones that ask for more is not recorded"
        in found.queued
    )


def _clauses_of(queued: str) -> list[str]:
    return queued.split("; ")


def test_worst_of_the_queue_is_told_first() -> None:
    """Notes of fields stood after all others: what never starts stood behind what starts."""
    new = changed(
        SITE,
        ("users: [vision, speech]", "users: [vision]"),
        ("model: h100", "model: h200"),
        ("default: true", "default: true, max_time: 1d"),
    )
    found = a_diff(SITE, new).effects
    assert found is not None
    ranks = [
        next(
            rank
            for rank, words in enumerate((r"never starts?\b", r"\bwaits?\b", r"\bstarts?\b", ""))
            if re.search(words, one)
        )
        for one in _clauses_of(found.queued)[1:]
        if "removed node" not in one
    ]
    assert ranks == sorted(ranks)
    assert set(ranks) == {0, 1, 2}


def test_queue_of_accounting_without_accounts_has_no_limit_to_lose() -> None:
    """Without accounts nothing was limited, and `diff` said that those above a limit may start."""
    found = a_diff(_FREE, LAB).effects
    assert found is not None
    assert "above a limit" not in found.queued
    enforced = a_diff(_ENFORCED, LAB).effects
    assert enforced is not None
    assert "those above a limit of accounts or QOS start, as none holds any more" in enforced.queued


@pytest.mark.parametrize("feature", ["h100", "h200"])
def test_nothing_starts_where_no_job_has_an_association(feature: str) -> None:
    """All queued jobs wait, and it said that some start: those of an account that leaves, and those with afterany."""
    model = ("model: h100", f"model: {feature}")
    for old, new in (
        (LAB, changed(_ENFORCED, model)),
        (SITE, changed(SITE, ("name: lab", "name: labor"), ("users: [vision, speech]", "users: [vision]"), model)),
    ):  # fmt: skip
        plans = on_hosts(a_side(old).plan), on_hosts(a_side(new).plan)
        found = requests.clauses(*plans, Way.RESTART, starts=True)
        told = [one.text for one in found if one.subject == "queued"]
        reason = "PartitionConfig" if old is LAB else "InvalidAccount"
        assert told == [f"those that do not start before wait with {reason}, and never start: cancel them"]


@each_version
def test_job_that_names_a_node_is_not_said_to_start_without_it(version: str) -> None:
    """The row `partition-other-nodes` has a job that names no node."""
    found = _effects(*_elsewhere(), version)
    (clause,) = (
        one for one in found.clauses if one.subject == "queued" and one.rows == ("partition-other-nodes",)
    )
    assert "that wait for nodes that leave the partition, and name none of them, start" in clause.text


_VERSION_LINE = '  version: "26.05"\n'


@pytest.mark.parametrize("value", ["NO", "ANY", "ALL"])
def test_limits_of_partitions_refuse_new_jobs_only_if_slurm_enforces_them(value: str) -> None:
    """The rows were recorded with EnforcePartLimits=ALL. slurm.conf(5): with NO such jobs wait."""
    site = changed(SITE, (_VERSION_LINE, f"{_VERSION_LINE}  extra: {{EnforcePartLimits: '{value}'}}\n"))
    new = changed(
        site,
        ("max_time: 30m", "max_time: 10m, extra: {MaxNodes: 2}"),
        ("pools: [h100], default: true", "pools: [h100], default: true, allow_qos: [normal]"),
    )
    found = a_diff(site, new).effects
    assert found is not None
    assert "PartitionTimeLimit" in found.queued
    assert "PartitionNodeLimit" in found.queued
    assert "PartitionConfig" in found.queued
    assert found.queued.count("sbatch refuses") == (0 if value == "NO" else 3)


def test_new_jobs_without_gpus_are_told_of_a_partition_that_requires_them() -> None:
    line = ("pools: [h100], default: true", "pools: [h100], default: true, requires_gpus: true")
    found, back = a_diff(LAB, changed(LAB, line)).effects, a_diff(changed(LAB, line), LAB).effects
    assert found is not None
    assert back is not None
    said = "after the change, sbatch refuses new ones in gpu that ask for no GPUs"
    assert said in found.queued
    assert "ask for no GPUs" not in back.queued


_COUNT = ("count: 8}", "count: 6}")


def test_no_job_is_said_to_start_elsewhere_where_no_node_takes_jobs() -> None:
    """All nodes of all partitions drain. It said that jobs start on other nodes, and that those of gpu wait."""
    found = a_diff(LAB, changed(LAB, _COUNT)).effects
    assert found is not None
    assert found.queued.startswith("wait until the bundle is applied; those in gpu that ask for more than 6")
    assert "other nodes" not in found.queued
    assert "removed node" not in found.queued, "no node is removed"
    old = changed(_TWO_PARTITIONS, (_SPARE, _SPARE.replace("hgx-h100", "plain")))
    two = a_diff(old, changed(old, _COUNT)).effects
    assert two is not None
    assert two.queued.startswith(
        "stay in the queue, and start on other nodes of their partition; those in gpu"
    )
    assert (
        "those of gpu, all of whose nodes are removed or changed, wait until the bundle is applied"
        in two.queued
    )


def test_notes_say_nothing_of_jobs_that_slurm_ends() -> None:
    """`also those above a new limit` and `they keep` followed a sentence about jobs that are ended."""
    for note in (row.note for row in ROWS):
        for text in (note.running, note.queued):
            assert not text.startswith(("they ", "also "))


def test_jobs_that_use_a_removed_mount_of_hosts_are_told() -> None:
    """`diff` has the umount among its commands."""
    old = changed(
        LAB, ("storage:\n", "storage:\n  - {mount: /data, nfs: {server: 192.0.2.99, export: /d}}\n")
    )
    found = a_diff(old, LAB).effects
    assert found is not None
    assert "those that use /data fail where it is unmounted" in found.queued
    (step,) = (one for one in found.steps if one.startswith("umount /data "))
    assert "without processes that use it" in step


_AWS = changed(SPEC, ("partitions:\n", "partitions:\n  - {name: old, pools: [h200]}\n"))
_ZONES = ("zones: [us-east-2a, us-east-2b]", "zones: [us-east-2a]")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (_TWO_PARTITIONS, changed(_TWO_PARTITIONS, ("  - {name: rest, pools: [spare]}\n", ""), (f"\n  - {_SPARE}", ""), ('leaf2: "gpu[03-06]"', 'leaf2: "gpu[03-04]"'), (_PLAIN, ""))),
        (_AWS, changed(SPEC, _ZONES)),
    ],
    ids=["hosts", "AWS"],
)  # fmt: skip
def test_removed_partition_is_emptied_before_no_job_may_run(old: str, new: str) -> None:
    """It was set DOWN first, and to DRAIN when no job ran: Slurm started its queued jobs then."""
    found = a_diff(old, new).effects
    assert found is not None
    down, drain, runs = (
        next(at for at, step in enumerate(found.steps) if words in step)
        for words in ("state=down", "state=drain", "squeue --states=running")
    )
    assert drain < down < runs
    assert fates_of("partition-drain", RECORDED[0], Way.RECONFIGURE).queued.outcome is Outcome.STARTS
