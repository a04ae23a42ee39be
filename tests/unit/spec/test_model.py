"""The models: pydantic and our decoder agree, every field has an update class, the committed schema is current."""

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_lab_text, a_spec, a_spec_text

from gpucluster import catalog, spec
from gpucluster.errors import GpuclusterError, SpecError
from gpucluster.spec import ClusterSpec, UpdateClass, inspect_text
from gpucluster.spec.decode import decode
from gpucluster.spec.jsonschema import schema_text
from gpucluster.spec.part import Part, require
from gpucluster.spec.problem import Level
from gpucluster.spec.rules.aws import MOST_TAGS
from gpucluster.spec.tree import plain
from gpucluster.spec.yaml import parse

ROOT = Path(__file__).parents[3]
BURST = ROOT / "stacks/burst.yaml"


def test_first_stack_passes() -> None:
    read = spec.load(BURST)
    nodes = require(read.pools[0].nodes)
    assert (read.name, nodes.max, read.pools[0].idle) == ("burst", 16, 300)
    assert read.pools[0].capacity[1].max == 4


def test_number_of_nodes_is_min_and_max() -> None:
    assert (
        a_spec(("{min: 0, max: 16}", "4")).pools[0].nodes
        == a_spec(("{min: 0, max: 16}", "{min: 4, max: 4}")).pools[0].nodes
    )


def test_wrong_spec_is_a_spec_error_with_all_problems(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(a_spec_text(("idle: 5m", "idle: 5"), ("schema: 1", "schema: 3")))
    with pytest.raises(SpecError) as caught:
        spec.load(tmp_path / "s.yaml")
    assert [line.partition("error")[2][:16] for line in caught.value.problems] == [
        "[schema-version]",
        "[no-unit] pools[",
    ]
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_unreadable_file_is_not_a_spec_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(GpuclusterError, match="cannot be read") as caught:
        spec.load(tmp_path / name)
    assert caught.value.exit_code == 2


CHANGES = [
    ("idle: 5m", "idle: 0s"),
    ("    idle: 5m\n", ""),
    ("idle: 5m", "idle: 5m\n    boot_timeout: 30m"),
    ("{min: 0, max: 16}", "3"),
    ("{min: 0, max: 16}", "[3]"),
    ("max: 4", "max: 0"),
    ("max: 4", "max: 3, zones: [us-east-2b]"),
    ("from: spot", "from: capacity-block"),
    ("default: true, ", ""),
    ("10.42.0.0/16", "10.42.7.0/16"),
    ('"24.11"', "24.11"),
    ("schema: 1", "schema: one"),
    ("  machine: m7i.2xlarge", "  machine: [m7i.2xlarge]"),
    ("name: burst", "nombre: burst"),
    ("{min: 0, max: 16}", "{min: 0, max: 16}\n    spares: 2"),
    ("{min: 0, max: 16}", "{min: 0, max: 16}\n    termination: {signal: USR2, lead: 60s}"),
    ("{min: 0, max: 16}", "{min: 0, max: 16}\n    termination: {signal: 9, grace: 2h}"),
    ("{min: 0, max: 16}", "{min: 0, max: 16}\n    job_heartbeat: {after: 30m}\n    breaker: {boots: 1}"),
    ("{min: 0, max: 16}", "{min: 0, max: 16}\n    job_heartbeat: {after: 30}\n    breaker: {boots: true}"),
    ("from: on-demand", "from: reservation, id: cr-0123456789abcdef0"),
    ("from: on-demand", "from: spot, max_price: 31.50 USD/h"),
    ("from: on-demand", "from: spot, max_price: 31.5"),
    ("partitions:\n", "budget: {monthly: 250000 USD, warn_at: 80%}\npartitions:\n"),
    ("partitions:\n", "budget: {monthly: 1e6 USD, warn_at: 0.8}\npartitions:\n"),
]


def _assert_rest_of(partial: object, right: object) -> None:
    """A field of `partial` is absent, or it equals the correct one."""
    if isinstance(partial, Part) and isinstance(right, Part):
        for name, value in vars(partial).items():
            _assert_rest_of(value, getattr(right, name))
    elif isinstance(partial, tuple) and isinstance(right, tuple):
        assert len(partial) == len(right)
        for one, other in zip(partial, right, strict=True):
            _assert_rest_of(one, other)
    else:
        assert partial == right


WRONG = [
    ("name: burst", "name: B"),
    ("idle: 5m", "idle: 5"),
    ("idle: 5m", "idle:"),
    ("from: spot", "from: x"),
    ("pools: [h200]", "pools: h200"),
]


@given(st.sets(st.sampled_from(range(len(WRONG))), min_size=1, max_size=4))
def test_wrong_field_is_absent_and_the_others_stay(chosen: set[int]) -> None:
    try:
        text = a_spec_text(*(WRONG[i] for i in sorted(chosen)))
    except ValueError:
        return  # two changes of one line
    partial, findings = decode(ClusterSpec, parse(text).root)
    assert len(findings) == len(chosen)
    _assert_rest_of(partial, a_spec())


@given(st.sets(st.sampled_from(range(len(CHANGES))), max_size=3))
def test_pydantic_and_the_decoder_agree(chosen: set[int]) -> None:
    """The same values pass or fail in both, and give the same spec."""
    try:
        text = a_spec_text(*(CHANGES[i] for i in sorted(chosen)))
    except ValueError:
        return  # two changes of one line
    tree = parse(text)
    decoded, findings = decode(ClusterSpec, tree.root)
    try:
        built = ClusterSpec.model_validate(plain(tree.root))
    except pydantic.ValidationError:
        assert findings
    else:
        assert (findings, decoded) == ([], built)


LAB_CHANGES = [
    ("uid: 5001", "uid: 5001, keys: []"),
    ("uid: 5001", "uid: 5001.5"),
    ("{ssh: {user: admin}", "{ssh: {user: admin, port: 0}"),
    ('"192.0.2.[11-14]"', "[192.0.2.11]"),
    ('"192.0.2.[11-14]"', '"127.0.0.[1-4]"'),
    ('{leaf1: "gpu[01-02]", leaf2: "gpu[03-04]"}', "{}"),
    ('{leaf1: "gpu[01-02]", leaf2: "gpu[03-04]"}', "{Leaf: gpu01}"),
    ('{leaf1: "gpu[01-02]", leaf2: "gpu[03-04]"}', "{leaf1: [gpu01]}"),
    ("{spine: ", "{spine: x, other: "),
    ("sockets: 2", "sockets: two"),
    ("count: 8}", "count: 8, memory: 80GiB}, fabric: {kind: roce}"),
    ("count: 8}", "count: 8}, fabric: {kind: string}"),
    ("memory: 2000GiB", "memory: 2000"),
]


@given(st.sets(st.sampled_from(range(len(LAB_CHANGES))), max_size=3))
def test_pydantic_and_the_decoder_agree_on_hosts(chosen: set[int]) -> None:
    try:
        text = a_lab_text(*(LAB_CHANGES[i] for i in sorted(chosen)))
    except ValueError:
        return  # two changes of one line
    tree = parse(text)
    decoded, findings = decode(ClusterSpec, tree.root)
    try:
        built = ClusterSpec.model_validate(plain(tree.root))
    except pydantic.ValidationError:
        assert findings
    else:
        assert (findings, decoded) == ([], built)


def _paths(value: object, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner: list[tuple[str | int, object]] = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    return [at, *(path for key, item in inner for path in _paths(item, (*at, key)))]


SCHEMA = jsonschema.Draft7Validator(json.loads(schema_text(catalog.load())))
PLAIN = plain(parse(a_spec_text()).root)
LAB = plain(parse(a_lab_text()).root)
STACKS: list[Any] = [plain(parse(file.read_text()).root) for file in sorted((ROOT / "stacks").glob("*.yaml"))]
ODD = st.sampled_from(
    [
        None, True, 0, -1, 3, 99_999_999, 1.5, "", "x", "5m", "p5.48xlarge", "banana.48xlarge", "mars-1a", "No Such",
        "é", "-", [], ["x"], {}, {"x": 1},
    ]
)  # fmt: skip
BY_A_RULE = {  # ids of rules that draft-07 can express
    "kubernetes-version", "network-form", "no-accounting", "too-many-tags", "nfs-source", "no-limit", "one-topology", "slurm-version", "storage-kind",
    "unknown-region", "zone-not-in-region",
}  # fmt: skip
BEYOND = {  # ids of types, and what draft-07 cannot express
    "address-out-of-reach": "classes of addresses",
    "bad-cidr": "bits of the host part",
    "bad-host-name": "names of an expanded hostlist",
    "bad-address": "addresses of an expanded hostlist",
    "bad-hostlist": "a hostlist's grammar",
    "bad-key": "the bytes of a key",
    "bad-start": "the calendar",
    "extra-value": "the forms of a value of slurm.conf",
    "lead-too-long": "the length of a time with a unit",
    "out-of-range": "the amount of a text with a unit",
    "reserved-name": "names of an expanded hostlist",
}
SPECS = [(values, path) for values in (PLAIN, LAB, *STACKS) for path in _paths(values)[1:]]


@given(st.sampled_from(SPECS), ODD, st.sampled_from(["set", "set", "set", "drop", "add"]))
def test_schema_and_check_refuse_the_same(
    at: tuple[Any, tuple[str | int, ...]], odd: object, how: str
) -> None:
    """An editor must not mark a valid spec. It marks what a type, a list of words or a pattern can refuse."""
    values, path = copy.deepcopy(at[0]), at[1]
    holder: Any = values
    for key in path[:-1]:
        holder = holder[key]
    if how == "set":
        holder[path[-1]] = odd
    elif how == "drop":
        del holder[path[-1]]
    elif isinstance(holder, dict):
        holder["strange"] = odd
    text = json.dumps(values)
    errors = {
        one.id for one in inspect_text(text, "spec.yaml", catalog.load()).problems if one.level is Level.ERROR
    }
    by_type = {one.id for one in decode(ClusterSpec, parse(text).root)[1]} - BEYOND.keys()
    if not errors:
        SCHEMA.validate(values)
    if by_type | (errors & BY_A_RULE):
        assert not SCHEMA.is_valid(values), errors


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("from: spot", "from: reservation"),
        ("from: spot", "id: cr-0123456789abcdef0, from: spot"),
        ("from: on-demand", "max_price: 40 USD/h, from: on-demand"),
        ("machines: [p5en.48xlarge, p5e.48xlarge]", "machines: [banana]"),
        ("region: us-east-2", "region: mars"),
        ("[us-east-2a, us-east-2b]", "[us-east-2a, us-east-9b]"),
        ('version: "24.11"', 'version: "19.05"'),
        ("machine: m7i.2xlarge", "machine: m7i.3xlarge"),
        ("partitions:", "storage: [{mount: /data}]\npartitions:"),
        ("partitions:", "storage: [{mount: /data, nvme: {}, efs: {}}]\npartitions:"),
        ("    cidr: 10.42.0.0/16", "    vpc: vpc-0123456789abcdef0\n    cidr: 10.42.0.0/16"),
        ("aws:\n", "aws:\n  tags: {Name: x}\n"),
        ("aws:\n", f"aws:\n  tags: {{{', '.join(f't{n}: x' for n in range(MOST_TAGS + 1))}}}\n"),
        ("partitions:", "storage: [{mount: /data, nfs: {from: x}}]\npartitions:"),
        ("partitions:", "qos: {urgent: {}}\npartitions:"),
        ("partitions:", "accounts: {lab: {}}\npartitions:"),
    ],
)
def test_schema_refuses_words_of_no_catalog_and_keys_that_exclude_each_other(old: str, new: str) -> None:
    """Regression: the schema accepted storage of no kind or two, a reservation without id, `banana` and `mars`."""
    text = a_spec_text((old, new))
    assert inspect_text(text, "spec.yaml", catalog.load()).errors, "check refuses it, too"
    values: Any = plain(parse(text).root)
    assert not SCHEMA.is_valid(values)


def test_schema_requires_addresses_of_the_heads_in_an_existing_vpc() -> None:
    """Regression: `check` refused the spec that the editor accepted."""
    values: Any = copy.deepcopy(PLAIN)
    subnets = dict.fromkeys(values["aws"]["network"]["zones"], "subnet-0123456789abcdef0")
    values["aws"]["network"] = {"vpc": "vpc-0123456789abcdef0", "subnets": subnets}
    values["head"]["address"] = "10.42.0.10"
    SCHEMA.validate(values)
    del values["head"]["address"]
    assert not SCHEMA.is_valid(values)
    assert "missing-key" in {
        one.id for one in inspect_text(json.dumps(values), "spec.yaml", catalog.load()).problems
    }


@pytest.mark.parametrize("values", [PLAIN, LAB, *STACKS], ids=lambda values: values["name"])
def test_schema_accepts_every_good_spec(values: Any) -> None:
    SCHEMA.validate(values)


def _models(model: type[Part]) -> set[type[Part]]:
    found = {model}
    for info in model.model_fields.values():
        inner = next(
            (a for a in getattr(info.annotation, "__args__", (info.annotation,)) if isinstance(a, type)), None
        )
        if inner is not None and issubclass(inner, Part):
            found |= _models(inner)
    return found


def test_every_field_has_an_update_class_and_a_description() -> None:
    models = _models(ClusterSpec)
    assert len(models) >= 13
    for model in models:
        for name, info in model.model_fields.items():
            extra: Any = info.json_schema_extra
            assert UpdateClass(extra["x-update-class"]), f"{model.__name__}.{name}"
            assert info.description, f"{model.__name__}.{name}"


def test_spec_cannot_be_changed() -> None:
    with pytest.raises(pydantic.ValidationError):
        a_spec().name = "other"  # type: ignore[misc]


def test_committed_schema_is_the_models(request: pytest.FixtureRequest) -> None:
    committed = ROOT / "schema/cluster.json"
    if request.config.getoption("--update-golden"):
        committed.write_text(schema_text(catalog.load()))
    assert committed.read_text() == schema_text(catalog.load()), "run: make golden"


def test_schema_is_draft_07_and_takes_the_stack() -> None:
    schema = json.loads(schema_text(catalog.load()))
    jsonschema.Draft7Validator.check_schema(schema)
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    values = plain(parse(BURST.read_text()).root)
    jsonschema.Draft7Validator(schema).validate(values)
    first = BURST.read_text().splitlines()[0]
    assert (BURST.parent / first.partition("$schema=")[2]).resolve() == ROOT / "schema/cluster.json"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("idle: 5m", "idle: 5"),
        ("idle: 5m", "idel: 5m"),
        ("name: burst", "name: B"),
        ("from: spot", "from: x"),
    ],
)
def test_schema_refuses_the_same_specs_as_the_models(old: str, new: str) -> None:
    values = plain(parse(a_spec_text((old, new))).root)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(json.loads(schema_text(catalog.load()))).validate(values)
