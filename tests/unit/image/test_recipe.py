"""What an image is made of: pins and their files, the digest, what the playbook is told; and the playbook itself."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from gpucluster.catalog.image import image_facts
from gpucluster.errors import GpuclusterError
from gpucluster.files import shipped
from gpucluster.image.recipe import PARTS, SUMS, PinState, Recipe, check_pins, chosen_parts, recipe

FACTS = image_facts()
OS, SLURM = "ubuntu-24.04", "24.11"
ALL = chosen_parts(FACTS, OS, SLURM, (), ())


def a_folder(tmp_path: Path, *, sums: bool = True) -> Path:
    """Every part's file with some content, and what its maker would publish of it."""
    lines = []
    for pin in FACTS.pins.values():
        if pin.file is not None:
            content = f"the file {pin.file}".encode()
            (tmp_path / pin.file).write_bytes(content)
            lines.append(f"{hashlib.sha256(content).hexdigest()} *./{pin.file}\n")
    if sums:
        (tmp_path / SUMS).write_text("".join(lines))
    return tmp_path


def a_recipe(folder: Path, parts: tuple[str, ...] = ALL) -> Recipe:
    return recipe(FACTS, OS, SLURM, check_pins(FACTS, SLURM, parts, folder), folder)


def test_every_pin_has_a_source_and_none_an_address_or_a_made_up_digest() -> None:
    for name, pin in FACTS.pins.items():
        assert pin.source, name
        assert "://" not in f"{pin.upstream}{pin.source}", name
        assert pin.sha256 is None or len(bytes.fromhex(pin.sha256)) == 32, name
        assert pin.part in PARTS, name
    assert FACTS.systems[OS].owner.isdecimal()


def test_optional_parts_are_added_and_others_left_out_by_name() -> None:
    assert ALL == ("slurm", "lustre", "nvidia", "efa")
    assert chosen_parts(FACTS, OS, SLURM, ("nvidia", "efa"), ("dcgm",)) == ("slurm", "lustre", "dcgm")


@pytest.mark.parametrize(
    ("os", "slurm", "away", "words"),
    [
        ("ubuntu-99.04", SLURM, (), "'ubuntu-99.04' is not an operating system"),
        (OS, "19.05", (), "'19.05' is not a version of Slurm"),
        (OS, SLURM, ("sendmail",), "'sendmail' is not a part"),
        (OS, SLURM, ("slurm",), "without Slurm"),
    ],
)
def test_what_cannot_be_built_is_refused_with_what_can(
    os: str, slurm: str, away: tuple[str, ...], words: str
) -> None:
    with pytest.raises(GpuclusterError, match=words) as told:
        chosen_parts(FACTS, os, slurm, away, ())
    assert told.value.next_step


def test_each_files_state_is_told_and_only_right_ones_are_built_from(tmp_path: Path) -> None:
    folder = a_folder(tmp_path)
    (folder / "aws-efa-installer-1.43.2.tar.gz").write_bytes(b"something else")
    (folder / "fsx-lustre-client.sources").unlink()
    rows = {row.pin.part: row for row in check_pins(FACTS, SLURM, ALL, folder)}
    assert {part: row.state for part, row in rows.items()} == {
        "slurm": PinState.RIGHT, "lustre": PinState.MISSING, "nvidia": PinState.NO_FILE, "efa": PinState.WRONG,
    }  # fmt: skip
    with pytest.raises(GpuclusterError) as told:
        recipe(FACTS, OS, SLURM, rows.values(), folder)
    assert "fsx-lustre-client.sources is not there" in str(told.value)
    assert "aws-efa-installer-1.43.2.tar.gz is " in str(told.value)


def test_a_file_of_unknown_digest_is_refused_with_the_line_that_would_pin_it(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, sums=False)
    rows = check_pins(FACTS, SLURM, ALL, folder)
    unknown = [row for row in rows if row.state is PinState.UNKNOWN]
    assert len(unknown) == 3
    (folder / SUMS).write_text("".join(f"{row.found}  {row.pin.file}\n" for row in unknown))
    assert all(row.good for row in check_pins(FACTS, SLURM, ALL, folder))


def test_the_same_content_has_the_same_digest_wherever_it_lies_and_other_content_another(
    tmp_path: Path,
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first, second = a_recipe(a_folder(tmp_path / "one")), a_recipe(a_folder(tmp_path / "two"))
    assert first.digest == second.digest
    assert a_recipe(tmp_path / "one", ("slurm",)).digest != first.digest
    other = tmp_path / "two" / "slurm-24.11.7.tar.bz2"
    other.write_bytes(b"patched")
    text = (tmp_path / "two" / SUMS).read_text().splitlines()
    kept = [line for line in text if not line.endswith(other.name)]
    (tmp_path / "two" / SUMS).write_text(
        "\n".join([*kept, f"{hashlib.sha256(b'patched').hexdigest()}  {other.name}"])
    )
    assert a_recipe(tmp_path / "two").digest != first.digest


def test_the_playbook_is_told_all_that_its_tasks_name(tmp_path: Path) -> None:
    told = a_recipe(a_folder(tmp_path)).variables()
    json.dumps(told)
    assert told["kernel_modules"] == ["lustre", "nvidia", "efa"]
    assert told["part_archives"] == ["lustre"]
    assert sorted(told["part_files"]) == ["efa", "lustre", "slurm"]  # type: ignore[arg-type]


# --- the playbook ---------------------------------------------------------------------------------

TASKS = sorted((shipped("playbooks") / "tasks").rglob("*.yml"))
PLAYS = [shipped("playbooks") / name for name in ("image.yml", "slurm.yml", "sandbox.yml")]


@pytest.fixture(scope="module")
def listed() -> list[tuple[str, set[str]]]:
    """Every task of the image with its tags, as ansible-playbook itself reads them: its syntax is right, too."""
    argv = [str(Path(sys.executable).parent / "ansible-playbook"), "--inventory=localhost,", "--list-tasks"]
    done = subprocess.run([*argv, str(PLAYS[0])], capture_output=True, text=True, check=True)
    rows = [line.strip().partition("\tTAGS: ") for line in done.stdout.splitlines() if "\tTAGS: " in line]
    return [(name, set(tags.strip("[]").split(", "))) for name, _, tags in rows[1:]]


def chosen(listed: list[tuple[str, set[str]]], *tags: str) -> list[str]:
    """Names of the tasks that these tags choose."""
    return [name for name, has in listed if has & set(tags)]


def test_the_sandboxs_image_takes_no_task_of_an_amis(listed: list[tuple[str, set[str]]]) -> None:
    system = chosen(listed, "system", "code")
    assert "Install the rest" in system
    assert not {"Read the archives", "Build the packages, as many compilers as there are processors"} & set(
        system
    )


def test_a_part_that_is_left_out_leaves_none_of_its_tasks(
    listed: list[tuple[str, set[str]]], tmp_path: Path
) -> None:
    found = chosen(listed, *a_recipe(a_folder(tmp_path), ("slurm", "lustre")).tags())
    assert not {"Start what keeps the driver loaded, and the fabric's manager, at each boot", "Run it"} & set(
        found
    )
    assert {"Start what keeps the driver loaded, and the fabric's manager, at each boot", "Run it"} <= set(
        chosen(listed, "nvidia", "efa", "builder")
    )
    assert found[0].startswith("Wait until cloud-init")
    assert found[-1].startswith("Forget this machine")


def test_every_task_of_the_image_has_exactly_one_tag(listed: list[tuple[str, set[str]]]) -> None:
    assert {len(tags) for _, tags in listed} == {1}
    assert set().union(*(tags for _, tags in listed)) == {"builder", "system", "code", *PARTS}


def _tasks(rows: list[Any]) -> list[Any]:
    return [task for row in rows for task in (_tasks(row["block"]) if "block" in row else [row])]


@pytest.mark.parametrize("file", [*TASKS, *PLAYS], ids=lambda path: path.name)
def test_every_task_has_a_name_and_full_module_names_and_no_address(file: Path) -> None:
    rows: list[Any] = YAML(typ="safe").load(file.read_text())  # pyright: ignore[reportUnknownMemberType]
    tasks = _tasks([task for row in rows for task in row["tasks"]] if "hosts" in rows[0] else rows)
    for task in tasks:
        assert task["name"][0].isupper(), task
        modules = [key for key in task if key.startswith(("ansible.", "community."))]
        assert len(modules) == 1, task["name"]
        runs = modules[0].endswith((".command", ".shell"))
        assert not runs or "changed_when" in task or "creates" in str(task) or "removes" in str(task), task[
            "name"
        ]
        if modules[0].endswith(".shell"):
            assert "set -e" in task[modules[0]]["cmd"] or "\n" not in task[modules[0]]["cmd"], task["name"]
    addresses = [line for line in file.read_text().splitlines() if "://" in line]
    assert [line for line in addresses if "169.254.169.254" not in line] == []
