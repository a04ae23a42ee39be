"""YAML of manifests: read strictly, with kubectl's meaning of plain scalars, with line numbers, and with limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucluster.k8s.lint import Facts, Severity, check
from gpucluster.k8s.lint.read import read


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("on", True), ("yes", True), ("No", False), ('"on"', "on"), ("'no'", "no"), ("0644", 420), ("0o17", 15),
        ("-0x1F", -31), ("1_000", 1000), ("089", 89.0), ("1.5", 1.5), ("1e3", 1000.0), ("~", None), ("", None),
        ("1:30", "1:30"), ("2026-11-21", "2026-11-21"), ("=", "="), ("16Gi", "16Gi"), ("[a, b]", ["a", "b"]),
        ("|\n  on\n", "on\n"),
    ],
)  # fmt: skip
def test_plain_scalars_are_read_as_kubectl_reads_them(written: str, value: object) -> None:
    (document,) = read(f"a: {written}\n", "x.yaml").documents
    assert document.value == {"a": value}


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (
            "a: 1\nb: 2\na: 3\n",
            3,
            "the key 'a' is already given on line 1: kubectl takes the last, Kustomize refuses",
        ),
        (
            "a:\n  {b: 1, b: 2}\n",
            2,
            "the key 'b' is already given on line 2: kubectl takes the last, Kustomize refuses",
        ),
        ("~: a\n", 1, "a key must be text (quote it), found '~'"),
        (
            "{a: b}: c\n",
            1,
            "a key must be text (quote it), found \"[(ScalarNode(tag='tag:yaml.org,2002:str', value='a'), Sca...\"",
        ),
        ("a: {<<: 1}\n", 1, "a merge key needs a mapping"),
        ("a: !python/name x\n", 1, "kubectl drops the tag '!python/name'"),
        ("a: [1\n", 2, "did not find expected ',' or ']'"),
        ("a: *b\n", 1, "found undefined alias"),
        ("- " * 70 + "x", 1, "nested deeper than 64 levels"),
        ("a: &a [*a]", 1, "nested deeper than 64 levels"),
        ("[" * 100_000, 1, "nested deeper than 64 levels"),
        ("a" * (4 * 1024 * 1024 + 1), 1, "a manifest file has at most 4 MiB"),
        ("a: \x00", 0, "unacceptable character #x0000: control characters are not allowed"),
    ],
)
def test_refused_document_has_its_place(text: str, line: int, message: str) -> None:
    (found,) = read(text, "x.yaml").findings
    assert (found.file, found.line, found.message) == ("x.yaml", line, message)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1: a", {"1": "a"}),
        ("on: a", {"true": "a"}),
        ("a: &x {b: 1, d: 3}\nc:\n  d: 2\n  <<: *x", {"a": {"b": 1, "d": 3}, "c": {"b": 1, "d": 2}}),
        ("a: {<<: [{b: 1}, {b: 2, c: 3}]}", {"a": {"b": 1, "c": 3}}),
        ("a: [&x 1, *x, &x 2, *x]", {"a": [1, 1, 2, 2]}),
    ],
)
def test_keys_and_anchors_are_read_as_kubectl_reads_them(written: str, value: object) -> None:
    """`kubectl label --local` 1.32 prints these."""
    got = read(written, "x.yaml")
    assert [document.value for document in got.documents] == [value]
    assert got.findings == ()


def test_last_of_two_keys_counts() -> None:
    got = read("a: 1\na: 2\n", "x.yaml")
    assert [document.value for document in got.documents] == [{"a": 2}]
    assert [one.level for one in got.findings] == [Severity.WARNING]


def test_aliases_that_multiply_are_stopped() -> None:
    text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 8)
    )
    (found,) = read(text, "x.yaml").findings
    assert found.message == "a file has at most 200000 parts, with its aliases expanded"


def test_documents_are_counted_and_empty_ones_left_out() -> None:
    got = read("a: 1\n---\n# nothing\n---\nb: 2\n", "x.yaml")
    assert [(document.number, document.value) for document in got.documents] == [(1, {"a": 1}), (3, {"b": 2})]


def test_finding_has_its_line() -> None:
    text = "# top\napiVersion: v1\nkind: Service\nmetadata:\n  name: a\nspec:\n  ports:\n    - port: 80\n      prot: x\n"  # fmt: skip
    (found,) = check(read(text, "x.yaml").documents, Facts(kubernetes="1.36", whole=False))
    assert str(found).startswith("x.yaml:9: error[unknown-field]: Service default/a spec.ports[0].prot: ")


def test_items_of_a_list_are_separate_objects() -> None:
    text = "apiVersion: v1\nkind: List\nitems:\n  - {apiVersion: v1, kind: Secret}\n  - {apiVersion: v1, kind: Pod}\n"  # fmt: skip
    found = check(read(text, "x.yaml").documents, Facts(kubernetes="1.36"))
    assert {(finding.kind, finding.line) for finding in found if finding.rule == "name"} == {("Secret", 4), ("Pod", 5)}  # fmt: skip


def test_bad_document_does_not_hide_others() -> None:
    got = read("a: 1\na: 2\n---\nb: 2\n", "x.yaml")
    assert len(got.documents) == 2
    assert len(got.findings) == 1


@given(st.text(max_size=200) | st.text(alphabet="{}[]:,-&*!|>'\"#?%@` \n\tab01", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    got = read(text, "x.yaml")
    check(got.documents, Facts(kubernetes="1.36", whole=False))


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("[${IDS}]", ["${IDS}"]),
        ("[${A}, b, ${C:=d e}]", ["${A}", "b", "${C:=d e}"]),
        ("{b: ${B}, c: x-${C}-y}", {"b": "${B}", "c": "x-${C}-y"}),
        ("{${B}: 1, c: '${C}'}", {"${B}": 1, "c": "${C}"}),
        ('[${A}, "${B}"]', ["${A}", "${B}"]),
    ],
)
def test_value_that_envsubst_fills_is_text_in_flow_style(written: str, value: object) -> None:
    got = read(f"a: {written}\nb: ${{B}}\n", "x.yaml")
    assert got.findings == ()
    (document,) = got.documents
    assert document.value == {"a": value, "b": "${B}"}
    assert document.line_of(("b",)) == 2


@pytest.mark.parametrize("written", ["[${IDS]", "[${A} ${B}", "{a: $ {B}}", "[${}]"])
def test_what_no_tool_fills_stays_an_error(written: str) -> None:
    (found,) = read(f"b: 1\na: {written}\n", "x.yaml").findings
    assert (found.rule, found.level) == ("yaml", Severity.ERROR)
    assert "\ue000" not in found.message
