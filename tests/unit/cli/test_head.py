"""From the desk to a head: which one is meant, what is asked there, and what becomes of its answer."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest
import typer
from ssh_server import SshServer

from gpucluster.cli import head, node, pool
from gpucluster.cli.head import Head, Way, reach, report
from gpucluster.cli.main import run
from gpucluster.cli.output import Output
from gpucluster.errors import GpuclusterError, HostError, StateError
from gpucluster.validate.reach import UnreachableError

STACKS = Path(__file__).parents[3] / "stacks"


class Spoken:
    """A head that answers as it was told, and remembers what it was asked."""

    def __init__(self, code: int = 0, out: str = "", err: str = "") -> None:
        self.answer, self.asked = (code, out, err), list[tuple[str, ...]]()

    def __call__(self, argv: Sequence[str]) -> tuple[int, str, str]:
        self.asked.append(tuple(argv))
        return self.answer


def told(spoken: Spoken, output: Output, *words: str) -> int:
    with pytest.raises(typer.Exit) as left:
        report(Head(name="burst", run=spoken), output, *words)
    return left.value.exit_code


def test_the_heads_own_python_answers_and_its_code_is_ours(capsys: pytest.CaptureFixture[str]) -> None:
    spoken = Spoken(1, "job 9 is not known\n")
    assert told(spoken, Output.TEXT, "why", "9") == 1
    assert spoken.asked == [("/opt/gpucluster/venv/bin/python", "-I", "-m", "gpucluster.elastic.why", "9")]
    assert capsys.readouterr().out == "job 9 is not known\n"


def test_json_is_passed_on_with_the_cluster_and_whether_it_is_well(
    capsys: pytest.CaptureFixture[str],
) -> None:
    spoken = Spoken(0, '{"schema": 1, "cause": "refused"}')
    assert told(spoken, Output.JSON, "why", "9") == 0
    assert spoken.asked[0][-1] == "--json"
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1,
        "ok": True,
        "cluster": "burst",
        "cause": "refused",
    }


def test_a_job_without_a_moment_is_a_no(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(Spoken(0, "[]"), Output.JSON, "timeline", "9") == 1
    assert json.loads(capsys.readouterr().out)["moments"] == []
    assert told(Spoken(0, '[{"what": "up"}]'), Output.JSON, "timeline", "9") == 0


def test_what_a_machine_says_cannot_act_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    told(Spoken(0, "job \x1b[2J\x07one\r\nline two\n", "warn\x1b]0;x\x07"), Output.TEXT, "why", "9")
    shown = capsys.readouterr()
    assert shown.out == "job [2Jone\nline two\n"
    assert "\x1b" not in shown.err


@pytest.mark.parametrize(
    ("code", "err", "message", "step"),
    [
        (2, "error: the journal cannot be read\n  next: be root", "burst: the journal cannot be read", "be root"),
        (1, "/x/python: No module named gpucluster.elastic.why", "the head has no such program", "replace the head"),
        (127, "env: '/opt/gpucluster/venv/bin/python': No such file or directory", "the head has no such program", "replace the head"),
        (1, "Traceback (most recent call last):\nKeyError: 1", "burst: KeyError: 1", "log"),
        (124, "", "it ended with code 124", "log"),
    ],
)  # fmt: skip
def test_what_the_head_could_not_do_is_an_error_with_its_words(
    code: int, err: str, message: str, step: str
) -> None:
    with pytest.raises(StateError) as caught:
        Head(name="burst", run=Spoken(code, "", err)).ask("why", "9")
    assert message in caught.value.message
    assert step in (caught.value.next_step or "")


def test_an_answer_that_is_no_json_is_not_passed_on() -> None:
    with pytest.raises(StateError, match="no JSON"):
        report(Head(name="burst", run=Spoken(0, "hello")), Output.JSON, "why", "9")


def test_a_stack_on_aws_says_its_heads_address_and_that_it_is_private() -> None:
    """It named an output that is an instance's id, and a user that the image does not have."""
    with pytest.raises(HostError, match=r"10\.42\.0\.10, which has no public address") as caught:
        reach(Way(cluster=str(STACKS / "burst.yaml")))
    assert "--ssh USER@10.42.0.10" in (caught.value.next_step or "")


def test_a_spec_without_slurm_has_no_head_to_ask() -> None:
    with pytest.raises(HostError, match="kube has no head: no Slurm runs there"):
        reach(Way(cluster=str(STACKS / "kube.yaml")))


def test_a_name_of_nothing_says_what_to_name() -> None:
    with pytest.raises(StateError, match="neither a sandbox nor a spec file"):
        reach(Way(cluster="nowhere"))


def test_without_known_hosts_ssh_goes_nowhere(tmp_path: Path) -> None:
    with pytest.raises(GpuclusterError, match="never taken on trust"):
        reach(Way(ssh="admin@192.0.2.1", known_hosts=tmp_path / "none"))


@pytest.mark.parametrize(
    "word", ["", "-oProxyCommand=x", "-l@host", "a@-b", "a b@host", "h:x", "$(id)@h", "h:0", "h:65536", "h:²"]
)
def test_an_ssh_place_is_never_an_option_or_a_command(word: str) -> None:
    with pytest.raises(GpuclusterError, match="is no"):
        reach(Way(ssh=word))


@pytest.mark.parametrize(("text", "count"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("3d", 259200)])
def test_a_time_has_its_unit(text: str, count: int) -> None:
    assert node.seconds(text) == count


@pytest.mark.parametrize("text", ["", "2", "-2h", "2 h x", "1e9h", "0h", "2w"])
def test_a_time_without_a_unit_is_refused(text: str) -> None:
    with pytest.raises(GpuclusterError, match="is no time"):
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
def test_a_word_that_a_program_would_take_as_an_option_is_refused(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == 2
    assert "is neither a job's number nor a node's name" in capsys.readouterr().err


def test_every_verb_of_a_pool_has_its_order() -> None:
    assert set(pool.VERBS) == {"pause", "drain", "resume"}
    assert [command.name for command in pool.app.registered_commands] == list(pool.VERBS)


def test_completion_never_fails() -> None:
    assert isinstance(head.pool_names(""), list)


@pytest.mark.loopback
def test_a_head_is_asked_by_ssh_and_only_where_its_key_is_known(tmp_path: Path) -> None:
    key = paramiko.RSAKey.generate(2048)
    key.write_private_key_file(str(tmp_path / "id"))
    with SshServer(key) as server:
        way = Way(
            ssh=f"root@127.0.0.1:{server.port}",
            known_hosts=server.known_hosts(tmp_path / "known"),
            identity=tmp_path / "id",
        )
        assert reach(way).run(("printf", "%s|", "a b", "$(id)")) == (0, "a b|$(id)|", "")
        assert server.commands[-1].startswith("timeout --kill-after=2 90 printf")
        reach(replace(way, ssh=f"admin@127.0.0.1:{server.port}")).run(("true",))
        assert server.commands[-1].startswith("sudo --non-interactive -- timeout")
        other = server.known_hosts(tmp_path / "other", paramiko.RSAKey.generate(2048))
        with pytest.raises(UnreachableError):
            reach(replace(way, known_hosts=other)).run(("true",))


def test_a_journal_on_this_machine_makes_it_the_head_only_with_a_bundle() -> None:
    """This machine is none, so a cluster must be named, or be the only sandbox."""
    assert not head._is_here()
