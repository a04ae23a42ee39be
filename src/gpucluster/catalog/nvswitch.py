"""Machine types with NVSwitch, and those that also need NVIDIA's subnet manager. Sources are in `data/nvswitch.json`."""

from functools import cache
from typing import Any

from gpucluster.catalog.data_files import read_data


def has_nvswitch(machine: str) -> bool:
    """Return whether CUDA works on the machine only after Fabric Manager is done."""
    return machine in _table()["nvswitch"]


def fabric_packages(machine: str) -> tuple[str, ...]:
    """Return the packages that an image needs in addition to Fabric Manager for the machine's NVSwitch."""
    needs = _table()["subnet_manager"]
    return tuple(needs["packages"]) if machine in needs["machines"] else ()


def links(machine: str, gpu: str) -> int:
    """Return the active NVLinks of each GPU; 0 without NVSwitch, and for a GPU that the table lacks."""
    return int(_table()["nvlinks"].get(gpu, 0)) if has_nvswitch(machine) else 0


@cache
def _table() -> dict[str, Any]:
    return read_data("nvswitch.json")
