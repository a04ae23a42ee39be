"""The environment of NCCL and the fabric: each row has a reason and a source, and obsolete variables are set nowhere."""

import json
from pathlib import Path

import pytest

from gpucluster.catalog import environment
from gpucluster.catalog.data_files import read_data

ROWS = read_data("fabric-env.json")
ALL = [(kind, row) for kind in ("set", "on_symptom", "never") for row in ROWS[kind]]
MACHINES = ("p4d.24xlarge", "p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge", "g5.12xlarge", "g6e.2xlarge")


@pytest.mark.parametrize(("kind", "row"), ALL, ids=[f"{kind}-{row['name']}" for kind, row in ALL])
def test_row_has_a_reason_a_source_and_known_fabrics(kind: str, row: dict[str, object]) -> None:
    assert row["reason"]
    assert row["source"]
    fabrics = row["fabrics"]
    assert fabrics is None or set(json.loads(json.dumps(fabrics))) <= set(environment.FABRICS)
    assert ("value" in row) is (kind != "never")


@pytest.mark.parametrize("fabric", environment.FABRICS)
@pytest.mark.parametrize("machine", MACHINES)
def test_no_variable_is_both_set_and_never_set(fabric: str, machine: str) -> None:
    found = environment.of_pool(fabric, (machine,), nodes=2)
    never = {one.name for one in found.never}
    assert never.isdisjoint({one.name for one in (*found.set, *found.on_symptom)})


def test_efa_needs_no_variable_of_libfabric_with_the_image() -> None:
    """aws-ofi-nccl 1.7 and later: FI_PROVIDER, FI_EFA_USE_DEVICE_RDMA and NCCL_PROTO are obsolete."""
    found = environment.of_pool("efa", ("p5.48xlarge",), nodes=2)
    assert [(one.name, one.value) for one in found.set] == [("NCCL_SOCKET_IFNAME", "^docker,lo,veth")]
    assert [one.name for one in found.on_symptom] == ["FI_EFA_USE_HUGE_PAGE"]
    obsolete = {"FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA", "NCCL_PROTO", "RDMAV_FORK_SAFE"}
    assert obsolete <= {one.name for one in found.never}


def test_jobs_of_one_node_need_no_interface() -> None:
    assert environment.of_pool("efa", ("p5.48xlarge",), nodes=1).set == ()


def test_row_for_a_machine_type_needs_it_of_every_machine() -> None:
    """The nodes of a pool share one file: a row for g5 is wrong on the pool's p4d."""
    both = environment.of_pool("ethernet", ("g5.12xlarge", "p4d.24xlarge"), nodes=1)
    alone = environment.of_pool("ethernet", ("g5.12xlarge", "g5.48xlarge"), nodes=1)
    assert both.set == ()
    assert [one.name for one in alone.set] == ["NCCL_SHM_USE_CUDA_MEMCPY"]
    assert environment.of_pool("infiniband", (), nodes=1).set == (), "a host has no type of AWS"


def test_roce_names_the_index_only_for_an_old_nccl() -> None:
    found = environment.of_pool("roce", (), nodes=2)
    assert [one.name for one in found.on_symptom] == ["NCCL_IB_GID_INDEX"]
    assert "NCCL_IB_GID_INDEX" not in {one.name for one in found.set}


def test_unknown_fabric_is_an_error() -> None:
    with pytest.raises(ValueError, match="fabric 'carrier-pigeon', expected one of efa"):
        environment.of_pool("carrier-pigeon", (), nodes=1)


def test_no_template_sets_a_variable_of_the_table_itself() -> None:
    """One truth: Slurm's and Kubernetes' templates and code take the variables from the catalog. `lint` reads those of others."""
    root = Path(__file__).parents[3]
    named = {row["name"] for _, row in ALL}
    sources = [file for file in (root / "src/gpucluster").rglob("*.py") if file.parent.name != "lint"]
    files = [*(root / "templates").rglob("*.j2"), *sources]
    found = [(file.name, name) for file in files for name in named if name in file.read_text()]
    assert found == []
