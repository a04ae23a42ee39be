"""Queued jobs that an edit leaves without a place: they wait with the reasons that `diff` names."""

from dataclasses import replace

import pytest
from accounting import apply_accounts, reason, with_accounting
from real_slurm import VERSIONS, RealSlurm
from test_accounting import PEOPLE, _plan, _submit  # pyright: ignore[reportPrivateUsage]

from gpucluster.plan.model import SlurmOnHosts
from gpucluster.slurm.config.render import render

Edit = tuple[tuple[str, str], ...]
_GPU = "{name: gpu, pools: [h100], default: true"
_SMALLER = (
    (
        'hosts: "gpu[01-04]", addresses: "192.0.2.[11-14]"',
        'hosts: "gpu[01-03]", addresses: "192.0.2.[11-13]"',
    ),
    ('leaf2: "gpu[03-04]"', 'leaf2: "gpu03"'),
)


@pytest.mark.parametrize(
    ("queued", "other", "edit", "why"),
    [
        ((), ("--qos=urgent",), ((f"{_GPU}}}", f"{_GPU}, allow_qos: [urgent]}}"),), "PartitionConfig"),
        ((), ("--partition=debug",), ((f"{_GPU}}}", f"{_GPU}, accounts: [product]}}"),), "PartitionConfig"),
        ((), ("--qos=urgent",), (("share: 3, qos: [normal, urgent]", "share: 3, qos: [urgent]"),), "InvalidQOS"),
        (("-N4",), ("-N3",), _SMALLER, "PartitionNodeLimit"),
    ],
    ids=["allow_qos", "accounts", "accounts.qos", "fewer nodes"],
)  # fmt: skip
@pytest.mark.parametrize("version", VERSIONS)
def test_queued_job_waits(
    version: str, queued: tuple[str, ...], other: tuple[str, ...], edit: Edit, why: str
) -> None:
    """A job that the edit permits has another reason: no node is up."""
    with with_accounting(version, _plan(), *PEOPLE, nodes=False) as slurm:
        apply_accounts(slurm)
        job, permitted = _submit(slurm, "vision", *queued), _submit(slurm, "vision", *other)
        after = _plan(*edit)
        _apply(slurm, replace(after, slurm=replace(after.slurm, version=version)))
        slurm.wait(lambda: reason(slurm, job) == f"PENDING ({why})", why)
        assert why not in reason(slurm, permitted)


def _apply(slurm: RealSlurm, plan: SlurmOnHosts) -> None:
    for artifact in render(plan):
        if artifact.path.startswith("slurm/") and slurm.path(f"/etc/{artifact.path}").exists():
            slurm.write(f"/etc/{artifact.path}", artifact.content.decode())
    slurm.must("scontrol", "reconfigure")
    apply_accounts(slurm, plan)
