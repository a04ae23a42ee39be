"""The next steps that `gpucluster sandbox up` prints."""

import itertools
import threading
from pathlib import Path

from support.builders import on_aws

from gpucluster.cli.context import resolve_file
from gpucluster.cli.output import steps
from gpucluster.cli.sandbox import first_job

STACKS = Path(__file__).parents[3] / "stacks"


def test_suggested_first_job_is_accepted_by_the_cluster() -> None:
    """Regression: it always named `researcher` and eight GPUs, and failed on a cluster with other users and four GPUs in a node."""
    assert first_job(on_aws(resolve_file(STACKS / "burst.yaml").plan)) == (
        "--user researcher -- sbatch -N2 --gres=gpu:8 --wrap 'srun hostname'"
    )
    assert first_job(on_aws(resolve_file(STACKS / "research.yaml").plan)).startswith(
        "--user vision -- sbatch -N2 --gres=gpu:8 "
    )


def test_long_step_is_printed_again() -> None:
    """Regression: the build of an image layer printed nothing for half a minute."""
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


def test_short_steps_are_printed_once() -> None:
    told: list[str] = []
    with steps(told.append) as step:
        step("one")
        step("two")
    assert [line.split(" s  ")[1] for line in told] == ["one", "two"]
