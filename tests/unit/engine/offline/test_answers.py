"""Recorded answers: read and written the same, wrong ones named by place, and a question's identity."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from builders import a_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucluster.engine.offline import Lookup, Planned, run
from gpucluster.engine.offline.answers import (
    AnswersError,
    Recording,
    key,
    lacking,
    place,
    read,
    refuse,
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


@settings(max_examples=30)  # the YAML reader keeps marks, and takes its time
@given(
    arguments=st.dictionaries(words, values, max_size=3), answer=st.none() | st.dictionaries(words, values)
)
def test_what_is_written_is_read_back(
    arguments: dict[str, Any], answer: dict[str, Any] | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    one = Recording(token=STACK_REFERENCE, arguments=arguments, answer=answer)
    folder = tmp_path_factory.getbasetemp()
    assert of(folder, write([one])) == (one,)


def test_the_order_of_entries_does_not_show() -> None:
    one, other = (Recording(token=AMI, arguments={"owners": [name]}) for name in ("a", "b"))
    assert write([one, other]) == write([other, one])


def test_a_program_that_asks_nothing_leaves_a_file_that_can_be_read(tmp_path: Path) -> None:
    assert of(tmp_path, write(())) == ()


def test_no_file_is_no_answer(tmp_path: Path) -> None:
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
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(AnswersError, match=said) as caught:
        of(tmp_path, text)
    assert "burst.yaml" in str(caught.value)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "burst.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(AnswersError, match="cannot be read"):
        read(tmp_path / "burst.yaml")


def test_null_arguments_and_none_are_the_same_question() -> None:
    assert key(AMI, {"a": 1, "region": None}) == key(AMI, {"a": 1})


def test_what_has_an_entry_is_not_lacking_even_when_it_was_left_open() -> None:
    asked = tuple(Lookup(token=AMI, arguments={"owners": [name]}, answered=False) for name in ("a", "b"))
    planned = Planned(project="p", stack="s", resources=(), lookups=asked)
    entries = (Recording(token=AMI, arguments={"owners": ["a"]}),)
    assert lacking(planned, entries) == asked[1:]


def test_lines_are_added_to_a_file_that_is_there(tmp_path: Path) -> None:
    question = Lookup(token=AMI, arguments=ASKED, answered=False)
    path = tmp_path / "burst.yaml"
    fresh = str(refuse("burst", "burst.yaml", path, [question]))
    assert "schema: 1\nlookups:\n  - token" in fresh
    path.write_text("schema: 1\nlookups:\n")
    assert "schema: 1" not in str(refuse("burst", "burst.yaml", path, [question]))


def planned(program: str, *answers: tuple[str, Mapping[str, Any], Mapping[str, Any] | None]) -> Planned:
    recorded = tuple(Recording(token=t, arguments=a, answer=said) for t, a, said in answers)
    return run(f"planned_programs:{program}", a_plan(), answers=recorded)


def test_a_recorded_answer_reaches_the_program_and_its_functions_run() -> None:
    found = planned("lookup_twice", (AMI, ASKED, {"id": "ami-1", "imageId": "ami-1"}))
    assert found.resources[0].properties == {"image": "ami-1", "of": "from ami-1"}
    assert [(one.token, one.answered) for one in found.lookups] == [(AMI, True)]


def test_an_answer_to_another_question_answers_nothing() -> None:
    found = planned("lookup_twice", (AMI, {"owners": ["amazon"]}, {"imageId": "ami-1"}))
    assert found.resources[0].properties["image"] == "[unknown]"


LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"


@pytest.mark.parametrize(
    ("answer", "told"), [({"mountName": "abcd"}, "abcd"), (None, "[unknown]")], ids=["recorded", "open"]
)
def test_what_is_only_read_is_a_question_too(answer: dict[str, str] | None, told: str) -> None:
    found = planned("reads_a_lustre", (LUSTRE, {"id": "fs-1"}, answer))
    assert [(one.arguments, one.answered) for one in found.lookups] == [({"id": "fs-1"}, answer is not None)]
    assert {r.name: r.properties for r in found.resources}["user"] == {"mount": told}


def test_every_look_up_says_what_is_read_of_its_answer() -> None:
    assert READ.keys() == LOOKUPS.keys()
