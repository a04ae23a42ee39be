"""Connections to machines: unchanged argv, time limits, strict host keys."""

import threading

import paramiko
import pytest
from support.ssh_server import SshServer

from gpucluster.errors import GpuclusterError, StateError
from gpucluster.validate import reach
from gpucluster.validate.reach import SshAddress, SshKeys, UnreachableError, by_argv, by_ssh

AWKWARD = ("printf", "%s|", "a b", "$(id)", "'q'", "100%s %d", "*", "", "ü\n")
KEY = paramiko.RSAKey.generate(2048)


def asked(ways, argv, machine="node"):
    return reach.ask(ways, machine, argv, limit_s=120, user=None, sudo=False)


def test_argv_backend_passes_words_unchanged():
    answer = asked(by_argv(lambda machine: ["env", f"MACHINE={machine}"]), AWKWARD)
    assert answer.stdout == "".join(f"{word}|" for word in AWKWARD[2:])
    assert asked(by_argv(lambda _machine: ["env", "A=1"]), ("sh", "-c", "echo no >&2; exit 3")).code == 3


def test_binary_output_is_decoded_and_a_hang_ends():
    ways = by_argv(lambda _machine: ["env"])
    assert "\ufffd" in asked(ways, ("printf", r"\377\376")).stdout
    slow = reach.ask(ways, "node", ("sleep", "60"), limit_s=0.1, user=None, sudo=False)
    assert slow.code == 124


def test_unreachable_machine_keeps_the_error_of_its_program():
    def enter(machine):
        raise StateError(f"no running machine is called {machine}")

    with pytest.raises(GpuclusterError, match="no running machine is called node"):
        asked(by_argv(enter), ("true",))


def test_machine_that_stops_during_a_query_is_unreachable():
    """`sandbox exec` ends with 255, as ssh does; a rule must not take it for the answer of the query."""
    ended = by_argv(lambda _machine: ["sh", "-c", "echo first >&2; echo the machine stopped >&2; exit 255"])
    with pytest.raises(UnreachableError, match=r"^node cannot be reached: the machine stopped$"):
        asked(ended, ("true",))


def test_root_and_users_are_reached_without_prompts():
    said = asked(by_argv(lambda _machine: ["echo"]), ("true",))
    assert said.stdout == "sh -c timeout --kill-after=2 120 true\n"
    both = reach.ask(by_argv(lambda _machine: ["echo"]), "n", ("true",), limit_s=5, user="ann", sudo=True)
    assert both.stdout.startswith(
        "sh -c sudo --non-interactive -- timeout --kill-after=2 5 runuser --user=ann -- env -i --chdir=/tmp PATH=/"
    )


@pytest.fixture
def identity(tmp_path):
    file = tmp_path / "id"
    KEY.write_private_key_file(str(file))
    return file


@pytest.mark.loopback
@pytest.mark.parametrize("by_paramiko", [False, True], ids=["OpenSSH", "paramiko"])
def test_ssh_accepts_only_the_known_host_key(by_paramiko, identity, tmp_path):
    with SshServer(KEY) as server:
        place = {"node": SshAddress(address="127.0.0.1", user="ops", port=server.port)}
        good = server.known_hosts(tmp_path / "good")
        ways = by_ssh(place, SshKeys(known_hosts=good, identity=identity), paramiko=by_paramiko)
        try:
            assert asked(ways, AWKWARD).stdout == "".join(f"{word}|" for word in AWKWARD[2:])
            assert asked(ways, ("sh", "-c", "exit 3")).code == 3
        finally:
            ways.close()
        ran = len(server.commands)
        other, none = (
            server.known_hosts(tmp_path / "other", paramiko.RSAKey.generate(2048)),
            tmp_path / "none",
        )
        none.write_text("")
        for file, step in ((other, "ssh-keygen -R"), (none, "ssh-keyscan")):
            refusing = by_ssh(place, SshKeys(known_hosts=file, identity=identity), paramiko=by_paramiko)
            with pytest.raises(
                UnreachableError, match=r"node cannot be reached: .*(key|known_hosts)"
            ) as raised:
                asked(refusing, ("true",))
            assert step in (raised.value.next_step or "")
            refusing.close()
        assert len(server.commands) == ran


@pytest.mark.loopback
def test_server_of_these_tests_leaves_no_thread():
    before = set(threading.enumerate())
    with SshServer(KEY):
        pass
    assert set(threading.enumerate()) <= before


@pytest.mark.loopback
@pytest.mark.parametrize("by_paramiko", [False, True], ids=["OpenSSH", "paramiko"])
def test_program_that_does_not_end_is_abandoned(by_paramiko, identity, tmp_path):
    with SshServer(KEY) as server:
        place = {"node": SshAddress(address="127.0.0.1", user="ops", port=server.port)}
        keys = SshKeys(known_hosts=server.known_hosts(tmp_path / "known"), identity=identity)
        ways = by_ssh(place, keys, paramiko=by_paramiko)
        # as on a file system that hangs: the words come, and the end does not
        server.stuck = "df"
        with pytest.raises((GpuclusterError, TimeoutError)):
            ways.host("node").run("df", timeout_s=1.0)
        ways.close()


@pytest.mark.loopback
@pytest.mark.parametrize(
    "weaker",
    [
        "StrictHostKeyChecking no",
        "UserKnownHostsFile OTHER",
        "GlobalKnownHostsFile OTHER",
        "KnownHostsCommand /bin/cat OTHER",
        "NoHostAuthenticationForLocalhost yes",
        "StrictHostKeyChecking accept-new",
    ],
)
def test_user_configuration_cannot_weaken_host_keys(weaker, identity, tmp_path):
    with SshServer(KEY) as server:
        (known := tmp_path / "none").write_text("")
        good = server.known_hosts(tmp_path / "good")
        config = tmp_path / "config"
        config.write_text(f"Host *\n  {weaker.replace('OTHER', str(good))}\n")
        keys = SshKeys(known_hosts=known, identity=identity, config=config)
        ways = by_ssh({"node": SshAddress(address="127.0.0.1", user="ops", port=server.port)}, keys)
        with pytest.raises(UnreachableError, match="key is known"):
            asked(ways, ("true",))
        ways.close()
        assert server.commands == []


@pytest.mark.loopback
@pytest.mark.parametrize("by_paramiko", [False, True], ids=["OpenSSH", "paramiko"])
def test_refused_identity_is_unreachable_without_prompt(by_paramiko, tmp_path):
    with SshServer(KEY) as server:
        mine = tmp_path / "mine"
        paramiko.RSAKey.generate(2048).write_private_key_file(str(mine))
        keys = SshKeys(known_hosts=server.known_hosts(tmp_path / "known"), identity=mine)
        ways = by_ssh(
            {"node": SshAddress(address="127.0.0.1", user="ops", port=server.port)},
            keys,
            paramiko=by_paramiko,
        )
        with pytest.raises(UnreachableError):
            asked(ways, ("true",))
        ways.close()


def test_missing_known_hosts_is_an_error(tmp_path):
    with pytest.raises(GpuclusterError, match="file of known host keys") as raised:
        by_ssh({}, SshKeys(known_hosts=tmp_path / "nowhere"))
    assert "ssh-keyscan" in (raised.value.next_step or "")


def test_machine_without_address_is_unreachable(tmp_path):
    known = tmp_path / "known"
    known.write_text("")
    ways = by_ssh({}, SshKeys(known_hosts=known))
    with pytest.raises(UnreachableError, match="gpu09 cannot be reached: the plan has no address"):
        asked(ways, ("true",), machine="gpu09")
    ways.close()
