"""Tests of the catalog: it equals the output of its scripts and has all names that the shipped stacks use."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from gpucluster import catalog
from gpucluster.catalog.image import image_facts
from gpucluster.catalog.quotas import quota_of
from gpucluster.sandbox.aws.ec2.state.placement import layers_of
from gpucluster.slurm.owned_keys import REMOVED

ROOT = Path(__file__).parents[3]


def _tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_machines_are_what_the_script_makes_of_motos_tables() -> None:
    tool = _tool("make_catalog")
    assert tool.TARGET.read_text() == json.dumps(tool.build(), indent=1) + "\n", "run tools/make_catalog.py"


def test_family_that_motos_table_lacks_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The script left such a family out without a message."""
    tool = _tool("make_catalog")
    monkeypatch.setitem(tool.CORES, "p9x", 48)
    with pytest.raises(SystemExit, match="no instance type of p9x"):
        tool.build()


def test_stand_in_reports_the_network_layers_of_the_catalog() -> None:
    """The catalog has the layers that EKS needs at least; DescribeInstanceTopology returns as many or more (T28)."""
    layered = {name: m.network_layers for name, m in catalog.load().machines.items() if m.network_layers}
    assert layered
    assert {name for name, count in layered.items() if layers_of(name) < count} == set()


@pytest.mark.parametrize(
    ("name", "cpus", "memory_mib", "gpu"),
    [
        ("p5en.48xlarge", 192, 2097152, ("h200", 8, 144384)),
        ("p5.48xlarge", 192, 2097152, ("h100", 8, 81920)),
        ("p4d.24xlarge", 96, 1179648, ("a100", 8, 40960)),
        ("p4de.24xlarge", 96, 1179648, ("a100", 8, 81920)),
        ("g6e.48xlarge", 192, 1572864, ("l40s", 8, 45776)),
        ("m7i.2xlarge", 8, 32768, None),
    ],
)
def test_machine_matches_data_sheet(
    name: str, cpus: int, memory_mib: int, gpu: tuple[str, int, int] | None
) -> None:
    machine = catalog.load().machines[name]
    assert machine.sockets * machine.cores_per_socket * machine.threads_per_core == machine.vcpus == cpus
    assert machine.memory_mib == memory_mib
    assert (machine.gpu and (machine.gpu.model, machine.gpu.count, machine.gpu.memory_mib)) == gpu


def test_machine_data_is_consistent() -> None:
    for machine in catalog.load().machines.values():
        assert machine.sockets * machine.cores_per_socket * machine.threads_per_core == machine.vcpus, (
            machine.name
        )
        assert machine.zones_selling, machine.name
        assert all(region in catalog.load().regions for region in machine.zones_selling)


def test_zone_names_are_region_plus_letter() -> None:
    regions = catalog.load().regions
    assert regions["us-east-1"] == tuple(f"us-east-1{letter}" for letter in "abcdef")
    assert regions["us-west-1"][-1] == "us-west-1c"
    assert all(len(zones) <= 8 for zones in regions.values())  # a network has eight parts


def test_only_supported_slurm_versions_have_facts() -> None:
    facts = catalog.slurm_facts("24.11")
    assert "suspendexcnodes" in facts.keys["slurm.conf"]
    assert "node_reg_mem_percent" in facts.tokens["SlurmctldParameters"]
    assert "cloud_reg_addrs" not in facts.tokens["SlurmctldParameters"]  # built in since 23.11
    assert "topology/tree" in facts.plugins
    with pytest.raises(KeyError):
        catalog.slurm_facts("25.05")


SLURM_KEYS = [  # by the release notes: the first and the last version that take the key without an error
    ("slurm.conf", "ClusterName", "22.05", "26.05", ()),
    ("slurm.conf", "SlurmctldPlugstack", "22.05", "22.05", ()),
    ("slurm.conf", "FrontendName", "22.05", "24.11", ()),
    ("slurm.conf", "CoreSpecPlugin", "22.05", "23.11", ("24.05", "24.11", "25.05", "25.11", "26.05")),
    ("slurm.conf", "PrologTimeout", "25.05", "26.05", ()),
    ("slurm.conf", "NamespaceType", "25.11", "26.05", ()),
    ("node", "Topology", "25.05", "26.05", ()),
    ("partition", "ExclusiveTopo", "24.05", "26.05", ()),
    ("partition", "Exclusive", "26.05", "26.05", ()),
    ("cgroup.conf", "AllowedKmemSpace", "22.05", "23.02", ()),
]


@pytest.mark.parametrize(("kind", "name", "first", "last", "defunct"), SLURM_KEYS)
def test_slurm_key_has_its_versions(
    kind: str, name: str, first: str, last: str, defunct: tuple[str, ...]
) -> None:
    key = catalog.slurm_keys()[kind][name.lower()]
    assert (key.name, key.known_in[0], key.known_in[-1], key.defunct_in) == (name, first, last, defunct)


def test_slurm_default_is_supported_by_us_and_by_schedmd() -> None:
    facts = catalog.load()
    assert facts.slurm_default in facts.slurm_supported
    end = facts.slurm_releases[facts.slurm_default].end_of_support
    assert end is not None
    assert end > facts.slurm_date


@pytest.mark.parametrize("version", catalog.load().slurm_supported)
def test_pinned_slurm_has_the_fixes_of_its_least_release(version: str) -> None:
    least = catalog.load().slurm_releases[version].least
    assert least is not None
    pinned = image_facts().pins[f"slurm-{version}"].version
    assert [int(part) for part in least.split(".")] <= [int(part) for part in pinned.split(".")]
    assert least.startswith(f"{version}.")


def test_data_has_sources() -> None:
    for path in (ROOT / "src/gpucluster/catalog/data").glob("*.json"):
        assert json.loads(path.read_text())["source"], path.name
    assert catalog.load().date == "2026-11-21"


@pytest.mark.parametrize(
    ("name", "cards", "efa", "disks"),
    [
        ("p4de.24xlarge", 4, 4, 8),
        ("p5.48xlarge", 32, 32, 8),
        ("p5en.48xlarge", 16, 16, 8),
        ("m7i.2xlarge", 1, 0, 0),
    ],
)
def test_a_machine_has_the_fabric_and_disks_of_its_data_sheet(
    name: str, cards: int, efa: int, disks: int
) -> None:
    machine = catalog.load().machines[name]
    assert (machine.network_cards, machine.efa, machine.local_disks) == (cards, efa, disks)


def test_a_mig_profile_alone_fits_its_gpu_as_often_as_it_says_and_no_more() -> None:
    """Compare NVIDIA's maximum with the sevenths of compute and eighths of memory of a slice."""
    for gpu, profiles in catalog.load().mig.items():
        assert profiles, gpu
        for name, profile in profiles.items():
            assert name.startswith(f"{profile.compute}g."), (gpu, name)
            assert min(7 // profile.compute, 8 // profile.memory) == profile.most, (gpu, name)


def test_every_gpu_of_a_machine_that_can_be_sliced_is_in_the_mig_table() -> None:
    gpus = {(m.gpu.model, m.gpu.memory_mib) for m in catalog.load().machines.values() if m.gpu}
    cannot = {("a10g", 22888), ("l4", 22888), ("l40s", 45776), ("t4", 16384)}
    of_four = {("rtx-pro-server-6000", 98304)}  # four slices: the sevenths and eighths do not show this limit
    assert gpus - catalog.load().mig.keys() == cannot | of_four


def test_kubernetes_versions_are_what_the_script_makes_of_the_schemas() -> None:
    tool = _tool("make_kubernetes_facts")
    written = (tool.DATA / "kubernetes-versions.json").read_text()
    assert written == json.dumps(tool.build(), indent=1) + "\n", "run tools/make_kubernetes_facts.py"


def test_each_custom_resource_has_its_schema_and_its_source() -> None:
    for (api_version, kind), crd in catalog.crd_schemas().items():
        schema = catalog.crd_schema(api_version, kind)
        assert schema["type"] == "object"
        assert (crd.licence, bool(crd.project), bool(crd.tag)) == ("Apache-2.0", True, True)
    folder = ROOT / "src/gpucluster/catalog/data/crds"
    listed = {crd.file for crd in catalog.crd_schemas().values()}
    assert {file.name for file in folder.glob("*.json")} == listed | {"index.json"}


def test_gpus_claims_are_served_since_1_34_and_betas_are_off() -> None:
    facts = catalog.kubernetes_facts()
    assert facts.served["resource.k8s.io/v1", "ResourceClaim"] == facts.versions
    assert facts.served["resource.k8s.io/v1", "DeviceTaintRule"] == ("1.37",)
    assert {api for api, _ in facts.served if "alpha" in api or "beta" in api} == facts.off_by_default
    assert ("v1", "Endpoints") in facts.deprecated


@pytest.mark.parametrize(("file", "rows"), [("prices-us-east-1", "services"), ("quotas", "")])
def test_values_without_source_have_reason(file: str, rows: str) -> None:
    data = json.loads((ROOT / f"src/gpucluster/catalog/data/{file}.json").read_text())
    table = data[rows] if rows else data
    assert table["source"]
    assert table["date"]
    assert table["unverified"]
    assert all(len(why) >= len("as 250") for why in table["unverified"].values())
    if rows:
        assert table["unverified"].keys() < table["rows"].keys()


def test_spot_family_without_source_has_no_quota() -> None:
    assert quota_of("p6-b200.48xlarge", "spot") is None
    assert (quota_of("p5en.48xlarge", "spot") or 0) != (quota_of("p4d.24xlarge", "spot") or 0)


def test_keys_of_all_versions_are_those_of_the_second_reading() -> None:
    """tools/make_slurm_facts.py reads SchedMD's tags; tools/slurm-keys.json is an independent reading of the same sources.

    It has the parser's table alone, so also the keys with which the program ends.
    """
    second = json.loads((ROOT / "tools/slurm-keys.json").read_text())
    for version, kinds in second.items():
        for kind in kinds.keys() - {"topology_plugins", "job_container.conf"}:
            read = {key for key, having in catalog.slurm_key_versions(kind).items() if version in having}
            listed = {key.lower() for key, state in kinds[kind].items() if state == "ok"}
            removed = REMOVED.keys() if kind == "slurm.conf" else set[str]()
            assert read == listed - removed, (version, kind)
