"""Tests of whole programs through the planner, each in its own process: results and failures."""

import json
import re
from typing import Any

import pytest
from support.builders import a_plan

from gpucluster.engine.offline import Lookup, Planned, ProgramError, Resource, run
from gpucluster.engine.offline.show import comment, lines
from gpucluster.plan.codec import dumps, loads

AT = "urn:pulumi:burst::gpucluster::"
BOX, THING = "test:index:Box", "test:index:Thing"
PLANTED = "planted-7f3a"  # the secret of `planned_programs.secrets`


def planned(program: str, **more: Any) -> Planned:
    return run(f"support.planned_programs:{program}", a_plan(), **more)


def failing(program: str, **more: Any) -> ProgramError:
    with pytest.raises(ProgramError) as caught:
        planned(program, **more)
    return caught.value


def by_name(found: Planned) -> dict[str, Resource]:
    return {r.name: r for r in found.resources}


def test_urn_carries_the_types_of_every_parent() -> None:
    found = planned("nested")
    first, outer = f"{AT}{BOX}${BOX}${THING}::first", f"{AT}{BOX}::outer"
    assert {r.urn: r.parent for r in found.resources} == {
        outer: None,
        f"{AT}{BOX}${BOX}::inner": outer,
        first: f"{AT}{BOX}${BOX}::inner",
        f"{AT}{BOX}${BOX}${THING}::second": f"{AT}{BOX}${BOX}::inner",
        f"{AT}{THING}::third": None,
        f"{AT}{THING}::odd::name": None,
    }
    assert [r.urn for r in found.resources] == sorted(r.urn for r in found.resources)
    names = by_name(found)
    assert names["second"].property_dependencies == {"of": (first,)}
    assert names["third"].dependencies == (first,)
    assert names["outer"].outputs == {"first": first}
    assert {name: r.custom for name, r in names.items() if not r.custom} == {"outer": False, "inner": False}


def test_same_name_under_another_type_is_another_resource() -> None:
    assert len(planned("same_name_elsewhere").resources) == 3


def test_secret_is_masked_at_any_depth() -> None:
    found = planned("secrets")
    first = by_name(found)["first"]
    assert first.properties == {
        "asset": {"asset": {"text": "open"}},
        "json": "[secret]",
        "list": ["open", "[secret]", {"deep": ["[secret]"]}],
        "map": {"hidden": "[secret]", "open": 1},
        "named": "[secret]",
        "plain": "[secret]",
        "text": "[secret]",
        "whole": "[secret]",
    }
    assert found.outputs == {"hidden": "[secret]", "list": ["[secret]", "open"]}
    told = (dumps(found), "\n".join(lines(found, properties=True)), comment(found, reproduce="x"))
    assert [PLANTED in text for text in told] == [False, False, False]
    assert all("[secret]" in text.replace("\\[", "[").replace("\\]", "]") for text in told)


def test_cloud_values_are_unknown_and_apply_does_not_run() -> None:
    found = planned("unknowns")
    names = by_name(found)
    assert names["made"].properties == {"count": 3, "half": 0.5, "yes": True}
    assert isinstance(names["made"].properties["count"], int)
    assert names["after"].properties == {"id": "[unknown]", "list": ["[unknown]", 1], "text": "[unknown]"}
    assert found.outputs == {"id": "[unknown]"}


def test_every_option_is_recorded() -> None:
    found = by_name(planned("options"))
    kept = found["kept"]
    first = f"{AT}{THING}::first"
    assert (kept.protect, kept.retain_on_delete, kept.delete_before_replace) == (True, True, True)
    assert (kept.ignore_changes, kept.replace_on_changes) == (("a", "b"), ("a",))
    assert (kept.deleted_with, kept.timeouts.create, kept.version) == (first, "60m", "1.2.3")
    assert kept.aliases == (f"{AT}{THING}::older",)
    assert kept.properties["ref"] == first
    assert (found["taken"].import_id, found["taken"].external) == ("i-1", False)
    assert (found["theirs"].import_id, found["theirs"].external) == ("vpc-9", True)


@pytest.mark.loopback
def test_transforms_run_in_the_engine_s_order_and_change_options() -> None:
    """The SDK calls transforms back on its own server, which listens on 127.0.0.1."""
    found = by_name(planned("transforms"))
    assert found["child"].properties == {"seen": "own parent stack "}
    assert found["child"].ignore_changes == ("own ", "parent ", "stack ")
    assert found["top"].properties == {"seen": "stack "}
    assert (found["top"].protect, found["box"].protect) == (True, False)


def test_known_lookup_is_recorded_once_with_unknown_answer() -> None:
    found = planned("lookup_twice")
    assert found.lookups == (
        Lookup(token="aws:ec2/getAmi:getAmi", arguments={"owners": ["self"]}, answered=False),
    )
    assert found.resources[0].properties == {"image": "[unknown]", "of": "[unknown]"}
    assert any(
        line.startswith("looked up at `pulumi up`: the machine image")
        for line in lines(found, properties=False)
    )


def test_outputs_of_another_stack_are_reported_as_unknown() -> None:
    found = planned("reference")
    assert by_name(found)["user"].properties == {"must": "[unknown]", "vpc": "[unknown]"}
    (lookup,) = found.lookups
    assert lookup.arguments == {"name": "organization/gpucluster/shared"}
    assert by_name(found)["other"].external


def test_program_output_is_passed_through() -> None:
    said: list[str] = []
    planned("logs", report=said.append)
    assert sorted(said) == [
        "info: told by the log", "printed", "warning: in two lines", "warning: warned", "written"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (
            "twice",
            r"planned_programs.py:\d+: two resources have the same name: test:index:Thing 'same' \(urn:",
        ),
        ("unknown_lookup", r"it looks up 'aws:ec2/getVpcs:getVpcs', which the offline planner does not know"),
        ("method_of_a_provider", r"it calls 'aws:x/y:z', a provider's method"),
        ("remote_component", r"aws:x:Remote 'far' is a component of a provider"),
        ("failing_transform", r"planned_programs.py:\d+: a transform failed: no one here$"),
        ("raises", r"planned_programs.py:\d+: ValueError: the plan is upside down$"),
        ("raises_later", r"planned_programs.py:\d+: ZeroDivisionError: division by zero$"),
        ("exits", r"planned_programs.py:\d+: it left with SystemExit\(3\)$"),
        ("dies", r"it ended its process with code 7\n  next: it must return"),
        ("nothing", r"it ended and declared nothing$"),
        ("nowhere", r"AttributeError: module 'support.planned_programs' has no attribute 'nowhere'$"),
    ],
)
@pytest.mark.loopback
def test_unplannable_program_gives_one_sentence(program: str, said: str) -> None:
    """The error has the traceback as a note."""
    error = failing(program)
    assert error.exit_code == 2
    assert "Traceback" not in str(error)
    assert re.search(rf"^support.planned_programs:{program} cannot be planned: .*{said}", str(error))


def test_traceback_is_a_note() -> None:
    assert any("in raises" in note for note in failing("raises").__notes__)
    assert "the last words" in failing("dies").__notes__


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("hangs", r"it did not end within 3 s: it stands at support/planned_programs.py:\d+"),
        ("never_told", r"it did not end within 3 s: it waits for an output that nothing gives"),
    ],
)
def test_hanging_program_is_stopped(program: str, said: str) -> None:
    assert re.search(said, str(failing(program, limit_s=3)))


def test_result_is_deterministic_and_round_trips() -> None:
    one, other = (dumps(run("gpucluster.aws.program:declare", a_plan())) for _ in range(2))
    assert one == other
    assert dumps(loads(Planned, one)) == one
    assert json.loads(one)["stack"] == "burst"
