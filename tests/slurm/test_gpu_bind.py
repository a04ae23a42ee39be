"""`--gpu-bind=closest` with the rendered gres.conf: each task sees the GPUs of the socket on whose cores it runs.

slurmd binds tasks to the cores of this host, so the machine of the plan has this host's cores, as two sockets. task/affinity
alone binds them: it needs no control groups.
"""

import re
from collections.abc import Iterator

import pytest
from real_slurm import FOR_SLURMD, USER, VERSIONS, RealSlurm
from support.builders import a_lab_plan

from gpucluster.plan import names
from gpucluster.plan.model import SlurmOnHosts

TASK = 'echo "$SLURM_LOCALID $CUDA_VISIBLE_DEVICES"'


def a_plan_of_this_host(version: str) -> SlurmOnHosts:
    """Two GPUs, one on each socket. More would need more cores: a job takes at least one CPU for each GPU."""
    with RealSlurm(version, a_lab_plan(), nodes=False) as slurm:
        words = slurm.must("slurmd", "-C").split()
    found = dict(word.split("=", 1) for word in words if "=" in word)
    threads = int(found["ThreadsPerCore"])
    cores = int(found["CPUs"]) // threads
    if cores < 2:
        pytest.skip("this host has one core: a second socket would have none")
    hardware = f"cores_per_socket: {cores // 2}, threads_per_core: {threads}, memory: 8GiB"
    return a_lab_plan(
        ("count: 8", "count: 2"), ("cores_per_socket: 56, threads_per_core: 2, memory: 2000GiB", hardware)
    )


@pytest.fixture(params=VERSIONS)
def slurm(request: pytest.FixtureRequest) -> Iterator[RealSlurm]:
    with RealSlurm(request.param, a_plan_of_this_host(request.param)) as found:
        path = f"{names.SLURM_ETC}/slurm.conf"
        found.write(path, f"{found.path(path).read_text()}TaskPlugin=task/affinity\n")
        found.start_controller()
        found.start_nodes("gpu01")
        found.wait(lambda: "idle" in found.run("sinfo", "-h", "-n", "gpu01", "-o", "%t").out, "an idle node")
        yield found
        assert found.errors() == []


def visible(slurm: RealSlurm, *options: str) -> list[str]:
    """The GPUs that each of two tasks sees. Each task has the cores of one socket."""
    argv = ("-w", "gpu01", "-n2", "--ntasks-per-socket=1", "--cpu-bind=sockets", "--gpus=2", "--mem=100")
    out = slurm.must("srun", *argv, *options, "bash", "-c", TASK, user=USER)
    return sorted(out.splitlines())


def test_each_task_sees_the_gpus_of_its_socket(slurm: RealSlurm) -> None:
    assert visible(slurm, "--gpu-bind=closest") == ["0 0", "1 1"]
    assert visible(slurm, "--gpu-bind=none") == ["0 0,1", "1 0,1"]
    _autodetect_without_nvml_changes_nothing(slurm)


def _autodetect_without_nvml_changes_nothing(slurm: RealSlurm) -> None:
    """Lines with File are enough on hosts. A line without it, which NVML would complete, leaves no GPU on Debian's slurmd (S22)."""
    path = f"{FOR_SLURMD}/gres.conf"
    text = slurm.path(path).read_text()

    def gpus(text: str) -> tuple[list[str], bool]:
        slurm.write(path, text)
        told = slurm.gres_of("gpu01")
        assert told.code == 0, told.err
        return re.findall(r"Gres Name=gpu (.*)", told.err), "We were configured" in told.err

    rendered, asked = gpus(text)
    assert (len(rendered), asked) == (2, False)
    with_nvml = text.replace("AutoDetect=off", "AutoDetect=nvml")
    assert gpus(with_nvml) == (rendered, True)
    assert gpus(re.sub(r" (File|Cores|Flags)=\S+", "", with_nvml)) == ([], True)
    slurm.write(path, text)


def test_without_cores_closest_means_nothing(slurm: RealSlurm) -> None:
    """The control: the same task sees all GPUs if gres.conf does not say which cores are near to which GPU."""
    path = f"{names.SLURM_ETC}/gres.conf"
    text = slurm.path(path).read_text()
    without = " ".join(word if not word.startswith("Cores=") else "" for word in text.split(" "))
    assert without != text
    slurm.write(path, without)
    slurm.stop_nodes("gpu01")
    slurm.stop_controller()
    slurm.start_controller()
    slurm.start_nodes("gpu01")
    slurm.wait(lambda: "idle" in slurm.run("sinfo", "-h", "-n", "gpu01", "-o", "%t").out, "an idle node")
    assert visible(slurm, "--gpu-bind=closest") == ["0 0,1", "1 0,1"]
