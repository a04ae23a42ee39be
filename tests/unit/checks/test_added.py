"""What root has added on a machine is found, and what packages, agents and people leave there is not."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpucluster.checks import command_path, exports, root_rights, setuid
from gpucluster.checks.check import CheckResult, CheckStatus, QueryOutput

PASS, FAIL, WARN = CheckStatus.PASS, CheckStatus.FAIL, CheckStatus.WARN


def run(argv: Sequence[str], **environment: str) -> QueryOutput:
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    return QueryOutput(code=done.returncode, stdout=done.stdout, stderr=done.stderr)


# --- root ------------------------------------------------------------------------------------------------
ROOT = "root:x:0:0:root:/root:/bin/bash\nvision:x:5001:5001::/home/vision:/bin/bash\n"
FIRST_USER = "# Created by cloud-init v. 24.4 on Tue, 03 Nov 2026 09:00:00 +0000\n\n# User rules for debian\ndebian ALL=(ALL) NOPASSWD:ALL\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "etc/sudoers.d").mkdir(parents=True)
    (tmp_path / "etc/passwd").write_text(ROOT)
    (tmp_path / "etc/sudoers.d/90-cloud-init-users").write_text(FIRST_USER)
    (tmp_path / "etc/sudoers.d/ssm-agent-users").write_text(
        "# User rules for ssm-user\nssm-user ALL=(ALL) NOPASSWD:ALL\n"
    )
    (tmp_path / "etc/sudoers.d/old.dpkg-old").write_text("vision ALL=(ALL) ALL\n")
    (tmp_path / "etc/sudoers.d/empty").write_text("# nothing yet\n")
    return tmp_path


def rights(tree: Path, *, sudo: bool = True, scripts: bool = False) -> CheckResult:
    want = root_rights.RootWant(sudo=sudo, scripts=scripts)
    (query,) = root_rights.query_root(want)
    words = [word.replace("at=\n", f"at={tree}\n", 1) for word in query.argv]
    return root_rights.evaluate_root(root_rights.parse_root((run(words),)), want)


def test_files_of_agents_give_no_fault(tree: Path) -> None:
    assert rights(tree).verdict is PASS


def test_a_second_user_with_the_uid_of_root_is_found(tree: Path) -> None:
    with (tree / "etc/passwd").open("a") as file:
        file.write("toor:x:0:0::/root:/bin/bash\n")
    found = rights(tree, sudo=False, scripts=True)
    assert (found.verdict, found.found, found.culprits) == (
        FAIL,
        "user toor has the uid 0, as root",
        ("toor",),
    )
    assert found.remedy == "on {machine}: sed -i '/^toor:/d' /etc/passwd /etc/shadow"


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("helper", "vision ALL=(ALL) NOPASSWD: ALL\n", "vision ALL=(ALL) NOPASSWD: ALL"),
        ("helper", "#1000 ALL=(ALL) ALL", "#1000 ALL=(ALL) ALL"),
        ("helper", "#include /tmp/more\n", "#include /tmp/more"),
        ("90-cloud-init-users", FIRST_USER + "vision ALL=(ALL) ALL\n", "debian ALL=(ALL) NOPASSWD:ALL"),
        ("ssm-agent-users", "vision ALL=(ALL) NOPASSWD:ALL\n", "vision"),
    ],
)
def test_rules_of_sudo_by_hand_are_found(tree: Path, file: str, text: str, said: str) -> None:
    (tree / "etc/sudoers.d" / file).write_text(text)
    found = rights(tree)
    path = f"/etc/sudoers.d/{file}"
    assert (found.verdict, found.culprits, said in found.found) == (FAIL, (path,), True), found
    assert found.remedy == f"on {{machine}}: rm {path}"
    assert rights(tree, sudo=False).verdict is PASS, "those of a host are the site's"
    assert rights(tree, scripts=True).verdict is WARN, "a script of the site may have written it"


def test_a_file_of_the_image_is_known(tree: Path) -> None:
    (tree / "etc/sudoers.d/vendor").write_text("vendor ALL=(ALL) ALL\n")
    record = tree / "opt/gpucluster/venv/lib/python3.12/site-packages/gpucluster-1.dist-info/RECORD"
    record.parent.mkdir(parents=True)
    record.touch()
    assert rights(tree).verdict is PASS


def test_a_changed_file_of_the_package_is_named_with_what_shows_it() -> None:
    want = root_rights.RootWant(sudo=True)
    answer = QueryOutput(code=0, stdout="root root\nsudo changed /etc/sudoers\n--\n")
    found = root_rights.evaluate_root(root_rights.parse_root((answer,)), want)
    assert (found.verdict, found.remedy) == (FAIL, "on {machine}: dpkg --verify sudo; visudo -f /etc/sudoers")


# --- setuid ----------------------------------------------------------------------------------------------
def walked(tree: Path, *, scripts: bool = False) -> CheckResult:
    want = setuid.SetuidWant(scripts=scripts, root=str(tree))
    (query,) = setuid.query_setuid(want)
    argv = [sys.executable if word.endswith("/bin/python") else word for word in query.argv]
    return setuid.evaluate_setuid(setuid.parse_setuid((run(argv),)), want)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a file of root is made by root")


@needs_root
def test_a_setuid_program_of_no_package_is_found(tmp_path: Path) -> None:
    for name in ("helper", "plain", "of a person"):
        (tmp_path / name).write_bytes(b"\x7fELF")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder").chmod(0o2755)
    os.chown(tmp_path / "of a person", 5001, 5001)
    (tmp_path / "of a person").chmod(0o6755)
    (tmp_path / "plain").chmod(0o755)
    assert walked(tmp_path).verdict is PASS, "a person's own program gives that person's rights"
    (tmp_path / "helper").chmod(0o4755)
    found = walked(tmp_path)
    assert (found.verdict, found.culprits) == (FAIL, (f"{tmp_path}/helper",)), found
    assert found.remedy == f"on {{machine}}: chmod ug-s {tmp_path}/helper"
    assert walked(tmp_path, scripts=True).verdict is WARN
    (tmp_path / "helper").chmod(0o2755)
    assert "has setgid" in walked(tmp_path).found


def answered(files: dict[str, list[str]], *, ended: bool = True) -> CheckResult:
    text = json.dumps({"ended": ended, "looked": 7, "files": files})
    parsed = setuid.parse_setuid((QueryOutput(code=0, stdout=text),))
    return setuid.evaluate_setuid(parsed, setuid.SetuidWant())


def test_capabilities_installers_and_a_walk_without_end() -> None:
    found = answered({"/usr/bin/python3.12": ["capability"]})
    assert (found.verdict, found.remedy) == (FAIL, "on {machine}: setcap -r /usr/bin/python3.12")
    assert answered({"/usr/bin/nvidia-modprobe": ["setuid"]}).verdict is PASS
    assert answered({}, ended=False).verdict is WARN


# --- commands --------------------------------------------------------------------------------------------
OWN = {name: ("file", "packaged", (f"/usr/bin/{name}",)) for name in command_path.COMMANDS}


def shells(**changed: tuple[str, str, tuple[str, ...]]) -> CheckResult:
    text = "".join(
        f"gpucluster-validate at {name} {kind} {state} {' '.join(paths)} \n"
        for name, (kind, state, paths) in {**OWN, **changed}.items()
    )
    healthy = "".join(f"gpucluster-validate at {n} {k} {s} {' '.join(p)} \n" for n, (k, s, p) in OWN.items())
    end = "gpucluster-validate end\n"
    answers = tuple(QueryOutput(code=0, stdout=f"Welcome!\n{one}{end}") for one in (text, healthy))
    return command_path.evaluate_commands(command_path.parse_commands(answers), command_path.CommandsWant())


@pytest.mark.parametrize(
    ("changed", "said", "remedy"),
    [
        ({"sbatch": ("file", "script", ("/usr/local/bin/sbatch", "/usr/bin/sbatch"))}, "sbatch of root is /usr/local/bin/sbatch, before /usr/bin/sbatch", "rm /usr/local/bin/sbatch"),
        ({"scontrol": ("file", "added", ("/usr/local/sbin/scontrol", "/usr/bin/scontrol"))}, "scontrol of root is /usr/local/sbin/scontrol", "rm /usr/local/sbin/scontrol"),
        ({"sacct": ("function", "packaged", ("/usr/bin/sacct",))}, "sacct of root is a function of the shell", "type -a sacct"),
        ({"sacct": ("file", "script", ("/usr/bin/sacct",))}, "which is no program of Slurm", "type -a sacct"),
    ],
)  # fmt: skip
def test_a_wrapper_before_slurms_command_is_found(changed, said, remedy) -> None:
    found = shells(**changed)
    assert (found.verdict, said in found.found) == (FAIL, True), found
    assert found.remedy == f"on {{machine}}: {remedy}"


def test_slurms_own_commands_are_no_wrappers() -> None:
    assert shells().verdict is PASS
    built = {name: ("file", "added", (f"/opt/slurm/bin/{name}", f"/usr/bin/{name}")) for name in OWN}
    assert shells(**built).verdict is PASS, "a folder with most of them is an installation"


def test_the_shell_shows_a_wrapper(tmp_path: Path) -> None:
    """The script in a real bash, whose path has two programs of one name."""
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "sbatch").write_text("#!/bin/sh\n")
        (tmp_path / folder / "sbatch").chmod(0o755)
    (tmp_path / ".bash_profile").write_text(f"PATH={tmp_path}/first:{tmp_path}/second:$PATH\n")
    (as_root, _) = command_path.query_commands(command_path.CommandsWant())
    argv = [word.replace("$(getent passwd root | cut -d: -f6)", str(tmp_path)) for word in as_root.argv]
    (shell,) = command_path.parse_commands((run(argv),))
    assert shell["sbatch"].paths == (f"{tmp_path}/first/sbatch", f"{tmp_path}/second/sbatch")
    assert (shell["sbatch"].kind, shell["sbatch"].state) == ("file", "script")


# --- exports ---------------------------------------------------------------------------------------------
HOME = "/srv/home\t10.0.0.0/16(rw,sync,wdelay,hide,nocrossmnt,secure,root_squash)\n"
WANT = exports.ExportsWant(exports={"/srv/home": ("10.0.0.0/16",)})


def exported(text: str, want: exports.ExportsWant = WANT) -> CheckResult:
    return exports.evaluate_exports(exports.parse_exports((QueryOutput(code=0, stdout=f"{text}--\n"),)), want)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HOME, ""),
        (HOME.replace("10.0.0.0/16", "10.0.0.0/255.255.0.0"), ""),
        ("", ""),
        (
            HOME + HOME.replace("10.0.0.0/16", "*"),
            "/srv/home is exported to *, which is no client of the plan",
        ),
        (HOME + HOME.replace("/srv/home", "/etc"), "/etc is exported to 10.0.0.0/16, which no plan exports"),
        (HOME.replace("root_squash", "no_root_squash"), "whose root is root of the folder"),
    ],
)
def test_exports_by_hand_are_found(text: str, said: str) -> None:
    found = exported(text)
    assert (found.verdict, said in found.found) == (FAIL if said else PASS, True), found
    assert ("exportfs -" in found.remedy) == bool(said)
