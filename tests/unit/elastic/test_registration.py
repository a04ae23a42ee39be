"""Who is believed at the registration desk, and what is answered."""

import contextlib
import http.client
import json
import os
import socket
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_plan
from support.launches import launch_spec
from support.waiting import BOUND_S

from gpucluster import shell
from gpucluster.agent import effects
from gpucluster.cloud.port import Instance, InstanceState
from gpucluster.elastic import registration
from gpucluster.elastic.events import (
    BootFailed,
    Entry,
    Event,
    JobPlaced,
    JobReleased,
    LaunchDone,
    LaunchRequest,
    LaunchRequested,
    NodeNeeded,
    NodeRegistered,
)
from gpucluster.elastic.memory import Memory, fold
from gpucluster.elastic.model import CloudView
from gpucluster.elastic.registration import (
    MAX_BODY,
    RegistrationService,
    RegistrationSnapshot,
    serve,
    serve_here,
)
from gpucluster.plan import codec
from gpucluster.plan.messages import NodeAnswer, NodePhase, NodeReport, RunAnswer, RunQuestion
from gpucluster.plan.model import Market
from gpucluster.slurm.values import SlurmJob, SlurmView

HERE = "10.42.0.9"


def report(instance: str = "i-1", phase: NodePhase = NodePhase.BOOTING, incarnation: int = 0) -> str:
    body = NodeReport(
        instance_id=instance, nonce="n", boot_id="b", phase=phase, incarnation=incarnation, steps=()
    )
    return codec.dumps(body)


def memory(*more: Event) -> Memory:
    ask = LaunchRequest(
        id="r1", token="t", pool="h200", source=0, slots=("h200-2a-1",), spec=launch_spec(zone="us-east-2a")
    )  # fmt: skip
    events = (
        NodeNeeded(slot="h200-2a-1", incarnation=3, jobs=(1,)),
        LaunchRequested(request=ask),
        LaunchDone(request="r1", instances=("i-1",)),
        *more,
    )
    return fold(Memory(), [Entry(at=1.0, event=event) for event in events])


def instance(address: str | None = HERE) -> Instance:
    return Instance(
        id="i-1", state=InstanceState.RUNNING, zone="us-east-2a", machine="p5en.48xlarge", market=Market.SPOT,
        address=address, launched_at=1.0, token="t",
    )  # fmt: skip


def snapshot(address: str | None = HERE, *more: Event) -> RegistrationSnapshot:
    cloud = CloudView(at=1.0, instances={"i-1": instance(address)})
    return RegistrationSnapshot.of(a_plan(), memory(*more), cloud)


JOB = SlurmJob(
    id=7, states=frozenset({"RUNNING"}), nodes=("h200-2a-10", "h200-2a-1"), node_count=2, partitions=("gpu",),
    requeueable=True, batch=True, started_at=1000.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("why", "job", "at", "batch_jobs"),
    [
        ("the first node in slurm.conf's order has the script", JOB, 1061.0, (7,)),
        ("the script may still be on its way", JOB, 1060.0, ()),
        ("the job is in another node's", replace(JOB, nodes=("h200-2a-2", "h200-2a-10")), 1061.0, ()),
        ("no batch script", replace(JOB, batch=False), 1061.0, ()),
        ("it waits for its nodes", replace(JOB, states=frozenset({"RUNNING", "CONFIGURING"})), 1061.0, ()),
        ("it ends", replace(JOB, states=frozenset({"COMPLETING"})), 1061.0, ()),
        ("it is suspended", replace(JOB, states=frozenset({"SUSPENDED"})), 1061.0, ()),
        ("no start is known", replace(JOB, started_at=0.0), 1061.0, ()),
        ("a node of no pool", replace(JOB, nodes=("h200-2a-1", "x")), 1061.0, ()),
        ("no node", replace(JOB, nodes=()), 1061.0, ()),
    ],
)
def test_answer_names_the_jobs_whose_batch_script_the_node_has(
    why: str, job: SlurmJob, at: float, batch_jobs: tuple[int, ...]
) -> None:
    slurm = SlurmView(at=at, nodes={}, jobs=(job,))
    cloud = CloudView(at=1.0, instances={"i-1": instance()})
    received = Received(RegistrationSnapshot.of(a_plan(), memory(), cloud, slurm))
    reply = received.registration.node(HERE, "0 " + report())
    assert codec.loads(NodeAnswer, reply.body).batch_jobs == batch_jobs, why


class Received:
    """A desk whose munge is a fake: the credential is `UID payload`."""

    def __init__(self, shown: RegistrationSnapshot) -> None:
        self.received: list[NodeReport] = []
        self.observations = 0
        self.registration = RegistrationService(
            self._unmunge, receive=self.received.append, observe=self._observe
        )
        self.registration.snapshot = shown

    def _unmunge(self, body: str) -> tuple[int, str]:
        uid, _, payload = body.partition(" ")
        if not uid.isdigit():
            raise shell.CommandError(shell.Result(("unmunge",), 1, "", "invalid credential"))
        return int(uid), payload

    def _observe(self) -> None:
        self.observations += 1


def test_node_gets_its_name_incarnation_and_controller() -> None:
    received = Received(snapshot())
    reply = received.registration.node(HERE, "0 " + report())
    answer = codec.loads(NodeAnswer, reply.body)
    assert (reply.status, answer.node, answer.incarnation) == (200, "h200-2a-1", 3)
    assert answer.controller.endswith(":6817")
    assert [r.instance_id for r in received.received] == ["i-1"]


@pytest.mark.parametrize(("runs", "answered"), [(0, 3), (2, 3), (3, 3), (7, 7)])
def test_incarnation_of_a_lost_journal_goes_on(runs: int, answered: int) -> None:
    """Another number starts slurmd again with -b, and slurmctld ends the jobs of the node."""
    reply = Received(snapshot()).registration.node(HERE, "0 " + report(incarnation=runs))
    assert codec.loads(NodeAnswer, reply.body).incarnation == answered


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
def test_other_senders_are_refused(why: str, peer: str, body: str, status: int) -> None:
    received = Received(snapshot())
    assert received.registration.node(peer, body).status == status, why
    assert not received.received


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.just("i-1"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
)
FIELDS = st.dictionaries(st.sampled_from(sorted(json.loads(report()))), ANY, min_size=1, max_size=3)


@given(
    body=st.text(max_size=60)
    | ANY.map(json.dumps)
    | FIELDS.map(lambda some: json.dumps(json.loads(report()) | some))
)
def test_any_report_is_answered(body: str) -> None:
    for received, told in ((Received(snapshot()), f"0 {body}"), (Received(snapshot()), body)):
        for post in (received.registration.node, received.registration.run, received.registration.failed):
            assert post(HERE, told).status in (200, 204, 403, 503)
            assert all(one.instance_id == "i-1" for one in received.received)


def test_unknown_instance_may_be_ours_while_a_launch_has_no_outcome() -> None:
    received = Received(replace(snapshot(), unsettled=True))
    assert received.registration.node(HERE, "0 " + report("i-2")).status == 503


def test_unlisted_address_causes_an_observation_and_a_later_answer() -> None:
    received = Received(snapshot(None))
    assert received.registration.node(HERE, "0 " + report()).status == 503
    assert received.observations == 1


def test_registered_nodes_are_in_the_hosts_lines() -> None:
    shown = snapshot(HERE, NodeRegistered(slot="h200-2a-1", instance="i-1"))
    assert shown.hosts == (f"{HERE} h200-2a-1",)
    assert snapshot().hosts == ()


def test_instance_without_a_key_may_report_a_failure_until_it_registered() -> None:
    failed = report(phase=NodePhase.FAILED)
    received = Received(snapshot())
    assert received.registration.failed(HERE, failed).status == 204
    assert [r.phase for r in received.received] == [NodePhase.FAILED]
    assert received.registration.failed("10.42.0.10", failed).status == 403
    assert received.registration.failed(HERE, "nonsense").status == 403
    registered = Received(snapshot(HERE, NodeRegistered(slot="h200-2a-1", instance="i-1")))
    assert registered.registration.failed(HERE, failed).status == 403


def test_report_without_a_failure_at_the_path_for_failures_is_not_received() -> None:
    received = Received(snapshot())
    assert received.registration.failed(HERE, report()).status == 204
    assert not received.received


def test_instance_with_a_failed_boot_is_refused() -> None:
    received = Received(snapshot(HERE, BootFailed(slot="h200-2a-1", instance="i-1", words="no GPU")))
    assert received.registration.node(HERE, "0 " + report()).status == 403
    assert not received.received


@pytest.mark.loopback
def test_only_small_posts_to_the_two_paths_are_answered() -> None:
    cloud = CloudView(at=1.0, instances={"i-1": instance("127.0.0.1")})
    received = Received(RegistrationSnapshot.of(a_plan(), memory(), cloud))
    server = serve("127.0.0.1", 0, received.registration)
    try:
        ask = [
            _post(server.server_address[1], "/v1/node", "0 " + report()),
            _post(server.server_address[1], "/v1/failed", report(phase=NodePhase.FAILED)),
            _post(server.server_address[1], "/v2/node", ""),
            _post(server.server_address[1], "/v1/node", "x" * MAX_BODY),  # read, and not accepted by munge
            _post(server.server_address[1], "/v1/node", "x" * (MAX_BODY + 1)),
        ]
    finally:
        server.shutdown()
        server.server_close()
    assert ask == [200, 204, 404, 403, 413]


@pytest.mark.loopback
def test_connections_of_one_peer_are_limited_in_number_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte each nine seconds held a thread for ever: the wait was for each read, not for the request."""
    monkeypatch.setattr(registration, "READ_S", 0.2)
    server = serve("127.0.0.1", 0, Received(snapshot()).registration)
    try:
        held = [
            socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=BOUND_S)
            for _ in range(20)
        ]
        for one in held:
            one.sendall(b"POST /v1/node HTTP/1.0\r\n")
        assert [_closed(one) for one in held] == [True] * 20
        assert _post(server.server_address[1], "/v1/node", "0 " + report()) == 403
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.loopback
@pytest.mark.skipif(os.geteuid() != 0, reason="only root binds a source port below 1024")
def test_connections_of_a_user_do_not_block_the_agent_of_the_same_address() -> None:
    """100 of 100 tries of an agent were refused while eight threads of a tenant on its node held connections."""
    server = serve("127.0.0.1", 0, Received(snapshot()).registration)
    port, ended = int(server.server_address[1]), threading.Event()

    def hold() -> None:
        while not ended.is_set():
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", port), timeout=1) as one,
            ):
                one.sendall(b"POST /v1/node HTTP/1.0\r\n")
                one.recv(1)

    threads = [threading.Thread(target=hold, daemon=True) for _ in range(8)]
    try:
        for thread in threads:
            thread.start()
        answers = [effects.post("127.0.0.1", port, "/v1/node", b"forged").status for _ in range(100)]
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
    assert answers == [403] * 100


@pytest.mark.loopback
@pytest.mark.skipif(os.geteuid() != 0, reason="only root binds a source port below 1024")
def test_agent_takes_another_port_if_one_has_a_connection_to_the_head(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: connect(2) says EADDRNOTAVAIL, also for a minute after the connection, and the post failed."""
    server = serve("127.0.0.1", 0, Received(snapshot()).registration)
    port = int(server.server_address[1])
    try:
        with effects._connect_from_root_port("127.0.0.1", port) as held:
            used = int(held.getsockname()[1])
            order = [used, *(one for one in effects.ROOT_PORTS if one != used)]
            monkeypatch.setattr("random.sample", lambda _ports, _count: order)
            assert effects.post("127.0.0.1", port, "/v1/node", b"forged").status == 403
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
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=BOUND_S)
    try:
        connection.request("POST", path, body.encode())
        return connection.getresponse().status
    except ConnectionError:
        return 413  # refused before the body was read
    finally:
        connection.close()


@pytest.mark.loopback
def test_server_listens_on_the_controller_address_of_this_host():
    server = serve_here(("192.0.2.1", "127.0.0.1"), 0, Received(snapshot()).registration)
    try:
        assert server.server_address[0] == "127.0.0.1"
    finally:
        server.shutdown()
        server.server_close()


def question(instance: str = "i-1", job: int = 7, restarts: int = 3) -> str:
    return codec.message(RunQuestion(instance_id=instance, nonce="n", job=job, restarts=restarts))


@pytest.mark.parametrize(("job", "begun"), [(7, 2), (8, 3)])
def test_node_asks_how_many_runs_of_a_job_began(job: int, begun: int) -> None:
    """Job 7 was requeued once before it began; of job 8 nothing is known, so Slurm's count holds."""
    placed = JobPlaced(job=7, slots=("h200-2a-1",), submitted_at=1.0, restarts=0)
    received = Received(snapshot(HERE, placed, JobReleased(job=7, began=False)))
    reply = received.registration.run(HERE, "0 " + question(job=job))
    assert (reply.status, codec.loads(RunAnswer, reply.body).begun) == (200, begun)
    assert received.received == []


@pytest.mark.parametrize(
    ("why", "peer", "body"),
    [
        ("munge does not accept it", HERE, "forged"),
        ("an ordinary user made it", HERE, "1000 " + question()),
        ("from another address", "10.42.0.10", "0 " + question()),
        ("an instance that is not ours", HERE, "0 " + question("i-2")),
        ("a report", HERE, "0 " + report()),
    ],
)
def test_question_of_others_is_refused(why: str, peer: str, body: str) -> None:
    assert Received(snapshot()).registration.run(peer, body).status == 403, why
