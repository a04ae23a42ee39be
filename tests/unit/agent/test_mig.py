"""The boot step that slices GPUs, against the stand-in of nvidia-smi as a program, which refuses what NVIDIA's refuses."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.builders import a_lab_plan
from support.fake_machine import a_small_plan

from gpucluster import shell
from gpucluster.agent.boot import mig
from gpucluster.agent.boot.boot_state import BOOT_ID, BootState, Bundle
from gpucluster.agent.boot.slurmd import NVIDIA_SMI
from gpucluster.agent.machine import Machine, NotYetError, StepError
from gpucluster.files import shipped
from gpucluster.plan import gres, names
from gpucluster.plan.messages import NodeAnswer
from gpucluster.plan.model import Mig, MigSlice, SlurmPlan
from gpucluster.shell import Result

FACTS = {"name": "NVIDIA A100", "mig": {"1g.10gb": (7, 1, 1), "2g.20gb": (3, 2, 2), "3g.40gb": (2, 3, 4)}}
MIXED, SMALL = (("3g.40gb", 1), ("1g.10gb", 4)), (("1g.10gb", 7),)
HOST, CLOUD = "gpu01", "h200-1a-1"

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root makes device files")


class Gpus:
    """A machine of two GPUs in a folder, with the stand-in of nvidia-smi."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.calls = folder, list[tuple[str, ...]]()
        for path in ("run", "etc", "dev"):
            (folder / path).mkdir()
        text = (shipped("playbooks") / "stand-ins/nvidia-smi").read_text()
        for path in ("/run/", "/etc/"):
            text = text.replace(f'"{path}', f'"{folder}{path}')
        (folder / "nvidia-smi").write_text(text.replace('DEV = "/dev"', f'DEV = "{folder}/dev"'))
        for gpu in range(2):
            (folder / f"dev/nvidia{gpu}").touch()
        (folder / "etc/sandbox-gpus.json").write_text(json.dumps(FACTS))
        monkeypatch.setenv(names.MIG_VARIABLE, "/run/sandbox-mig-minors")
        self.boot("one")

    def boot(self, boot_id: str) -> None:
        """What a boot keeps: /run is empty, and slices are gone."""
        for left in (self.folder / "run").iterdir():
            left.unlink()
        for left in (self.folder / names.MIG_FOLDER.lstrip("/")).glob("*"):
            left.unlink()
        path = self.folder / BOOT_ID.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{boot_id}\n")

    def faults(self, **faults: object) -> None:
        (self.folder / "run/sandbox-gpu-faults.json").write_text(json.dumps(faults))

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 60.0,
        stdin: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Result:
        self.calls.append(tuple(argv))
        if argv[0] != NVIDIA_SMI:
            return Result(tuple(argv), 0, "", "")
        return shell.run([sys.executable, "-IS", str(self.folder / "nvidia-smi"), *argv[1:]], check=check)

    def slice(self, *slices: tuple[str, int], node: str = HOST) -> None:
        refuse: Any = pytest.fail
        machine = Machine(
            root=self.folder, run=self.run, metadata=refuse, services=refuse, post=refuse, listening=refuse,
            chown=refuse, now=lambda: 0.0, pause=refuse,
        )  # fmt: skip
        bundle = Bundle(digest="", etag="", tree=Path("/"), plan=a_plan(node, slices), bindings=None)
        answer = NodeAnswer(node=node, incarnation=0, controller="", heartbeat_s=0.0)
        mig.slice_gpus(machine, BootState(bundle=bundle, answer=answer))

    def found(self) -> list[list[str]]:
        state = json.loads((self.folder / "run/sandbox-mig.json").read_text())
        return [sorted(one["profile"] for one in state[str(gpu)]) for gpu in range(2)]

    def reboots(self) -> int:
        return self.calls.count(("systemctl", "reboot"))


def a_plan(node: str, slices: Sequence[tuple[str, int]]) -> SlurmPlan:
    plan = a_small_plan(gpus=2) if node == CLOUD else a_lab_plan(("count: 8", "count: 2"))
    sharing = Mig(slices=tuple(MigSlice(profile=profile, count=count) for profile, count in slices))
    pool = plan.pools[0]
    changed: Any = replace(pool, shape=replace(pool.shape, sharing=sharing))
    return replace(plan, pools=(changed,))


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    return Gpus(tmp_path, monkeypatch)


def test_each_slice_has_two_device_files_of_its_own(gpus: Gpus) -> None:
    gpus.slice(*MIXED)
    assert gpus.found() == [["1g.10gb"] * 4 + ["3g.40gb"]] * 2
    wanted = [file for one in gres.slices(a_plan(HOST, MIXED).pools[0].shape) for file in one.files[1:]]
    devices = {(gpus.folder / file.lstrip("/")).stat().st_rdev for file in wanted}
    assert len(devices) == len(wanted) == 2 * 5 * 2


def test_a_second_run_only_looks(gpus: Gpus) -> None:
    gpus.slice(*MIXED)
    gpus.calls.clear()
    gpus.slice(*MIXED)
    assert {call[-1] for call in gpus.calls} == {"-lgi"}


def test_other_slices_replace_the_old_ones(gpus: Gpus) -> None:
    """The real program destroys no GPU instance that has a compute instance."""
    gpus.slice(*MIXED)
    gpus.slice(*SMALL)
    assert gpus.found() == [["1g.10gb"] * 7] * 2


def test_slices_in_use_stay_and_are_named(gpus: Gpus) -> None:
    gpus.slice(*MIXED)
    gpus.faults(used=[1])
    with pytest.raises(StepError, match=r"GPU 1 keeps its MIG slices: .*In use by another client"):
        gpus.slice(*SMALL)
    assert gpus.found()[1] == ["1g.10gb"] * 4 + ["3g.40gb"]


def test_a_machine_of_the_cloud_reboots_once_for_a_pending_mode(gpus: Gpus) -> None:
    """Regression: an A100 of a virtual machine is not reset, so the mode waited for a boot that never came, and no node joined."""
    gpus.faults(passthrough=[0, 1])
    for _ in range(2):  # the agent tries again until the machine goes down
        with pytest.raises(NotYetError, match=r"pending enable state.*this machine reboots"):
            gpus.slice(*MIXED, node=CLOUD)
    assert gpus.reboots() == 1
    gpus.boot("two")
    gpus.slice(*MIXED, node=CLOUD)
    assert gpus.found() == [["1g.10gb"] * 4 + ["3g.40gb"]] * 2
    assert gpus.reboots() == 1
    assert not (gpus.folder / mig.REBOOTED.lstrip("/")).exists()


def test_a_mode_that_stays_pending_ends_the_boot(gpus: Gpus) -> None:
    gpus.faults(passthrough=[1])
    with pytest.raises(NotYetError):
        gpus.slice(*MIXED, node=CLOUD)
    gpus.boot("two")
    (gpus.folder / "etc/sandbox-mig-modes.json").unlink()
    gpus.faults(passthrough=[1])
    with pytest.raises(StepError, match=r"GPU 1 is not enabled.*this machine has rebooted for it once"):
        gpus.slice(*MIXED, node=CLOUD)
    assert gpus.reboots() == 1


def test_a_host_of_the_site_is_not_rebooted(gpus: Gpus) -> None:
    gpus.faults(busy=[0])
    with pytest.raises(StepError, match=r"GPU 0 is not enabled.*end what uses the GPUs, or reboot this host"):
        gpus.slice(*MIXED)
    assert gpus.reboots() == 0


def test_a_gpu_without_mig_ends_the_boot_with_its_words(gpus: Gpus) -> None:
    (gpus.folder / "etc/sandbox-gpus.json").write_text(json.dumps({"name": "NVIDIA L4"}))
    with pytest.raises(StepError, match="Not Supported"):
        gpus.slice(*MIXED, node=CLOUD)
    assert gpus.reboots() == 0
