"""Credentials of jobs: owner of the connection, token, job; and the reply in an SDK."""

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
from hypothesis import given
from hypothesis import strategies as st
from support.fake_machine import FakeMachine
from support.waiting import BOUND_S

from gpucluster.agent import effects
from gpucluster.agent.boot.boot_state import BootState, Bundle
from gpucluster.agent.credentials import job_role, job_server, job_steps, job_tokens, socket_diag
from gpucluster.agent.credentials.job_role import HERE, JobRole
from gpucluster.agent.credentials.job_server import JobServer
from gpucluster.agent.machine import Machine, NotYetError, Reply
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
    """A node that runs job 7 of this user, with a connection of this user to the agent."""

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
    fake.services.credentials_until = NOW + 3600
    fake.put("/proc/net/tcp", HEADER + row("0100007F:0050", "0100007F:9C41", OTHER) + ROW)
    process(fake, 300, "slurmstepd: [7.extern]")
    process(fake, 301, "slurmstepd: [70.batch]")
    (tmp_path / names.JOBS_DIR.lstrip("/")).mkdir(parents=True)
    return Node(fake, prolog(tmp_path, 7))


def process(
    fake: FakeMachine, pid: int, title: str, uid: int = ME, program: str = "/usr/sbin/slurmstepd-wlm"
) -> None:
    """Add a process to /proc, whose owner counts as root. `uid` is its real uid."""
    fake.put(f"/proc/{pid}/cmdline", f"{title}\0")
    fake.put(f"/proc/{pid}/status", f"Name:\tx\nUid:\t{uid}\t{OTHER}\t{ME}\t{OTHER}\nGid:\t{ME}\t{ME}\n")
    (fake.root / f"proc/{pid}/exe").symlink_to(program)


def prolog(root: Path, job: int) -> str:
    """Run the real Prolog, which writes the token."""
    folder = root / names.JOBS_DIR.lstrip("/")
    environment = {
        "GPUCLUSTER_JOBS": str(folder), "GPUCLUSTER_PROLOG_SOCKET": str(root / "nobody"),
        "SLURM_JOB_ID": str(job), "SLURM_JOB_UID": str(ME),
    }  # fmt: skip
    subprocess.run([UNITS / names.PROLOG.lstrip("/")], env=environment, check=True)
    return (folder / str(job)).read_text()


def test_job_gets_credentials_with_job_and_user_in_the_session_name(node: Node) -> None:
    told = node.role().answer(node.token, CLIENT)
    assert told.status == 200
    assert json.loads(told.body) == {
        "RoleArn": ROLE, "AccessKeyId": "ASIA1", "SecretAccessKey": "secret", "Token": "token",
        "Expiration": "1970-01-12T14:46:40Z",
    }  # fmt: skip
    assert node.fake.services.assumed == [(ROLE, "7-vision", 3600)]


def test_token_is_readable_by_its_user_only_and_new_each_time(node: Node) -> None:
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
    """Return the users in its ACL. The ACL gives no write access, and no access to group and others."""
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
def test_other_requests_get_no_credentials(node: Node, change) -> None:
    change(node)
    told = node.role().answer(node.token, CLIENT)
    assert told.status == 403
    assert json.loads(told.body)["code"] == "AccessDenied"
    assert node.fake.services.assumed == []


def test_link_instead_of_a_token_file_is_refused(node: Node) -> None:
    file = node.fake.root / names.JOBS_DIR.lstrip("/") / "7"
    file.rename(file.with_name("x"))
    file.symlink_to("x")
    assert node.role().answer(node.token, CLIENT).status == 403


def test_process_with_only_the_title_of_a_step_is_no_step(node: Node) -> None:
    """Root may own its folder in /proc: with a setuid bit, or if the process cannot be dumped."""
    process(node.fake, 302, "slurmstepd: [71.extern]", uid=OTHER)
    process(node.fake, 303, "slurmstepd: [72.extern]", program="/usr/bin/su")
    process(node.fake, 304, "slurmstepd: [73.extern]", program="/usr/sbin/slurmstepd (deleted)")
    node.fake.put("/proc/305/cmdline", "slurmstepd: [74.extern]\0")  # it has just ended
    assert job_steps.running_jobs(node.machine()) == {7, 70, 73}


def test_token_file_of_a_user_is_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_steps, "root_uid", lambda _: OTHER)
    process(node.fake, 306, "slurmstepd: [7.0]", uid=OTHER)
    assert node.role().answer(node.token, CLIENT).status == 403


def test_concurrent_requests_share_one_process_scan(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    real = job_steps.running_jobs
    monkeypatch.setattr(job_steps, "running_jobs", lambda machine: (looks.append(1), real(machine))[1])
    role = node.role()
    assert {role.answer(node.token, CLIENT).status for _ in range(8)} == {200}
    assert len(looks) == 1
    node.fake.clock += job_role.SCAN_S + 1
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
def test_invalid_token_opens_no_file(node: Node, token: str) -> None:
    assert node.role().answer(token, CLIENT).status == 403


def test_sts_is_called_again_only_when_20_minutes_are_left(node: Node) -> None:
    role = node.role()
    first = role.answer(node.token, CLIENT)
    node.now = NOW + 3600 - job_role.FRESH_S - 1
    assert role.answer(node.token, CLIENT) == first
    node.now += 2
    node.fake.services.credentials_until = node.now + 3600
    assert json.loads(role.answer(node.token, CLIENT).body)["AccessKeyId"] == "ASIA2"


def test_each_job_has_its_own_credentials(node: Node) -> None:
    role, other = node.role(), prolog(node.fake.root, 70)
    role.answer(node.token, CLIENT)
    role.answer(other, CLIENT)
    assert [session for _, session, _ in node.fake.services.assumed] == ["7-vision", "70-vision"]


def test_invalid_characters_of_a_session_name_are_replaced(node: Node) -> None:
    role = JobRole(node.machine(), "us-east-1", ROLE, user=lambda _: "EXAMPLE\\jörg maier" + "x" * 80)
    role.answer(node.token, CLIENT)
    ((_, session, _),) = node.fake.services.assumed
    assert session.startswith("7-EXAMPLE-j-rg-maier")
    assert len(session) == 64


def test_refusal_by_sts_is_reported_without_details_and_not_repeated_per_request(node: Node, caplog) -> None:
    caplog.set_level(logging.WARNING)
    node.fake.services.sts_refuses = True
    role = node.role()
    told = [role.answer(node.token, CLIENT) for _ in range(9)]
    assert {t.status for t in told} == {503}
    assert b"AccessDenied" not in told[0].body
    assert len(node.fake.services.assumed) == 1
    assert len(caplog.records) == 1
    node.fake.clock += job_role.RETRY_S
    node.fake.services.sts_refuses = False
    assert role.answer(node.token, CLIENT).status == 200


def test_held_credentials_are_used_while_sts_fails(node: Node) -> None:
    role = node.role()
    first = role.answer(node.token, CLIENT)
    node.fake.services.sts_refuses = True
    node.now = NOW + 3600 - job_role.LAST_S - 1
    assert role.answer(node.token, CLIENT) == first
    assert len(node.fake.services.assumed) == 2
    node.now += 2
    assert role.answer(node.token, CLIENT).status == 503


def test_held_credentials_are_given_out_while_sts_hangs_for_another_job(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_role, "WAIT_S", 0.01)
    role, other = node.role(), prolog(node.fake.root, 70)
    first = role.answer(node.token, CLIENT)
    with role._sts_lock:
        node.now = NOW + 3600 - job_role.FRESH_S + 1
        assert role.answer(node.token, CLIENT) == first
        assert role.answer(other, CLIENT).status == 503
    assert len(node.fake.services.assumed) == 1


def test_concurrent_requests_of_a_job_share_one_sts_call(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    role = node.role()
    first = role._sts_lock

    class QueueNotice:
        def acquire(self, timeout: float) -> bool:
            waited.append(timeout)
            return first.acquire(timeout=timeout)

        def release(self) -> None:
            first.release()

    monkeypatch.setattr(role, "_sts_lock", QueueNotice())
    role.answer(node.token, CLIENT)
    node.now = NOW + 3600 - job_role.FRESH_S + 1
    role.answer(node.token, CLIENT)
    assert waited == [job_role.WAIT_S, 0]


def test_repr_shows_no_secret(node: Node) -> None:
    assert "secret='" not in repr(node.fake.services.assume_role("", "", 0))


def test_tokens_of_ended_jobs_are_removed(node: Node) -> None:
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


def offering(node: Node, jobs_role: str, serve) -> BootState:
    bindings = Bindings(
        schema=1, region="us-east-1", bucket="b", secret="s", subnets={}, templates={}, jobs_role=jobs_role
    )
    bundle = Bundle(digest="", etag="", tree=Path(), plan=None, bindings=bindings)  # type: ignore[arg-type]
    return job_role.serve_credentials(replace(node.machine(), serve_jobs=serve), BootState(bundle=bundle))


def test_without_a_role_nothing_is_served_and_no_token_is_written(node: Node) -> None:
    served: list[object] = []
    offering(node, "", served.append)
    assert served == []
    assert not (node.fake.root / names.JOBS_DIR.lstrip("/")).exists()
    with pytest.raises(FileNotFoundError):
        prolog(node.fake.root, 7)


def test_token_folder_is_searchable_by_all_and_writable_by_root(node: Node) -> None:
    served: list[object] = []
    offering(node, ROLE, served.append)
    offering(node, ROLE, served.append)
    assert len(served) == 2
    assert (node.fake.root / names.JOBS_DIR.lstrip("/")).stat().st_mode & 0o022 == 0


def test_occupied_port_is_reported(node: Node) -> None:
    def taken(_: object) -> None:
        raise OSError(98, "Address already in use")

    with pytest.raises(NotYetError, match=r"127\.0\.0\.1:301: .*Address already in use"):
        offering(node, ROLE, taken)


def test_ipv4_mapped_socket_is_found_in_the_ipv6_table() -> None:
    mapped = "0000000000000000FFFF0000"
    table = HEADER + row(mapped + CLIENT_END, mapped + SERVER_END, 5001)
    assert list(job_server.socket_owners(table, CLIENT, HERE)) == [5001]


@given(st.text(alphabet="0123456789ABCDEF: \n", max_size=300))
def test_any_table_text_is_accepted(text: str) -> None:
    assert list(job_server.socket_owners(text, CLIENT, HERE)) == []


# --- with sockets ---------------------------------------------------------------------------
def a_server() -> JobServer:
    return JobServer(("127.0.0.1", 0), partial(job_server.socket_owner, effects.this_machine()))


@pytest.fixture
def server() -> Iterator[JobServer]:
    made = a_server()
    made.serve(
        lambda token, client: Reply(200, json.dumps([token, client[0], owner(client, made.port)]).encode())
    )
    yield made
    made.close()


def owner(client: tuple[str, int], port: int) -> int:
    return job_server.socket_owner(effects.this_machine(), client, ("127.0.0.1", port))


@pytest.mark.loopback
def test_owner_of_a_real_connection_is_found(server: JobServer) -> None:
    caller = http.client.HTTPConnection("127.0.0.1", server.port, timeout=BOUND_S)
    caller.request("GET", "/", headers={"Authorization": "a token"})
    answer = caller.getresponse()
    assert json.loads(answer.read()) == ["a token", "127.0.0.1", ME]
    assert answer.headers["Cache-Control"] == "no-store"
    caller.close()


@pytest.mark.loopback
def test_silent_connections_do_not_block_others(server: JobServer) -> None:
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(8)]
    caller = http.client.HTTPConnection("127.0.0.1", server.port, timeout=BOUND_S)
    caller.request("GET", "/")
    assert caller.getresponse().status == 200
    assert threading.active_count() < 64
    for one in (*silent, caller):
        one.close()


def read_all(connection: socket.socket) -> bytes:
    """Return the received bytes until the end of the connection."""
    said = b""
    try:
        while more := connection.recv(4096):
            said += more
    except ConnectionError:
        pass
    return said


@pytest.mark.loopback
def test_slow_request_is_ended_at_the_time_limit(server: JobServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_server, "REQUEST_S", 0.2)
    with socket.create_connection(("127.0.0.1", server.port), timeout=BOUND_S) as slow:
        for _ in range(int(BOUND_S / 0.02)):
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
def test_endless_request_is_refused(server: JobServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=BOUND_S) as caller:
        caller.sendall(b"GET / HTTP/1.0\r\nX: " + b"x" * job_server.MAX_REQUEST + b"\r\n\r\n")
        assert b"200" not in read_all(caller)


@pytest.mark.loopback
def test_request_of_many_short_lines_is_refused_at_the_same_bound(server: JobServer) -> None:
    """Each line is short enough for http.server, so our bound alone ends it."""
    line = b"X: " + b"x" * 1000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=BOUND_S) as caller:
        caller.sendall(b"GET / HTTP/1.0\r\n" + line * (job_server.MAX_REQUEST // len(line) + 1) + b"\r\n")
        assert b"HTTP/" not in read_all(caller)


@pytest.mark.loopback
def test_connections_of_one_user_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two connections of one user, and one of another user."""
    monkeypatch.setattr(job_server, "MAX_OF_USER", 2)
    whose = iter([ME, ME, ME, OTHER, job_server.NO_OWNER])
    server = JobServer(("127.0.0.1", 0), lambda _client, _server: next(whose))
    server.serve(lambda _token, _client: Reply(200, b"yes"))
    try:
        silent = [socket.create_connection(("127.0.0.1", server.port), timeout=BOUND_S) for _ in range(2)]
        said = [ask(server.port) for _ in range(3)]
        assert [b"yes" in one for one in said] == [False, True, False]
        for one in silent:
            one.close()
    finally:
        server.close()


def ask(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=BOUND_S) as caller:
        with contextlib.suppress(ConnectionError):
            caller.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return read_all(caller)


@pytest.mark.loopback
def test_sdk_accepts_the_reply(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    import boto3

    server = a_server()
    role = node.role()
    node.fake.services.credentials_until = 4e9
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
    """Run the TaskProlog with a folder of the test."""
    folder = tmp_path / names.JOBS_DIR.lstrip("/")
    restarts = tmp_path / names.JOB_RESTARTS_DIR.lstrip("/")
    script = (UNITS / names.TASK_PROLOG.lstrip("/")).read_text()
    script = script.replace(names.JOBS_DIR, str(folder)).replace(names.JOB_RESTARTS_DIR, str(restarts))
    done = subprocess.run(
        ["/bin/sh", "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.replace(str(folder), names.JOBS_DIR)


URL = f"http://127.0.0.1:{names.JOBS_PORT}/"


def test_task_environment_has_url_and_token_file_but_no_token(node: Node) -> None:
    told = task(node.fake.root, SLURM_JOB_ID="7")
    assert told.splitlines() == [
        f"export AWS_CONTAINER_CREDENTIALS_FULL_URI={URL}",
        f"export AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE={names.JOBS_DIR}/7",
    ]
    assert node.token not in told


def test_task_of_a_nested_job_has_its_own_token_and_a_users_setting_stays(node: Node) -> None:
    assert task(node.fake.root, SLURM_JOB_ID="7", AWS_CONTAINER_CREDENTIALS_FULL_URI=URL) != ""
    assert (
        task(node.fake.root, SLURM_JOB_ID="7", AWS_CONTAINER_CREDENTIALS_FULL_URI="http://127.0.0.1:99/")
        == ""
    )


def test_part_of_a_heterogeneous_job_uses_the_newest_readable_token(node: Node) -> None:
    """The parts of a job share SLURM_JOB_ID, and a file exists for a while after its job."""
    folder = node.fake.root / names.JOBS_DIR.lstrip("/")
    for job, at in ((1, NOW), (9, NOW - 60)):
        prolog(node.fake.root, job)
        os.utime(folder / str(job), (at, at))
    os.utime(folder / "7", (NOW + 60, NOW + 60))
    assert f"{names.JOBS_DIR}/7\n" in task(node.fake.root, SLURM_JOB_ID="6")
    assert f"{names.JOBS_DIR}/9\n" in task(node.fake.root, SLURM_JOB_ID="9")


def test_without_a_role_the_task_environment_is_unchanged(tmp_path: Path) -> None:
    assert task(tmp_path, SLURM_JOB_ID="7") == ""


@pytest.mark.parametrize(
    ("left", "count", "told"),
    [
        ("2\n", "5", "export SLURM_RESTART_COUNT=2\n"),
        ("0\n", "5", "unset SLURM_RESTART_COUNT\n"),
        (None, "5", ""),
        ("", "5", ""),
        ("2; reboot\n", "5", ""),
        ("2\n", "", ""),
    ],
)
def test_task_sees_the_runs_that_began(tmp_path: Path, left: str | None, count: str, told: str) -> None:
    """Without a file, for example without a daemon, Slurm's own count stays."""
    folder = tmp_path / names.JOB_RESTARTS_DIR.lstrip("/")
    folder.mkdir(parents=True)
    if left is not None:
        (folder / "7").write_text(left)
    assert task(tmp_path, SLURM_JOB_ID="7", SLURM_RESTART_COUNT=count) == told


def test_scripts_and_code_have_the_same_paths() -> None:
    text = (UNITS / names.TASK_PROLOG.lstrip("/")).read_text()
    assert f"restarts={names.JOB_RESTARTS_DIR}/" in text
    assert f'RESTARTS = "{names.JOB_RESTARTS_DIR}"' in (UNITS / names.PROLOG.lstrip("/")).read_text()
    assert f"url={URL}" in text
    assert f'JOBS = "{names.JOBS_DIR}"' in (UNITS / names.PROLOG.lstrip("/")).read_text()
    assert names.JOBS_PORT < 512, "nobody but root binds it, and no client of NFS takes it"


# --- sock_diag -------------------------------------------------------------------------------------
@pytest.mark.loopback
def test_kernel_names_the_owner_of_a_connection_and_of_no_other() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        here, there = client.getsockname(), client.getpeername()
        if socket_diag.owner(here, there) is None:
            pytest.skip("this kernel has no sock_diag")
        assert socket_diag.owner(here, there) == ME
        assert socket_diag.owner((here[0], 1), there) == socket_diag.NO_OWNER
        assert socket_diag.owner(there, ("127.0.0.1", 1)) == socket_diag.NO_OWNER, (
            "a listening socket is no connection"
        )


def test_tables_are_not_read_if_the_kernel_answers(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 100,000 sockets the tables took 305 ms in the thread that accepts all connections."""
    monkeypatch.setattr(Machine, "read", lambda *_: pytest.fail("a table was read"))
    asked: list[object] = []
    machine = replace(node.machine(), diag=lambda local, remote: asked.append((local, remote)) or 5001)
    assert job_server.socket_owner(machine, CLIENT, HERE) == 5001
    assert asked == [(CLIENT, HERE)]


def test_connection_has_no_owner_if_the_kernel_fails(node: Node) -> None:
    def fail(_local: object, _remote: object) -> int:
        raise OSError("ENOBUFS")

    assert job_server.socket_owner(replace(node.machine(), diag=fail), CLIENT, HERE) == job_server.NO_OWNER
