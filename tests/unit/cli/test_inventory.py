"""`gpucluster inventory`: its files and its error messages."""

import json
import shlex
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from support.builders import LAB, SPEC

from gpucluster import artifacts
from gpucluster.cli import main as program
from gpucluster.plan import names


@pytest.fixture
def lab(tmp_path: Path) -> str:
    (tmp_path / "lab.yaml").write_text(LAB)
    return str(tmp_path / "lab.yaml")


def test_without_a_folder_the_inventory_is_shown(lab: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["inventory", lab]) == 0
    out, err = capsys.readouterr()
    assert YAML(typ="safe").load(out)["all"]["children"]["head"]["hosts"] == {
        "ctl0": {"ansible_host": "192.0.2.10"}
    }
    assert err == ""


def test_folder_has_all_that_ansible_needs(
    lab: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to, keys = tmp_path / "out", tmp_path / "keys"
    keys.write_text("192.0.2.10 ssh-ed25519 AAAA\n")
    assert program.run(["inventory", lab, "--to", str(to), "--known-hosts", str(keys)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == str(to / "inventory.yml")
    assert second.startswith(f"  next: ansible-playbook -i {to / 'inventory.yml'} ")
    assert sorted(p.name for p in to.iterdir()) == [
        "bundle.tar.gz",
        "code.tar",
        "inventory.yml",
        "known_hosts",
    ]
    held = {a.path for a in artifacts.unpack((to / "bundle.tar.gz").read_bytes())}
    assert names.BINDINGS_FILE not in held
    assert {names.PLAN_FILE, names.HOSTS_FILE, "slurm/slurm.conf", "slurm/topology.conf"} <= held
    said = YAML(typ="safe").load((to / "inventory.yml").read_text())["all"]["vars"]
    assert said["bundle_digest"] == artifacts.digest((to / "bundle.tar.gz").read_bytes())


def test_printed_next_command_can_be_pasted(
    lab: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.run(["inventory", lab, "--to", str(tmp_path / "a; b")]) == 0
    words = shlex.split(capsys.readouterr().out.splitlines()[1].partition("next: ")[2])
    assert words[:3] == ["ansible-playbook", "-i", str(tmp_path / "a; b/inventory.yml")]


def test_as_json(lab: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes.txt").write_text("not ours: not told\n")
    assert program.run(["inventory", lab, "--to", str(tmp_path / "out"), "--output", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["ok"], said["files"]) == (True, ["bundle.tar.gz", "code.tar", "inventory.yml"])
    assert said["inventory"]["all"]["vars"]["cluster"] == "lab"


def test_stack_is_found_by_its_name(
    lab: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks/lab.yaml").write_text(LAB)
    monkeypatch.chdir(tmp_path)
    assert program.run(["inventory", "lab"]) == 0
    assert "ctl0:" in capsys.readouterr().out


def test_cluster_of_a_cloud_has_no_hosts_to_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "burst.yaml").write_text(SPEC)
    assert program.run(["inventory", str(tmp_path / "burst.yaml")]) == 2
    err = capsys.readouterr().err.splitlines()
    assert err[0] == "error: 'burst' does not use existing hosts, so it has no inventory"
    assert err[1].startswith("  next: ")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            ["--known-hosts", "/nonexistent/keys"],
            "/nonexistent/keys: cannot be read: No such file or directory",
        ),
        (["--to", "/dev/null/x"], "/dev/null/x: cannot be written: Not a directory"),
    ],
)
def test_unwritable_file_is_an_error_with_a_message(
    lab: str, more: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.run(["inventory", lab, *more]) == 2
    assert capsys.readouterr().err.startswith(f"error: {words}\n  next: ")


def test_wrong_spec_is_exit_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.yaml").write_text(LAB.replace('"192.0.2.[11-14]"', '"192.0.2.[11-13]"'))
    assert program.run(["inventory", str(tmp_path / "bad.yaml"), "-o", "json"]) == 1
    assert [p["id"] for p in json.loads(capsys.readouterr().out)["problems"]] == ["addresses-differ"]


def test_plan_prints_hosts(lab: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["plan", lab]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "cluster lab: Slurm 26.05",
        "hosts   by ssh as admin, port 22",
        "head    ctl0: 192.0.2.10",
        "switch leaf1: gpu[01-02]",
        "switch leaf2: gpu[03-04]",
        "switch spine: leaf1, leaf2",
        "pool h100: 4 hosts, each hgx-h100",
        "  each 8 x h100, 224 CPUs, 1945600 MiB",
        "  hosts gpu[01-04] at 192.0.2.[11-14]",
        "partition gpu: h100; no time limit, the default",
        "user vision: uid 5001, 0 keys",
        "mount /home: nfs 192.0.2.10:/srv/home",
    ]
