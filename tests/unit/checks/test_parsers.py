"""Parsers of checks: recorded answers, and only ParseError for all other text."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import builders
from support.account_rows import a_site_plan, with_containers
from support.builders import on_aws
from support.kube_steps import kube_steps
from support.spec_sources import ACCEPTED, REVIEWED

from gpucluster.checks import (
    cloud,
    files,
    hardware,
    jobs,
    machine,
    mounts,
    munge,
    partitions,
    running_config,
    setting_values,
    slurmctld,
)
from gpucluster.checks.check import TIMED_OUT, CheckResult, CheckStatus, ParseError, QueryOutput
from gpucluster.checks.machine import Disk, Unit
from gpucluster.cli.context import resolve_file
from gpucluster.plan.model import Bindings, Containers
from gpucluster.plan.model.bindings import FileSystemBinding
from gpucluster.slurm.values import NodeHardware
from gpucluster.validate.expect import expectations
from gpucluster.validate.expectation import EVERY_CHECK as CHECKS
from gpucluster.validate.kubernetes_expectations import kubernetes_expectations

STACKS = Path(__file__).parents[3] / "stacks"
RECORDED = Path(__file__).parents[2] / "recorded/checks/24.11"
BURST = on_aws(
    resolve_file(STACKS / "burst.yaml").plan
)  # the recorded answers are of its sandbox and its files
RESEARCH = on_aws(resolve_file(STACKS / "research.yaml").plan)  # with users and a login machine
HEALTH = ("\npools:", "\nhealth: {}\npools:")
BINDINGS = Bindings(
    schema=1,
    region="us-east-2",
    bucket="b",
    secret="arn",
    subnets={"us-east-2a": "subnet-1"},
    templates={},
    file_systems={"/home": FileSystemBinding(id="fs-1", dns_name="fs-1.efs.us-east-2.amazonaws.com")},
    queue="https://sqs.us-east-2.amazonaws.com/123456789012/research-events",
)
WANTS = {
    e.check: e.want
    for plan in (
        RESEARCH,
        builders.a_lab_plan(HEALTH),
        with_containers(a_site_plan(), Containers.APPTAINER),
        BURST,
    )
    for e in expectations(
        plan, BINDINGS, bundle="0" * 64, reviewed=replace(REVIEWED, published=None), accepted=ACCEPTED
    )
} | {
    e.check: e.want
    for e in kubernetes_expectations(builders.a_kube_plan(), kube_steps(), charts=True, containers=True)
}


def recorded(name: str, code: int = 0) -> tuple[QueryOutput, ...]:
    return (QueryOutput(code=code, stdout=(RECORDED / name).read_text()),)


def test_pings():
    assert slurmctld.parse_pings(recorded("ping.json")) == {"validate-head": "UP"}


def test_pings_of_26_05_have_no_word():
    newer = (RECORDED.parent / "26.05/ping.json").read_text()
    for flag, word in (("true", "UP"), ("false", "DOWN")):
        answer = QueryOutput(code=0, stdout=newer.replace('"responding": true', f'"responding": {flag}'))
        assert slurmctld.parse_pings((answer,)) == {"burst26-head": word}
    assert (
        slurmctld.parse_pings((QueryOutput(code=TIMED_OUT, stdout=""),)) == {}
    )  # it hangs: it does not answer


def test_nodes():
    nodes = {node.name: node for node in slurmctld.parse_nodes(recorded("nodes-two-up.json"))}
    assert {name for name, node in nodes.items() if "POWERED_DOWN" not in node.states} == {
        "h200-1b-1",
        "h200-1b-2",
    }
    board = NodeHardware(cpus=192, sockets=2, cores=48, threads=2, memory_mib=1992294, gres="gpu:h200:8")
    settings = slurmctld.parse_hardware(recorded("nodes-two-up.json"))["h200-1b-1"]
    assert settings.hardware == board


@pytest.mark.parametrize("version", ["24.11", "26.05"])
def test_partitions(version):
    answer = QueryOutput(code=0, stdout=(RECORDED.parent / version / "partition.txt").read_text())
    (partition,) = partitions.parse_partitions((answer,))
    assert (partition.name, len(partition.nodes)) == ("gpu", 32)
    assert partition.values["jobdefaults"] == "DefCpuPerGPU=24"
    want = WANTS["part.up"]
    assert partitions.evaluate_partitions((partition,), want).verdict is CheckStatus.PASS


def test_partition_of_26_05_that_a_job_has_alone():
    line = "PartitionName=a Exclusive=NODE Nodes=(null) OverSubscribe=NO State=UP\n"
    (partition,) = partitions.parse_partitions((QueryOutput(code=0, stdout=line),))
    assert (partition.nodes, partition.values["oversubscribe"]) == (frozenset(), "exclusive")


def test_a_partition_of_one_user_is_one_in_the_words_of_both_versions():
    new, old = ("PartitionName=a Exclusive=USER Nodes=n1\n", "PartitionName=a ExclusiveUser=YES Nodes=n1\n")
    answers = [QueryOutput(code=0, stdout=line) for line in (new, old)]
    found = [partitions.parse_partitions((one,))[0].values["exclusiveuser"].lower() for one in answers]
    assert found == ["yes", "yes"]


@pytest.mark.parametrize("version", ["24.11", "26.05"])
def test_running_configuration(version):
    quiet, loud = (
        running_config.parse_config(
            (QueryOutput(code=0, stdout=(RECORDED.parent / version / name).read_text()),)
        )
        for name in ("config.txt", "config-debug.txt")
    )
    assert quiet["prolog"] == "/opt/gpucluster/bin/prolog"
    assert "constraincores" not in quiet, "the part about cgroup.conf is not slurm.conf"
    assert (quiet["debugflags"], loud["debugflags"]) == ("Power", "Gres,Power")
    want = running_config.Settings(
        values={"debugflags": "Power", "slurmctlddebug": "3", "messagetimeout": "30"}, release=version
    )
    assert running_config.evaluate_config(quiet, want).verdict is CheckStatus.PASS
    found = running_config.evaluate_config(loud, want)
    assert (found.verdict, found.culprits) == (CheckStatus.FAIL, ("debugflags", "slurmctlddebug"))
    assert found.remedy == "on {machine}: scontrol setdebugflags -gres; scontrol setdebug info"


def test_slurmd():
    assert slurmctld.parse_slurmd(recorded("slurmd.txt")) == "24.11.5"
    refused = QueryOutput(code=1, stdout="", stderr="slurm_load_slurmd_status: Connection refused\n")
    assert slurmctld.parse_slurmd((refused,)) == ""
    assert slurmctld.parse_slurmd((QueryOutput(code=TIMED_OUT, stdout=""),)) == ""  # it hangs


def test_errors_in_the_answer_count_with_exit_code_zero():
    text = json.dumps({"nodes": [], "errors": [{"error": "Unable to contact slurm controller"}]})
    with pytest.raises(ParseError, match="Unable to contact"):
        slurmctld.parse_nodes((QueryOutput(code=0, stdout=text),))
    with pytest.raises(ParseError, match="lists no node"):
        slurmctld.parse_nodes((QueryOutput(code=0, stdout='{"nodes": []}'),))
    with pytest.raises(ParseError, match="0 jobs"):
        jobs.parse_job((QueryOutput(code=0, stdout='{"jobs": [], "errors": []}'),))


def test_machines():
    assert machine.parse_units(recorded("units.txt")) == {
        "munge.service": Unit(load="loaded", active="active", restarts=0),
        "slurmd.service": Unit(load="loaded", active="active", restarts=0),
        "nosuch.service": Unit(load="not-found", active="inactive", restarts=0),
    }
    assert hardware.parse_gpus(recorded("gpus.txt")) == {f"nvidia{n}" for n in range(8)}
    found = mounts.parse_mounts(recorded("mountinfo.txt")).mounts
    assert (found["/"].type, found["/"].options) == ("overlay", frozenset())
    assert found["/sys"].options == {"ro", "nosuid", "nodev", "noexec"}
    assert machine.parse_disks(recorded("df.txt"))["/tmp"] == Disk(space=0, inodes=1)
    board = hardware.parse_board(recorded("slurmd-C.txt"))
    assert (board.cpus, board.sockets, board.cores, board.threads, board.memory_mib) == (2, 1, 2, 1, 24105)


def test_last_mount_of_a_path_counts_and_escapes_are_read():
    text = (
        "1 0 8:1 / /a\\040b rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "2 0 0:9 / /a\\040b ro shared:2 - nfs4 10.0.0.1:/x\\040y rw,vers=4.2\n"
    )
    top = mounts.parse_mounts((QueryOutput(code=0, stdout=text),)).mounts["/a b"]
    assert (top.type, top.source, top.options) == ("nfs4", "10.0.0.1:/x y", {"ro"})


def test_files_munge_and_jobs():
    (sums,) = recorded("sha256.txt", code=1)
    absent = replace(sums, stderr="sha256sum: /run/slurm/conf/x: No such file or directory\n")
    assert list(files.parse_files((absent,))) == ["/run/slurm/conf/cgroup.conf"]
    with pytest.raises(ParseError, match="password"):  # sudo's no is no missing file
        files.parse_files((QueryOutput(code=1, stdout="", stderr="sudo: a password is required"),))
    made, read = QueryOutput(code=0, stdout="MUNGE:AwQ=:"), recorded("unmunge.txt")[0]
    assert munge.parse_munge((made, read, made, read)) == ("uid 0", "uid 0")
    refused = QueryOutput(code=9, stdout="", stderr="unmunge: Error: Invalid credential\n")
    hung = QueryOutput(code=TIMED_OUT, stdout="")
    assert munge.parse_munge((hung, refused)) == ("munged does not answer in time",)
    assert munge.parse_munge((made, refused, made, read)) == ("unmunge: Error: Invalid credential", "uid 0")
    assert [rank.node for rank in jobs.parse_ranks(recorded("ranks.txt"))] == ["h200-1b-1", "h200-1b-2"]
    ended = jobs.parse_job(recorded("job-running.json"))
    assert (ended.id, ended.states, ended.nodes) == (1, {"RUNNING"}, ("h200-1b-1", "h200-1b-2"))


def test_instances_and_journal():
    own = QueryOutput(code=0, stdout="i-0123456789abcdef0\n")
    journal = QueryOutput(code=0, stdout='{"open": ["r2"], "launched": ["i-1"], "living": []}')
    found = cloud.parse_holdings((*recorded("instances.json"), own, journal))
    assert sorted(i.role for i in found.instances) == ["head", "node", "node"]
    assert found.open == {"r2"}


WORDS = """
nodes partitions pings jobs errors name state reason gres address hostname pinged responding partition maximums time set number
Reservations Instances State Name Tags Key Value InstanceId SubnetId open launched living id slot age_s told opened released_s transitions step
FileSystemArn LifeCycleState MountTargets ResourceARN Lifecycle StorageCapacity QueueArn ARN DeletedDate Policy Versioning Encryption PublicAccessBlock
"""
KEYS = st.sampled_from(WORDS.split()) | st.text(max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)
LINES = st.sampled_from([path.read_text() for path in sorted(RECORDED.glob("*.txt"))])
TEXT = st.one_of(
    st.text(max_size=200),
    JSON.map(json.dumps),
    st.tuples(LINES, st.integers(0, 400), st.text(max_size=4)).map(
        lambda t: t[0][: t[1]] + t[2] + t[0][t[1] :]
    ),
    st.sampled_from(["[" * 100_000, "1" * 5000, "{}", "null", "NaN", "1e999", "\0\x1b[2J"]),
)
ANSWER = st.builds(QueryOutput, code=st.sampled_from([0, 0, 0, 1, 7, 124, 255]), stdout=TEXT, stderr=TEXT)


@pytest.mark.parametrize("ident", sorted(CHECKS))
@given(data=st.data())
def test_parser_raises_only_parse_error_and_rule_returns_a_finding(ident, data):
    check, want = CHECKS[ident], WANTS[ident]
    count = len(check.query(want))
    got = tuple(data.draw(ANSWER) for _ in range(count))
    try:
        value = check.parse(got)
    except ParseError:
        return
    assert isinstance(check.evaluate(value, want), CheckResult)


def test_long_word_that_is_no_setting_is_read_once():
    """Regression: each of its letters was tried as the first of a key. A million letters took an hour."""
    assert setting_values.tokens(f"{'[' * 1_000_000} Name=a") == {"name": "a"}


def test_one_check_asks_nothing():
    assert [ident for ident in CHECKS if not CHECKS[ident].query(WANTS[ident])] == ["cfg.accept"]


@pytest.mark.parametrize("ident", sorted(set(CHECKS) - {"cfg.accept"}))
@pytest.mark.parametrize("code", [0, 1, 124, 127])
def test_empty_answer_is_never_a_pass(ident, code):
    check, want = CHECKS[ident], WANTS[ident]
    silent = tuple(QueryOutput(code=code, stdout="") for _ in check.query(want))
    try:
        verdict = check.evaluate(check.parse(silent), want).verdict
    except ParseError:
        return
    assert verdict in (CheckStatus.FAIL, CheckStatus.UNKNOWN)
