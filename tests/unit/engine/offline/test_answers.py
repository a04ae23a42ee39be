"""Tests of recorded answers: round trip, errors with their place, and identity of look-ups."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import a_plan

from gpucluster.engine.offline import Lookup, Planned, run
from gpucluster.engine.offline.answers import (
    AnswersError,
    Recording,
    how_to_answer,
    key,
    lacking,
    place,
    read,
    read_text,
    write,
)
from gpucluster.engine.offline.lookups import LOOKUPS, READ, STACK_REFERENCE

AMI = "aws:ec2/getAmi:getAmi"
ASKED = {"owners": ["self"]}


def of(folder: Path, text: str) -> tuple[Recording, ...]:
    (folder / "burst.yaml").write_text(text)
    return read(folder / "burst.yaml")


words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=30)  # the YAML reader keeps positions and is slow
@given(
    arguments=st.dictionaries(words, values, max_size=3), answer=st.none() | st.dictionaries(words, values)
)
def test_written_answers_are_read_back(
    arguments: dict[str, Any], answer: dict[str, Any] | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    one = Recording(token=STACK_REFERENCE, arguments=arguments, answer=answer)
    folder = tmp_path_factory.getbasetemp()
    assert of(folder, write([one])) == (one,)


entries = st.fixed_dictionaries(
    {"token": st.sampled_from([*READ, *LOOKUPS, "x"]) | words, "arguments": values, "answer": values},
    optional={"more": values},
)
files = st.fixed_dictionaries(
    {"schema": st.just(1) | values, "lookups": st.lists(entries, max_size=2) | values}
)


@settings(max_examples=60)
@given(text=st.text(max_size=60) | values.map(json.dumps) | files.map(json.dumps))
def test_any_text_is_answers_or_a_message_with_its_place(text: str) -> None:
    message = "burst.yaml:"
    try:
        found = read_text(text, "burst.yaml")
    except AnswersError as error:
        message = error.message
    else:
        in_order = sorted(found, key=lambda one: key(one.token, one.arguments))
        assert read_text(write(found), "burst.yaml") == tuple(in_order)
    assert message.startswith("burst.yaml:")
    assert "\n" not in message


def test_order_of_entries_does_not_matter() -> None:
    one, other = (Recording(token=AMI, arguments={"owners": [name]}) for name in ("a", "b"))
    assert write([one, other]) == write([other, one])


def test_program_without_lookups_writes_readable_file(tmp_path: Path) -> None:
    assert of(tmp_path, write(())) == ()


def test_missing_file_means_no_answers(tmp_path: Path) -> None:
    assert read(place(tmp_path / "burst.yaml", "burst")) == ()


ENTRY = f"  - {{token: {AMI}, arguments: {{}}, answer: null}}\n"
WRONG = {
    "no YAML": ("lookups: [", r"burst.yaml:1:\d+: "),
    "nothing": ("", "burst.yaml:1:1: "),
    "another schema": ("schema: 2\n", "schema: found 2, expected 1"),
    "a key that is not one": ("schema: 1\nlookup: []\n", "lookup"),
    "an entry without its arguments": (f"schema: 1\nlookups: [{{token: {AMI}}}]\n", "arguments"),
    "an answer that is none": (
        f"schema: 1\nlookups: [{{token: {AMI}, arguments: {{}}, answer: 3}}]\n", "answer"),
    "two answers": (f"schema: 1\nlookups:\n{ENTRY}{ENTRY}", "two answers to aws:ec2/getAmi:getAmi {}"),
    "a key twice": ("schema: 1\nschema: 1\n", r"burst.yaml:2:1: "),
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), list(WRONG.values()), ids=list(WRONG))
def test_invalid_file_error_names_file(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(AnswersError, match=said) as caught:
        of(tmp_path, text)
    assert "burst.yaml" in str(caught.value)


def test_binary_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "burst.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(AnswersError, match="cannot be read"):
        read(tmp_path / "burst.yaml")


def test_null_and_missing_arguments_are_equal() -> None:
    assert key(AMI, {"a": 1, "region": None}) == key(AMI, {"a": 1})


def test_unanswered_entry_is_not_missing() -> None:
    asked = tuple(Lookup(token=AMI, arguments={"owners": [name]}, answered=False) for name in ("a", "b"))
    planned = Planned(project="p", stack="s", resources=(), lookups=asked)
    entries = (Recording(token=AMI, arguments={"owners": ["a"]}),)
    assert lacking(planned, entries) == asked[1:]


def test_lines_are_added_to_existing_file(tmp_path: Path) -> None:
    question = Lookup(token=AMI, arguments=ASKED, answered=False)
    path = tmp_path / "burst.yaml"
    fresh = how_to_answer("burst.yaml", path, [question])
    assert "schema: 1\nlookups:\n  - token" in fresh
    path.write_text("schema: 1\nlookups:\n")
    assert "schema: 1" not in how_to_answer("burst.yaml", path, [question])


def planned(program: str, *answers: tuple[str, Mapping[str, Any], Mapping[str, Any] | None]) -> Planned:
    recorded = tuple(Recording(token=t, arguments=a, answer=said) for t, a, said in answers)
    return run(f"support.planned_programs:{program}", a_plan(), answers=recorded)


def test_recorded_answer_reaches_the_program_and_its_functions_run() -> None:
    found = planned("lookup_twice", (AMI, ASKED, {"id": "ami-1", "imageId": "ami-1"}))
    assert found.resources[0].properties == {"image": "ami-1", "of": "from ami-1"}
    assert [(one.token, one.answered) for one in found.lookups] == [(AMI, True)]


def test_answer_to_another_lookup_is_not_used() -> None:
    found = planned("lookup_twice", (AMI, {"owners": ["amazon"]}, {"imageId": "ami-1"}))
    assert found.resources[0].properties["image"] == "[unknown]"


LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"


@pytest.mark.parametrize(
    ("answer", "told"), [({"mountName": "abcd"}, "abcd"), (None, "[unknown]")], ids=["recorded", "open"]
)
def test_read_resource_is_a_lookup(answer: dict[str, str] | None, told: str) -> None:
    found = planned("reads_a_lustre", (LUSTRE, {"id": "fs-1"}, answer))
    assert [(one.arguments, one.answered) for one in found.lookups] == [({"id": "fs-1"}, answer is not None)]
    assert {r.name: r.properties for r in found.resources}["user"] == {"mount": told}


def test_every_lookup_lists_its_outputs() -> None:
    assert READ.keys() == LOOKUPS.keys()
