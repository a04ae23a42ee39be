"""The health programs under real slurmds: a node that fails a check drains, its job ends elsewhere, and a limit holds."""

import json
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from real_slurm import USER, VERSIONS, RealSlurm
from support.builders import a_lab_plan

import gpucluster
from gpucluster.checks import health_wants, node_health
from gpucluster.files import shipped
from gpucluster.plan import codec, defaults, names
from gpucluster.plan.model import HostPool
from gpucluster.slurm import drains
from gpucluster.slurm.drains import DrainOwner

SITE = "/opt/gpucluster/venv/lib/python{}/site-packages/gpucluster"
SMI = (shipped("playbooks") / "stand-ins/nvidia-smi").read_text()
GPUS = {"name": "NVIDIA H100", "memory_mib": 81920, "nvlinks": 18}
BINARIES = Path(gpucluster.__file__).parent / "agent/units/opt/gpucluster/bin"


class Hospital(RealSlurm):
    """A cluster of hosts with our health programs, and GPUs that get faults by node."""

    def install(self) -> None:
        """Our package, its programs, the stand-in of nvidia-smi, and what the agent writes before slurmd starts."""
        python = self.must(
            "/usr/bin/python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"
        ).strip()
        self.write(
            "/opt/gpucluster/venv/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\n"
        )
        self.folder("/opt/gpucluster/venv/bin", "root")
        self.path("/opt/gpucluster/venv/bin/python").symlink_to("/usr/bin/python3")
        package = Path(gpucluster.__file__).parent
        for file in (
            p for p in package.rglob("*") if p.suffix in (".py", ".json") and "sandbox" not in p.parts
        ):
            self.write(f"{SITE.format(python)}/{file.relative_to(package)}", file.read_text())
        for program in sorted(BINARIES.glob("health_*")):
            self.write(f"{names.HOOK_DIR}/{program.name}", program.read_text(), mode=0o755)
        faults = 'FAULTS = "/lab/faults/" + os.uname().nodename'
        smi = SMI.replace('FAULTS = "/run/sandbox-gpu-faults.json"', faults)
        assert faults in smi
        self.write("/usr/bin/nvidia-smi", smi, mode=0o755)
        self.write("/etc/sandbox-gpus.json", json.dumps(GPUS))
        self.folder("/lab/faults", "root")
        self.write("/lab/kernel.log", "")
        pool = self.plan.pools[0]
        there = {names.KERNEL_LOG_VARIABLE: "/lab/kernel.log", names.FABRIC_VARIABLE: "/lab/fabric"}
        for port in range(health_wants.ports_of(pool)):
            self.write(f"/lab/fabric/mlx5_{port}/ports/1/state", "4: ACTIVE\n")
        found = health_wants.settings(self.plan, pool, "gpu01", there)
        self.write(names.HEALTH_FILE, codec.dumps(found))

    def break_gpu(self, node: str, **faults: object) -> None:
        self.write(f"/lab/faults/{node}", json.dumps(faults))

    def node(self, name: str) -> dict[str, str]:
        return self.show("node", name)[0]

    def reason(self, name: str) -> str:
        found = json.loads(self.must("scontrol", "show", "node", name, "--json"))["nodes"][0]
        return str(found["reason"])

    def drained(self) -> list[str]:
        nodes = json.loads(self.must("scontrol", "show", "nodes", "--json"))["nodes"]
        return [n["name"] for n in nodes if "DRAIN" in n["state"]]


CHECKED = (
    ("\npools:", "\nhealth: {every: 1m}\npools:"),
    ("memory: 2000GiB", "memory: 8GiB"),  # the checks read the memory of this host
    (
        "gpus: {model: h100, count: 8}",
        "gpus: {model: h100, count: 8, memory: 80GiB}, fabric: {kind: infiniband, ports: 2}",
    ),
)
WITH_HOME = a_lab_plan(*CHECKED)
PLAN = a_lab_plan(*CHECKED, ("storage:\n  - {mount: /home, nfs: {from: head, export: /srv/home}}\n", ""))
NODES = ("gpu01", "gpu02", "gpu03", "gpu04")
ECC = {"ecc": {"3": 2}}
HANGS = {"hang": True}
LIMIT_S = 30  # PrologEpilogTimeout of one test: longer than the programs take on a busy machine


def _up(slurm: Hospital, *nodes: str) -> None:
    slurm.start_nodes(*nodes)
    listed = ",".join(nodes)
    slurm.wait(
        lambda: (
            slurm.run("sinfo", "-h", "-N", "-n", listed, "-t", "idle", "-o", "%N").out.split() == list(nodes)
        ),
        "idle nodes",
    )


def _prolog_slurmctld_reaches_its_limit(slurm: Hospital) -> None:
    """A batch job is requeued, and a job of srun is cancelled; no node drains (S42). The first run of the program hangs."""
    program = "/lab/prolog_slurmctld"
    hangs = "#!/bin/sh\necho $SLURM_JOB_ID >>/lab/starts\n[ $(wc -l </lab/starts) = {} ] || exit 0\nexec sleep 100000\n"
    slurm.write("/lab/starts", "", mode=0o666)
    conf = slurm.path("/etc/slurm/slurm.conf")
    others = ("PrologEpilogTimeout=", "Prolog=", "Epilog=")  # the programs of the nodes have the same limit
    kept = [line for line in conf.read_text().splitlines() if not line.startswith(others)]
    conf.write_text("\n".join([*kept, f"PrologSlurmctld={program}", "PrologEpilogTimeout=2", ""]))
    slurm.write(program, hangs.format(1), mode=0o755)
    slurm.must("scontrol", "reconfigure")
    drained = slurm.drained()
    job = slurm.must("sbatch", "--parsable", "-o", "/dev/null", "--wrap", "true", user=USER).strip()

    def shown() -> dict[str, Any]:
        return json.loads(slurm.must("scontrol", "show", "job", job, "--json"))["jobs"][0]

    slurm.wait(lambda: shown()["restart_cnt"] == 1, "the job is requeued")
    assert shown()["job_state"] == ["PENDING"]
    slurm.must("scancel", job)
    assert slurm.path("/lab/starts").read_text().split() == [job]
    slurm.write(program, hangs.format(2), mode=0o755)
    ended = slurm.run("srun", "-n1", "echo", "ran", user=USER)
    assert (ended.code != 0, ended.out) == (True, ""), ended
    assert "PrologSlurmctld failed, job killed" in ended.err
    assert slurm.log("slurmctld").count("failed due to timing out") == 2
    assert slurm.drained() == drained


@pytest.mark.parametrize("version", VERSIONS)
def test_a_failed_prolog_drains_one_node_and_the_job_ends_elsewhere(version: str) -> None:
    """Afterwards the same cluster shows the limit of PrologSlurmctld."""
    soon = replace(PLAN, times=replace(PLAN.times, cred_expire_s=6))  # a requeued job waits for it
    with Hospital(version, soon, gpus=8) as slurm:
        slurm.install()
        slurm.start_controller()
        _up(slurm, *NODES)
        assert slurm.drained() == []
        slurm.break_gpu("gpu04", **ECC)
        slurm.must("sbatch", "-N1", "--gpus-per-node=8", "-o", "/tmp/out", "--wrap", "hostname", user=USER)
        slurm.wait(lambda: slurm.run("squeue", "-h").out == "", "the job has ended")
        assert slurm.path("/tmp/out").read_text() == "gpu03\n"
        assert slurm.drained() == ["gpu04"]
        assert slurm.reason("gpu04") == (
            "gpucluster: [health] gpu.ecc: GPU 3 has 2 uncorrectable ECC errors, expected no uncorrectable ECC error"
        )
        job = json.loads(slurm.must("scontrol", "show", "jobs", "--json"))["jobs"][0]
        assert (job["restart_cnt"], job["job_state"]) == (1, ["COMPLETED"])
        _prolog_slurmctld_reaches_its_limit(slurm)


def _replace(slurm: Hospital, node: str, path: str, text: str) -> None:
    """Let this node alone have another text in the program."""
    other = f"/lab/{node}/{Path(path).name}"
    slurm.write(other, text, mode=0o755)
    slurm.must("mount", "--bind", other, path, node=node)


def _by_slurmd(slurm: Hospital, node: str) -> None:
    _replace(slurm, node, names.HEALTH_PROLOG, "#!/bin/sh\nexec sleep 100000\n")


def _by_our_program(slurm: Hospital, node: str) -> None:
    """Let each read of the programs' settings hang, as a file server without an answer does. Shorten their limit there."""
    slurm.must("mkfifo", "/lab/hangs")
    slurm.must("mount", "--bind", "/lab/hangs", names.HEALTH_FILE, node=node)
    for path in (names.HEALTH_PROLOG, names.HEALTH_EPILOG):
        text = (BINARIES / Path(path).name).read_text()
        short = text.replace(f"signal.alarm({defaults.PROLOG_PROGRAM_S})", "signal.alarm(1)")
        assert short != text
        _replace(slurm, node, path, short)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("hang", "ended"),
    [
        (_by_slurmd, f"prolog poll timeout @ {LIMIT_S}000 msec"),
        (_by_our_program, f"prolog killed by signal {signal.SIGALRM.value}"),
    ],
    ids=["ended by slurmd", "ended by itself"],
)
def test_a_prolog_that_hangs_drains_its_node_and_the_job_ends_elsewhere(
    version: str, hang: Callable[[Hospital, str], None], ended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a limit the job stood on the node until its own time limit. Both limits are shortened here."""
    monkeypatch.setattr(defaults, "PROLOG_LIMIT_S", defaults.Default(LIMIT_S, "for this test"))
    soon = replace(PLAN, times=replace(PLAN.times, cred_expire_s=6))
    with Hospital(version, soon, gpus=8) as slurm:
        slurm.install()
        slurm.start_controller()
        _up(slurm, "gpu01")
        hang(slurm, "gpu01")
        slurm.must("sbatch", "-N1", "--gpus-per-node=8", "-o", "/tmp/out", "--wrap", "hostname", user=USER)
        slurm.wait(lambda: slurm.run("squeue", "-h", "-o", "%N").out == "gpu01\n", "the job has the node")
        _up(slurm, "gpu02")  # later: Slurm chooses the last of two idle nodes
        slurm.wait(lambda: slurm.run("squeue", "-h").out == "", "the job has ended")
        assert slurm.path("/tmp/out").read_text() == "gpu02\n"
        found = json.loads(slurm.must("scontrol", "show", "node", "gpu01", "--json"))["nodes"][0]
        assert "DRAIN" in found["state"]
        assert found["reason"] == "Prolog error"
        owner = drains.drain_owner(found["reason"], found["reason_set_by_user"], drained=True)
        assert owner is DrainOwner.SLURM
        job = json.loads(slurm.must("scontrol", "show", "jobs", "--json"))["jobs"][0]
        assert (job["restart_cnt"], job["job_state"]) == (1, ["COMPLETED"])
        assert ended in slurm.node_log("gpu01")


@pytest.mark.parametrize("version", VERSIONS)
def test_an_epilog_that_hangs_drains_its_node_and_the_job_has_ended_well(version: str) -> None:
    """The import of the program hangs here, so only the limit that it sets first can end it."""
    text = (BINARIES / "health_epilog").read_text()
    hangs = re.sub(r"^from gpucluster.*$", "import time; time.sleep(100000)", text, flags=re.M)
    hangs = hangs.replace(f"signal.alarm({defaults.PROLOG_PROGRAM_S})", "signal.alarm(1)")
    assert "signal.alarm(1)" in hangs.partition("time.sleep")[0]
    with Hospital(version, PLAN, gpus=8) as slurm:
        slurm.install()
        slurm.start_controller()
        _up(slurm, "gpu01")
        _replace(slurm, "gpu01", names.HEALTH_EPILOG, hangs)
        slurm.must("sbatch", "-N1", "--gpus-per-node=8", "-o", "/dev/null", "--wrap", "true", user=USER)
        slurm.wait(lambda: slurm.drained() == ["gpu01"], "gpu01 is drained")
        assert slurm.reason("gpu01") == "Epilog error"
        job = json.loads(slurm.must("scontrol", "show", "jobs", "--json"))["jobs"][0]
        assert (job["restart_cnt"], job["exit_code"]["return_code"]["number"]) == (0, 0)
        assert f"epilog killed by signal {signal.SIGALRM.value}" in slurm.node_log("gpu01")


@pytest.mark.parametrize("version", VERSIONS)
def test_no_more_than_the_limit_of_a_pool_drains_when_all_fail_at_once(version: str) -> None:
    """Four Prologs at the same time find nvidia-smi without an answer: at most one node drains, and every job ends."""
    with Hospital(version, PLAN, gpus=8) as slurm:
        slurm.install()
        slurm.start_controller()
        _up(slurm, *NODES)
        for node in NODES:
            slurm.break_gpu(node, **HANGS)
        for _ in NODES:
            slurm.must("sbatch", "-N1", "--gpus-per-node=8", "-o", "/dev/null", "--wrap", "true", user=USER)
        slurm.wait(lambda: slurm.run("squeue", "-h").out == "", "the jobs have ended")
        drained = slurm.drained()
        assert len(drained) <= 1
        jobs = json.loads(slurm.must("scontrol", "show", "jobs", "--json"))["jobs"]
        assert [job["job_state"] for job in jobs] == [["COMPLETED"]] * 4
        nodes = json.loads(slurm.must("scontrol", "show", "nodes", "--json"))["nodes"]
        comments = [node["comment"] for node in nodes if node["name"] not in drained]
        assert sum("unhealthy, and not drained, because" in comment for comment in comments) >= 2


@pytest.mark.parametrize("version", VERSIONS)
def test_the_program_of_idle_nodes_drains_at_the_start_of_slurmd(version: str) -> None:
    """slurmd runs HealthCheckProgram when it starts. A person's drain keeps its reason."""
    with Hospital(version, PLAN, gpus=8) as slurm:
        slurm.install()
        slurm.start_controller()
        slurm.break_gpu("gpu02", **ECC)
        slurm.break_gpu("gpu03", print="no CSV\n")
        slurm.must("scontrol", "update", "nodename=gpu03", "state=drain", "reason=broken fan")
        slurm.start_nodes(*NODES)
        slurm.wait(lambda: "gpu02" in slurm.drained(), "gpu02 is drained")
        assert slurm.drained() == ["gpu02", "gpu03"]
        assert slurm.reason("gpu03") == "broken fan"
        told = slurm.must(names.HEALTH_CHECK, "--report", node="gpu02")
        rows = {line.split("\t")[0]: line.split("\t")[1] for line in told.splitlines()}
        assert [check for check, verdict in rows.items() if verdict != "pass"] == ["gpu.ecc"]


@dataclass(frozen=True)
class Bad:
    """A bad answer of one check: what is done to the node, what undoes it, and what the reason says."""

    check: str
    words: str
    plant: str
    heal: str


def _gpu(faults: str) -> tuple[str, str]:
    return f"echo '{faults}' >/lab/faults/gpu01", "rm /lab/faults/gpu01"


PORT = "/lab/fabric/mlx5_1/ports/1/state"
BAD = (
    Bad("gpu.count", "nvidia7 missing", "rm /dev/nvidia7", "mknod -m 666 /dev/nvidia7 c 195 7"),
    Bad("gpu.smi", "nvidia-smi lists 7 GPUs", *_gpu('{"lost": [3]}')),
    Bad("gpu.ecc", "GPU 3 has 2 uncorrectable ECC errors", *_gpu('{"ecc": {"3": 2}}')),
    Bad("gpu.remap", "has a pending row remapping", *_gpu('{"pending": [3]}')),
    Bad("gpu.clocks", "GPU 3 is slowed, reasons 0x40", *_gpu('{"clocks": {"3": "0x40"}}')),
    Bad("nvl.links", "GPU 3 has 17 active links", *_gpu('{"links": {"3": 17}}')),
    Bad("xid.scan", "XID 79 on", "echo 'NVRM: Xid (PCI:0000:3b:00): 79, pid=1, fell off' >/lab/kernel.log", ": >/lab/kernel.log"),
    Bad("fs.mount", "/home", "umount /home", "mount -t tmpfs none /home"),
    Bad("fabric.ports", "1 active ports of 2", f"echo '1: DOWN' >{PORT}", f"echo '4: ACTIVE' >{PORT}"),
    Bad("mem.total", "1000 MiB of memory", "mount --bind /lab/meminfo /proc/meminfo", "umount /proc/meminfo"),
)  # fmt: skip


def _with_links(pool: HostPool) -> HostPool:
    """The hosts of the plan with NVLink. A spec of hosts does not say how many links a GPU has."""
    return replace(pool, shape=replace(pool.shape, nvlinks=18))


@pytest.mark.parametrize("version", VERSIONS)
def test_each_check_drains_the_node_with_its_own_words(version: str) -> None:
    """A bad answer of each check on a real node: slurmctld shows the drain and our reason, and the healthy node passes."""
    plan = replace(WITH_HOME, pools=tuple(_with_links(pool) for pool in WITH_HOME.pools))
    settings = health_wants.settings(plan, plan.pools[0], "gpu01", {})
    assert {bad.check for bad in BAD} == {check.id for check, _ in node_health.wanted(settings)}
    with Hospital(version, plan, gpus=8) as slurm:
        slurm.install()
        slurm.write("/lab/meminfo", "MemTotal: 1024000 kB\n")
        slurm.must(
            "mount", "-t", "tmpfs", "none", "/home"
        )  # before slurmd, whose node has the mounts of that time
        slurm.start_controller()
        _up(slurm, "gpu01")
        for bad in BAD:
            slurm.must("sh", "-c", bad.plant, node="gpu01")
            slurm.must(names.HEALTH_CHECK, node="gpu01")
            assert slurm.drained() == ["gpu01"], bad.check
            assert slurm.reason("gpu01").startswith(f"gpucluster: [health] {bad.check}: "), slurm.reason(
                "gpu01"
            )
            assert bad.words in slurm.reason("gpu01")
            slurm.must("sh", "-c", bad.heal, node="gpu01")
            slurm.must("scontrol", "update", "nodename=gpu01", "state=undrain")
            slurm.must(names.HEALTH_CHECK, node="gpu01")
            assert slurm.drained() == [], f"healed: {bad.check}"
