"""Names that a machine resolves, with the real resolver, files and a name server in namespaces of their own."""

import shlex
import subprocess
from pathlib import Path

import pytest
from support import builders
from support.waiting import BOUND_S

from gpucluster.checks import name_resolution, remedies
from gpucluster.checks.check import CheckResult, CheckStatus, ParseError, QueryOutput
from gpucluster.validate import expectations

PASS, FAIL = CheckStatus.PASS, CheckStatus.FAIL
WANT = name_resolution.ResolutionWant(
    cluster={"burst-head": "10.42.0.10"}, dns=("s3.us-east-2.amazonaws.com",), server="169.254.169.253"
)
SERVER = """
import socket
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind(("169.254.169.253", 53))
print("ready", flush=True)
while True:
    query, peer = one.recvfrom(512)
    end = query.index(b"\\0", 12) + 5
    answer = b"\\xc0\\x0c\\0\\x01\\0\\x01\\0\\0\\0\\x3c\\0\\x04\\x0a\\0\\0\\x07"
    one.sendto(query[:2] + b"\\x81\\x80\\0\\x01\\0\\x01\\0\\0\\0\\0" + query[12:end] + answer, peer)
"""
FILES = {
    "hosts": "127.0.0.1 localhost\n10.42.0.10 burst-head\n",
    "nsswitch.conf": "passwd: files\nhosts: files dns\n",
    "resolv.conf": "nameserver 169.254.169.253\noptions timeout:1 attempts:1\n",
}


def resolved(tmp_path: Path, change: dict[str, str], after: str = "true") -> CheckResult:
    """The result with these files in /etc, after commands."""
    etc = tmp_path / "etc"
    etc.mkdir(exist_ok=True)
    for name, text in {**FILES, **change}.items():
        (etc / name).write_text(text)
    (tmp_path / "server.py").write_text(SERVER)
    steps = [
        f"mount --bind {etc} /etc",
        "ip link set lo up; ip address add 169.254.169.253/32 dev lo",
        f"python3 -I {tmp_path}/server.py >{tmp_path}/ready & pid=$!",
        f"until grep -q ready {tmp_path}/ready; do sleep 0.05; done",
        f"sh -ec {shlex.quote(after)} >/dev/null 2>&1 || exit",
        '"$@"; code=$?; kill $pid; exit $code',
    ]
    (query,) = name_resolution.query_names(WANT)
    done = subprocess.run(
        ["/usr/bin/unshare", "--net", "--mount", "/bin/sh", "-c", "\n".join(steps), "sh", *query.argv],
        capture_output=True,
        text=True,
        check=False,
        timeout=BOUND_S,
    )
    (tmp_path / "ready").unlink()
    got = QueryOutput(code=done.returncode, stdout=done.stdout, stderr=done.stderr)
    return name_resolution.evaluate_names(name_resolution.parse_names((got,)), WANT)


def test_names_of_cluster_and_dns_resolve(tmp_path):
    assert resolved(tmp_path, {}).verdict is PASS


@pytest.mark.parametrize(
    ("change", "culprit", "words"),
    [
        ({"resolv.conf": "nameserver 127.0.0.9\noptions timeout:1 attempts:1\n"}, "dns", "s3.us-east-2.amazonaws.com does not resolve"),
        ({"nsswitch.conf": "hosts: files\n"}, "dns", "s3.us-east-2.amazonaws.com does not resolve"),
        ({"nsswitch.conf": "hosts: dns\n"}, "burst-head", "burst-head is 10.0.0.7, not 10.42.0.10"),
    ],
    ids=["a dead name server", "without dns", "without files"],
)  # fmt: skip
def test_broken_resolution_is_named_and_the_remedy_heals_it(tmp_path, change, culprit, words):
    """V9: DNS was broken, and no cause was named."""
    result = resolved(tmp_path, change)
    assert (result.verdict, result.culprits, result.found) == (FAIL, (culprit,), words)
    place, _, remedy = result.remedy.partition(": ")
    assert place == "on {machine}"
    assert resolved(tmp_path, change, remedy).verdict is PASS


def test_name_that_hosts_lacks_is_written_by_the_agent():
    text = "burst-head 2 \ns3.us-east-2.amazonaws.com 0 10.0.0.7\nhosts: files dns\n"
    found = name_resolution.parse_names((QueryOutput(code=0, stdout=text),))
    result = name_resolution.evaluate_names(found, WANT)
    assert (result.found, result.remedy) == (
        "burst-head does not resolve",
        f"on {{machine}}: {remedies.restart('gpucluster-agent')}",
    )


def test_the_heads_own_name_may_be_its_loopback():
    text = "burst-head 0 127.0.1.1\ns3.us-east-2.amazonaws.com 0 10.0.0.7\nhosts: files dns\n"
    found = name_resolution.parse_names((QueryOutput(code=0, stdout=text),))
    assert name_resolution.evaluate_names(found, WANT).verdict is PASS
    with pytest.raises(ParseError):
        name_resolution.parse_names((QueryOutput(code=0, stdout="what is this\n"),))


def test_names_are_the_heads_and_on_aws_that_of_s3():
    by_id = {e.id: e.want for e in expectations(builders.a_plan())}
    want = by_id["net.resolve[head]"]
    assert (want.dns, want.server) == (("s3.us-east-2.amazonaws.com",), "169.254.169.253")
    assert want.cluster == {"burst-head": "10.42.0.10"}
    rehearsed = {e.id: e.want for e in expectations(builders.a_plan(), folders=True)}
    assert rehearsed["net.resolve[head]"].dns == (), "a sandbox has no DNS of AWS"
    assert {e.id: e.want for e in expectations(builders.a_lab_plan())}["net.resolve[gpu01]"].dns == ()
