"""`gpucluster env`: the file of a pool, JSON, and the errors for a pool that is not there."""

import json
import subprocess
from pathlib import Path

import pytest

from gpucluster.cli import main as program

ROOT = Path(__file__).parents[3]


def test_file_is_a_shell_script_that_sets_the_variables(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert program.run(["env", "h100", "--cluster", str(ROOT / "stacks/research.yaml")]) == 0
    file = tmp_path / "h100.sh"
    file.write_text(capsys.readouterr().out)
    shown = subprocess.run(
        ["/bin/sh", "-euc", f". {file}; env"], capture_output=True, text=True, check=True, env={}
    ).stdout
    names = {line.partition("=")[0] for line in shown.splitlines()} - {"PWD", "_", "SHLVL", "OLDPWD"}
    assert names == {"NCCL_SOCKET_IFNAME"}
    assert "NCCL_SOCKET_IFNAME=^docker,lo,veth\n" in shown


def test_json_has_reason_and_source_of_each_variable(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["env", "h100", "-c", str(ROOT / "stacks/lab.yaml"), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["cluster"], found["pool"], found["environment"]["fabric"]) == ("lab", "h100", "infiniband")
    rows = [*found["environment"]["set"], *found["environment"]["never"]]
    assert rows
    assert all(row["reason"] and row["source"] for row in rows)


def test_unknown_pool_lists_the_pools(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["env", "h300", "-c", str(ROOT / "stacks/research.yaml")]) == 2
    assert "research has no pool 'h300' of Slurm" in (said := capsys.readouterr().err)
    assert "name one of: h100, h200, small" in said


def test_pool_is_found_in_the_only_spec_that_has_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stacks").mkdir()
    assert program.run(["env", "h200"]) == 2
    assert "no spec of stacks/ has a pool 'h200' of Slurm" in capsys.readouterr().err
    burst = (ROOT / "stacks/burst.yaml").read_text()
    (tmp_path / "stacks/burst.yaml").write_text(burst)
    (tmp_path / "stacks/wrong.yaml").write_text("h200: [\n")
    assert program.run(["env", "h200"]) == 0
    assert "jobs in the pool h200, fabric efa" in capsys.readouterr().out
    (tmp_path / "stacks/twin.yaml").write_text(burst.replace("name: burst\n", "name: twin\n"))
    assert program.run(["env", "h200"]) == 2
    assert "several specs have a pool 'h200': burst, twin" in capsys.readouterr().err
