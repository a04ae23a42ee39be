"""Job templates: golden files of the stacks, values of a partition, shellcheck, and the variables of each template."""

import re
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest
from jinja2 import meta
from support.builders import a_lab_plan, a_plan, on_aws, on_hosts
from support.golden_tree import Golden

from gpucluster import catalog, spec
from gpucluster.files import shipped
from gpucluster.plan.model import SlurmPlan
from gpucluster.plan.resolve import resolve
from gpucluster.slurm.config import jobs
from gpucluster.slurm.config.render import environment

STACKS = Path(__file__).parents[3] / "stacks"
TEMPLATES = shipped("templates") / "slurm/jobs"
HEARTBEAT = ("idle: 5m", "idle: 5m\n    job_heartbeat: {after: 10m}")


def scripts(plan: SlurmPlan, partition: str | None = None) -> dict[str, str]:
    place = jobs.partition_of(plan, partition)
    made = [jobs.render(plan, place, one.name) for one in jobs.available(plan, place)]
    return {one.path: one.content.decode() for one in made}


def stack(name: str) -> SlurmPlan:
    plan = resolve(spec.load(STACKS / f"{name}.yaml"), catalog.load())
    return on_hosts(plan) if name == "lab" else on_aws(plan)


@pytest.mark.parametrize("name", ["research", "lab"])
def test_scripts_of_a_stack_match_golden_files(golden: Golden, name: str) -> None:
    """research: EFA, Lustre and NVMe; lab: InfiniBand and existing hosts."""
    golden(f"jobs/{name}", {path: text.encode() for path, text in scripts(stack(name)).items()})


def test_every_template_has_a_row_and_only_known_variables() -> None:
    on_disk = {path.name.removesuffix(".j2") for path in TEMPLATES.iterdir()}
    assert on_disk == {one.file for one in jobs.TEMPLATES}
    known = {field.name for field in fields(jobs.Job)}
    used: set[str] = set()
    for path in TEMPLATES.iterdir():
        found = meta.find_undeclared_variables(environment().parse(path.read_text()))
        assert found <= known, path.name
        used |= found
    assert used == known, "no value is computed for nothing"


def test_shellcheck_finds_nothing(tmp_path: Path) -> None:
    program = shutil.which("shellcheck")
    if program is None:
        pytest.skip("shellcheck is not installed: apt-get install shellcheck")
    plans = {"heartbeat": a_plan(HEARTBEAT), "lab": a_lab_plan(), "cpus": a_lab_plan(NO_GPUS)}
    for name, plan in plans.items():
        for path, text in scripts(plan).items():
            (tmp_path / f"{name}-{path}").write_text(text)
    files = sorted(map(str, tmp_path.iterdir()))
    done = subprocess.run([program, "--severity=style", *files], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert len(files) == 8 + 8 + 6


NO_GPUS = (", gpus: {model: h100, count: 8}", "")


@pytest.mark.parametrize(("most", "cpus"), [("", "28"), (", max_cpus_per_node: 64", "8")])
def test_cpus_of_a_rank_are_within_the_limit_of_the_partition(most: str, cpus: str) -> None:
    plan = a_lab_plan(("default: true", f"default: true{most}"))
    assert jobs.job(plan, jobs.partition_of(plan, None)).cpus_of_rank == cpus


def test_nodes_without_gpus_have_no_templates_that_need_them() -> None:
    plan = a_lab_plan(NO_GPUS)
    found = scripts(plan)
    assert {"torchrun.sbatch", "deepspeed.sbatch"}.isdisjoint(found)
    assert not [path for path, text in found.items() if "--gpus" in text]
    assert "#SBATCH --ntasks-per-node=112\n" in found["mpi.sbatch"], "one rank on each core of two sockets"
    with pytest.raises(jobs.JobTemplateError, match="torchrun needs GPUs, and the nodes of partition gpu"):
        jobs.render(plan, jobs.partition_of(plan, None), "torchrun")


def test_whole_node_is_given_to_the_ranks() -> None:
    """192 threads of a p5en for 8 ranks: 24 threads or 12 cores for each."""
    found = scripts(a_plan())
    assert "#SBATCH --gpus-per-node=8\n" in found["torchrun.sbatch"]
    assert "#SBATCH --cpus-per-task=192\n" in found["torchrun.sbatch"]
    assert "#SBATCH --cpus-per-task=24\n" in found["deepspeed.sbatch"]
    assert "OMP_NUM_THREADS=12\n" in found["deepspeed.sbatch"]


@pytest.mark.parametrize(
    ("limit", "time"),
    [("1d", "24:00:00"), ("7d", "24:00:00"), ("90m", "01:30:00"), ("30m", "00:30:00")],
)
def test_time_is_at_most_the_limit_of_the_partition_and_a_day(limit: str, time: str) -> None:
    plan = a_plan(("max_time: 1d", f"max_time: {limit}"))
    assert f"#SBATCH --time={time}\n" in scripts(plan)["torchrun.sbatch"]


def test_signal_is_that_of_the_pool() -> None:
    plan = a_plan(("idle: 5m", "idle: 5m\n    termination: {signal: TERM, lead: 30s}"))
    found = scripts(plan)["checkpoint.sbatch"]
    assert "#SBATCH --signal=B:TERM@120\n" in found
    assert "trap save TERM\n" in found
    assert "requeues the job 30s before that end" in found
    assert "USR1" not in found
    assert (
        "Slurm signals this script with USR1 before its time limit."
        in scripts(a_lab_plan())["checkpoint.sbatch"]
    )


def test_checkpoints_are_heartbeats_only_if_the_daemon_watches() -> None:
    watched = scripts(a_plan(HEARTBEAT))["checkpoint.sbatch"]
    assert 'touch /run/gpucluster-heartbeats/"$SLURM_JOB_ID"; fi; done &\n' in watched
    assert "A job without one for 10m counts as hung." in watched
    assert "/run/gpucluster-heartbeats" not in scripts(a_plan())["checkpoint.sbatch"]


def test_shared_folder_is_the_fast_file_system_then_home() -> None:
    assert ":=/data/$USER/prompts.jsonl" in scripts(stack("research"))["array.sbatch"]
    assert ":=$HOME/prompts.jsonl" in scripts(stack("lab"))["array.sbatch"]
    alone = scripts(a_plan())["array.sbatch"]
    assert (
        "# This cluster has no shared file system: a node does not see files of another machine.\n" in alone
    )


def test_data_is_staged_to_the_disks_of_the_node() -> None:
    found = scripts(stack("research"))["stage-in.sbatch"]
    assert "the job's own /tmp, in /scratch/.gpucluster-tmp of each node" in found
    shared = scripts(a_plan(('version: "24.11"', 'version: "24.11"\n  private_tmp: false')))
    assert "copy a data set to /tmp of each node" in shared["stage-in.sbatch"]


def test_scripts_set_no_variable_of_the_fabric() -> None:
    """They source the file of the node's pool: its variables change with the machine, not with the script."""
    for path, text in scripts(stack("research")).items():
        assert not re.search(r"\b(NCCL|FI|RDMAV)_[A-Z]", text), path
        assert path == "chain.sh" or "\n. /etc/gpucluster/env.sh\n" in text, path


def test_unknown_names_list_the_known_ones() -> None:
    plan = a_plan()
    with pytest.raises(jobs.JobTemplateError, match="there is no job template 'horovod'") as said:
        jobs.render(plan, jobs.partition_of(plan, None), "horovod")
    assert str(said.value.next_step).startswith("name one of: torchrun, deepspeed")
    with pytest.raises(jobs.JobTemplateError, match="burst has no partition 'cpu'") as other:
        jobs.partition_of(plan, "cpu")
    assert other.value.next_step == "name one of: gpu"
