"""Which machines have NVSwitch, and what their image needs."""

import pytest
from support.builders import a_spec_text

from gpucluster import catalog
from gpucluster.catalog.nvswitch import fabric_packages, has_nvswitch
from gpucluster.spec import inspect_text

MACHINES = "machines: [p5en.48xlarge, p5e.48xlarge]"


def test_machines_with_eight_data_center_gpus_have_nvswitch() -> None:
    models = {"a100", "h100", "h200", "b200", "b300"}
    found = catalog.load().machines.values()
    wanted = {
        m.name
        for m in found
        if m.gpu is not None and m.gpu.count == 8 and m.gpu.model.split("-")[0] in models
    }
    assert {m.name for m in found if has_nvswitch(m.name)} == wanted


@pytest.mark.parametrize(("ami", "refused"), [("", True), ("\n  image: {ami: ami-0123456789abcdef0}", False)])
def test_blackwell_machine_is_refused_with_an_image_that_cannot_start_its_nvswitch(
    ami: str, refused: bool
) -> None:
    """Without nvlsm and ib_umad Fabric Manager never ends, and no job of the node sees a GPU."""
    text = a_spec_text(
        ("region: us-east-2", f"region: us-east-2{ami}"), (MACHINES, "machines: [p6-b200.48xlarge]")
    )
    found = [
        p for p in inspect_text(text, "x.yaml", catalog.load()).problems if p.id == "image-without-nvlsm"
    ]
    assert bool(found) is refused
    assert all("nvlsm" in p.message for p in found)
    assert fabric_packages("p5.48xlarge") == ()
