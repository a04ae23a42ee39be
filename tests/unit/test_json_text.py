"""Readers of JSON that others write: text that is nested deeper than Python reads is text that does not fit, as any other."""

import io
import json
import tarfile
from collections.abc import Callable
from gzip import compress
from pathlib import Path

import pytest

from gpucluster import artifacts
from gpucluster.cli import comment_api
from gpucluster.cloud import bundle_status
from gpucluster.errors import GpuclusterError
from gpucluster.json_text import parse_json
from gpucluster.k8s_apply import program
from gpucluster.plan import codec, plan_json
from gpucluster.plan.model import Bindings
from gpucluster.slurm import observed_switches
from gpucluster.slurm.accounts import read
from gpucluster.slurm.accounts.read import AccountsAnswerError

ROOT = Path(__file__).parents[2] / "src/gpucluster"
NESTED = "[" * 100_000
# Modules that read only what this program writes, or what the engine's programs print on this computer, and the programs
# of one file, which import nothing of ours
ITS_OWN = ("sandbox/", "catalog/", "engine/", "checks/daemon_journal.py")


def bundle(manifest: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        info = tarfile.TarInfo(artifacts.MANIFEST)
        info.size = len(manifest)
        tar.addfile(info, io.BytesIO(manifest.encode()))
    return compress(packed.getvalue())


def test_bundle_with_a_nested_manifest_is_refused() -> None:
    """Regression (X9): the agent ended, and its unit started it again without end."""
    with pytest.raises(ValueError, match="nested"):
        artifacts.unpack(bundle(NESTED))


READERS: dict[str, Callable[[str], object]] = {
    "a value": parse_json,
    "a plan": plan_json.load,
    "a message": lambda text: codec.loads(Bindings, text),
    "a whole message": lambda text: codec.loads_whole(Bindings, text),
    "a message of another version": lambda text: codec.loads_known(Bindings, text),
    "switches": observed_switches.loads,
    "the status of a bundle": lambda text: bundle_status._object(text.encode()),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_nested_text_does_not_fit(reader: Callable[[str], object]) -> None:
    with pytest.raises(ValueError, match="nested"):
        reader(NESTED)


def test_nested_answers_are_refused_by_their_readers() -> None:
    with pytest.raises(AccountsAnswerError, match="is not JSON"):
        list(read._items(NESTED, "accounts"))
    with pytest.raises(GpuclusterError, match="something other than JSON"):
        program.parsed(NESTED, "helm list")
    assert comment_api._reason(NESTED.encode()) == ""


def test_values_are_those_of_json() -> None:
    value = {"a": [1, 2.5, None, True, "x"], "b": {}}
    assert parse_json(json.dumps(value)) == value
    assert parse_json(json.dumps(value).encode()) == value
    with pytest.raises(ValueError, match="Expecting"):
        parse_json("{")


def test_no_other_module_reads_json_of_others_by_itself() -> None:
    """Then nested text would end the program with a RecursionError, which no reader expects."""
    found = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if "json.loads(" in path.read_text() or "json.load(" in path.read_text()
    }
    assert sorted(one for one in found if not one.startswith(ITS_OWN)) == ["json_text.py"]
