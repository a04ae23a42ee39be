"""The table of Slurm's own values says what slurmctld of both versions has for keys that the rendered files of a site lack."""

import re
from pathlib import Path

import pytest
from real_slurm import VERSIONS, RealSlurm

from gpucluster import catalog
from gpucluster.importer import keys
from gpucluster.importer.run import import_files
from gpucluster.importer.slurm_defaults import DEFAULTS, NO_PLUGIN
from gpucluster.plan.resolve import resolve
from gpucluster.spec import inspect_text

CONF = "ClusterName=c\nSlurmctldHost=ctl\nNodeName=n1 CPUs=2\nPartitionName=p Nodes=n1 Default=YES\n"


@pytest.mark.parametrize("version", VERSIONS)
def test_slurmctld_has_the_values_of_the_table(version: str, tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(CONF)
    text = import_files([tmp_path], version=version).text
    plan = resolve(inspect_text(text, "x.yaml", catalog.load()).result(), catalog.load())
    assert plan.slurm is not None
    with RealSlurm(version, plan, nodes=False) as slurm:
        slurm.start_controller()
        shown = {"slurm.conf": slurm.show("config")[0], "partition": slurm.show("partitions")[0]}
    wrong = [
        (key, values, found.get(key))
        for kind, of in shown.items()
        for found in ({keys.canonical(kind, key): value for key, value in of.items()},)
        for key, values in DEFAULTS[kind].items()
        if not any(_same(value, found.get(key, "")) for value in values)
    ]
    assert wrong == []


def _same(value: str, shown: str) -> bool:
    """slurmctld shows a number with its unit, a user with the uid, and a plugin that does nothing as `(null)`."""
    word = re.split(r"[ (]", shown.lower())[0]
    return word == value or (value.endswith(NO_PLUGIN) and shown == "(null)")
