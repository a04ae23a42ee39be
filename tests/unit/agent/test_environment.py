"""The environment of jobs on a machine: the files of all pools, and on a node its own."""

from collections.abc import Mapping
from pathlib import Path

from support.fake_machine import FakeMachine, a_bundle, a_small_plan, an_answer, answers

from gpucluster.agent.boot import environment
from gpucluster.agent.boot.boot_state import BootState
from gpucluster.agent.boot.runner import run_steps
from gpucluster.agent.roles import host, login
from gpucluster.agent.roles import node as node_role
from gpucluster.plan import names

KEY = b"K" * 128
OWN, OTHER = "export NCCL_SOCKET_IFNAME='^docker'\n", "export OTHER=1\n"


def booted(root: Path, files: Mapping[str, str]) -> tuple[FakeMachine, BootState]:
    node = FakeMachine(root, controller=answers(an_answer()))
    node.services.objects[names.BUNDLE_KEY] = a_bundle(a_small_plan(), more=files)
    node.services.value = KEY
    return node, run_steps(node.machine(), node_role.BOOT, BootState(), until=lambda _: 50_000.0)


def test_node_has_the_files_of_all_pools_and_its_own_for_scripts(tmp_path: Path) -> None:
    node, state = booted(tmp_path, {"env.d/h200.sh": OWN, "env.d/other.sh": OTHER})
    assert node.text(f"{names.JOB_ENV_DIR}/other.sh") == OTHER
    assert node.text(names.JOB_ENV) == OWN
    file = tmp_path / names.JOB_ENV.lstrip("/")
    assert file.stat().st_mode & 0o777 == 0o644, "users read it"
    node.put(f"{names.JOB_ENV_DIR}/gone.sh", "old")
    node.put(f"{names.JOB_ENV_DIR}/site.conf", "of the site")
    environment.install_on_node(node.machine(), state)
    left = {one.name for one in (tmp_path / names.JOB_ENV_DIR.lstrip("/")).iterdir()}
    assert left == {"h200.sh", "other.sh", "site.conf"}, "only our own files are removed"


def test_bundle_without_environments_gives_an_empty_file(tmp_path: Path) -> None:
    """A bundle of an older release: a job script that sources the file goes on."""
    node, _ = booted(tmp_path, {})
    assert node.text(names.JOB_ENV) == ""


def test_environment_is_there_before_slurmd_and_before_logins() -> None:
    for table in (node_role.BOOT, host.NODE):
        steps = [name for name, _ in table]
        assert steps.index("environment") < steps.index("slurmd")
    steps = [name for name, _ in login.BOOT]
    assert steps.index("environment") < steps.index("sshd")


def test_profile_of_software_comes_and_goes_with_the_bundle(tmp_path: Path) -> None:
    node, _ = booted(tmp_path / "with", {names.PROFILE_FILE: "export MODULEPATH=/apps/modulefiles\n"})
    assert node.text(names.PROFILE) == "export MODULEPATH=/apps/modulefiles\n"
    bare, state = booted(tmp_path / "without", {})
    bare.put(names.PROFILE, "old")
    environment.install(bare.machine(), state)
    assert not (tmp_path / "without" / names.PROFILE.lstrip("/")).exists()
