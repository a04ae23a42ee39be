"""Ports between machines, in a network namespace with both addresses, real listeners and rules of the packet filter."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from support import builders
from support.waiting import BOUND_S

from gpucluster.checks import ports
from gpucluster.checks.check import CheckResult, CheckStatus, Location, ParseError, QueryOutput
from gpucluster.validate import expectations

PASS, FAIL = CheckStatus.PASS, CheckStatus.FAIL
HEAD, NODE = "10.9.0.1", "10.9.0.2"
OF_HEAD = ports.Ports(heads=(HEAD,), to_head=(6817, 6819), on_head=True)
OF_NODE = ports.Ports(heads=(HEAD,), to_head=(6817,), from_head=(6818,))
LISTEN = """
import os, socket, sys, time
kept = []
for word in sys.argv[1:]:
    port, _, backlog = word.partition("/")
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("0.0.0.0", int(port)))
    one.listen(int(backlog or 64))
    kept.append(one)
if any("/" in word for word in sys.argv[1:]):  # as a daemon that hangs while others connect
    for one in list(kept):
        for _ in range(3):
            peer = socket.socket()
            peer.setblocking(False)
            peer.connect_ex(("127.0.0.1", one.getsockname()[1]))
            kept.append(peer)
print("ready", flush=True)
sys.stdin.read()
"""


def in_network(listeners: str, rules: str, want: ports.Ports, tmp_path: Path, *, alone: bool) -> CheckResult:
    """The result in a network with these listeners and commands of nft."""
    (tmp_path / "listen.py").write_text(LISTEN)
    queries = ports.query_ports(want)
    assert [one.at for one in queries] == ([Location.SELF] if alone else [Location.SELF, Location.HEAD])
    steps = [
        "ip link set lo up",
        *(f"ip address add {address}/32 dev lo" for address in (HEAD, NODE)),
        f"ip route add {HEAD}/32 dev lo src {NODE}" if not alone else "true",
        f"mkfifo {tmp_path}/hold; exec 7<>{tmp_path}/hold",
        f"python3 -I {tmp_path}/listen.py {listeners} <{tmp_path}/hold >{tmp_path}/ready 7>&- & pid=$!",
        f"until grep -q ready {tmp_path}/ready; do sleep 0.05; done",
        rules,
        f'fed=$({shlex.join(queries[0].argv)}) || exit; printf "%s\\n" "$fed" >{tmp_path}/0',
    ]
    if not alone:
        argv = shlex.join(queries[1].argv[:-1])
        steps.append(f'{argv} "$fed" >{tmp_path}/1 || exit')
    steps.append("kill $pid")
    done = subprocess.run(
        ["/usr/bin/unshare", "--net", "/bin/bash", "-c", "\n".join(steps)],
        capture_output=True,
        text=True,
        check=False,
        timeout=BOUND_S,
    )
    assert done.returncode == 0, done.stderr
    got = tuple(QueryOutput(code=0, stdout=(tmp_path / str(n)).read_text()) for n in range(len(queries)))
    return ports.evaluate_ports(ports.parse_ports(got), want)


OPEN = "6817 6818 6819"
TABLE = "nft add table ip filter; nft 'add chain ip filter INPUT { type filter hook input priority 0; }'"


def test_open_ports_pass(tmp_path):
    assert in_network(OPEN, "true", OF_NODE, tmp_path, alone=False).verdict is PASS


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("tcp dport 6817 drop", "port 6817 of the head does not answer this machine"),
        ("tcp dport { 22, 6810-6820 } counter drop", "port 6817 of the head does not answer this machine"),
        ("tcp dport 6817 reject with tcp reset", "port 6817 of the head refuses this machine"),
    ],
)
def test_port_that_a_rule_closes_is_named_and_the_remedy_opens_it(tmp_path, rule, words):
    """V9: packets to a port were dropped, and the daemon behind it was to be started again."""
    closed = f"{TABLE}; nft 'add rule ip filter INPUT {rule}'"
    result = in_network(OPEN, closed, OF_HEAD, tmp_path, alone=True)
    assert (result.verdict, "6817" in result.culprits) == (FAIL, True)
    assert words in result.found
    place, _, remedy = result.remedy.partition(": ")
    assert place == "on {machine}"
    assert re.fullmatch(r"nft delete rule ip filter INPUT handle [0-9]", remedy)
    for left in tmp_path.iterdir():
        left.unlink()
    assert in_network(OPEN, f"{closed}; {remedy}", OF_HEAD, tmp_path, alone=True).verdict is PASS


def test_port_of_a_node_that_the_head_does_not_reach_is_named(tmp_path):
    """The rule may be on either machine; here they are one, and both are told."""
    closed = f"{TABLE}; nft 'add rule ip filter INPUT tcp dport 6818 drop'"
    result = in_network(OPEN, closed, OF_NODE, tmp_path, alone=False)
    assert (result.verdict, result.culprits) == (FAIL, ("6818",))
    assert result.found == "port 6818 of this machine does not answer the head"
    assert result.remedy == (
        "on {machine}: nft delete rule ip filter INPUT handle 2; on the head: nft delete rule ip filter INPUT handle 2"
    )


def test_rule_of_a_table_that_is_not_the_cause_is_no_remedy():
    rules = (
        "table inet gpucluster {\n\tchain output {\n\t\ttcp dport { 988, 2049 } drop # handle 9\n\t}\n}\n"
        "table inet site {\n\tchain in {\n\t\ttcp dport 25 drop # handle 3\n\t\tct state invalid drop # handle 4\n\t}\n}\n"
    )
    text = f"to {HEAD} 6817 124 \nlistens 6817 0 64\n--\n{rules}"
    result = ports.evaluate_ports(
        ports.parse_ports((QueryOutput(code=0, stdout=text),)),
        ports.Ports(heads=(HEAD,), to_head=(6817,), on_head=True),
    )
    assert (result.verdict, result.remedy) == (FAIL, "")


@pytest.mark.parametrize("listeners", ["6818 6819", "6817/0 6818 6819"], ids=["dead", "hangs"])
def test_daemon_that_does_not_listen_or_accept_is_no_fault_of_the_network(tmp_path, listeners):
    """The service's own check has the remedy."""
    assert in_network(listeners, "true", OF_HEAD, tmp_path, alone=True).verdict is PASS


def test_either_head_may_answer(tmp_path):
    want = ports.Ports(heads=("10.9.0.99", HEAD), to_head=(6817,), from_head=(6818,))
    assert in_network(OPEN, "true", want, tmp_path, alone=False).verdict is PASS


def test_answer_without_an_end_is_no_answer():
    with pytest.raises(ParseError):
        ports.parse_ports((QueryOutput(code=0, stdout="to x\n"),))


def test_ports_are_those_of_slurm_between_head_nodes_and_login_machines():
    by_id = {e.id: e.want for e in expectations(builders.a_lab_plan())}
    assert by_id["net.ports[head]"] == ports.Ports(heads=("192.0.2.10",), to_head=(6817,), on_head=True)
    assert by_id["net.ports[gpu01]"] == ports.Ports(heads=("192.0.2.10",), to_head=(6817,), from_head=(6818,))
