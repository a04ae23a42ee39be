"""Who is believed at the registration desk, and what is answered."""

import contextlib
import http.client
import socket
from dataclasses import replace

import pytest
from builders import a_plan

from gpucluster import shell
from gpucluster.cloud.port import Instance, InstanceState
from gpucluster.elastic import registration
from gpucluster.elastic.events import (
    Ask,
    Entry,
    Event,
    LaunchAsked,
    LaunchDone,
    Needed,
    Registered,
)
from gpucluster.elastic.memory import Memory, fold
from gpucluster.elastic.model import CloudView
from gpucluster.elastic.registration import MAX_BODY, Desk, Snapshot, serve, serve_here
from gpucluster.plan import codec
from gpucluster.plan.messages import NodeAnswer, NodePhase, NodeReport
from gpucluster.plan.model import Market

HERE = "10.42.0.9"


def report(instance: str = "i-1", phase: NodePhase = NodePhase.BOOTING) -> str:
    body = NodeReport(instance_id=instance, nonce="n", boot_id="b", phase=phase, life=0, steps=())
    return codec.dumps(body)


def memory(*more: Event) -> Memory:
    ask = Ask(
        request="r1", token="t", pool="h200", source=0, slots=("h200-2a-1",), zone="us-east-2a",
        machine="p5en.48xlarge", market=Market.SPOT, template_id="lt", template_version=1, subnet_id="s",
    )  # fmt: skip
    events = (
        Needed(slot="h200-2a-1", life=3, jobs=(1,)),
        LaunchAsked(ask=ask),
        LaunchDone(request="r1", instances=("i-1",)),
        *more,
    )
    return fold(Memory(), [Entry(at=1.0, event=event) for event in events])


def instance(address: str | None = HERE) -> Instance:
    return Instance(
        id="i-1", state=InstanceState.RUNNING, zone="us-east-2a", machine="p5en.48xlarge", market=Market.SPOT,
        address=address, launched_at=1.0, token="t",
    )  # fmt: skip


def snapshot(address: str | None = HERE, *more: Event) -> Snapshot:
    cloud = CloudView(at=1.0, instances={"i-1": instance(address)})
    return Snapshot.of(a_plan(), memory(*more), cloud)


class Office:
    """A desk whose munge is a fake: the credential is `UID payload`."""

    def __init__(self, shown: Snapshot) -> None:
        self.heard: list[NodeReport] = []
        self.nudges = 0
        self.desk = Desk(self._unmunge, heard=self.heard.append, nudge=self._nudge)
        self.desk.snapshot = shown

    def _unmunge(self, body: str) -> tuple[int, str]:
        uid, _, payload = body.partition(" ")
        if not uid.isdigit():
            raise shell.CommandError(shell.Result(("unmunge",), 1, "", "invalid credential"))
        return int(uid), payload

    def _nudge(self) -> None:
        self.nudges += 1


def test_a_node_of_ours_learns_its_name_its_life_and_the_controller() -> None:
    office = Office(snapshot())
    reply = office.desk.node(HERE, "0 " + report())
    answer = codec.loads(NodeAnswer, reply.body)
    assert (reply.status, answer.node, answer.life) == (200, "h200-2a-1", 3)
    assert answer.controller.endswith(":6817")
    assert [r.instance_id for r in office.heard] == ["i-1"]


@pytest.mark.parametrize(
    ("why", "peer", "body", "status"),
    [
        ("munge does not accept it", HERE, "forged", 403),
        ("an ordinary user made it", HERE, "1000 " + report(), 403),
        ("from another address", "10.42.0.10", "0 " + report(), 403),
        ("an instance that is not ours", HERE, "0 " + report("i-2"), 403),
        ("not a report", HERE, "0 {}", 403),
        ("not even JSON", HERE, "0 \x00", 403),
        ("nested beyond reason", HERE, "0 " + "[" * 50_000, 403),
    ],
)
def test_nobody_else_is_believed(why: str, peer: str, body: str, status: int) -> None:
    office = Office(snapshot())
    assert office.desk.node(peer, body).status == status, why
    assert not office.heard


def test_an_unknown_instance_may_be_ours_while_a_launch_has_no_outcome() -> None:
    office = Office(replace(snapshot(), unsettled=True))
    assert office.desk.node(HERE, "0 " + report("i-2")).status == 503


def test_an_address_that_the_cloud_does_not_list_yet_is_asked_for_and_answered_later() -> None:
    office = Office(snapshot(None))
    assert office.desk.node(HERE, "0 " + report()).status == 503
    assert office.nudges == 1


def test_registered_nodes_are_in_the_hosts_lines() -> None:
    shown = snapshot(HERE, Registered(slot="h200-2a-1", instance="i-1"))
    assert shown.hosts == (f"{HERE} h200-2a-1",)
    assert snapshot().hosts == ()


def test_a_machine_without_a_key_may_say_that_it_failed_until_it_registered() -> None:
    failed = report(phase=NodePhase.FAILED)
    office = Office(snapshot())
    assert office.desk.failed(HERE, failed).status == 204
    assert [r.phase for r in office.heard] == [NodePhase.FAILED]
    assert office.desk.failed("10.42.0.10", failed).status == 403
    assert office.desk.failed(HERE, "nonsense").status == 403
    registered = Office(snapshot(HERE, Registered(slot="h200-2a-1", instance="i-1")))
    assert registered.desk.failed(HERE, failed).status == 403


@pytest.mark.loopback
def test_over_http_only_small_posts_to_the_two_paths_are_answered() -> None:
    cloud = CloudView(at=1.0, instances={"i-1": instance("127.0.0.1")})
    office = Office(Snapshot.of(a_plan(), memory(), cloud))
    server = serve("127.0.0.1", 0, office.desk)
    try:
        ask = [
            _post(server.server_address[1], "/v1/node", "0 " + report()),
            _post(server.server_address[1], "/v1/failed", report(phase=NodePhase.FAILED)),
            _post(server.server_address[1], "/v2/node", ""),
            _post(server.server_address[1], "/v1/node", "x" * (MAX_BODY + 1)),
        ]
    finally:
        server.shutdown()
        server.server_close()
    assert ask == [200, 204, 404, 413]


@pytest.mark.loopback
def test_a_peer_that_holds_many_connections_is_cut_short_and_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte each nine seconds held a thread for ever: the wait was for each read, not for the request."""
    monkeypatch.setattr(registration, "READ_S", 0.2)
    server = serve("127.0.0.1", 0, Office(snapshot()).desk)
    try:
        held = [
            socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=10) for _ in range(20)
        ]
        for one in held:
            one.sendall(b"POST /v1/node HTTP/1.0\r\n")
        assert [_closed(one) for one in held] == [True] * 20
        assert _post(server.server_address[1], "/v1/node", "0 " + report()) == 403
    finally:
        server.shutdown()
        server.server_close()


def _closed(one: socket.socket) -> bool:
    """Whether the other side hangs up, within the socket's time."""
    with one, contextlib.suppress(ConnectionResetError):
        while one.recv(1024):
            pass
    return True


def _post(port: int, path: str, body: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", path, body.encode())
        return connection.getresponse().status
    except ConnectionError:
        return 413  # refused before the body was read
    finally:
        connection.close()


@pytest.mark.loopback
def test_of_two_controllers_addresses_the_one_that_is_here_is_served():
    server = serve_here(("192.0.2.1", "127.0.0.1"), 0, Office(snapshot()).desk)
    try:
        assert server.server_address[0] == "127.0.0.1"
    finally:
        server.shutdown()
        server.server_close()
