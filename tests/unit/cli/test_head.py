"""Commands on a head: which head, which command, and the handling of its result."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest
import typer
from support.ssh_server import SshServer

from gpucluster.cli import accounts, bundle, head, inspect, node, pool, scaling, status, transport
from gpucluster.cli import exec as exec_verbs
from gpucluster.cli.head import Head, reach, report
from gpucluster.cli.main import run
from gpucluster.cli.output import Output
from gpucluster.cli.transport import HeadOptions
from gpucluster.errors import GpuclusterError, HostError, StateError
from gpucluster.shell import Result
from gpucluster.validate.reach import UnreachableError

STACKS = Path(__file__).parents[3] / "stacks"


class FakeHead:
    """A stand-in of a head with fixed answers. It records the commands."""

    def __init__(self, code: int = 0, out: str = "", err: str = "") -> None:
        self.answer, self.asked = (code, out, err), list[tuple[str, ...]]()

    def __call__(self, argv: Sequence[str]) -> tuple[int, str, str]:
        self.asked.append(tuple(argv))
        return self.answer


def exit_code(fake: FakeHead, output: Output, *words: str) -> int:
    with pytest.raises(typer.Exit) as left:
        report(Head(name="burst", run=fake), output, *words)
    return left.value.exit_code


def test_exit_code_of_the_head_is_returned(capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeHead(1, "job 9 is not known\n")
    assert exit_code(fake, Output.TEXT, "inspect.why", "9") == 1
    assert fake.asked == [
        ("/opt/gpucluster/venv/bin/python", "-I", "-m", "gpucluster.elastic.inspect.why", "9")
    ]
    assert capsys.readouterr().out == "job 9 is not known\n"


def test_json_is_passed_on_with_the_cluster_and_whether_it_is_well(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake = FakeHead(0, '{"schema": 1, "cause": "refused"}')
    assert exit_code(fake, Output.JSON, "why", "9") == 0
    assert fake.asked[0][-1] == "--json"
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1,
        "ok": True,
        "cluster": "burst",
        "cause": "refused",
    }


def test_job_without_events_exits_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(FakeHead(0, "[]"), Output.JSON, "timeline", "9") == 1
    assert json.loads(capsys.readouterr().out)["moments"] == []
    assert exit_code(FakeHead(0, '[{"what": "up"}]'), Output.JSON, "timeline", "9") == 0


def test_control_characters_of_a_machine_are_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code(FakeHead(0, "job \x1b[2J\x07one\r\nline two\n", "warn\x1b]0;x\x07"), Output.TEXT, "why", "9")
    shown = capsys.readouterr()
    assert shown.out == "job \ufffdone\nline two\n"
    assert "\x1b" not in shown.err


@pytest.mark.parametrize(
    ("code", "err", "message", "step"),
    [
        (2, "error: the journal cannot be read\n  next: be root", "burst: the journal cannot be read", "be root"),
        (1, "/x/python: No module named gpucluster.elastic.inspect.why", "the head has no such program", "replace the head"),
        (127, "env: '/opt/gpucluster/venv/bin/python': No such file or directory", "the head has no such program", "replace the head"),
        (1, "Traceback (most recent call last):\nKeyError: 1", "burst: KeyError: 1", "log"),
        (124, "", "the program ended with code 124", "log"),
    ],
)  # fmt: skip
def test_error_of_the_head_keeps_its_message(code: int, err: str, message: str, step: str) -> None:
    with pytest.raises(StateError) as caught:
        Head(name="burst", run=FakeHead(code, "", err)).ask("why", "9")
    assert message in caught.value.message
    assert step in (caught.value.next_step or "")


def test_output_that_is_not_json_is_an_error() -> None:
    with pytest.raises(StateError, match="not JSON"):
        report(Head(name="burst", run=FakeHead(0, "hello")), Output.JSON, "why", "9")


def test_stack_on_aws_without_session_manager_reports_the_private_address_of_its_head(tmp_path: Path) -> None:
    """Regression: the message named an output with an instance id, and a user that the image does not have."""
    text = (STACKS / "burst.yaml").read_text()
    closed = tmp_path / "burst.yaml"
    closed.write_text(text.replace("ssm: true", "ssm: false"))
    assert closed.read_text() != text
    with pytest.raises(
        HostError, match=r"10\.42\.0\.10, has no public address and no `access.ssm`"
    ) as caught:
        reach(HeadOptions(cluster=str(closed)))
    step = caught.value.next_step or ""
    assert "--ssh USER@10.42.0.10" in step
    assert "write `access: {ssm: true}` and apply it" in step


def test_spec_without_slurm_has_no_head() -> None:
    with pytest.raises(HostError, match="kube has no Slurm, so it has no head"):
        reach(HeadOptions(cluster=str(STACKS / "kube.yaml")))


def test_error_of_a_default_sandbox_says_that_it_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: `why 1` named a sandbox that the reader did not name, and offered to end it."""

    def starting(name: str) -> transport.Transport:
        raise StateError(
            f"the sandbox '{name}' is still starting", next_step="gpucluster sandbox status hosts"
        )

    monkeypatch.setattr(transport, "_name_here", lambda: "")
    monkeypatch.setattr(transport, "_only_sandbox", lambda: "hosts")
    monkeypatch.setattr(transport, "_of_sandbox", starting)
    with pytest.raises(StateError) as caught:
        reach(HeadOptions())
    assert caught.value.message == (
        "the sandbox 'hosts' is still starting (no -c was given, and 'hosts' is the only running sandbox)"
    )
    assert caught.value.next_step == "gpucluster sandbox status hosts"


def test_unknown_name_lists_valid_forms() -> None:
    with pytest.raises(StateError, match="neither a sandbox nor a spec file"):
        reach(HeadOptions(cluster="nowhere"))


def test_ssh_requires_known_hosts(tmp_path: Path) -> None:
    with pytest.raises(GpuclusterError, match="file of known host keys"):
        reach(HeadOptions(ssh="admin@192.0.2.1", known_hosts=tmp_path / "none"))


@pytest.mark.parametrize(
    "word", ["", "-oProxyCommand=x", "-l@host", "a@-b", "a b@host", "h:x", "$(id)@h", "h:0", "h:65536", "h:²"]
)
def test_ssh_place_is_never_an_option_or_a_command(word: str) -> None:
    with pytest.raises(GpuclusterError, match="is no"):
        reach(HeadOptions(ssh=word))


@pytest.mark.parametrize(
    ("typed", "text", "shown"),
    [
        ("-c stacks/b.yaml", "gpucluster why 1 -c burst; -c burst", "gpucluster why 1 -c stacks/b.yaml; -c burst"),
        ("--ssh a@h", "`gpucluster pool resume x -c burst` ends it", "`gpucluster pool resume x --ssh a@h` ends it"),
        ("", "gpucluster why 1 -c burst", "gpucluster why 1 -c burst"),
        ("-c 'a b\\c'", '{"next": "gpucluster why 1 -c burst"}', '{"next": "gpucluster why 1 -c \'a b\\\\c\'"}'),
    ],
)  # fmt: skip
def test_commands_of_the_head_select_it_as_the_reader_did(typed: str, text: str, shown: str) -> None:
    assert Head(name="burst", run=FakeHead(0, text), typed=typed).ask("why", "1").stdout == shown


class Booting:
    """A head whose agent applies the published bundle after some looks."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)

    def __call__(self, argv: Sequence[str]) -> tuple[int, str, str]:
        found = self.answers.pop(0)
        if isinstance(found, StateError):
            raise found
        return (0, json.dumps(found), "") if isinstance(found, dict) else (2, "", str(found))


def overview(*, settled: bool = False, held: str = "", **published: str) -> dict[str, object]:
    empty = {"bundle": "1" * 64, "detail": "", "refused": "", "unread": ""}
    return {"settled": settled, "held": held, "published": {**empty, **published}}


def test_wait_ends_when_the_head_has_applied_the_bundle(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status, "LOOK_S", 0)
    booting = Booting(
        StateError("no head runs"),
        "error: the plan cannot be read",
        overview(detail="waiting for munge"),
        overview(held="job 4"),
        overview(),
        overview(settled=True),
    )
    status.until_settled(Head(name="burst", run=booting))
    assert capsys.readouterr().err.splitlines() == [
        "no head runs",
        "burst: the plan cannot be read",
        "waiting for munge",
        "job 4",
        "the published bundle is not applied",
    ]


def test_wait_ends_at_once_for_a_refused_bundle_and_a_broken_program() -> None:
    with pytest.raises(GpuclusterError, match="the head refuses bundle 111111111111: bad line"):
        status.until_settled(Head(name="burst", run=Booting(overview(refused="bad line"))))
    with pytest.raises(StateError, match="burst: KeyError: 1"):
        status.until_settled(Head(name="burst", run=Booting("Traceback\nKeyError: 1")))


def test_wait_is_bounded() -> None:
    with pytest.raises(StateError, match="burst is not ready after 0 s: waiting for munge"):
        status.until_settled(Head(name="burst", run=Booting(overview(detail="waiting for munge"))), 0)


@pytest.mark.parametrize(("text", "count"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("3d", 259200)])
def test_time_has_its_unit(text: str, count: int) -> None:
    assert node.seconds(text) == count


@pytest.mark.parametrize("text", ["", "2", "-2h", "2 h x", "1e9h", "0h", "2w"])
def test_time_without_a_unit_is_refused(text: str) -> None:
    with pytest.raises(GpuclusterError, match="is not a duration"):
        node.seconds(text)


@pytest.mark.parametrize(
    "argv",
    [
        ["why", "--", "-rf"],
        ["pool", "pause", "--", "--json"],
        ["node", "keep", "--", "-x"],
        ["node", "replace", "a\x1bb"],
    ],
)
def test_word_that_looks_like_an_option_is_refused(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == 2
    assert "is neither a job's number nor a node's name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "cluster"),
    [
        (["why", "7"], None),
        (["timeline", "7", "-c", "burst"], "burst"),
        (["reconcile", "--cluster", "burst"], "burst"),
        (["bundle", "show"], None),
        (["status", "burst"], "burst"),
        (["accounts", "diff", "burst"], "burst"),
        (["accounts", "apply", "burst"], "burst"),
        (["node", "keep", "g-1"], None),
        (["pool", "pause", "g"], None),
        (["pool", "list", "-c", "burst"], "burst"),
    ],
)
def test_command_on_a_head_takes_every_option_of_the_connection(
    argv: list[str], cluster: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[HeadOptions] = []

    def recorded(options: HeadOptions) -> Head:
        found.append(options)
        raise StateError("reached")

    for module in (accounts, bundle, inspect, node, pool, status):
        monkeypatch.setattr(module, "reach", recorded)
    ssh = ["--ssh", "a@h:2", "--known-hosts", "hosts", "--identity", "id", "--ssh-config", "conf"]
    assert run([*argv, *ssh]) == StateError.exit_code
    assert found == [
        HeadOptions(
            cluster=cluster,
            ssh="a@h:2",
            known_hosts=Path("hosts"),
            identity=Path("id"),
            ssh_config=Path("conf"),
        )
    ]


def test_every_pool_command_has_a_request() -> None:
    assert set(pool.VERBS) == {"pause", "drain", "resume"}
    assert [command.name for command in pool.app.registered_commands] == ["list", "confirm", *pool.VERBS]


def test_completion_never_fails() -> None:
    assert isinstance(head.pool_names(""), list)


@pytest.mark.loopback
def test_head_is_queried_by_ssh_only_with_a_known_host_key(tmp_path: Path) -> None:
    key = paramiko.RSAKey.generate(2048)
    key.write_private_key_file(str(tmp_path / "id"))
    with SshServer(key) as server:
        options = HeadOptions(
            ssh=f"root@127.0.0.1:{server.port}",
            known_hosts=server.known_hosts(tmp_path / "known"),
            identity=tmp_path / "id",
        )
        assert reach(options).run(("printf", "%s|", "a b", "$(id)")) == (0, "a b|$(id)|", "")
        assert server.commands[-1].startswith("timeout --kill-after=2 90 printf")
        reach(replace(options, ssh=f"admin@127.0.0.1:{server.port}")).run(("true",))
        assert server.commands[-1].startswith("sudo --non-interactive -- timeout")
        other = server.known_hosts(tmp_path / "other", paramiko.RSAKey.generate(2048))
        with pytest.raises(UnreachableError):
            reach(replace(options, known_hosts=other)).run(("true",))


def test_machine_without_bundle_is_not_the_head() -> None:
    """This machine is not a head, so the user must name a cluster, or there is only one sandbox."""
    assert transport._name_here() == ""


# --- one machine ----------------------------------------------------------------------------------------


class Machines:
    """A transport that records machine, command and limit, and answers with the printed words."""

    def __init__(self, out: str = "", code: int = 0) -> None:
        self.out, self.code, self.asked = out, code, list[tuple[str, tuple[str, ...], float]]()

    def choose(self, options: HeadOptions) -> transport.Transport:
        return transport.Transport(name=options.cluster or "", run=self.run)

    def run(self, machine: str, argv: Sequence[str], limit_s: float) -> Result:
        self.asked.append((machine, tuple(argv), limit_s))
        return Result(tuple(argv), self.code, self.out, "")


@pytest.mark.parametrize(
    ("argv", "asked"),
    [
        (["exec", "b", "head", "--", "id", "-u"], ("head", ("id", "-u"), 90.0)),
        (["exec", "b", "g-1", "--user", "ada", "--limit", "5m", "--", "id"], ("g-1", ("runuser", "--user=ada", "--", "id"), 300.0)),
        (["logs", "b", "-u", "slurmd", "-n", "5"], ("head", ("journalctl", "--no-pager", "--output=short-iso", "--lines=5", "--unit=slurmd"), 60.0)),
    ],
)  # fmt: skip
def test_command_of_one_machine_is_sent_there(
    argv: list[str], asked: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machines = Machines("one\x1b[2J\n", code=3)
    monkeypatch.setattr(exec_verbs, "choose", machines.choose)
    assert run(argv) == 3
    assert machines.asked == [asked]
    assert capsys.readouterr().out == "one\n"
    assert run([argv[0], *argv[1:2], "-o", "json", *argv[2:]]) == 3
    answer = json.loads(capsys.readouterr().out)
    assert (answer["cluster"], answer["ok"], answer["code"]) == ("b", False, 3)


def test_limit_needs_a_unit(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["exec", "b", "head", "--limit", "5", "--", "id"]) == 2
    assert "--limit: '5' is not a duration" in capsys.readouterr().err


def test_pools_are_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeHead(0, "b: at most 1 nodes; all off\n")
    monkeypatch.setattr(pool, "reach", lambda _way: Head(name="burst", run=fake))
    assert run(["pool", "list"]) == 0
    assert capsys.readouterr().out == "b: at most 1 nodes; all off\n"
    assert fake.asked[0][-1] == "gpucluster.elastic.inspect.pools"
    rows = [{"name": "b", "size": 1, "nodes": {"off": 2}, "stopped": ""}]
    fake.answer = (0, json.dumps({"schema": 1, "pools": rows}), "")
    assert run(["pool", "list", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "ok": True, "cluster": "burst", "pools": rows}


@pytest.mark.loopback
def test_address_of_the_head_reaches_no_other_machine(tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text("")
    with pytest.raises(StateError, match="g-1 cannot be reached: --ssh is the address of the head"):
        transport.choose(HeadOptions(ssh="a@127.0.0.1", known_hosts=known)).run("g-1", ("id",), 1.0)


def test_hosts_of_a_spec_are_known_by_name(tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text("")
    found = transport.choose(HeadOptions(cluster=str(STACKS / "lab.yaml"), known_hosts=known))
    with pytest.raises(StateError, match="the plan has no machine 'h200'"):
        found.run("h200", ("id",), 1.0)
    assert found.typed == f"-c {STACKS / 'lab.yaml'} --known-hosts {known}"


@pytest.mark.parametrize("words", [("burst",), ("-c", "burst"), ("burst", "-c", "burst")])
def test_scaling_takes_the_cluster_by_name_and_by_option(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: `-c` alone was refused, and another one beside the name was ignored."""
    asked = list[str | None]()

    def fake(way: HeadOptions) -> Head:
        asked.append(way.cluster)
        return Head(name="burst", run=FakeHead(0, "on\n"))

    monkeypatch.setattr(scaling, "reach", fake)
    for verb in ("show", "stop", "start"):
        assert run(["scaling", verb, *words]) == 0
    assert asked == ["burst"] * 3


def test_scaling_refuses_two_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "reach", lambda _way: pytest.fail("no head is asked"))
    for verb in ("show", "stop", "start"):
        assert run(["scaling", verb, "burst", "-c", "other"]) == 2
