"""Tests of a diff as text, JSON and comment: complete, of limited length, and safe."""

import json
import re
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from support.builders import KUBE, a_spec_text
from support.golden_tree import Golden
from support.reviewed import a_diff

from gpucluster.cost import Amount
from gpucluster.cost.estimate import CostLine
from gpucluster.gitops.model import (
    Consequence,
    Diff,
    Effects,
    FileChange,
    Kind,
    PoolFacts,
    PoolRow,
    PropertyChange,
    ResourceChange,
    SpecChange,
)
from gpucluster.gitops.report.markdown import LIMIT, markdown, not_compared
from gpucluster.gitops.report.text import text
from gpucluster.gitops.report.values import values
from gpucluster.spec import Level, Problem, UpdateClass
from gpucluster.spec.problem import Mark

EAST = (("region: us-east-2", "region: us-east-1"), ("[us-east-2a, us-east-2b]", "[us-east-1a, us-east-1b]"))
OLD = a_spec_text(*EAST)
NEW = a_spec_text(
    ("region: us-east-2", "region: us-east-1"),
    ("[us-east-2a, us-east-2b]", "[us-east-1b, us-east-1a]"),
    ("max: 16", "max: 8"),
    ("idle: 5m", "idle: 10m"),
    ("machines: [p5en.48xlarge, p5e.48xlarge]", "machines: [p5en.48xlarge]"),
    (
        "partitions:\n",
        "  - {name: a100, nodes: 2, capacity: [{from: on-demand, machines: [p4d.24xlarge]}]}\npartitions:\n",
    ),
    ("pools: [h200]", "pools: [h200, a100]"),
    ("machine: m7i.2xlarge", "machine: m7i.xlarge"),
)
RESOURCES = (
    ResourceChange(
        type="aws:ec2/instance:Instance",
        name="burst-head",
        kind=Kind.REPLACED,
        update=UpdateClass.REPLACE,
        properties=(
            PropertyChange(name="privateIp", before="10.42.0.10", after="10.42.32.10", replaces=True),
        ),
        why="privateIp cannot change in place",
    ),
    ResourceChange(
        type="aws:ec2/launchTemplate:LaunchTemplate",
        name="burst-a100-spot-p4d.24xlarge",
        kind=Kind.ADDED,
        update=UpdateClass.LIVE,
    ),
)
RICH = a_diff(OLD, NEW, RESOURCES)


def _markdown(diff: Diff, command: str = "gpucluster diff old new") -> str:
    return markdown(diff, version="0.0.0", command=command)


def test_whole_comment(golden: Golden) -> None:
    command = "gpucluster diff main:stacks/burst.yaml stacks/burst.yaml"
    reports = {
        "comment.md": f"{_markdown(RICH, command)}\n".encode(),
        "report.txt": f"{text(RICH)}\n".encode(),
        "report.json": (json.dumps(values(RICH), indent=1, sort_keys=True) + "\n").encode(),
    }
    golden("diff", reports)


def test_same_diff_gives_the_same_bytes() -> None:
    again = a_diff(OLD, NEW, RESOURCES)
    assert (_markdown(RICH), text(RICH), values(RICH)) == (_markdown(again), text(again), values(again))


def test_changes_of_who_gets_in_have_a_line_of_their_own() -> None:
    """Regression: a reviewer could not see a wider address range or a new permission between the changes of pools."""
    region = "region: us-east-2"
    wider = a_diff(
        a_spec_text((region, f"{region}\n  jobs: {{read: [s3://one-bucket]}}")),
        a_spec_text(
            (region, f"{region}\n  jobs: {{read: [s3://one-bucket, s3://other-bucket]}}"),
            ("max: 16", "max: 8"),
        )
        + "access: {ssh_from: [198.51.100.0/24]}\nusers: [{name: vision, uid: 5001}]\n",
    )
    line = next(one for one in text(wider).splitlines() if one.startswith("who gets in: "))
    assert [part.split(": ")[0] for part in line.removeprefix("who gets in: ").split("; ")] == [
        "access", "aws.jobs.read", "users[vision]"
    ]  # fmt: skip
    assert "**Who gets in** changes: `access: added" in _markdown(wider)
    assert values(wider)["who_gets_in"] == ["access", "aws.jobs.read", "users[vision]"]


def test_who_gets_into_kubernetes_has_the_line_too() -> None:
    """Regression: a new administrator of EKS was a change between others."""
    member = "arn:aws:iam::123456789012:role/vision"
    old, team = KUBE, "- {name: research, quota: {nvidia.com/gpu: 32}"
    new = old.replace(
        "  control_plane: eks\n",
        f"  control_plane: eks\n  admins: [{member}]\n  api_from: [198.51.100.0/24]\n",
    ).replace(
        team, f"{team}, members: [{member}], service_accounts: [{{name: trainer, read: [s3://example-data]}}]"
    )
    wider = a_diff(old, new)
    assert values(wider)["who_gets_in"] == [
        "kubernetes.admins", "kubernetes.api_from", "kubernetes.teams[research].members", "kubernetes.teams[research].service_accounts[trainer]"
    ]  # fmt: skip


def test_without_changes_of_access_there_is_no_such_line() -> None:
    assert "ho gets in" not in text(RICH) + _markdown(RICH)
    assert values(RICH)["who_gets_in"] == []


def test_first_line_identifies_comment() -> None:
    assert _markdown(RICH).splitlines()[0] == "<!-- gpucluster:diff:burst -->"


def test_no_difference_has_a_sentence() -> None:
    same = a_diff(OLD, OLD)
    assert "no change" in text(same).splitlines()[1]
    assert "## burst: no change\n" in _markdown(same)
    assert values(same)["worst"] is None


def test_sum_with_unknown_part_is_marked() -> None:
    same = a_diff(OLD, OLD)
    for report in (text(same), _markdown(same)):
        assert "at least 739,628.12 USD" in report
        assert "p5e.48xlarge (no on-demand price)" in report
    assert values(same)["cost"]["after"]["max"] == {
        "known": "739628.12",
        "unknown": ["p5e.48xlarge (no on-demand price)"],
        "quantities": {"p5e.48xlarge (no on-demand price)": "16"},
    }


def test_both_prices_known_give_the_difference() -> None:
    old, new = (
        a_spec_text(*EAST, (", p5e.48xlarge", ""), ("max: 16", most)) for most in ("max: 16", "max: 17")
    )
    assert "(+46,206.08 USD at most)" in text(a_diff(old, new))


@pytest.mark.parametrize("count", [1, 40, 4000])
def test_comment_stays_below_size_limit(count: int) -> None:
    change = SpecChange(
        path="p" * 300, kind=Kind.CHANGED, before="<" * 300, after="|" * 300, update=UpdateClass.LIVE
    )
    file = FileChange(path="slurm/slurm.conf", kind=Kind.CHANGED, diff="+x\n" * 900, lines=900)
    facts = PoolFacts(
        least=0,
        most=1,
        machines=("p5.48xlarge",) * 9,
        gpus="8 x h100",
        cost_least=Amount(),
        cost_most=Amount(),
    )
    long = replace(
        RICH,
        spec=tuple(replace(change, update=update) for update in UpdateClass for _ in range(-(-count // 8))),
        files=tuple(replace(file, path=f"slurm/{n}.conf") for n in range(min(count, 400))),
        resources=RESOURCES * count,
        pools=tuple(PoolRow(name=f"pool-{n}", before=None, after=facts) for n in range(count)),
    )
    made = _markdown(long, "gpucluster diff " + "x" * 5000)
    assert len(made) <= LIMIT
    assert "| `pool-0` |" in made
    assert "### Changes" in made
    assert made.splitlines()[-1].startswith("gpucluster 0.0.0, prices of ")
    assert ("Left out" in made) is (count > 1)


def test_comment_without_resources_says_so() -> None:
    """The reason is on standard error, which reviewers of a pull request do not see."""
    assert "\n\nResources were not compared.\n" in _markdown(a_diff(OLD, NEW))
    assert "Resources: none touched" in _markdown(a_diff(OLD, NEW, ()))


def test_omitted_parts_are_named() -> None:
    big = FileChange(path="slurm/slurm.conf", kind=Kind.CHANGED, diff="+x\n" * 30_000, lines=30_000)
    small = replace(big, path="slurm/gres.conf", diff="+y", lines=1)
    made = _markdown(replace(RICH, files=(big, small)))
    assert "Left out because of the size limit of a comment: `slurm/slurm.conf` (30000 lines)." in made
    assert "slurm/gres.conf" in made


HOSTILE = st.text(
    min_size=1, alphabet="ab01|`~<>@#*_[]()\\&!-=+.$:/\"' \n\r\t\x1b\x07\x00\u202e\u2028\ud800", max_size=40
)
FAR_GONE = (
    "</details><script>alert(1)</script>",
    "@everyone #1 [x](javascript:alert(1)) ![i](x) https://example.org",
    "`</code>` ~~~~~~~\n~~~~\n</details>\n# heading\n| a | b |",
    "\x1b]0;title\x07\x1b[2J\x1b[31m",
    "--> <!--",
)
BLOCKS = {"html_inline", "link_open", "image", "hr", "blockquote_open", "softbreak"}


def _poisoned(poison: str) -> Diff:
    """Return every text that a spec, a file or a program can influence."""
    facts = PoolFacts(
        least=0,
        most=1,
        machines=(poison,),
        gpus=poison,
        cost_least=Amount(),
        cost_most=Amount(Decimal(1), (poison,)),
    )
    change = SpecChange(
        path=poison, kind=Kind.CHANGED, before=poison, after=poison, update=UpdateClass.DRAIN, why=poison
    )
    resource = replace(
        RESOURCES[0],
        type=poison,
        name=poison,
        why=poison,
        properties=(PropertyChange(name=poison, before=poison, after=poison, replaces=True),),
    )
    return replace(
        RICH,
        old=poison,
        new=poison,
        spec=(change,),
        consequences=(Consequence(path=poison, update=UpdateClass.DRAIN, message=poison),),
        files=(FileChange(path=poison, kind=Kind.CHANGED, diff=f"+{poison}\n-{poison}", lines=2),),
        resources=(resource,),
        pools=(PoolRow(name=poison, before=facts, after=facts),),
        engine_note=poison,
    )


def _structure(made: str) -> list[tuple[str, str, int]]:
    """Return the blocks and inline marks of the comment without their content."""
    found: list[tuple[str, str, int]] = []
    for token in MarkdownIt("gfm-like", {"linkify": False, "html": True}).parse(made):
        found.append((token.type, token.tag, token.level))
        found += [(one.type, one.tag, one.level) for one in token.children or () if one.type in BLOCKS]
    return found


PLAIN = _structure(_markdown(_poisoned("plain"), "gpucluster diff plain plain"))


@given(HOSTILE)
def test_untrusted_text_has_no_effect_in_comment(poison: str) -> None:
    assert _structure(_markdown(_poisoned(poison), f"gpucluster diff {poison}")) == PLAIN


@pytest.mark.parametrize("poison", FAR_GONE)
def test_known_injections_have_no_effect_in_comment(poison: str) -> None:
    made = _markdown(_poisoned(poison), f"gpucluster diff {poison}")
    assert _structure(made) == PLAIN
    outside = re.sub(r"~~~diff.*?\n~+\n|`+[^`\n]+`+", "", made, flags=re.DOTALL)
    assert "<script" not in outside
    assert not re.search(r"@[a-z]", outside), "a mention calls somebody"


@given(HOSTILE)
def test_terminal_output_has_no_control_characters(poison: str) -> None:
    for line in text(_poisoned(poison)).split("\n"):
        assert line.isprintable()


@given(HOSTILE)
def test_json_keeps_every_text(poison: str) -> None:
    said = json.loads(json.dumps(values(_poisoned(poison))))
    assert said["changes"][0]["path"] == poison


KEEPS = ("  machine: m7i.2xlarge", "  machine: m7i.2xlarge\n  state: 100GiB")
NO_ADVICE = ("{id: head-state, because: it lives as long as a test}, ", "")
SENTENCE = 120


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ((), (("aws:\n", "aws:\n  image: {ami: ami-0123456789abcdef0}\n"),), "running jobs are lost: slurmctld does not know them"),
        ((KEEPS, NO_ADVICE), (), "`pulumi up` refuses in its preview"),
        ((), (("max: 16", "max: 8"),), "running jobs finish on the nodes that are removed"),
        ((), (("max_time: 1d", "max_time: 2h"),), "queued jobs: those in gpu with a time limit above max_time wait with PartitionTimeLimit"),
        ((), (("idle: 5m", "idle: 5m\n    spares: 2"),), "2 machines start at once in the pool h200"),
        ((), (("max: 16", "max: 32"),), "the cost of a month changes, and a part of it"),
        ((), (("idle: 5m", "idle: 10m"),), "jobs, sessions and data stay as they are"),
        ((), (), "both revisions describe the same cluster"),
    ],
    ids=["lost", "refused", "drain", "waits", "starts", "cost", "live", "nothing"],
)  # fmt: skip
def test_report_begins_with_the_worst_subject_and_the_commands(
    old: tuple[tuple[str, str], ...], new: tuple[tuple[str, str], ...], said: str
) -> None:
    """D16: the comment opened with 300 characters about cost, and `data is lost` was its fourth bullet."""
    found = a_diff(a_spec_text(*old), a_spec_text(*new))
    steps = found.effects.steps if found.effects else ()
    refused = bool(found.effects and found.effects.refused)
    first, second, *rest = text(found).split("\n")
    assert first.startswith("burst: ")
    sentence = second.partition(": ")[2]
    assert sentence.startswith(said)
    assert len(sentence) <= SENTENCE
    assert not steps or rest[refused] == f"  1. {steps[0]}"
    _, _, opening, *after = _markdown(found).split("\n\n")
    assert opening.strip("*").lower().replace("\\", "").startswith(said.lower())
    assert len(opening.strip("*").replace("\\", "")) <= SENTENCE + 1, "with its full stop"
    assert not steps or after[refused] == "In this order:"


def test_first_sentence_counts_the_people_that_it_does_not_name() -> None:
    """It was cut in the middle: as if only the first names changed."""
    people = "".join(f"  - {{name: somebody{n:02}, uid: {5000 + n}}}\n" for n in range(30))
    found = a_diff(a_spec_text(), a_spec_text(("partitions:\n", f"users:\n{people}partitions:\n")))
    sentence = text(found).split("\n")[1].partition(": ")[2]
    named = sentence.count("users[")
    assert sentence.endswith(f" and {30 - named} more")
    assert 0 < named < 30
    assert len(sentence) <= SENTENCE


def test_many_like_lines_are_one_with_a_count() -> None:
    people = "".join(f"  - {{name: user{n:02}, uid: {5000 + n}}}\n" for n in range(30))
    users = ("partitions:\n", f"users:\n{people}partitions:\n")
    found = a_diff(a_spec_text(), a_spec_text(users, ("max: 16", "max: 32")))
    for report in (text(found), _markdown(found)):
        summary = report.partition("<details>")[0].partition("\npools:")[0]
        assert "user17" not in summary.partition("users/")[0]
        assert "30 added" in summary
        assert "16 -> 32" in summary
    assert len(values(found)["changes"]) == 31


MANY = 25
_LONG = SpecChange(path="p" * 100, kind=Kind.CHANGED, before="b" * 100, after="a", update=UpdateClass.DRAIN)
_EFFECTS = Effects(running="", queued="", sessions="", data="", steps=tuple(f"step {n}" for n in range(MANY)))
_WARNING = Problem(
    file="a", mark=Mark(1, 1), level=Level.WARNING, id="few", path="aws", message="few", source=""
)
_FACTS = PoolFacts(
    least=0,
    most=1,
    machines=("m" * 2000,),
    gpus="",
    cost_least=Amount(),
    cost_most=Amount(Decimal(1), tuple(f"{n:02}{'u' * 119}" for n in range(MANY))),
)
_COSTS = CostLine(kind="pool", name="h200", least=Amount(), most=_FACTS.cost_most)
_OF_MANY: dict[str, tuple[dict[str, Any], str]] = {
    "steps": ({"effects": _EFFECTS}, "- and 5 "),
    "not looked at": ({"unseen": tuple(f"part {n}" for n in range(MANY))}, "- and 5 "),
    "warnings": ({"warnings": (_WARNING,) * MANY}, "- and 5 "),
    "pools": (
        {"pools": tuple(PoolRow(name=f"p{n}", before=None, after=_FACTS) for n in range(MANY))},
        "| and 18 ",
    ),
    "changes": (
        {"spec": tuple(replace(_LONG, path=f"{n}{'p' * 100}") for n in range(100)), "consequences": ()},
        "- and ",
    ),
    "parts of a new spec": (
        {
            "spec": tuple(replace(_LONG, path=f"{n}{'p' * 100}") for n in range(100)),
            "whole": Kind.ADDED,
        },
        "- and ",
    ),
    "costs without a price": (
        {"cost_after": replace(RICH.cost_after, lines=(_COSTS,))},
        "- and ",
    ),
}


@pytest.mark.parametrize("name", _OF_MANY)
def test_list_that_is_cut_says_how_many_more_there_are_and_where(name: str) -> None:
    """Steps and what was not looked at ended at 20 without a word."""
    changes, more = _OF_MANY[name]
    lines = _markdown(replace(RICH, **changes)).splitlines()
    (line,) = (one for one in lines if one.startswith(more))
    assert "more: the command at the end shows all" in line
    assert "reproduce with: `gpucluster diff old new`" in lines[-1]


def test_comment_of_a_wrong_spec_says_where_its_other_problems_are() -> None:
    """`review` prints each of them (tests/unit/cli/test_review.py)."""
    made = not_compared("burst", "It is wrong.", ("p" * 999,) * MANY, ((), ()))
    assert "\n\nand 10 more problems: the log of the review has all\n" in made


def test_order_alone_does_not_change_who_gets_in() -> None:
    """D16: `**Who gets in** changes` was said of two users and of two networks in another order."""
    near, far = "198.51.100.0/24", "203.0.113.0/24"
    users = (
        "access: {ssh_from: [%s]}\nusers:\n  - {name: %s, uid: %d}\n  - {name: %s, uid: %d}\npartitions:\n"
    )
    old = a_spec_text(("partitions:\n", users % (f"{near}, {far}", "ada", 5001, "bob", 5002)))
    new = a_spec_text(("partitions:\n", users % (f"{far}, {near}", "bob", 5002, "ada", 5001)))
    found = a_diff(old, new)
    assert found.spec
    assert found.access == ()
