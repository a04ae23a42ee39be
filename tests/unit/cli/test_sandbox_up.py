"""What `gpucluster sandbox up` says to go on with."""

import itertools
import threading
from pathlib import Path

from gpucluster.cli.desk import resolve_file
from gpucluster.cli.sandbox import first_job
from gpucluster.cli.still import steps

STACKS = Path(__file__).parents[3] / "stacks"


def test_the_first_job_to_type_is_one_that_the_cluster_takes() -> None:
    """It was always of `researcher` and eight GPUs: in a cluster of its own users and four GPUs a node it failed."""
    assert first_job(resolve_file(STACKS / "burst.yaml").plan) == (
        "--user researcher -- sbatch -N2 --gres=gpu:8 --wrap 'srun hostname'"
    )
    assert first_job(resolve_file(STACKS / "research.yaml").plan).startswith(
        "--user vision -- sbatch -N2 --gres=gpu:8 "
    )


def test_a_step_that_takes_long_is_told_again() -> None:
    """The build of the image's layer was half a minute without a word."""
    told: list[str] = []
    often = threading.Event()

    def tell(line: str) -> None:
        told.append(line)
        if len(told) == 3:
            often.set()

    seconds = itertools.count(step=20.0)
    with steps(tell, every_s=0.001, clock=lambda: next(seconds)) as step:
        step("building the image")
        often.wait()
    assert told[0].endswith(" s  building the image")
    assert told[1].endswith(" s  still building the image")
    assert len(set(told)) == len(told)


def test_steps_that_follow_each_other_are_told_once_each() -> None:
    told: list[str] = []
    with steps(told.append) as step:
        step("one")
        step("two")
    assert [line.split(" s  ")[1] for line in told] == ["one", "two"]
