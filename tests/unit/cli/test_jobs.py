"""`gpucluster jobs`: the list, one script, a folder of scripts, JSON, completion, and errors."""

import json
import os
from pathlib import Path

import pytest

from gpucluster.cli import jobs as verb
from gpucluster.cli import main as program

RESEARCH = str(Path(__file__).parents[3] / "stacks/research.yaml")
KUBE = str(Path(__file__).parents[3] / "stacks/kube.yaml")
NAMES = ["torchrun", "deepspeed", "mpi", "array", "sweep", "chain", "stage-in", "checkpoint"]


def test_list_names_every_template_with_the_partition(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["jobs", RESEARCH]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head == "partition train: 8 GPUs and 192 CPUs on each node, at most 24:00:00"
    assert [row.split()[0] for row in rows] == NAMES


def test_one_template_is_printed_for_another_partition(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["jobs", RESEARCH, "mpi", "--partition", "debug"]) == 0
    script = capsys.readouterr().out
    assert script.startswith("#!/bin/bash\n")
    assert "#SBATCH --partition=debug\n" in script
    assert "#SBATCH --gpus-per-node=1\n" in script


def test_folder_gets_scripts_that_can_be_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert program.run(["jobs", RESEARCH, "--to", str(tmp_path / "out")]) == 0
    files = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [file.stem for file in files] == NAMES
    assert all(os.access(file, os.X_OK) for file in files)
    assert program.run(["jobs", RESEARCH, "--to", RESEARCH]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_json_has_values_and_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["jobs", RESEARCH, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["cluster"], found["partition"], found["to"]) == ("research", "train", None)
    assert [one["name"] for one in found["jobs"]] == NAMES
    assert found["values"]["gpus"] == "8"
    assert all(one["script"].startswith("#!/bin/bash\n") for one in found["jobs"])


def test_cluster_without_slurm_has_no_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["jobs", KUBE]) == 2
    assert "this cluster has no Slurm" in capsys.readouterr().err


def test_names_are_completed() -> None:
    assert verb._template_names("st") == ["stage-in"]
    assert verb._template_names("") == NAMES
