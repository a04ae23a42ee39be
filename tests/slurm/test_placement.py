"""Where slurmctld places jobs on powered-down cloud nodes: Features, Weights, and partitions that refuse or limit jobs."""

from collections.abc import Iterator

import pytest
from real_slurm import USER, VERSIONS, RealSlurm
from support.builders import a_lab_plan, a_plan

SPEC = (
    (
        "    nodes: {min: 0, max: 16}",
        "    nodes: {min: 2, max: 6}",
    ),
    (
        "      - {from: spot, machines: [p5en.48xlarge, p5e.48xlarge]}\n      - {from: on-demand, machines: [p5en.48xlarge], max: 4}\n",
        "      - {from: spot, machines: [p5en.48xlarge]}\n"
        "  - {name: any, nodes: {min: 0, max: 2}, capacity: [{from: spot, machines: [p5e.48xlarge]}, {from: on-demand, machines: [p5en.48xlarge]}]}\n"
        "  - {name: cpu, nodes: {min: 0, max: 4}, capacity: [{from: on-demand, machines: [m7i.2xlarge]}]}\n",
    ),
    (
        "  - {name: gpu, pools: [h200], default: true, max_time: 1d}\n",
        "  - {name: gpu, pools: [h200, any], default: true, max_time: 1d}\n"
        "  - {name: mixed, pools: [h200, cpu]}\n"
        "  - {name: prep, pools: [h200], max_cpus_per_node: 16}\n",
    ),
)
REFUSED = "the partition gpu takes only jobs with GPUs: request GPUs, for example --gpus=1, or use --partition=mixed"
ALWAYS_ON = ["h200-2a-1", "h200-2a-2"]


@pytest.fixture(params=VERSIONS)
def slurm(request: pytest.FixtureRequest) -> Iterator[RealSlurm]:
    with RealSlurm(request.param, a_plan(*SPEC)) as found:
        found.start_controller()
        yield found
        assert found.errors() == []


@pytest.fixture
def jobs(slurm: RealSlurm) -> "Jobs":
    return Jobs(slurm)


class Jobs:
    """Submit jobs of a user, and see where slurmctld places them."""

    def __init__(self, slurm: RealSlurm) -> None:
        self.slurm = slurm

    def refusal(self, *options: str) -> str:
        done = self.slurm.run("sbatch", *options, "-o", "/dev/null", "--wrap", "true", user=USER)
        assert done.code != 0, f"{options} was accepted: {done.out}"
        return done.err

    def submit(self, *options: str) -> str:
        argv = ("sbatch", "--parsable", *options, "-o", "/dev/null", "--wrap", "sleep 600")
        return self.slurm.must(*argv, user=USER).strip()

    def placed(self, *options: str) -> list[str]:
        """The nodes of a new job."""
        job = self.submit(*options)
        nodes = self.slurm.wait(lambda: self._show(job, "%N"), f"job {job} has nodes")
        return self.slurm.must("scontrol", "show", "hostnames", nodes).split()

    def _show(self, job: str, what: str) -> str:
        return self.slurm.run("squeue", "-h", "-j", job, "-o", what).out.strip()


def test_a_partition_of_gpus_refuses_jobs_without_gpus(jobs: Jobs) -> None:
    for options in (
        ["-n1"],
        ["--exclusive"],
        ["--gres=gpu:0"],
        ["-G", "0"],
        ["-p", "gpu,mixed"],
        ["-n1", ":", "--gpus=1"],
    ):
        assert REFUSED in jobs.refusal(*options), options


def test_it_takes_every_form_of_a_request_for_gpus(jobs: Jobs) -> None:
    for options in (
        ["--gpus=2"],
        ["--gpus=h200:2"],
        ["--gres=gpu"],
        ["--gres=gpu:h200"],
        ["--gpus-per-node=h200:1"],
        ["--gpus-per-task=1", "-n2"],
        ["--tres-per-task=cpu=2,gres/gpu:1", "-n1"],
        ["-p", "mixed", "-n1"],
        ["-p", "prep", "-n1"],
    ):
        jobs.submit("--hold", *options)


def test_a_job_without_gpus_cannot_be_moved_there(jobs: Jobs, slurm: RealSlurm) -> None:
    job = jobs.submit("--hold", "-p", "prep", "-n1")
    slurm.must("scontrol", "update", f"jobid={job}", "comment=mine")
    done = slurm.run("scontrol", "update", f"jobid={job}", "partition=gpu")
    assert done.code != 0
    assert REFUSED in done.err
    assert slurm.must("squeue", "-h", "-j", job, "-o", "%P").strip() == "prep"


def test_a_limit_of_cpus_holds_for_each_node_and_for_memory(jobs: Jobs) -> None:
    """16 CPUs of a node for jobs of 8: the third job goes to the next node, and a job with GPUs still fits on the first."""
    first = [jobs.placed("-p", "prep", "-c8") for _ in range(2)]
    assert first == [["h200-2a-1"], ["h200-2a-1"]]
    assert jobs.placed("-p", "prep", "-c8") == ["h200-2a-2"]
    assert jobs.placed("-p", "gpu", "--gpus=8", "-c96", "-w", "h200-2a-1") == ["h200-2a-1"]
    assert "node configuration" in jobs.refusal("-p", "prep", "-n1", "--mem=0")


def test_always_on_nodes_go_first(jobs: Jobs) -> None:
    """The slots of `min` have the lower Weight, also while all are powered down. A gang stays in one zone."""
    assert jobs.placed("-N1", "--gpus-per-node=8", "-p", "mixed") == ALWAYS_ON[:1]
    assert jobs.placed("-N1", "--gpus-per-node=8", "-p", "mixed") == ALWAYS_ON[1:]
    assert jobs.placed("-N1", "--gpus-per-node=8", "-p", "mixed")[0] not in ALWAYS_ON


def test_a_gang_has_the_always_on_nodes_of_its_zone(jobs: Jobs) -> None:
    found = jobs.placed("-N3", "--gpus-per-node=8", "-C", "p5en.48xlarge", "-w", "h200-2a-1")
    assert found == ["h200-2a-1", "h200-2a-2", "h200-2a-3"]


def test_jobs_without_gpus_go_to_nodes_without_gpus_first(jobs: Jobs) -> None:
    assert jobs.placed("-p", "mixed", "-n1")[0].startswith("cpu-")


def test_a_job_gets_nodes_with_the_features_that_it_requires(jobs: Jobs) -> None:
    for feature in ("h200&spot", "spot", "p5en.48xlarge", "spot|on-demand"):
        assert jobs.placed("--gpus=1", "-C", feature)[0].startswith("h200-"), feature


def test_a_pool_of_several_markets_has_only_the_features_of_all(jobs: Jobs) -> None:
    """Market and machine type of `any` are decided at each launch, so no job may require them there."""
    assert jobs.placed("--gpus=1", "-C", "any&h200")[0].startswith("any-")
    assert "feature" in jobs.refusal("--gpus=1", "-C", "any&spot") + jobs.refusal(
        "--gpus=1", "-C", "p5e.48xlarge"
    )
    assert "Invalid feature specification" in jobs.refusal("--gpus=1", "-C", "h100")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("nvlink", "second"), [("", "1-2"), (", nvlink: 2", "2-3"), (", nvlink: 4", "1-2")])
def test_a_job_gets_gpus_that_nvlink_joins(version: str, nvlink: str, second: str) -> None:
    """Beside a job on GPU 0 of two pairs, a job of two GPUs gets the free pair. Without Links it gets the next two."""
    plan = a_lab_plan(
        ("sockets: 2, cores_per_socket: 56", "sockets: 1, cores_per_socket: 56"),
        ("count: 8", f"count: 4{nvlink}"),
    )
    with RealSlurm(version, plan) as slurm:
        slurm.start_controller()
        slurm.start_nodes("gpu01")
        slurm.wait(lambda: "idle" in slurm.run("sinfo", "-h", "-n", "gpu01", "-o", "%t").out, "an idle node")
        jobs = Jobs(slurm)
        assert jobs.placed("--gpus=1", "-w", "gpu01") == ["gpu01"]
        job = jobs.submit("--gpus=2", "-N1", "-w", "gpu01")
        slurm.wait(lambda: "IDX" in slurm.must("scontrol", "-d", "show", "job", job), "the job has GPUs")
        shown = slurm.must("scontrol", "-d", "show", "job", job)
        assert f"(IDX:{second})" in shown
        assert slurm.errors() == []
