"""The recipe of an image: pins and files, digest, variables of the playbook; and the playbook itself."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jinja2.nativetypes import NativeEnvironment
from ruamel.yaml import YAML

from gpucluster.catalog.image import image_facts
from gpucluster.catalog.nvswitch import fabric_packages
from gpucluster.errors import GpuclusterError
from gpucluster.files import shipped
from gpucluster.image.recipe import PARTS, SUMS, PinState, Recipe, check_pins, chosen_parts, recipe
from gpucluster.plan import names

FACTS = image_facts()
OS, SLURM = "ubuntu-24.04", "24.11"
ALL = chosen_parts(FACTS, OS, SLURM, (), ())


def a_folder(tmp_path: Path, *, sums: bool = True) -> Path:
    """A folder with a file for every part, and its SHA256SUMS."""
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


def test_every_pin_has_a_source_and_no_address_or_invented_digest() -> None:
    for name, pin in FACTS.pins.items():
        assert pin.source, name
        assert "://" not in f"{pin.upstream}{pin.source}", name
        assert pin.sha256 is None or len(bytes.fromhex(pin.sha256)) == 32, name
        assert pin.part in PARTS, name
    assert FACTS.systems[OS].owner.isdecimal()


def test_parts_are_added_and_omitted_by_name() -> None:
    assert ALL == ("slurm", "lustre", "nvidia", "efs", "efa")
    assert chosen_parts(FACTS, OS, SLURM, ("nvidia", "efs", "efa"), ("dcgm",)) == ("slurm", "lustre", "dcgm")


@pytest.mark.parametrize(
    ("os", "slurm", "away", "words"),
    [
        ("ubuntu-99.04", SLURM, (), "'ubuntu-99.04' is not an operating system"),
        (OS, "19.05", (), "'19.05' is not a version of Slurm"),
        (OS, SLURM, ("sendmail",), "'sendmail' is not a part"),
        (OS, SLURM, ("slurm",), "without Slurm"),
    ],
)
def test_unknown_part_is_refused_with_the_known_ones(
    os: str, slurm: str, away: tuple[str, ...], words: str
) -> None:
    with pytest.raises(GpuclusterError, match=words) as raised:
        chosen_parts(FACTS, os, slurm, away, ())
    assert raised.value.next_step


def test_each_file_is_reported_and_only_checked_files_are_used(tmp_path: Path) -> None:
    folder = a_folder(tmp_path)
    (folder / "aws-efa-installer-1.43.2.tar.gz").write_bytes(b"something else")
    (folder / "fsx-lustre-client.sources").unlink()
    rows = {row.pin.part: row for row in check_pins(FACTS, SLURM, ALL, folder)}
    assert {part: row.state for part, row in rows.items()} == {
        "slurm": PinState.RIGHT, "lustre": PinState.MISSING, "nvidia": PinState.NO_FILE,
        "efs": PinState.RIGHT, "efa": PinState.WRONG,
    }  # fmt: skip
    with pytest.raises(GpuclusterError) as raised:
        recipe(FACTS, OS, SLURM, rows.values(), folder)
    assert "fsx-lustre-client.sources is missing" in str(raised.value)
    assert "aws-efa-installer-1.43.2.tar.gz has the digest " in str(raised.value)


def test_file_without_known_digest_is_refused_with_the_line_for_sha256sums(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, sums=False)
    rows = check_pins(FACTS, SLURM, ALL, folder)
    unknown = [row for row in rows if row.state is PinState.UNKNOWN]
    assert len(unknown) == 4
    (folder / SUMS).write_text("".join(f"{row.found}  {row.pin.file}\n" for row in unknown))
    assert all(row.good for row in check_pins(FACTS, SLURM, ALL, folder))


def test_digest_depends_on_content_and_not_on_place(
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


def test_playbook_gets_every_variable_of_its_tasks(tmp_path: Path) -> None:
    raised = a_recipe(a_folder(tmp_path)).variables()
    json.dumps(raised)
    assert raised["kernel_modules"] == ["lustre", "nvidia", "efa"]
    assert raised["part_archives"] == ["lustre"]
    assert sorted(raised["part_files"]) == ["efa", "efs", "lustre", "slurm"]  # type: ignore[arg-type]
    assert raised["kernel_series"] == ["6.8", "6.14", "6.17"]
    assert raised["kernel_prefixes"] == [
        "linux-image-",
        "linux-headers-",
        "lustre-client-modules-",
        "linux-modules-nvidia-580-server-open-",
    ]


def test_image_for_p6_has_the_subnet_manager_its_modules_and_their_kernel(
    tmp_path: Path, listed: list[tuple[str, set[str]]]
) -> None:
    """Without mlx5_ib, ib_umad, ibstat and nvlsm Fabric Manager never ends on p6 (T52)."""
    parts = chosen_parts(FACTS, OS, SLURM, (), ("nvlsm",))
    made = a_recipe(a_folder(tmp_path), parts)
    raised: dict[str, Any] = made.variables()
    assert {"nvlsm", "infiniband-diags", "libibumad3"} <= set(raised["part_packages"]["nvlsm"])
    assert "linux-modules-extra-" in raised["kernel_prefixes"]
    assert {"mlx5_ib", "ib_umad"} <= set(raised["kernel_modules"])
    assert raised["part_archives"] == ["lustre", "nvlsm"]
    loads = "Load the InfiniBand modules at each boot, because nothing else loads them before Fabric Manager starts"
    assert loads in chosen(listed, *made.tags())
    assert loads not in chosen(listed, *a_recipe(tmp_path).tags())
    assert set(fabric_packages("p6-b300.48xlarge")) <= set(raised["part_packages"]["nvlsm"])


def test_pyxis_brings_enroot_and_is_built_for_the_slurm_of_the_image(
    tmp_path: Path, listed: list[tuple[str, set[str]]]
) -> None:
    parts = chosen_parts(FACTS, OS, SLURM, (), ("pyxis",))
    assert parts[:3] == ("slurm", "pyxis", "enroot")
    made = a_recipe(a_folder(tmp_path), parts)
    raised: dict[str, Any] = made.variables()
    assert "slurm-smd-dev" in raised["slurm_packages"]
    assert "slurm-smd-dev" not in a_recipe(tmp_path).variables()["slurm_packages"]  # type: ignore[operator]
    tasks = chosen(listed, *made.tags())
    assert tasks.index("Build the packages on all processors") < tasks.index(
        "Build the plugin and install it"
    )
    assert not {"Build the plugin and install it", "Check Enroot"} & set(
        chosen(listed, *a_recipe(tmp_path).tags())
    )


def test_plugin_is_where_plugstack_conf_says() -> None:
    text = (shipped("playbooks") / "tasks/image/pyxis.yml").read_text()
    assert f"creates: {names.PYXIS_PLUGIN}\n" in text


def test_ubuntus_packages_win_over_those_of_added_archives() -> None:
    """NVIDIA's archive has a newer Fabric Manager than Ubuntu's driver, and Fabric Manager then refuses to start (T52)."""
    rows: list[Any] = YAML(typ="safe").load((shipped("playbooks") / "tasks/image/begin.yml").read_text())  # pyright: ignore[reportUnknownMemberType]
    names = [row["name"] for row in rows]
    (pin,) = [row for row in rows if row["name"].startswith("Prefer Ubuntu's packages")]
    text = pin["ansible.builtin.copy"]["content"]
    assert text == "Package: *\nPin: release o=Ubuntu\nPin-Priority: 900\n"
    assert names.index(pin["name"]) < names.index("Update the package lists")


def test_image_without_lustre_takes_any_series(tmp_path: Path) -> None:
    raised = a_recipe(a_folder(tmp_path), ("slurm", "efa")).variables()
    assert (raised["kernel_series"], raised["kernel_prefixes"]) == ([], ["linux-image-", "linux-headers-"])


# --- the kernel -----------------------------------------------------------------------------------

IMAGES = ("6.8.0-1050-aws", "6.8.0-1057-aws", "6.8.0-1063-aws", "6.14.0-1017-aws", "6.17.0-1019-aws")


def choose(tmp_path: Path, series: str, **packages: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Run the script of the builder. `apt-cache` lists linux-image of IMAGES and the given packages."""
    names = [f"linux-image-{one}" for one in (*IMAGES, "aws", "6.8.0-57-generic")]
    names += [f"{prefix}-{one}" for prefix, found in packages.items() for one in found]
    tool = tmp_path / "apt-cache"
    lines = "\n".join(names)
    tool.write_text(f"#!/bin/sh\ngrep \"^$2\" <<'END'\n{lines}\nEND\n")
    tool.chmod(0o755)
    script = shipped("playbooks") / "tasks/image/choose_kernel.py"
    argv = [sys.executable, "-I", str(script), "--series", series, "linux-image-"]
    argv += [f"{prefix}-" for prefix in packages]
    return subprocess.run(
        argv, capture_output=True, text=True, check=False, env={"PATH": f"{tmp_path}:/bin:/usr/bin"}
    )


@pytest.mark.parametrize(
    ("series", "lustre", "nvidia", "release"),
    [
        ("6.8,6.14", ("6.8.0-1050-aws", "6.8.0-1057-aws"), IMAGES, "6.8.0-1057-aws"),
        ("6.8,6.14", IMAGES[:4], IMAGES, "6.14.0-1017-aws"),
        ("6.8,6.14", IMAGES[:4], IMAGES[:2], "6.8.0-1057-aws"),
        ("6.8", IMAGES, IMAGES, "6.8.0-1063-aws"),
        (",", IMAGES, IMAGES, "6.17.0-1019-aws"),
    ],
)
def test_kernel_is_the_newest_that_every_part_supports(
    tmp_path: Path, series: str, lustre: tuple[str, ...], nvidia: tuple[str, ...], release: str
) -> None:
    """The image took Ubuntu's newest kernel, for which AWS may have no Lustre client."""
    done = choose(tmp_path, series, lustre=lustre, nvidia=nvidia)
    assert (done.returncode, done.stdout.strip()) == (0, release)


def test_build_stops_if_no_kernel_is_supported(tmp_path: Path) -> None:
    done = choose(tmp_path, "6.8", lustre=("6.14.0-1017-aws",), nvidia=("6.8.0-1063-aws",))
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "no kernel of the series 6.8 has every package that this image needs. The archives have "
        "linux-image-KERNEL for 6.8.0-1063-aws, 6.8.0-1057-aws, 6.8.0-1050-aws; lustre-KERNEL for no kernel; "
        "nvidia-KERNEL for 6.8.0-1063-aws"
    )


def test_kernel_is_chosen_before_anything_is_built(
    listed: list[tuple[str, set[str]]], tmp_path: Path
) -> None:
    found = chosen(listed, *a_recipe(a_folder(tmp_path)).tags())
    assert found.index("Choose the newest kernel that every part supports") < found.index(
        "Install the tools that build Debian packages"
    )


# --- the playbook ---------------------------------------------------------------------------------

TASKS = sorted((shipped("playbooks") / "tasks").rglob("*.yml"))
PLAYS = [shipped("playbooks") / name for name in ("image.yml", "slurm.yml", "sandbox.yml")]


@pytest.fixture(scope="module")
def listed() -> list[tuple[str, set[str]]]:
    """Return every task of the image with its tags, as ansible-playbook lists them."""
    argv = [str(Path(sys.executable).parent / "ansible-playbook"), "--inventory=localhost,", "--list-tasks"]
    env = {**os.environ, "LC_ALL": "C.UTF-8"}  # ansible refuses another encoding
    done = subprocess.run([*argv, str(PLAYS[0])], env=env, capture_output=True, text=True, check=True)
    rows = [line.strip().partition("\tTAGS: ") for line in done.stdout.splitlines() if "\tTAGS: " in line]
    return [(name, set(tags.strip("[]").split(", "))) for name, _, tags in rows[1:]]


def chosen(listed: list[tuple[str, set[str]]], *tags: str) -> list[str]:
    """Return the names of the tasks with these tags."""
    return [name for name, has in listed if has & set(tags)]


def test_sandbox_image_runs_no_task_of_an_ami(listed: list[tuple[str, set[str]]]) -> None:
    system = chosen(listed, "system", "code")
    assert "Install the missing packages" in system
    assert not {"Update the package lists", "Build the packages on all processors"} & set(system)


def test_omitted_part_runs_none_of_its_tasks(listed: list[tuple[str, set[str]]], tmp_path: Path) -> None:
    found = chosen(listed, *a_recipe(a_folder(tmp_path), ("slurm", "lustre")).tags())
    assert not {"Enable the persistence daemon and the fabric manager", "Run the installer"} & set(found)
    assert {"Enable the persistence daemon and the fabric manager", "Run the installer"} <= set(
        chosen(listed, "nvidia", "efa", "builder")
    )
    assert found[0].startswith("Wait until cloud-init")
    assert found[-1].startswith("Remove the keys, logs")


def test_every_image_task_has_exactly_one_tag(listed: list[tuple[str, set[str]]]) -> None:
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


# --- who may log in -------------------------------------------------------------------------------

UNIT_OF_INSTANCE_CONNECT = (
    '[Service]\nExecStart=\nExecStart=/usr/sbin/sshd -D -o "AuthorizedKeysCommand /usr/share/ec2-instance-connect/'
    'eic_run_authorized_keys %%u %%f" -o "AuthorizedKeysCommandUser ec2-instance-connect" $SSHD_OPTS\n'
)


def _end() -> dict[str, Any]:
    """Return the last tasks of a builder by name."""
    rows: list[Any] = YAML(typ="safe").load((shipped("playbooks") / "tasks/image/end.yml").read_text())  # pyright: ignore[reportUnknownMemberType]
    return {row["name"]: row for row in rows}


# what `sshd -T` of OpenSSH 10.0 says (Debian 13), shortened
SETTINGS = ["port 22", "authorizedkeyscommand none", "authorizedkeyscommanduser none", "usepam no"]
CONFIGURED = [
    "port 22",
    "authorizedkeyscommand /usr/bin/true",
    "authorizedkeyscommanduser nobody",
    "usepam no",
]


@pytest.mark.parametrize(
    ("settings", "unit", "good"),
    [
        (SETTINGS, "[Service]\nExecStart=/usr/sbin/sshd -D $SSHD_OPTS\n", True),
        (CONFIGURED, "", False),  # in a file of sshd_config.d
        (SETTINGS, UNIT_OF_INSTANCE_CONNECT, False),  # on the command line, which `sshd -T` does not see
    ],
    ids=["plain", "configured", "on the command line"],
)
def test_build_stops_if_another_program_answers_which_keys_log_in(
    settings: list[str], unit: str, good: bool
) -> None:
    """Canonical's images have EC2 Instance Connect: its keys would count, and those of LDAP would not."""
    task = _end()["Stop if another program answers which keys log in"]
    found = {
        "sshd_settings": {"stdout_lines": settings},
        "sshd_unit": {"stdout": unit},
    }
    conditions = [
        NativeEnvironment().from_string("{{ " + one + " }}").render(found)
        for one in task["ansible.builtin.assert"]["that"]
    ]
    assert all(conditions) is good


def test_instance_connect_is_purged_before_sshd_is_asked() -> None:
    tasks = _end()
    purge = tasks[
        "Remove EC2 Instance Connect, which gives sshd another AuthorizedKeysCommand on its command line"
    ]
    assert purge["ansible.builtin.apt"] == {"name": "ec2-instance-connect", "state": "absent", "purge": True}
    reads = {"sshd_settings": ["/usr/sbin/sshd -T"], "sshd_unit": ["systemctl cat ssh.service"]}
    commands = {
        row["register"]: [row["ansible.builtin.command"]]
        for row in tasks.values()
        if row.get("register") in reads
    }
    assert commands == reads
    names = list(tasks)
    assert names.index(purge["name"]) < names.index("Read the settings of sshd")
    assert names.index("Read the command line of sshd") < names.index(
        "Stop if another program answers which keys log in"
    )
