"""A MIG slice bills its share of the compute of its GPU on a real slurmctld, also in a job that asks for GPUs without a type (B3)."""

import re

import pytest
from accounting import apply_accounts, with_accounting
from real_slurm import VERSIONS, RealSlurm
from support.builders import a_plan

from gpucluster.plan.model import Mig

SLICED = (
    ("slurm:\n", "slurm:\n  accounting: {database: local}\n"),
    ("head:\n", "users:\n  - {name: ann, uid: 5001}\naccounts:\n  - {name: science, users: [ann]}\nhead:\n"),
    ("idle: 5m\n", "idle: 5m\n    sharing: {mig: {1g.18gb: 4, 3g.71gb: 1}}\n"),
)
GPU = 1000  # what a whole GPU bills
REQUESTS = (
    "--gres=gpu:1g.18gb:1",
    "--gres=gpu:3g.71gb:1",
    "--gres=gpu:1g.18gb:7",
    "--gres=gpu:1",
    "--gres=gpu:2",
    "--gpus=3",
)


@pytest.mark.parametrize("version", VERSIONS)
def test_job_bills_the_share_of_the_slices_that_it_gets(version: str) -> None:
    plan = a_plan(*SLICED)
    sharing = plan.pools[0].shape.sharing
    assert isinstance(sharing, Mig)
    share = {one.profile: one.sevenths / 7 for one in sharing.slices}
    assert set(share) == {"1g.18gb", "3g.71gb"}
    with with_accounting(version, plan, "ann", nodes=False) as slurm:
        apply_accounts(slurm)
        for request in REQUESTS:
            allocated = tres(slurm, request)
            slices = {name.partition(":")[2]: n for name, n in allocated.items() if ":" in name}
            assert sum(slices.values()) == allocated["gres/gpu"]
            assert allocated["billing"] == int(max(GPU * share[name] * n for name, n in slices.items()))


def tres(slurm: RealSlurm, request: str) -> dict[str, int]:
    """What a job is allocated that has one CPU and little memory beside its slices."""
    options = (request, "--cpus-per-gpu=1", "--mem=100", "-o", "/dev/null", "--wrap", "sleep 300")
    job = slurm.must("sbatch", "--parsable", *options, user="ann").strip()

    def allocated() -> str:
        found = re.search(r"AllocTRES=(\S*billing\S*)", slurm.must("scontrol", "show", "job", job))
        return "" if found is None else found[1]

    text = slurm.wait(allocated, f"{request} is allocated")
    slurm.must("scancel", job)
    parts = (part.partition("=") for part in text.split(","))
    return {name: int(value) for name, _, value in parts if value.isdigit()}
