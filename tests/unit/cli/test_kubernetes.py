"""Commands for a Kubernetes cluster: the files that they read and write, and their messages."""

import json
from pathlib import Path

import pytest
from support.builders import KUBE, SPEC, WORKLOADS, changed
from support.kube import BOUND

from gpucluster.cli import main as program
from gpucluster.plan import codec

Said = pytest.CaptureFixture[str]


@pytest.fixture
def kube(tmp_path: Path) -> Path:
    for folder, text in (("stacks", KUBE), ("workloads", WORKLOADS)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "kube.yaml").write_text(text)
    return tmp_path / "stacks/kube.yaml"


def test_render_reads_workloads_beside_the_spec(kube: Path, tmp_path: Path, capsys: Said) -> None:
    assert program.run(["render", str(kube), "--to", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    written = {
        path.relative_to(tmp_path / "out").as_posix()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    assert {"plan.json", "k8s/60-training/gang-research.tune.yaml", "k8s/MISSING.md"} <= written
    assert not [path for path in written if path.startswith("slurm")]
    assert "k8s/MISSING.md: volumes whose ids come from AWS are missing" in said.err
    assert program.run(["render", str(kube), "--to", str(tmp_path / "out"), "--check"]) == 0


def test_render_does_without_workloads(kube: Path, capsys: Said) -> None:
    (kube.parent.parent / "workloads/kube.yaml").unlink()
    assert program.run(["render", str(kube), "-o", "json"]) == 0
    files = [file["path"] for file in json.loads(capsys.readouterr().out)["files"]]
    assert "k8s/30-queues/cohort.yaml" in files
    assert not [path for path in files if path.startswith("k8s/60")]


def test_wrong_workloads_stop_a_render_with_their_places(kube: Path, capsys: Said) -> None:
    (kube.parent.parent / "workloads/kube.yaml").write_text(changed(WORKLOADS, ("nodes: 4", "nodes: 5")))
    assert program.run(["render", str(kube)]) == 1
    assert "workloads/kube.yaml:14:12: error[above-quota]" in capsys.readouterr().err


def test_cluster_with_both_renders_both(tmp_path: Path, capsys: Said) -> None:
    text = changed(
        SPEC,
        (
            "slurm:\n",
            'kubernetes: {version: "1.36", control_plane: eks, teams: [{name: a, quota: {nvidia.com/gpu: 8}}]}\nslurm:\n',
        ),
        ("    idle: 5m\n", "    idle: 5m\n    runs: slurm\n"),
        (
            "partitions:",
            "  - {name: k, runs: kubernetes, nodes: 1, capacity: [{from: spot, machines: [p5.48xlarge]}]}\npartitions:",
        ),
    )
    (tmp_path / "both.yaml").write_text(text)
    assert program.run(["render", str(tmp_path / "both.yaml"), "-o", "json"]) == 0
    paths = [file["path"] for file in json.loads(capsys.readouterr().out)["files"]]
    assert {"slurm/slurm.conf", "head/hosts", "k8s/30-queues/flavor-k.yaml", "plan.json"} <= set(paths)
    assert "k8s/30-queues/flavor-h200.yaml" not in paths


def test_bindings_bring_the_volumes(kube: Path, tmp_path: Path, capsys: Said) -> None:
    (tmp_path / "bindings.json").write_text(codec.dumps(BOUND))
    assert (
        program.run(["render", str(kube), "--bindings", str(tmp_path / "bindings.json"), "-o", "json"]) == 0
    )
    paths = [file["path"] for file in json.loads(capsys.readouterr().out)["files"]]
    assert "k8s/40-storage/volume-research.data.yaml" in paths
    assert "k8s/MISSING.md" not in paths


@pytest.mark.parametrize(
    ("swap", "says"),
    [
        (('"fs-0123456789abcdef0"', '""'), "file_systems['/data'].id is '', which is not valid"),
        (('"abcdefgh"', '"${MOUNT}"'), "file_systems['/data'].mount_name is '${MOUNT}', which is not valid"),
        (('"/data"', '"/dat"'), "file_systems has '/dat', which the spec does not mount"),
        (('"schema"', '"shema"'), "not a bindings file"),
        (("{", ""), "not a bindings file"),
    ],
)
def test_invalid_bindings_are_refused(
    kube: Path, tmp_path: Path, capsys: Said, swap: tuple[str, str], says: str
) -> None:
    (tmp_path / "b.json").write_text(codec.dumps(BOUND).replace(*swap, 1))
    assert program.run(["render", str(kube), "--bindings", str(tmp_path / "b.json")]) == 2
    assert says in capsys.readouterr().err


def test_values_of_missing_md_must_be_filled_in(kube: Path, tmp_path: Path, capsys: Said) -> None:
    assert program.run(["render", str(kube), "--to", str(tmp_path)]) == 0
    page = (tmp_path / "k8s/MISSING.md").read_text()
    (tmp_path / "b.json").write_text(page.partition("```json\n")[2].partition("```")[0])
    capsys.readouterr()
    assert program.run(["render", str(kube), "--bindings", str(tmp_path / "b.json")]) == 2
    assert "file_systems['/data'].id is ''" in capsys.readouterr().err


def test_missing_bindings_exit_2(kube: Path, capsys: Said) -> None:
    assert program.run(["render", str(kube), "--bindings", "/nowhere/b.json"]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_plan_is_shown_and_explained(kube: Path, capsys: Said) -> None:
    assert program.run(["plan", str(kube), "--explain"]) == 0
    said = capsys.readouterr().out
    for line in (
        "kubernetes 1.36 (eks): queued by kueue, GPUs by device-plugin",
        "pool serve: 1 always-on, 5 elastic; each GPU as 7 x 1g.10gb",
        "team serving: 28 nvidia.com/mig-1g.10gb, and borrows",
        "mount /data: FSx for Lustre of 2400 GiB in us-west-2a",
        "  kubernetes.spare[serve] = ",
        "  k8s.30-queues = wave",
    ):
        assert line in said
    assert program.run(["plan", str(kube), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["kubernetes"]["teams"][0]["queue"] == "kube-serving"


def test_check_reads_both_kinds_of_files(kube: Path, capsys: Said) -> None:
    beside = kube.parent.parent / "workloads/kube.yaml"
    assert program.run(["check", str(kube), str(beside)]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{kube}: ok", f"{beside}: ok"]


def test_sandbox_refuses_an_existing_kubernetes(kube: Path, capsys: Said) -> None:
    text = kube.read_text().replace("control_plane: eks", "existing: {context: prod, eks_name: prod}")
    kube.write_text(text)
    assert program.run(["sandbox", "up", str(kube)]) == 2
    assert "kube names an existing Kubernetes: there is nothing to rehearse on AWS" in capsys.readouterr().err
