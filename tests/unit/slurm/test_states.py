"""The one table of state words: all recorded words are in it, and no other module spells one."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpucluster.slurm import parse
from gpucluster.slurm.states import (
    BASES,
    CYCLE,
    FLAGS,
    PHASES,
    JobState,
    NodeState,
    SlurmPhase,
    canonical,
    classify,
)

REPOSITORY = Path(__file__).parents[3]
SOURCE, RECORDED = REPOSITORY / "src/gpucluster", REPOSITORY / "tests/recorded"
TABLE = "slurm/states.py"
ALLOWED = {  # module -> word -> reason: the literal is no node state
    ("engine/values.py", "UNKNOWN"): "a value of Pulumi that is not known before the update",
    ("slurm/config/views.py", "UNKNOWN"): "the State of a NodeName line of slurm.conf, not of scontrol",
    ("slurm/config/views.py", "CLOUD"): "the State of a NodeName line of slurm.conf, not of scontrol",
    ("slurm/parse.py", "DOWN"): "of a slurmctld that answers no ping",
}
VERSIONS = ("22.05", "24.11", "26.05")


def literals(words: set[str]) -> Iterator[tuple[str, str]]:
    """The literals of the modules that contain a word: to parse each module takes seconds."""
    for path in sorted(SOURCE.rglob("*.py")):
        name, text = path.relative_to(SOURCE).as_posix(), path.read_text()
        for node in ast.walk(ast.parse(text)) if any(word in text for word in words) else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and name != TABLE:
                yield name, node.value


def test_only_the_table_spells_node_states() -> None:
    words = {state.value for state in NodeState}
    spelled = {(name, text) for name, text in literals(words) if text in words}
    assert spelled == ALLOWED.keys(), "use gpucluster.slurm.states.NodeState, or add a row with a reason"


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_states_are_in_the_table(version: str) -> None:
    nodes, jobs = set[str](), set[str]()
    for line in (RECORDED / f"transitions/{version}.jsonl").read_text().splitlines():
        for side in (json.loads(line)["before"], json.loads(line)["after"]):
            for node in side.get("nodes", {}).values():
                states = canonical(node.get("states", ()))
                nodes |= states
                assert not states or classify(states) is not SlurmPhase.UNKNOWN, states
            for job in side.get("jobs", {}).values():
                jobs |= set((job or {}).get("states", ()))
    assert nodes <= set(NodeState)
    assert jobs <= set(JobState)
    assert len(nodes) > 10


ANSWERS = {
    "nodes": parse.parse_nodes,
    "jobs": parse.parse_jobs,
    "reservations": parse.parse_reservations,
    "pings": parse.parse_pings,
}
RECORDINGS = [
    path
    for path in sorted(RECORDED.glob("*/*/*.json"))
    if ANSWERS.keys() & json.loads(path.read_text()).keys()
]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.relative_to(RECORDED).as_posix())
def test_recorded_answers_parse(path: Path) -> None:
    (kind,) = ANSWERS.keys() & json.loads(path.read_text()).keys()
    found = ANSWERS[kind](path.read_text())
    assert len(found) == len(json.loads(path.read_text())[kind])


def test_recordings_of_all_kinds_exist() -> None:
    kinds = {kind for path in RECORDINGS for kind in ANSWERS.keys() & json.loads(path.read_text()).keys()}
    assert kinds == ANSWERS.keys()


def test_tables_use_only_their_own_words() -> None:
    assert BASES.isdisjoint(FLAGS)
    assert set(NodeState) == BASES | FLAGS
    assert {word for words, _ in PHASES for word in words} <= set(NodeState)
    assert {word for word, _ in CYCLE} <= set(NodeState)
    assert {phase for _, phase in PHASES} | {SlurmPhase.UP, SlurmPhase.UNKNOWN} == set(SlurmPhase)
