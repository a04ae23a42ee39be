"""Import of sites: eight styles of slurm.conf become specs, and the list of differences is complete."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import slurm_lines
from support.golden_tree import Golden

from gpucluster import catalog
from gpucluster.cli.import_ import report
from gpucluster.importer import keys
from gpucluster.importer.differences import UNSET, Change, Difference
from gpucluster.importer.reasons import SLURMS_OWN
from gpucluster.importer.run import Imported, import_files
from gpucluster.plan.resolve import resolve
from gpucluster.slurm.config.render import render
from gpucluster.slurm.hostlist import expand_slurm
from gpucluster.slurm.owned_keys import OWNED
from gpucluster.spec import ClusterSpec, inspect_text
from gpucluster.spec.decode import fields_of
from gpucluster.spec.reference import _innermost

SITES = Path(__file__).parents[2] / "support/sites"
NAMES = sorted(path.name for path in SITES.iterdir())
VERSION = "24.11"


def _import(name: str) -> Imported:
    return import_files([SITES / name], version=VERSION)


def _rows(found: Imported) -> Iterator[tuple[str, str, str, Difference]]:
    """(kind, name in the rendered files, key) of each setting, with its row."""
    for row in found.differences:
        for name in row.names or ("",):
            yield row.kind, name, row.key.lower(), row


def test_there_are_eight_styles() -> None:
    assert len(NAMES) == 8


@pytest.mark.parametrize("name", NAMES)
def test_site_becomes_the_spec_and_the_list_of_the_golden_tree(name: str, golden: Golden) -> None:
    found = _import(name)
    told = "\n".join(report(found)).replace(f"{SITES}/", "") + "\n"
    golden(f"import/{name}", {f"{found.name}.yaml": found.text.encode(), "report.txt": told.encode()})


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_of_the_site_has_one_row(name: str) -> None:
    """A second reader, without our code, finds the settings; each is in the list once, under its new name."""
    found = _import(name)
    renamed = {"node": found.made.nodes, "partition": found.made.partitions}
    spelled = {"slurm.conf": "slurm.conf", "node": "node", "partition": "partition"}
    listed = Counter((kind, who, keys.canonical(kind, key)) for kind, who, key, _ in _rows(found))
    for kind, who, key in slurm_lines.settings(SITES / name):
        own = renamed.get(kind, {}).get(who, who)
        of_list = keys.canonical(spelled.get(kind, kind), {"controladdr": "slurmctldhost"}.get(key, key))
        assert listed[kind, own, of_list] >= 1, (kind, who, key)
    once = {one: count for one, count in listed.items() if count > 1 and one[2] != "slurmctldhost"}
    assert once == {}


@pytest.mark.parametrize("name", NAMES)
def test_rendered_files_are_the_site_with_the_listed_differences(name: str, tmp_path: Path) -> None:
    """Every setting that the second reader finds in the rendered files has a row with its value there, and no row invents one."""
    found = _import(name)
    spec = inspect_text(found.text, "x.yaml", catalog.load()).result()
    plan = resolve(spec, catalog.load())
    assert plan.slurm is not None
    for artifact in render(plan):
        (tmp_path / Path(artifact.path).name).write_bytes(artifact.content)
    rendered = slurm_lines.settings(tmp_path)
    kinds = {"slurm.conf", "node", "partition", "cgroup.conf"}
    told = {
        (kind, who, keys.canonical(kind, key))
        for kind, who, key, row in _rows(found)
        if row.after is not None and kind in kinds
    }
    assert {(kind, who, keys.canonical(kind, key)) for kind, who, key in rendered} == told


@pytest.mark.parametrize("name", NAMES)
def test_classes_say_what_the_values_say(name: str) -> None:
    for row in _import(name).differences:
        assert (row.before is None) == (row.change is Change.DEFAULTED), row
        assert (row.after is None) == (row.change is Change.LOST or row.why == SLURMS_OWN), row
        if row.change in (Change.LOST, Change.CHANGED, Change.MOVED):
            assert row.why, row
            assert (row.place is None) == row.why.startswith(UNSET), row
        if row.change is Change.CHANGED:
            assert row.before != row.after, row


def test_spec_has_the_hosts_and_addresses_of_the_site() -> None:
    spec = inspect_text(_import("block").text, "x.yaml", catalog.load()).result()
    assert spec.pools[0].hosts == expand_slurm("gb-[0001-0036]")
    assert spec.pools[0].addresses == expand_slurm("10.9.1.[1-36]")
    plan = resolve(spec, catalog.load())
    assert plan.slurm is not None
    assert plan.pools[0].shape.real_memory_mib == 921600
    assert plan.slurm.private_tmp == "/scratch/tmp"


def test_job_without_a_time_limit_keeps_that_of_the_site() -> None:
    """Without DefaultTime Slurm takes MaxTime; the default of a spec would end such jobs after an hour."""
    spec = inspect_text(_import("v22-05").text, "x.yaml", catalog.load()).result()
    assert [(part.name, part.default_time) for part in spec.partitions] == [
        ("std.q", 86400),
        ("fat.q", 172800),
    ]


def test_controller_that_is_a_node_gets_another_name() -> None:
    found = _import("campus")
    spec = inspect_text(found.text, "x.yaml", catalog.load()).result()
    assert spec.hosts is not None
    assert spec.hosts.head.name == "physik-head"
    row = next(row for row in found.differences if row.key == "SlurmctldHost" and row.before == "physik")
    assert (row.change, row.after) == (Change.CHANGED, "physik-head")


def test_key_that_the_version_lacks_is_reported_with_those_that_have_it() -> None:
    why = {row.key: row.why for row in _import("v22-05").differences if row.change is Change.LOST}
    assert why["CacheGroups"] == "no Slurm of 22.05 to 26.05 knows it"
    assert why["JobCredentialPrivateKey"] == "Slurm 24.11 does not know it; 22.05 to 23.02 do"


def test_password_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("NodeName=a CPUs=1\nPartitionName=p Nodes=a\nJobCompPass=hunter2\n")
    (tmp_path / "slurmdbd.conf").write_text("StoragePass=hunter2\n")
    found = import_files([tmp_path], version=VERSION)
    assert "hunter2" not in "\n".join(report(found)) + found.text
    assert {"JobCompPass", "StoragePass"} <= {row.key for row in found.differences}


def test_words_of_the_report_steer_no_terminal(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(
        "NodeName=a CPUs=1\nPartitionName=p Nodes=a\nMailProg=/x\x1b[2J\n\x1b]0;x\n"
    )
    told = "\n".join(report(import_files([tmp_path], version=VERSION)))
    assert "\x1b" not in told
    assert re.search(r"slurm\.conf:4: .* is not key=value", told)


_NODES = "NodeName=n[1-4] CPUs=1\nPartitionName=p Nodes=n[1-4]\n"
REFUSED = [
    ("a node in no block", "BlockName=a Nodes=n[1-3]\nBlockSizes=1\n", "1 nodes are in no block, for example n4"),
    ("a node on two", "SwitchName=a Nodes=n[1-4]\nSwitchName=b Nodes=n4\n", "a node is below two switches"),
    ("two above one", "SwitchName=a Nodes=n[1-4]\nSwitchName=b Switches=a\nSwitchName=c Switches=a\n", "a switch is below two others"),
    ("a circle", "SwitchName=a Nodes=n[1-4]\nSwitchName=b Switches=c\nSwitchName=c Switches=b\n", "its switches form a circle"),
    ("an unknown switch", "SwitchName=a Nodes=n[1-4]\nSwitchName=b Switches=x\n", "a switch is above one that is not defined"),
    ("switches and blocks", "SwitchName=a Nodes=n[1-2]\nBlockName=b Nodes=n[3-4]\n", "it has switches and blocks"),
    ("a small block", "BlockName=a Nodes=n[1-3]\nBlockName=b Nodes=n4\nBlockSizes=3\n", "the block has 1 host, fewer than the base size 3: slurmctld 24.11 ends. Slurm 26.05 takes it"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "why"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_topology_that_does_not_fit_is_reported_and_the_rest_is_imported(
    tmp_path: Path, text: str, why: str
) -> None:
    plugin = "block" if text.startswith("BlockName") else "tree"
    (tmp_path / "slurm.conf").write_text(f"TopologyPlugin=topology/{plugin}\n{_NODES}")
    (tmp_path / "topology.conf").write_text(text)
    found = import_files([tmp_path], version=VERSION)
    assert [complaint.message for complaint in found.complaints] == [f"the topology is not imported: {why}"]
    assert "topology:" not in found.text


_BLOCKS = "BlockName=a Nodes=n[1-2]\nBlockName=b Nodes=n[3-4]\nBlockSizes=2\n"


@pytest.mark.parametrize(
    ("topology", "has", "told"),
    [
        (_BLOCKS, True, "same"),
        (
            "SwitchName=a Nodes=n[1-4]\n",
            False,
            "not imported: `slurm.topology.block.imex` is of a topology of blocks",
        ),
    ],
    ids=["blocks", "a tree"],
)
def test_imex_channels_of_blocks_are_imported(tmp_path: Path, topology: str, has: bool, told: str) -> None:
    """Regression: jobs of an NVL72 rack lost their IMEX channels."""
    plugin = "block" if has else "tree"
    (tmp_path / "slurm.conf").write_text(
        f"SwitchType=switch/nvidia_imex\nTopologyPlugin=topology/{plugin}\n{_NODES}"
    )
    (tmp_path / "topology.conf").write_text(topology)
    found = import_files([tmp_path], version=VERSION)
    assert ("imex: true" in found.text) == has
    assert not found.complaints
    (row,) = (one for one in found.differences if one.key.lower() == "switchtype")
    assert told in (row.change, row.why)


def test_topology_of_the_site_is_that_of_the_spec() -> None:
    spec = inspect_text(_import("partitions").text, "x.yaml", catalog.load()).result()
    assert spec.slurm is not None
    assert spec.slurm.topology is not None
    assert spec.slurm.topology.tree == {
        "core": {
            "row1": {"leaf1": expand_slurm("r1n[01-20]"), "leaf2": expand_slurm("r2n[01-20]")},
            "row2": {"leaf3": expand_slurm("r3n[01-04,07-08],g[1-8]")},
        }
    }


def test_tiers_whole_nodes_licences_and_requeue_are_those_of_the_site() -> None:
    condo = inspect_text(_import("partitions").text, "x.yaml", catalog.load()).result()
    assert {part.name: part.tier for part in condo.partitions if part.tier}["interactive"] == 100
    assert condo.slurm is not None
    assert condo.slurm.licenses == {"matlab": 10, "ansys@server": 5}
    block = inspect_text(_import("block").text, "x.yaml", catalog.load()).result()
    assert [part.exclusive for part in block.partitions] == [True]
    castle = inspect_text(_import("magic-castle").text, "x.yaml", catalog.load()).result()
    assert castle.slurm is not None
    assert castle.slurm.requeue is False


def test_setting_with_a_field_of_another_form_names_the_field() -> None:
    why = {
        (row.kind, row.key): row.why for row in _import("partitions").differences if row.change is Change.LOST
    }
    assert why["slurm.conf", "AccountingStorageHost"] == "not imported: the field `slurm.accounting`"
    assert (
        why["slurm.conf", "HealthCheckProgram"]
        == "not imported: write `health`: gpucluster's checks run on idle nodes"
    )
    assert why["partition", "QOS"] == (
        "not imported: it names accounts or QOS of the database; add the assoc.dump of `sacctmgr dump`"
    )
    assert why["slurm.conf", "Epilog"].startswith(
        "not imported: write `health`: gpucluster's checks run after each job"
    )


def test_named_fields_are_those_of_the_spec() -> None:
    named = {
        field
        for texts in OWNED.values()
        for text in texts.values()
        for field in re.findall(r"`([a-z_]+(?:\[\])?\.[a-z_.\[\]]+)`", text)
    }
    assert "slurm.accounting" in named
    for field in sorted(
        named - {"capacity[].machines", "aws.jobs", "sharing.mps", "head.state"}
    ):  # from a pool, or of AWS
        model: type = ClusterSpec
        for step in field.replace("[]", "").split("."):
            assert step in model.model_fields, field
            inner = _innermost(fields_of(model)[step].hint)[0]
            model = inner if isinstance(inner, type) else model


def test_settings_without_a_field_are_extra_and_a_path_of_the_site_is_not() -> None:
    spec = inspect_text(_import("partitions").text, "x.yaml", catalog.load()).result()
    assert spec.slurm is not None
    assert spec.slurm.extra["PriorityFlags"] == "MAX_TRES"
    assert {part.name: dict(part.extra) for part in spec.partitions}["interactive"]["MaxNodes"] == "1"
    assert {pool.name: dict(pool.extra) for pool in spec.pools}["r"]["Weight"] == "10"
    assert not [value for value in spec.slurm.extra.values() if "/" in value]
