"""The stand-in of nvidia-smi: it says what it is, refuses what it does not know, and our parsers read its faults."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpucluster.checks.check import QueryOutput
from gpucluster.checks.health import GpuWant
from gpucluster.checks.node_health import NODE_CHECKS
from gpucluster.files import shipped
from gpucluster.sandbox.machines import gpu_facts

WANT = GpuWant(count=8, memory_mib=144384, nvlinks=18)


class Smi:
    """The stand-in on a machine of its own, a p5en.48xlarge."""

    def __init__(self, folder: Path) -> None:
        self.folder, text = folder, (shipped("playbooks") / "stand-ins/nvidia-smi").read_text()
        for path in ("/run/", "/etc/"):
            text = text.replace(f'"{path}', f'"{folder}/')
        self.program = folder / "nvidia-smi"
        self.program.write_text(text.replace('DEV = "/dev"', f'DEV = "{folder}"'))
        for gpu in range(8):
            (folder / f"nvidia{gpu}").touch()
        (folder / "sandbox-gpus.json").write_text(gpu_facts.of_type("p5en.48xlarge"))

    def faults(self, **faults: object) -> None:
        (self.folder / "sandbox-gpu-faults.json").write_text(json.dumps(faults))

    def run(self, *argv: str) -> QueryOutput:
        done = subprocess.run(
            [sys.executable, "-IS", self.program, *argv], capture_output=True, text=True, check=False
        )
        return QueryOutput(code=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def verdict(self, check: str) -> Any:
        row = NODE_CHECKS[check]
        return row.evaluate(row.parse(tuple(self.run(*q.argv[1:]) for q in row.query(WANT))), WANT)


CHECKS = ("gpu.smi", "gpu.ecc", "gpu.remap", "gpu.clocks", "nvl.links")


@pytest.fixture
def smi(tmp_path: Path) -> Smi:
    return Smi(tmp_path)


def test_a_healthy_machine_passes_every_check(smi: Smi) -> None:
    assert [smi.verdict(check).is_healthy for check in CHECKS] == [True] * 5


@pytest.mark.parametrize(
    ("faults", "failed"),
    [
        ({"lost": [3]}, {"gpu.smi", "nvl.links"}),
        ({"memory": {"3": 1000}}, {"gpu.smi"}),
        ({"ecc": {"3": 2}}, {"gpu.ecc"}),
        ({"pending": [3]}, {"gpu.remap"}),
        ({"failure": [3]}, {"gpu.remap"}),
        ({"clocks": {"3": "0x40"}}, {"gpu.clocks"}),
        ({"links": {"3": 17}}, {"nvl.links"}),
        ({"unreadable": [3]}, {"gpu.smi", "gpu.ecc", "gpu.remap", "gpu.clocks"}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_fault_fails_its_own_checks(smi: Smi, faults: dict[str, object], failed: set[str]) -> None:
    smi.faults(**faults)
    assert {check for check in CHECKS if not smi.verdict(check).is_healthy} == failed


def test_it_says_that_it_is_a_stand_in(smi: Smi) -> None:
    assert "stand-in" in smi.run("--query-gpu=name", "--format=csv,noheader,nounits").stdout
    assert "stand-in" in smi.run("-q").stdout


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("--query-gpu=index,color", "--format=csv,noheader,nounits"), 2),
        (("--query-gpu=index",), 2),
        (("--gpu-reset",), 2),
        (("mig", "-i", "0", "-cgi", "1g.18gb", "-C"), 6),  # MIG is off
        (("-i", "9", "-mig", "1"), 6),
    ],
)
def test_it_refuses_what_it_does_not_know(smi: Smi, argv: tuple[str, ...], code: int) -> None:
    assert smi.run(*argv).code == code


def test_slices_that_do_not_fit_are_refused(smi: Smi) -> None:
    assert smi.run("-i", "0", "-mig", "1").code == 0
    assert smi.run("mig", "-i", "0", "-cgi", "3g.71gb,3g.71gb", "-C").code == 0
    assert "Insufficient Resources" in smi.run("mig", "-i", "0", "-cgi", "1g.18gb", "-C").stdout
    assert "Invalid Argument" in smi.run("mig", "-i", "0", "-cgi", "1g.10gb", "-C").stdout
    assert smi.run("-i", "0", "-mig", "0").code == 19  # slices are there


def test_a_gpu_instance_with_a_compute_instance_is_not_destroyed(smi: Smi) -> None:
    """Words of the real program: in use by another client is the compute instance."""
    of_gpu = ("mig", "-i", "0")
    assert (smi.run(*of_gpu, "-lgi").code, smi.run(*of_gpu, "-dgi").code) == (6, 6), "MIG is off"
    smi.run("-i", "0", "-mig", "1")
    assert smi.run(*of_gpu, "-lgi").stdout == "No GPU instances found: Not Found\n"
    smi.run(*of_gpu, "-cgi", "3g.71gb", "-C")
    refused = smi.run(*of_gpu, "-dgi")
    words = "Unable to destroy GPU instance ID  1 from GPU  0: In use by another client\nFailed to destroy GPU instances: In use by another client\n"
    assert (refused.code, refused.stdout) == (19, words)
    smi.faults(used=[0])
    assert smi.run(*of_gpu, "-dci").code == 19
    smi.faults()
    assert (
        smi.run(*of_gpu, "-dci").stdout
        == "Successfully destroyed compute instance ID  0 from GPU  0 GPU instance ID  1\n"
    )
    assert smi.run(*of_gpu, "-dgi").code == 0
    assert smi.run(*of_gpu, "-dgi").stdout == "No GPU instances found: Not Found\n"


@pytest.mark.parametrize("fault", ["busy", "passthrough"])
def test_a_gpu_that_is_not_reset_has_its_mode_after_a_boot(smi: Smi, fault: str) -> None:
    smi.faults(**{fault: [0]})
    done = smi.run("-i", "0", "-mig", "1")
    assert done.code == 0
    assert done.stdout.startswith("Warning: MIG mode is in pending enable state for GPU 00000000:10:00.0:")
    assert smi.run("mig", "-i", "0", "-cgi", "3g.71gb", "-C").stdout == "No MIG-enabled devices found.\n"
    for name in ("sandbox-gpu-faults.json", "sandbox-mig-boot"):
        (smi.folder / name).unlink()  # a boot empties /run
    assert smi.run("mig", "-i", "0", "-cgi", "3g.71gb", "-C").code == 0
