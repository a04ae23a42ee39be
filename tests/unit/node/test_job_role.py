"""Credentials of jobs: whose connection, whose token, which job; and what an SDK makes of the answer."""

import contextlib
import http.client
import json
import logging
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from fake_machine import FakeMachine
from hypothesis import given
from hypothesis import strategies as st

from gpucluster.node import effects, job_role, job_server, job_tokens, peers, steps
from gpucluster.node.job_role import HERE, JobRole
from gpucluster.node.job_server import JobServer
from gpucluster.node.known import Bundle, Known
from gpucluster.node.machine import Machine, NotYetError, Reply
from gpucluster.plan import names
from gpucluster.plan.model import Bindings

ROLE, NOW = "arn:aws:iam::123456789012:role/burst-jobs-1", 1_000_000.0
ME, OTHER = os.getuid(), os.getuid() + 1
CLIENT = ("127.0.0.1", 40000)
UNITS = Path(effects.__file__).parent / "units"
HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def row(local: str, remote: str, uid: int, state: str = "01") -> str:
    return f"   0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000 {uid:5} 0 31337 1 0 20 0 0 10 -1\n"


SERVER_END, CLIENT_END = "0100007F:012D", "0100007F:9C40"
ROW = row(CLIENT_END, SERVER_END, ME)


@dataclass
class Node:
    """A node on which job 7 of ours runs, with a connection of ours to the agent."""

    fake: FakeMachine
    token: str
    now: float = NOW

    def machine(self) -> Machine:
        return replace(self.fake.machine(), clock=lambda: self.now)

    def role(self) -> JobRole:
        return JobRole(self.machine(), "us-east-1", ROLE, user=lambda _: "vision")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    fake = FakeMachine(tmp_path)
    fake.store.lends_until = NOW + 3600
    fake.put("/proc/net/tcp", HEADER + row("0100007F:0050", "0100007F:9C41", OTHER) + ROW)
    process(fake, 300, "slurmstepd: [7.extern]")
    process(fake, 301, "slurmstepd: [70.batch]")
    (tmp_path / names.JOBS_DIR.lstrip("/")).mkdir(parents=True)
    return Node(fake, prolog(tmp_path, 7))


def process(
    fake: FakeMachine, pid: int, title: str, uid: int = ME, program: str = "/usr/sbin/slurmstepd-wlm"
) -> None:
    """Its /proc, where we are root. `uid` is the one that started it."""
    fake.put(f"/proc/{pid}/cmdline", f"{title}\0")
    fake.put(f"/proc/{pid}/status", f"Name:\tx\nUid:\t{uid}\t{OTHER}\t{ME}\t{OTHER}\nGid:\t{ME}\t{ME}\n")
    (fake.root / f"proc/{pid}/exe").symlink_to(program)


def prolog(root: Path, job: int) -> str:
    """The real one leaves the token."""
    folder = root / names.JOBS_DIR.lstrip("/")
    environment = {
        "GPUCLUSTER_JOBS": str(folder), "GPUCLUSTER_DOORBELL": str(root / "nobody"),
        "SLURM_JOB_ID": str(job), "SLURM_JOB_UID": str(ME),
    }  # fmt: skip
    subprocess.run([UNITS / names.PROLOG.lstrip("/")], env=environment, check=True)
    return (folder / str(job)).read_text()


def test_a_job_gets_keys_of_the_role_under_a_name_that_says_whose_they_are(node: Node) -> None:
    told = node.role().answer(node.token, CLIENT)
    assert told.status == 200
    assert json.loads(told.body) == {
        "RoleArn": ROLE, "AccessKeyId": "ASIA1", "SecretAccessKey": "secret", "Token": "token",
        "Expiration": "1970-01-12T14:46:40Z",
    }  # fmt: skip
    assert node.fake.store.assumed == [(ROLE, "7-vision", 3600)]


def test_the_token_is_the_users_alone_has_no_end_of_line_and_is_another_each_time(node: Node) -> None:
    file = node.fake.root / names.JOBS_DIR.lstrip("/") / "7"
    assert file.stat().st_uid == os.geteuid(), (
        "root's: a user can neither fill /run by it nor take a lease on it"
    )
    assert may_read(file) == {ME}
    assert file.stat().st_mode & 0o227 == 0
    assert job_tokens.TOKEN.fullmatch(node.token), "botocore refuses a token with an end of line"
    assert prolog(node.fake.root, 7) != node.token
    assert [p.name for p in file.parent.iterdir()] == ["7"]


def may_read(file: Path) -> set[int]:
    """The users of its list; none of it writes, and neither group nor others are in it."""
    text = os.getxattr(file, "system.posix_acl_access")[4:]
    entries = [struct.unpack_from("<HHI", text, at) for at in range(0, len(text), 8)]
    assert {(tag, rights) for tag, rights, _ in entries} == {
        (0x01, 4),
        (0x02, 4),
        (0x04, 0),
        (0x10, 4),
        (0x20, 0),
    }
    return {uid for tag, _, uid in entries if tag == 0x02}


STRANGERS = [
    ("nobody's connection is in the table", lambda n: n.fake.put("/proc/net/tcp", HEADER)),
    ("the socket is another user's", lambda n: n.fake.put("/proc/net/tcp", HEADER + row(CLIENT_END, SERVER_END, OTHER))),
    ("the socket was closed: uid 0, and on its way out", lambda n: n.fake.put("/proc/net/tcp", HEADER + row(CLIENT_END, SERVER_END, ME, "05"))),
    ("the connection goes to another port", lambda n: n.fake.put("/proc/net/tcp", HEADER + row(CLIENT_END, "0100007F:012E", ME))),
    ("the job is over", lambda n: n.fake.put("/proc/300/cmdline", "slurmstepd: [8.extern]\0")),
    ("the Prolog left no token", lambda n: (n.fake.root / names.JOBS_DIR.lstrip("/") / "7").unlink()),
]  # fmt: skip


@pytest.mark.parametrize("change", [c for _, c in STRANGERS], ids=[s for s, _ in STRANGERS])
def test_nobody_else_gets_any(node: Node, change) -> None:
    change(node)
    told = node.role().answer(node.token, CLIENT)
    assert told.status == 403
    assert json.loads(told.body)["code"] == "AccessDenied"
    assert node.fake.store.assumed == []


def test_a_link_in_the_place_of_a_token_is_nobodys(node: Node) -> None:
    file = node.fake.root / names.JOBS_DIR.lstrip("/") / "7"
    file.rename(file.with_name("x"))
    file.symlink_to("x")
    assert node.role().answer(node.token, CLIENT).status == 403


def test_what_only_calls_itself_a_step_is_none(node: Node) -> None:
    """Its folder in /proc may be root's: such a process has a setuid bit, or may not be dumped."""
    process(node.fake, 302, "slurmstepd: [71.extern]", uid=OTHER)
    process(node.fake, 303, "slurmstepd: [72.extern]", program="/usr/bin/su")
    process(node.fake, 304, "slurmstepd: [73.extern]", program="/usr/sbin/slurmstepd (deleted)")
    node.fake.put("/proc/305/cmdline", "slurmstepd: [74.extern]\0")  # it has just ended
    assert steps.jobs(node.machine()) == {7, 70, 73}


def test_a_token_in_a_users_own_file_is_none(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "root", lambda _: OTHER)
    process(node.fake, 306, "slurmstepd: [7.0]", uid=OTHER)
    assert node.role().answer(node.token, CLIENT).status == 403


def test_ranks_that_ask_together_are_one_look_at_all_processes(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    real = steps.jobs
    monkeypatch.setattr(steps, "jobs", lambda machine: (looks.append(1), real(machine))[1])
    role = node.role()
    assert {role.answer(node.token, CLIENT).status for _ in range(8)} == {200}
    assert len(looks) == 1
    node.fake.clock += job_role.SEEN_S + 1
    (node.fake.root / "proc/300/cmdline").unlink()
    assert role.answer(node.token, CLIENT).status == 403


@pytest.mark.parametrize(
    "token",
    [
        "",
        "7",
        "7.",
        "../../etc/shadow.x",
        f"07.{ME}.{'a' * 43}",
        f"7.{ME}.{'a' * 43}",
        f"7.{OTHER}.{'a' * 43}",
        f"7.{ME}.{'a' * 43}\n",
        f"7.{ME}." + "\u00e9" * 43,
    ],
)
def test_what_is_no_token_opens_no_file(node: Node, token: str) -> None:
    assert node.role().answer(token, CLIENT).status == 403


def test_sts_is_asked_once_for_a_job_until_a_third_of_its_hour_is_left(node: Node) -> None:
    role = node.role()
    first = role.answer(node.token, CLIENT)
    node.now = NOW + 3600 - job_role.FRESH_S - 1
    assert role.answer(node.token, CLIENT) == first
    node.now += 2
    node.fake.store.lends_until = node.now + 3600
    assert json.loads(role.answer(node.token, CLIENT).body)["AccessKeyId"] == "ASIA2"


def test_two_jobs_have_keys_of_their_own(node: Node) -> None:
    role, other = node.role(), prolog(node.fake.root, 70)
    role.answer(node.token, CLIENT)
    role.answer(other, CLIENT)
    assert [session for _, session, _ in node.fake.store.assumed] == ["7-vision", "70-vision"]


def test_a_name_that_sts_does_not_take_is_written_as_one_that_it_does(node: Node) -> None:
    role = JobRole(node.machine(), "us-east-1", ROLE, user=lambda _: "EXAMPLE\\jörg maier" + "x" * 80)
    role.answer(node.token, CLIENT)
    ((_, session, _),) = node.fake.store.assumed
    assert session.startswith("7-EXAMPLE-j-rg-maier")
    assert len(session) == 64


def test_a_refusal_by_sts_is_told_without_its_words_and_is_not_repeated_at_each_question(
    node: Node, caplog
) -> None:
    caplog.set_level(logging.WARNING)
    node.fake.store.sts_refuses = True
    role = node.role()
    told = [role.answer(node.token, CLIENT) for _ in range(9)]
    assert {t.status for t in told} == {503}
    assert b"AccessDenied" not in told[0].body
    assert len(node.fake.store.assumed) == 1
    assert len(caplog.records) == 1
    node.fake.clock += job_role.AGAIN_S
    node.fake.store.sts_refuses = False
    assert role.answer(node.token, CLIENT).status == 200


def test_keys_that_are_held_serve_while_sts_gives_no_others(node: Node) -> None:
    role = node.role()
    first = role.answer(node.token, CLIENT)
    node.fake.store.sts_refuses = True
    node.now = NOW + 3600 - job_role.LAST_S - 1
    assert role.answer(node.token, CLIENT) == first
    assert len(node.fake.store.assumed) == 2
    node.now += 2
    assert role.answer(node.token, CLIENT).status == 503


def test_while_sts_hangs_for_one_job_the_keys_of_another_are_handed_out(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_role, "WAIT_S", 0.01)
    role, other = node.role(), prolog(node.fake.root, 70)
    first = role.answer(node.token, CLIENT)
    with role._asking:
        node.now = NOW + 3600 - job_role.FRESH_S + 1
        assert role.answer(node.token, CLIENT) == first
        assert role.answer(other, CLIENT).status == 503
    assert len(node.fake.store.assumed) == 1


def test_ranks_of_a_job_that_ask_together_wait_for_the_first(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    role = node.role()
    first = role._asking

    class Told:
        def acquire(self, timeout: float) -> bool:
            waited.append(timeout)
            return first.acquire(timeout=timeout)

        def release(self) -> None:
            first.release()

    monkeypatch.setattr(role, "_asking", Told())
    role.answer(node.token, CLIENT)
    node.now = NOW + 3600 - job_role.FRESH_S + 1
    role.answer(node.token, CLIENT)
    assert waited == [job_role.WAIT_S, 0]


def test_no_key_is_shown_by_a_repr(node: Node) -> None:
    assert "secret='" not in repr(node.fake.store.assume("", "", 0))


def test_tokens_of_jobs_that_are_over_go_and_others_stay(node: Node) -> None:
    folder = node.fake.root / names.JOBS_DIR.lstrip("/")
    prolog(node.fake.root, 8)
    (folder / "README").write_text("a file of somebody's")
    for name in ("7", "8"):
        os.utime(folder / name, (NOW, NOW))
    job_tokens.sweep(node.machine())
    assert sorted(p.name for p in folder.iterdir()) == ["7", "8", "README"], "8 may not have begun"
    node.now = NOW + job_tokens.STARTING_S + 1
    job_tokens.sweep(node.machine())
    assert sorted(p.name for p in folder.iterdir()) == ["7", "README"]


def offering(node: Node, jobs_role: str, serve) -> Known:
    bindings = Bindings(
        schema=1, region="us-east-1", bucket="b", secret="s", subnets={}, templates={}, jobs_role=jobs_role
    )
    bundle = Bundle(digest="", etag="", tree=Path(), plan=None, bindings=bindings)  # type: ignore[arg-type]
    return job_role.offered(replace(node.machine(), serve_jobs=serve), Known(bundle=bundle))


def test_without_a_role_nothing_is_served_and_the_prolog_leaves_nothing(node: Node) -> None:
    served: list[object] = []
    offering(node, "", served.append)
    assert served == []
    assert not (node.fake.root / names.JOBS_DIR.lstrip("/")).exists()
    with pytest.raises(FileNotFoundError):
        prolog(node.fake.root, 7)


def test_with_a_role_the_folder_is_everybodys_to_pass_and_roots_to_write(node: Node) -> None:
    served: list[object] = []
    offering(node, ROLE, served.append)
    offering(node, ROLE, served.append)
    assert len(served) == 2
    assert (node.fake.root / names.JOBS_DIR.lstrip("/")).stat().st_mode & 0o022 == 0


def test_a_port_that_somebody_has_is_told(node: Node) -> None:
    def taken(_: object) -> None:
        raise OSError(98, "Address already in use")

    with pytest.raises(NotYetError, match=r"127\.0\.0\.1:301: .*Address already in use"):
        offering(node, ROLE, taken)


def test_java_s_socket_stands_in_the_table_of_ipv6() -> None:
    mapped = "0000000000000000FFFF0000"
    table = HEADER + row(mapped + CLIENT_END, mapped + SERVER_END, 5001)
    assert list(peers.owners(table, CLIENT, HERE)) == [5001]


@given(st.text(alphabet="0123456789ABCDEF: \n", max_size=300))
def test_no_table_makes_it_fail(text: str) -> None:
    assert list(peers.owners(text, CLIENT, HERE)) == []


# --- with sockets ---------------------------------------------------------------------------
def a_server() -> JobServer:
    return JobServer(("127.0.0.1", 0), partial(peers.owner, effects.real()))


@pytest.fixture
def server() -> Iterator[JobServer]:
    made = a_server()
    made.serve(
        lambda token, client: Reply(200, json.dumps([token, client[0], owner(client, made.port)]).encode())
    )
    yield made
    made.close()


def owner(client: tuple[str, int], port: int) -> int:
    return peers.owner(effects.real(), client, ("127.0.0.1", port))


@pytest.mark.loopback
def test_the_kernels_own_table_says_whose_the_connection_is(server: JobServer) -> None:
    caller = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    caller.request("GET", "/", headers={"Authorization": "a token"})
    answer = caller.getresponse()
    assert json.loads(answer.read()) == ["a token", "127.0.0.1", ME]
    assert answer.headers["Cache-Control"] == "no-store"
    caller.close()


@pytest.mark.loopback
def test_callers_that_say_nothing_leave_places_for_others(server: JobServer) -> None:
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(8)]
    caller = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    caller.request("GET", "/")
    assert caller.getresponse().status == 200
    assert threading.active_count() < 64
    for one in (*silent, caller):
        one.close()


def read_all(connection: socket.socket) -> bytes:
    """What it says until it ends, or is cut."""
    said = b""
    try:
        while more := connection.recv(4096):
            said += more
    except ConnectionError:
        pass
    return said


@pytest.mark.loopback
def test_a_caller_who_speaks_a_letter_at_a_time_gives_his_place_back(
    server: JobServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_server, "SLOW_S", 0.2)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as slow:
        for _ in range(500):
            try:
                slow.sendall(b"G")
                slow.settimeout(0.02)
                if slow.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            pytest.fail("he has it still")


@pytest.mark.loopback
def test_a_question_without_end_is_none(server: JobServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as caller:
        caller.sendall(b"GET / HTTP/1.0\r\nX: " + b"x" * job_server.LARGEST + b"\r\n\r\n")
        assert b"200" not in read_all(caller)


@pytest.mark.loopback
def test_no_user_takes_the_places_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two by one, and one that is free for another."""
    monkeypatch.setattr(job_server, "A_USER", 2)
    whose = iter([ME, ME, ME, OTHER, peers.NOBODY])
    server = JobServer(("127.0.0.1", 0), lambda _client, _server: next(whose))
    server.serve(lambda _token, _client: Reply(200, b"yes"))
    try:
        silent = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(2)]
        said = [ask(server.port) for _ in range(3)]
        assert [b"yes" in one for one in said] == [False, True, False]
        for one in silent:
            one.close()
    finally:
        server.close()


def ask(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as caller:
        with contextlib.suppress(ConnectionError):
            caller.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return read_all(caller)


@pytest.mark.loopback
def test_the_sdk_takes_the_answer(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    import boto3

    server = a_server()
    role = node.role()
    node.fake.store.lends_until = 4e9
    server.serve(lambda token, _: role.answer(token, CLIENT))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://127.0.0.1:{server.port}/")
    file = node.fake.root / names.JOBS_DIR.lstrip("/") / "7"
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(file))
    try:
        found = boto3.Session().get_credentials()
        assert found is not None
        assert found.method == "container-role"
        assert found.access_key == "ASIA1"
    finally:
        server.close()


# --- what the job sees -----------------------------------------------------------------------
def task(tmp_path: Path, **environment: str) -> str:
    """The TaskProlog, its folder in the test's own."""
    folder = tmp_path / names.JOBS_DIR.lstrip("/")
    script = (UNITS / names.TASK_PROLOG.lstrip("/")).read_text().replace(names.JOBS_DIR, str(folder))
    done = subprocess.run(
        ["/bin/sh", "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.replace(str(folder), names.JOBS_DIR)


URL = f"http://127.0.0.1:{names.JOBS_PORT}/"


def test_a_task_is_told_where_and_never_the_token(node: Node) -> None:
    told = task(node.fake.root, SLURM_JOB_ID="7")
    assert told.splitlines() == [
        f"export AWS_CONTAINER_CREDENTIALS_FULL_URI={URL}",
        f"export AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE={names.JOBS_DIR}/7",
    ]
    assert node.token not in told


def test_a_job_that_another_submitted_has_its_own_and_a_users_own_wish_stands(node: Node) -> None:
    assert task(node.fake.root, SLURM_JOB_ID="7", AWS_CONTAINER_CREDENTIALS_FULL_URI=URL) != ""
    assert (
        task(node.fake.root, SLURM_JOB_ID="7", AWS_CONTAINER_CREDENTIALS_FULL_URI="http://127.0.0.1:99/")
        == ""
    )


def test_a_part_of_a_job_takes_its_own_parts_token_and_not_that_of_a_job_before(node: Node) -> None:
    """The parts of a job have one SLURM_JOB_ID; a file is there for a while after its job."""
    folder = node.fake.root / names.JOBS_DIR.lstrip("/")
    for job, at in ((1, NOW), (9, NOW - 60)):
        prolog(node.fake.root, job)
        os.utime(folder / str(job), (at, at))
    os.utime(folder / "7", (NOW + 60, NOW + 60))
    assert f"{names.JOBS_DIR}/7\n" in task(node.fake.root, SLURM_JOB_ID="6")
    assert f"{names.JOBS_DIR}/9\n" in task(node.fake.root, SLURM_JOB_ID="9")


def test_where_jobs_have_no_role_a_task_is_told_nothing(tmp_path: Path) -> None:
    assert task(tmp_path, SLURM_JOB_ID="7") == ""


def test_scripts_and_code_spell_the_same_places() -> None:
    text = (UNITS / names.TASK_PROLOG.lstrip("/")).read_text()
    assert f"url={URL}" in text
    assert f'JOBS = "{names.JOBS_DIR}"' in (UNITS / names.PROLOG.lstrip("/")).read_text()
    assert names.JOBS_PORT < 512, "nobody but root binds it, and no client of NFS takes it"
