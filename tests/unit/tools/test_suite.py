"""The runner of `make test` and `make test-all`, on small suites of real commands and real tests."""

import subprocess
import sys
from pathlib import Path

import pytest
import suite
from suite import CommandStage, Failure, PytestStage, Result

from gpucluster import catalog

ROOT = Path(__file__).parents[3]
CONFIG = "[pytest]\nmarkers = in_order: the tests build on each other\naddopts = -p pytest_reportlog.plugin -p no:cacheprovider\n"
FAILS_ONCE = """
from pathlib import Path
def test_fails_once():
    mark = Path(__file__).with_suffix(".ran")
    ran, _ = mark.exists(), mark.touch()
    assert ran, "the first time"
"""
FAILS = "def test_fails():\n    assert [] == [1], 'always'\n"
PASSES = "def test_passes():\n    pass\n"
CHAIN = """
import pytest
from pathlib import Path
pytestmark = pytest.mark.in_order
up = []
def test_first():
    up.append(1)
def test_second():
    assert up, "alone it cannot pass"
    mark = Path(__file__).with_suffix(".ran")
    ran, _ = mark.exists(), mark.touch()
    assert ran, "the first time"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(suite, "ROOT", tmp_path)
    monkeypatch.setattr(suite, "OUTPUT", tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the others take half of the time
    (tmp_path / "pytest.ini").write_text(CONFIG)
    return tmp_path


def ran(folder: Path, **texts: str) -> Result:
    """Run one stage with these files, and the second try."""
    for name, text in texts.items():
        (folder / f"test_{name}.py").write_text(text)
    result = Result()
    suite.run([(PytestStage(name="unit", tests=(".",)),)], result)
    return result


def test_failed_test_that_passes_alone_is_unstable(folder: Path) -> None:
    result = ran(folder, one=FAILS_ONCE, two=PASSES)
    assert result.failed == []
    assert [(f.test, f.reason) for f in result.unstable] == [
        ("test_one.py::test_fails_once", "AssertionError: the first time")
    ]
    assert list(result.seconds) == ["unit", "second try of unit"]


def test_test_that_fails_twice_fails_the_run(folder: Path) -> None:
    result = ran(folder, one=FAILS_ONCE, two=FAILS)
    assert [f.title for f in result.failed] == ["test_two.py::test_fails"]
    assert [f.title for f in result.unstable] == ["test_one.py::test_fails_once"]
    assert list(suite.last_lines("gate", result, 61.2))[1:] == [
        "FAILED test_two.py::test_fails: AssertionError: always",
        "failed: 1",
        "unstable: 1",
        "unstable test_one.py::test_fails_once: AssertionError: the first time",
        "skipped: 0",
    ]


def test_file_whose_tests_build_on_each_other_is_tried_again_as_a_whole(folder: Path) -> None:
    result = ran(folder, chain=CHAIN)
    assert (result.failed, [f.title for f in result.unstable]) == ([], ["test_chain.py::test_second"])


def test_file_that_cannot_be_imported_fails_the_run(folder: Path) -> None:
    result = ran(folder, one="import missing_module\n", two=PASSES)
    assert [f.title for f in result.failed] == ["test_one.py", "unit"], "the other files were not run"


def test_fixture_that_fails_at_its_end_fails_the_run(folder: Path) -> None:
    text = "import pytest\n@pytest.fixture\ndef it():\n    yield\n    raise OSError('left')\ndef test_a(it):\n    pass\n"
    assert [(f.title, f.reason) for f in ran(folder, one=text).failed] == [
        ("test_one.py::test_a", "OSError: left")
    ]


def test_run_without_a_test_fails(folder: Path) -> None:
    (failure,) = ran(folder, one="").failed
    assert failure == Failure(stage="unit", reason="pytest ended with exit code 5 and names no test")


def test_second_run_that_ends_early_proves_nothing() -> None:
    first = Failure(stage="unit", test="test_one.py::test_fails_once")
    result = Result(failed=[first])
    suite.settle(
        [first], [Failure(stage="unit", reason="pytest ended with exit code 3")], {first.test}, result
    )
    assert (result.failed, result.unstable) == ([first], [])


def test_run_that_ends_early_fails_although_its_failed_test_passes_alone(folder: Path) -> None:
    """The tests after it were not run."""
    early = "import pytest\ndef test_a():\n    pytest.exit('early', returncode=3)\n"
    result = ran(folder, one=FAILS_ONCE, two=early)
    assert [f.title for f in result.unstable] == ["test_one.py::test_fails_once"]
    assert [(f.title, f.reason) for f in result.failed] == [
        ("unit", "pytest ended with exit code 3: too few tests have run")
    ]


def test_pytest_that_is_killed_fails_the_run(folder: Path) -> None:
    """Its exit code is negative, and it leaves half a line of its report."""
    text = "import os\ndef test_a():\n    os.kill(os.getpid(), 9)\n"
    result = ran(folder, one=FAILS_ONCE, two=text)
    assert [f.title for f in result.unstable] == ["test_one.py::test_fails_once"]
    assert [f.reason for f in result.failed] == ["pytest ended with exit code -9: too few tests have run"]


def test_stage_with_too_few_tests_fails(folder: Path) -> None:
    (folder / "test_one.py").write_text(PASSES)
    for least, failed in ((1, 0), (2, 1)):
        assert len(suite.run_tests(PytestStage(name="unit", tests=(".",), least=least), Result())) == failed


def test_options_of_the_environment_leave_no_test_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k nothing")
    assert ran(folder, one=PASSES).failed == []


def test_half_a_line_of_a_report_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "report").write_text('{"nodeid": "a"}\n{"nodeid": "b')
    assert list(suite.entries(tmp_path / "report")) == [{"nodeid": "a"}]


def test_skipped_tests_are_listed_with_their_reason(folder: Path) -> None:
    text = "import pytest\ndef test_a():\n    pytest.skip('no network')\n@pytest.mark.xfail\ndef test_b():\n    assert 0\n"
    result = ran(folder, one=text, two=PASSES)
    assert list(suite.last_lines("gate", result, 1.0))[-2:] == [
        "skipped: 1",
        "skipped test_one.py::test_a: Skipped: no network",
    ]


@pytest.mark.parametrize("downloads", [True, False])
def test_download_that_fails_once_is_unstable(folder: Path, downloads: bool) -> None:
    text = "import pathlib, sys; m = pathlib.Path('ran'); there = m.exists(); m.touch(); print('error: reset'); sys.exit(not there)"
    result = Result()
    stage = CommandStage(name="build", argv=("python", "-c", text), quiet=True, downloads=downloads)
    assert suite.run_command(stage, result) is downloads
    found = result.unstable if downloads else result.failed
    assert [(f.title, f.reason) for f in found] == [("build", "error: reset")]
    assert len(result.unstable) + len(result.failed) == 1


def test_command_that_hangs_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "HANGS_S", 0.05)
    result = Result()
    stage = CommandStage(name="build", argv=("python", "-c", "import time; time.sleep(600)"), quiet=True)
    assert not suite.run_command(stage, result)
    assert [f.reason for f in result.failed] == ["exit 124"]


def test_test_that_is_skipped_at_the_second_try_fails_the_run(folder: Path) -> None:
    text = FAILS_ONCE.replace("assert ran", "import pytest\n    ran and pytest.skip()\n    assert ran")
    result = ran(folder, one=text)
    assert ([f.title for f in result.failed], result.unstable) == (["test_one.py::test_fails_once"], [])


def test_stage_after_a_failed_one_runs_and_one_whose_build_failed_does_not(folder: Path) -> None:
    (folder / "test_one.py").write_text(PASSES)
    bad = ("python", "-c", "import sys; print('note: begins'); print('error: no disk'); sys.exit(3)")
    first = (CommandStage(name="lint", argv=bad), PytestStage(name="unit", tests=(".",)))
    second = (
        CommandStage(name="build", argv=bad, quiet=True),
        PytestStage(name="journey", tests=(".",), after="build"),
    )
    result = Result()
    suite.run([first, second], result)
    assert sorted((f.title, f.reason) for f in result.failed) == [
        ("build", "error: no disk"),
        ("journey", "not run: the stage 'build' has failed"),
        ("lint", "error: no disk"),
    ]
    assert result.seconds.keys() == {"build", "lint", "unit"}


def test_stage_elsewhere_has_another_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
import os, time
def test_where():
    assert os.environ["LC_ALL"] == "C" and time.tzname[0] == "IST"
    assert os.listdir(os.environ["HOME"]) == [] and "MINE" not in os.environ
    assert os.umask(0o022) == 0o077
"""
    (folder / "test_one.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")  # with all plugins, whatever the environment says
    monkeypatch.setenv("MINE", "1")
    result = Result()
    suite.run([(PytestStage(name="unit", tests=(".",), elsewhere=True),)], result)
    assert (result.failed, result.unstable) == ([], [])


def test_too_many_failed_tests_are_not_tried_again(folder: Path) -> None:
    text = f"import pytest\n@pytest.mark.parametrize('n', range({suite.TOO_MANY + 1}))\ndef test_n(n):\n    assert 0\n"
    result = ran(folder, one=text)
    assert (len(result.failed), list(result.seconds)) == (suite.TOO_MANY + 1, ["unit"])


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("code", [0, 1])
def test_exit_code_is_1_if_a_stage_fails(
    code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = CommandStage(name="lint", argv=("python", "-c", f"raise SystemExit({code})"))
    monkeypatch.setattr(suite, "SUITES", {"gate": ((stage,),)})
    assert suite.main(["gate"]) == code
    assert f"failed: {code}\nunstable: 0\n" in capsys.readouterr().out


def test_unknown_suite_is_refused() -> None:
    assert suite.main(["nothing"]) == 2


def pytest_stages(name: str) -> list[PytestStage]:
    return [stage for lane in suite.SUITES[name] for stage in lane if isinstance(stage, PytestStage)]


def test_suites_name_what_exists() -> None:
    for name, lanes in suite.SUITES.items():
        assert lanes[0][: len(suite.STATIC)] == suite.STATIC, name
        assert ("tests/unit",) in [stage.tests for stage in pytest_stages(name)], name
        for word in (word for stage in pytest_stages(name) for word in stage.tests):
            file, _, test = word.partition("::")
            assert (ROOT / file).exists(), word
            assert not test or f"def {test}(" in (ROOT / file).read_text(), word
        for lane in lanes:
            names = [stage.name for stage in lane]
            after = [(i, s.after) for i, s in enumerate(lane) if isinstance(s, PytestStage) and s.after]
            assert [wanted for i, wanted in after if wanted not in names[:i]] == []
    folders = {path.parent for path in (ROOT / "tests").rglob("test_*.py") if "unit" not in path.parts}
    everything = {ROOT / word for stage in pytest_stages("all") for word in stage.tests}
    assert folders == everything - {ROOT / "tests/unit"}


def test_ci_runs_the_readmes_test_command() -> None:
    called = (ROOT / ".ci/run").read_text().splitlines()[-1]
    assert called == "make test"
    assert f"\n{called} " in (ROOT / "README.md").read_text()
    recipe = (ROOT / "Makefile").read_text().partition("\ntest: ")[2].splitlines()[1]
    assert recipe == "\t$(BIN)/python tools/suite.py gate"


def test_number_of_specs_with_default_jobs_is_an_option() -> None:
    """The Makefile tries more of them than the suite, which takes the default."""
    argv = [sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", "--collect-only", "--default-job-specs", "1"]  # fmt: skip
    found = subprocess.run(
        [*argv, "tests/slurm/test_default_jobs.py", "-k", "generated"],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    assert found.stdout.count("::test_jobs_of_a_generated_spec_are_allocated") == len(
        catalog.load().slurm_supported
    )
    assert " --default-job-specs 30 " in (ROOT / "Makefile").read_text()
