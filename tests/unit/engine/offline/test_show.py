"""Tests of showing a planned program: complete, and safe against hostile texts."""

import re
from typing import Any

import pytest

from gpucluster.engine.offline.model import Lookup, Planned, Resource, Timeouts
from gpucluster.engine.offline.show import comment, counts, flags, lines, verdict

AT = "urn:pulumi:s::p::"


def a_resource(name: str, *, parent: Resource | None = None, **more: Any) -> Resource:
    kind = more.pop("type", "aws:ec2/vpc:Vpc")
    chain = f"{parent.type}$" if parent else ""
    given = {"custom": True, "parent": parent.urn if parent else None, **more}
    return Resource(urn=f"{AT}{chain}{kind}::{name}", type=kind, name=name, **given)


def a_planned(*resources: Resource, **more: Any) -> Planned:
    return Planned(project="p", stack="s", resources=resources, **more)


NET = a_resource("net", type="my:aws:Network", custom=False)
VPC = a_resource("vpc", parent=NET, protect=True, properties={"cidr": "10.0.0.0/16", "arn": "[unknown]"})
RULE = a_resource("rule", type="aws:ec2/rule:Rule", parent=NET, dependencies=(VPC.urn,))
KEYS = a_resource("aws", type="pulumi:providers:aws")
THEIRS = a_resource("theirs", external=True, import_id="vpc-9")
HOSTILE = a_resource("a|`b` @team </details>\n~~~\n\x1b[31m", properties={"x": "~~~~\n@all `</details>|"})
WHOLE = a_planned(NET, VPC, RULE, KEYS, THEIRS, outputs={"id": "[unknown]"})


def test_summary_counts_cloud_resources_separately() -> None:
    assert verdict(WHOLE) == "s: 2 resources in the cloud, 1 component, 1 provider, 1 only read"
    assert verdict(a_planned(VPC)) == "s: 1 resource in the cloud"
    assert counts(WHOLE).by_type == {"aws:ec2/rule:Rule": 1, "aws:ec2/vpc:Vpc": 1}


def test_tree_shows_each_resource_once_below_parent() -> None:
    told = list(lines(WHOLE, properties=True))
    assert told[2:8] == [
        "aws:ec2/vpc:Vpc theirs  [only read: vpc-9]",
        "my:aws:Network net",
        "  aws:ec2/rule:Rule rule",
        "      after Vpc vpc",
        "  aws:ec2/vpc:Vpc vpc  [protected]",
        '      cidr = "10.0.0.0/16"',
    ]
    assert "exports id = [unknown]" in told
    assert not any("cidr" in line for line in lines(WHOLE, properties=False))


def test_long_list_of_dependencies_is_cut_without_properties() -> None:
    many = a_resource("many", dependencies=tuple(f"{AT}aws:ec2/vpc:Vpc::v{n}" for n in range(9)))
    brief, full = ("\n".join(lines(a_planned(many), properties=p)) for p in (False, True))
    assert "Vpc v5 and 3 more" in brief
    assert "Vpc v8" in full


@pytest.mark.parametrize(
    ("option", "word"),
    [
        ({"retain_on_delete": True}, "kept when removed"),
        ({"delete_before_replace": True}, "deleted before it is replaced"),
        ({"import_id": "vpc-1"}, "adopts vpc-1"),
        ({"ignore_changes": ("tags", "x")}, "ignores changes of tags, x"),
        ({"replace_on_changes": ("cidr",)}, "replaced on changes of cidr"),
        ({"deleted_with": VPC.urn}, "goes with vpc"),
        ({"aliases": (f"{AT}aws:ec2/vpc:Vpc::older",)}, "aliases: older"),
        ({"aliases": (f"{AT}aws:ec2/old:Old::one",)}, "aliases: aws:ec2/old:Old"),
        ({"aliases": (f"{AT}my:Box$aws:ec2/vpc:Vpc::one",)}, f"aliases: {AT}my:Box$aws:ec2/vpc:Vpc::one"),
        ({"timeouts": Timeouts(create="60m", delete="5m")}, "waits 60m to create, 5m to delete"),
    ],
)
def test_options_are_shown_as_words(option: dict[str, Any], word: str) -> None:
    assert list(flags(a_resource("one", **option))) == [word]


def test_lookup_is_shown_as_answered_or_not() -> None:
    open_one = Lookup(token="aws:ec2/getAmi:getAmi", arguments={"owners": ["self"]}, answered=False)
    known = Lookup(token="aws:x:y", arguments={}, answered=True)
    told = "\n".join(lines(a_planned(VPC, lookups=(open_one, known)), properties=False))
    assert 'looked up at `pulumi up`: the machine image (aws:ec2/getAmi:getAmi: {"owners": ["self"]})' in told
    assert "known from a recorded answer: aws:x:y (aws:x:y: {})" in told


def test_comment_has_a_table_by_component_and_a_part_for_each() -> None:
    told = comment(WHOLE, reproduce="gpucluster plan s.yaml --resources")
    assert "| `my:aws:Network net` | 2 | 1 `Rule`, 1 `Vpc` | `vpc` |" in told
    assert "| the stack | 0 | - | - |" in told
    assert told.count("<details>") == told.count("</details>") == 2
    assert '    cidr = "10.0.0.0/16"' in told


def test_hostile_names_and_values_do_not_act_in_a_comment() -> None:
    told = comment(a_planned(HOSTILE), reproduce="x")
    outside = re.sub(r"(?ms)^(~{3,})\n.*?^\1$", "", told)
    assert outside.count("<details>") == outside.count("</details>") == 1
    assert "@team" not in re.sub(r"`+[^`]*`+", "", outside)
    assert "\x1b" not in told


def test_hostile_names_do_not_steer_a_terminal() -> None:
    told = list(lines(a_planned(HOSTILE), properties=True))
    assert all(line.isprintable() for line in told)


def test_long_comment_keeps_its_summary_and_counts_omitted_parts() -> None:
    boxes = [a_resource(f"box{n}", type="my:aws:Box", custom=False) for n in range(40)]
    inside = [a_resource(f"v{n}", parent=box, properties={"x": "y" * 900}) for n, box in enumerate(boxes)]
    told = comment(a_planned(*boxes, *inside), reproduce="see", limit=20_000)
    assert len(told) <= 20_000
    assert told.count("| `my:aws:Box box") == 40, "the table is whole"
    assert re.search(r"\d+ of 40 parts left out: `see --properties` shows them\n$", told)
