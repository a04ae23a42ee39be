"""Parsers read what real programs answered, and say ParseError, and nothing else, of whatever others make up."""

import json
from dataclasses import replace
from pathlib import Path

import builders
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucluster.checks import cloud, files, hardware, jobs, machine, pairs, partitions, slurm
from gpucluster.checks.machine import Disk, Unit
from gpucluster.checks.model import TIMED_OUT, Answer, Judgement, ParseError, Verdict
from gpucluster.checks.table import CHECKS
from gpucluster.validate.expect import expectations

RECORDED = Path(__file__).parents[2] / "recorded/checks/24.11"
WANTS = {
    e.check: e.want
    for plan in (builders.a_plan(), builders.a_lab_plan())
    for e in expectations(plan, bundle="0" * 64)
}


def said(name: str, code: int = 0) -> tuple[Answer, ...]:
    return (Answer(code=code, stdout=(RECORDED / name).read_text()),)


def test_pings():
    assert slurm.parse_pings(said("ping.json")) == {"validate-head": "UP"}
    assert slurm.parse_pings((Answer(code=TIMED_OUT, stdout=""),)) == {}  # it hangs: it does not answer


def test_nodes_and_partitions():
    nodes = {node.name: node for node in slurm.parse_nodes(said("nodes-two-up.json"))}
    assert {name for name, node in nodes.items() if "POWERED_DOWN" not in node.states} == {
        "h200-1b-1",
        "h200-1b-2",
    }
    assert nodes["h200-1b-1"].hardware == (192, 2, 48, 2, 1992294, "gpu:h200:8")
    default = Answer(code=0, stdout="gpu*\n")
    (partition,) = partitions.parse_partitions((*said("partition.json"), *said("nodes-two-up.json"), default))
    assert (partition.default, partition.barriers) == (True, ())
    assert (partition.name, partition.state, partition.max_time_min) == ("gpu", ("UP",), 1440)
    assert partition.nodes == nodes.keys()


def test_what_keeps_jobs_out_of_a_partition():
    item = json.loads((RECORDED / "partition.json").read_text())
    shown = item["partitions"][0]
    shown["groups"]["allowed"] = "root"
    shown["maximums"]["nodes"] = {"set": True, "infinite": False, "number": 1}
    shown["minimums"]["nodes"] = 2
    asked = (
        Answer(code=0, stdout=json.dumps(item)),
        *said("nodes-two-up.json"),
        Answer(code=0, stdout="gpu"),
    )
    (partition,) = partitions.parse_partitions(asked)
    assert not partition.default
    assert partition.barriers == ("AllowGroups=root", "MaxNodes=1", "MinNodes=2")


def test_slurmd():
    assert slurm.parse_slurmd(said("slurmd.txt")) == "24.11.5"
    refused = Answer(code=1, stdout="", stderr="slurm_load_slurmd_status: Connection refused\n")
    assert slurm.parse_slurmd((refused,)) == ""
    assert slurm.parse_slurmd((Answer(code=TIMED_OUT, stdout=""),)) == ""  # it hangs


def test_an_exit_of_zero_beside_errors_says_nothing():
    text = json.dumps({"nodes": [], "errors": [{"error": "Unable to contact slurm controller"}]})
    with pytest.raises(ParseError, match="Unable to contact"):
        slurm.parse_nodes((Answer(code=0, stdout=text),))
    with pytest.raises(ParseError, match="no node at all"):
        slurm.parse_nodes((Answer(code=0, stdout='{"nodes": []}'),))
    with pytest.raises(ParseError, match="0 jobs"):
        jobs.parse_job((Answer(code=0, stdout='{"jobs": [], "errors": []}'),))


def test_machines():
    assert machine.parse_units(said("units.txt")) == {
        "munge.service": Unit(load="loaded", active="active", restarts=0),
        "slurmd.service": Unit(load="loaded", active="active", restarts=0),
        "nosuch.service": Unit(load="not-found", active="inactive", restarts=0),
    }
    assert hardware.parse_gpus(said("gpus.txt")) == {f"nvidia{n}" for n in range(8)}
    mounts = machine.parse_mounts(said("mountinfo.txt"))
    assert (mounts["/"].type, mounts["/"].writable, mounts["/sys"].writable) == ("overlay", True, False)
    assert machine.parse_disks(said("df.txt"))["/tmp"] == Disk(space=0, inodes=1)
    board = hardware.parse_board(said("slurmd-C.txt"))
    assert (board.cpus, board.sockets, board.cores, board.threads, board.memory_mib) == (2, 1, 2, 1, 24105)


def test_a_path_with_a_space_and_the_mount_on_top_of_another():
    text = (
        "1 0 8:1 / /a\\040b rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "2 0 0:9 / /a\\040b ro shared:2 - nfs4 10.0.0.1:/x\\040y rw,vers=4.2\n"
    )
    top = machine.parse_mounts((Answer(code=0, stdout=text),))["/a b"]
    assert (top.type, top.source, top.writable) == ("nfs4", "10.0.0.1:/x y", False)


def test_files_pairs_and_jobs():
    (sums,) = said("sha256.txt", code=1)
    absent = replace(sums, stderr="sha256sum: /run/slurm/conf/x: No such file or directory\n")
    assert list(files.parse_files((absent,))) == ["/run/slurm/conf/cgroup.conf"]
    with pytest.raises(ParseError, match="password"):  # sudo's no is no missing file
        files.parse_files((Answer(code=1, stdout="", stderr="sudo: a password is required"),))
    made, read = Answer(code=0, stdout="MUNGE:AwQ=:"), said("unmunge.txt")[0]
    assert pairs.parse_munge((made, read, made, read)) == ("uid 0", "uid 0")
    refused = Answer(code=9, stdout="", stderr="unmunge: Error: Invalid credential\n")
    hung = Answer(code=TIMED_OUT, stdout="")
    assert pairs.parse_munge((hung, refused)) == ("munged does not answer in time",)
    assert pairs.parse_munge((made, refused, made, read)) == ("unmunge: Error: Invalid credential", "uid 0")
    assert [rank.node for rank in jobs.parse_ranks(said("ranks.txt"))] == ["h200-1b-1", "h200-1b-2"]
    ended = jobs.parse_job(said("job-running.json"))
    assert (ended.id, ended.states, ended.node) == (1, ("RUNNING",), "h200-1b-[1-2]")


def test_what_the_cloud_has():
    own = Answer(code=0, stdout="i-0123456789abcdef0\n")
    journal = Answer(code=0, stdout='{"open": ["r2"], "launched": ["i-1"]}')
    found = cloud.parse_holdings((*said("instances.json"), own, journal))
    assert sorted(i.role for i in found.instances) == ["head", "node", "node"]
    assert found.open == {"r2"}


WORDS = """
nodes partitions pings jobs errors name state reason gres address hostname pinged partition maximums time set number
Reservations Instances State Name Tags Key Value InstanceId SubnetId open launched told opened left_s lives moments
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
ANSWER = st.builds(Answer, code=st.sampled_from([0, 0, 0, 1, 7, 124, 255]), stdout=TEXT, stderr=TEXT)


@pytest.mark.parametrize("ident", sorted(CHECKS))
@given(data=st.data())
def test_a_parser_raises_nothing_but_its_own_error_and_a_rule_always_judges(ident, data):
    check, want = CHECKS[ident], WANTS[ident]
    count = len(check.question(want))
    got = tuple(data.draw(ANSWER) for _ in range(count))
    try:
        value = check.parse(got)
    except ParseError:
        return
    assert isinstance(check.judge(value, want), Judgement)


@pytest.mark.parametrize("ident", sorted(CHECKS))
@pytest.mark.parametrize("code", [0, 1, 124, 127])
def test_silence_is_never_a_pass(ident, code):
    check, want = CHECKS[ident], WANTS[ident]
    silent = tuple(Answer(code=code, stdout="") for _ in check.question(want))
    try:
        verdict = check.judge(check.parse(silent), want).verdict
    except ParseError:
        return
    assert verdict in (Verdict.FAIL, Verdict.UNKNOWN)
