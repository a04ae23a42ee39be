"""`init` writes a spec without any problem, and `schema` prints the committed schemas."""

import io
import json
from pathlib import Path

import pytest

from gpucluster import catalog
from gpucluster.cli import init as page
from gpucluster.cli import main as program
from gpucluster.cli.first_spec import PARSERS, Answers, text_of
from gpucluster.spec import inspect

ROOT = Path(__file__).parents[3]
ANSWERS = {"name": "tiny", "region": "us-east-1", "machine": "g6.12xlarge", "nodes": "4", "source": "spot"}

Said = pytest.CaptureFixture[str]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def options(**changes: str) -> list[str]:
    return [word for key, value in (ANSWERS | changes).items() for word in (f"--{key}", value)]


def test_options_answer_every_question(folder: Path, capsys: Said) -> None:
    assert program.run(["init", *options()]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "stacks/tiny.yaml: written; it passes `gpucluster check stacks/tiny.yaml`",
        "  next: gpucluster plan stacks/tiny.yaml --explain",
    ]
    assert err == ""
    assert inspect(folder / "stacks/tiny.yaml").problems == ()
    assert program.run(["check", "tiny"]) == 0
    assert capsys.readouterr().out == "stacks/tiny.yaml: ok\n"
    assert program.run(["plan", "tiny", "--explain"]) == 0


def test_five_questions_are_asked_until_each_answer_is_valid(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    monkeypatch.setattr(
        "sys.stdin", _Terminal("No\ntiny\nmars\nus-east-1\nm7i.large\n\nmany\n2\nfree\nspot\n")
    )
    assert program.run(["init"]) == 0
    out, err = capsys.readouterr()
    for key, question, _ in page.QUESTIONS:
        assert err.count(f"{question} [") == (2), key
    for said in (
        "'No' is not a name",
        "'mars' is not a known region",
        "m7i.large has no GPU",
        "'many' is not",
        "'free' is not",
    ):
        assert said in err
    assert out.startswith("stacks/tiny.yaml: written")
    written = inspect(folder / "stacks/tiny.yaml").result()
    assert written.pools[0].capacity[0].machines == ("g6.12xlarge",), "an empty answer is the default"


def test_end_of_the_answers_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: Said) -> None:
    monkeypatch.setattr("sys.stdin", _Terminal("tiny\n"))
    assert program.run(["init"]) == 2
    assert "error: the answers ended" in capsys.readouterr().err


def test_without_a_terminal_the_missing_options_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("tiny\n"))
    assert program.run(["init", "--name", "tiny", "--nodes", "4"]) == 2
    assert capsys.readouterr().err == (
        "error: stdin is no terminal, so nothing can be asked\n  next: give --region, --machine, --source\n"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "No"}, "'No' is not a name"),
        ({"region": "eu-west-9"}, "'eu-west-9' is not a known region; did you mean"),
        ({"machine": "banana"}, "'banana' is not in the catalog"),
        ({"machine": "m7i.large"}, "m7i.large has no GPU"),
        ({"machine": "p6-b200.48xlarge"}, "p6-b200.48xlarge needs an image with "),
        ({"region": "eu-west-1"}, "eu-west-1 does not offer g6.12xlarge, by the catalog of"),
        ({"nodes": "0"}, "'0' is not a whole number from 1 to 10000"),
        ({"nodes": "10001"}, "'10001' is not a whole number"),
        ({"nodes": "²"}, "'²' is not a whole number"),
        ({"source": "capacity-block"}, "'capacity-block' is not a source of g6.12xlarge; expected spot or on-demand"),
    ],
)  # fmt: skip
def test_wrong_answer_writes_nothing(change: dict[str, str], said: str, folder: Path, capsys: Said) -> None:
    assert program.run(["init", *options(**change)]) == 2
    assert said in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def test_existing_file_stays(folder: Path, capsys: Said) -> None:
    (folder / "mine.yaml").write_text("mine\n")
    assert program.run(["init", *options(), "--to", "mine.yaml", "-o", "json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["message"] == "mine.yaml: exists already"
    assert (folder / "mine.yaml").read_text() == "mine\n"


def test_json_has_the_file_and_its_text(folder: Path, capsys: Said) -> None:
    assert program.run(["init", *options(), "-o", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["file"], said["spec"]) == ("stacks/tiny.yaml", (folder / "stacks/tiny.yaml").read_text())


def test_editor_line_is_written_where_the_schema_is(folder: Path) -> None:
    text = text_of(Answers(**ANSWERS), ROOT / "stacks/tiny.yaml")
    assert text.startswith("# yaml-language-server: $schema=../schema/cluster.json\n")
    assert text_of(Answers(**ANSWERS), folder / "tiny.yaml").startswith("schema: 1\n")


def test_every_region_that_offers_a_machine_gets_a_spec_without_problems() -> None:
    """`text_of` refuses a spec with any problem."""
    facts = catalog.load()
    written = 0
    for region in facts.regions:
        sold = next(
            (
                name
                for name, one in facts.machines.items()
                if one.gpu and one.zones_selling.get(region) and "on-demand" in one.markets
            ),
            None,
        )
        if sold is not None:
            known = {"region": region, "machine": sold}
            assert PARSERS["machine"](facts, known, sold) == sold
            text_of(
                Answers(name="tiny", region=region, machine=sold, nodes="4", source="on-demand"),
                Path("tiny.yaml"),
            )
            written += 1
    assert written > 15


@pytest.mark.parametrize("which", ["cluster", "workloads"])
def test_schema_is_the_committed_one(which: str, capsys: Said) -> None:
    """Regression: the wheel had no schema."""
    committed = (ROOT / f"schema/{which}.json").read_text()
    assert program.run(["schema", which]) == 0
    assert capsys.readouterr().out == committed
    assert program.run(["schema", which, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["json_schema"] == json.loads(committed)


def test_each_machine_that_init_offers_is_taken(folder: Path, capsys: Said) -> None:
    """Regression: it listed p6-b200.48xlarge, and refused it after the last question."""
    assert program.run(["init", *options(machine="p4d.24xlarge", region="eu-west-3")]) == 2
    offered = capsys.readouterr().err.partition("it offers ")[2].split("\n")[0].split(", ")
    assert len(offered) > 3
    for number, machine in enumerate(offered):
        change = {"name": f"n{number}", "region": "eu-west-3", "machine": machine, "source": "on-demand"}
        assert program.run(["init", *options(**change)]) == 0, machine
