"""The model of Slurm is held to what the real daemons did: tests/recorded/transitions, by tools/record_slurm.py."""

from collections import Counter

import pytest
from support.slurm_model import Node, SlurmModel
from support.slurm_replay import VERSIONS, excluded, records, replay

AT_LEAST = {"22.05": 700, "24.11": 700, "26.05": 700}
MOST_EXCLUDED = 0.04


@pytest.mark.parametrize("version", VERSIONS)
def test_model_repeats_the_recorded_behaviour(version: str) -> None:
    found = list(records(version))
    held = [r for r in found if not excluded(r)]
    wrong = [m for r in held if (m := replay(r)) is not None]
    assert not wrong, "\n".join(map(str, wrong[:5])) + f"\n{len(wrong)} of {len(held)}"
    assert len(held) >= AT_LEAST[version]


@pytest.mark.parametrize("version", VERSIONS)
def test_exceptions_of_the_model_are_few_and_listed(version: str) -> None:
    found = list(records(version))
    why = Counter(excluded(r) for r in found)
    del why[""]
    assert sum(why.values()) <= MOST_EXCLUDED * len(found), why


@pytest.mark.parametrize("version", VERSIONS)
def test_every_verb_was_recorded_in_every_state(version: str) -> None:
    verbs = {"drain", "undrain", "down", "resume", "idle", "power_up", "power_down", "power_down_force", "power_down_asap"}  # fmt: skip
    states = {
        "idle~": {"IDLE", "POWERED_DOWN"},
        "alloc#": {"ALLOCATED", "POWERING_UP", "NOT_RESPONDING"},
        "idle": {"IDLE"},
        "alloc": {"ALLOCATED"},
        "idle drained": {"IDLE", "DRAIN"},
        "alloc!": {"ALLOCATED", "POWER_DOWN"},
        "idle%": {"IDLE", "POWERING_DOWN"},
        "down": {"DOWN"},
        "down#": {"DOWN", "POWERING_UP", "NOT_RESPONDING"},
    }
    met = {
        (name, r["stimulus"]["do"])
        for r in records(version)
        for name, words in states.items()
        if any(set(n["states"]) - {"CLOUD"} == words for n in r["before"]["nodes"].values())
    }
    assert not {(name, verb) for name in states for verb in verbs} - met


class Deaf(SlurmModel):
    """It takes no power_down."""

    def _power_down(self, node: Node) -> None:
        pass


@pytest.mark.parametrize("version", VERSIONS)
def test_model_without_a_rule_fails(version: str) -> None:
    asked = [r for r in records(version) if r["stimulus"]["do"] == "power_down" and not excluded(r)]
    wrong = [r for r in asked if replay(r, Deaf) is not None]
    assert len(wrong) >= 10
