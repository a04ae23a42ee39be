"""What `gpucluster sandbox up` says to go on with."""

from pathlib import Path

from gpucluster.cli.desk import resolve_file
from gpucluster.cli.sandbox import first_job

STACKS = Path(__file__).parents[3] / "stacks"


def test_the_first_job_to_type_is_one_that_the_cluster_takes() -> None:
    """It was always of `researcher` and eight GPUs: in a cluster of its own users and four GPUs a node it failed."""
    assert first_job(resolve_file(STACKS / "burst.yaml").plan) == (
        "--user researcher -- sbatch -N2 --gres=gpu:8 --wrap 'srun hostname'"
    )
    assert first_job(resolve_file(STACKS / "research.yaml").plan).startswith(
        "--user vision -- sbatch -N2 --gres=gpu:8 "
    )
