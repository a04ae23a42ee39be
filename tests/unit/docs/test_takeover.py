"""docs/takeover.md: its commands parse, and its folders, names and words are those of the code."""

import re
from pathlib import Path

import pytest
from support.page_commands import commands_of, require_parsable

from gpucluster.plan import names
from gpucluster.plan.slurm_identity import ID_MISMATCH, NAME_MISMATCH, STATE

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs/takeover.md").read_text()
LINES = commands_of(TEXT)
OURS = [
    *(words for words in LINES if words[0] == "gpucluster"),
    *(found.split() for found in re.findall(r"`(gpucluster [a-z]+ [^`]+)`", TEXT)),
]


@pytest.mark.parametrize("words", OURS, ids=" ".join)
def test_each_verb_and_option_exists_and_takes_what_is_given(words: list[str]) -> None:
    require_parsable(words)


def test_commands_have_the_folder_of_the_state_and_the_key() -> None:
    (copy,) = (words for words in LINES if words[0] == "cp")
    (key,) = (words for words in LINES if words[0] == "install")
    assert (copy[-1], key[-1]) == (STATE, names.MUNGE_KEY)
    assert NAME_MISMATCH in TEXT
    assert ID_MISMATCH in TEXT


def test_playbook_makes_a_key_only_if_there_is_none_and_looks_at_the_uids_first() -> None:
    playbook = (ROOT / "playbooks/site.yml").read_text()
    assert "Create the key if the head has none" in playbook
    assert re.search(r"mungekey, --create.*\n\s+creates:", playbook)
    assert playbook.index("names and uids of the users are free") < playbook.index("Create the users")


def test_named_files_exist() -> None:
    assert all((ROOT / file).is_file() for file in re.findall(r"`((?:tests|playbooks)/[a-z_./]+)`", TEXT))
