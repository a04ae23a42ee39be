"""The models: pydantic and our decoder agree, every field has an update class, the schema is the committed one."""

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pydantic
import pytest
from builders import a_lab_text, a_spec, a_spec_text
from hypothesis import given
from hypothesis import strategies as st

from gpucluster import catalog, spec
from gpucluster.errors import GpuclusterError, SpecError
from gpucluster.spec import ClusterSpec, UpdateClass, inspect_text
from gpucluster.spec.decode import Decoder
from gpucluster.spec.jsonschema import schema_text
from gpucluster.spec.part import Part, written
from gpucluster.spec.tree import plain
from gpucluster.spec.units import parse_duration, write_duration
from gpucluster.spec.yaml import parse

ROOT = Path(__file__).parents[3]
BURST = ROOT / "stacks/burst.yaml"


def test_the_first_stack_passes() -> None:
    read = spec.load(BURST)
    nodes = written(read.pools[0].nodes)
    assert (read.name, nodes.max, read.pools[0].idle) == ("burst", 16, 300)
    assert read.pools[0].capacity[1].max == 4


def test_a_number_of_nodes_is_min_and_max() -> None:
    assert (
        a_spec(("{min: 0, max: 16}", "4")).pools[0].nodes
        == a_spec(("{min: 0, max: 16}", "{min: 4, max: 4}")).pools[0].nodes
    )


def test_a_wrong_spec_is_a_spec_error_with_all_problems(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(a_spec_text(("idle: 5m", "idle: 5"), ("schema: 1", "schema: 3")))
    with pytest.raises(SpecError) as caught:
        spec.load(tmp_path / "s.yaml")
    assert [line.partition("error")[2][:16] for line in caught.value.problems] == [
        "[schema-version]",
        "[no-unit] pools[",
    ]
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_a_file_that_cannot_be_read_is_not_the_specs_fault(tmp_path: Path, name: str) -> None:
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
    ("{min: 0, max: 16}", "{min: 0, max: 16}\n    farewell: {signal: USR2, lead: 60s}"),
    ("{min: 0, max: 16}", "{min: 0, max: 16}\n    farewell: {signal: 9, grace: 2h}"),
    ("{min: 0, max: 16}", "{min: 0, max: 16}\n    hung: {after: 30m}\n    breaker: {boots: 1}"),
    ("{min: 0, max: 16}", "{min: 0, max: 16}\n    hung: {after: 30}\n    breaker: {boots: true}"),
    ("from: on-demand", "from: reservation, id: cr-0123456789abcdef0"),
    ("from: on-demand", "from: spot, max_price: 31.50 USD/h"),
    ("from: on-demand", "from: spot, max_price: 31.5"),
    ("partitions:\n", "budget: {monthly: 250000 USD, warn_at: 80%}\npartitions:\n"),
    ("partitions:\n", "budget: {monthly: 1e6 USD, warn_at: 0.8}\npartitions:\n"),
]


@given(st.sets(st.sampled_from(range(len(CHANGES))), max_size=3))
def test_pydantic_and_the_decoder_agree(chosen: set[int]) -> None:
    """The same values pass or fail in both, and pass to the same spec."""
    try:
        text = a_spec_text(*(CHANGES[i] for i in sorted(chosen)))
    except ValueError:
        return  # two changes of one line
    tree = parse(text)
    decoder = Decoder()
    decoded = decoder.part(ClusterSpec, tree.root)
    try:
        built = ClusterSpec.model_validate(plain(tree.root))
    except pydantic.ValidationError:
        assert decoder.findings
    else:
        assert (decoder.findings, decoded) == ([], built)


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
def test_they_agree_on_hosts_too(chosen: set[int]) -> None:
    try:
        text = a_lab_text(*(LAB_CHANGES[i] for i in sorted(chosen)))
    except ValueError:
        return  # two changes of one line
    tree = parse(text)
    decoder = Decoder()
    decoded = decoder.part(ClusterSpec, tree.root)
    try:
        built = ClusterSpec.model_validate(plain(tree.root))
    except pydantic.ValidationError:
        assert decoder.findings
    else:
        assert (decoder.findings, decoded) == ([], built)


def _paths(value: object, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner: list[tuple[str | int, object]] = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    return [at, *(path for key, item in inner for path in _paths(item, (*at, key)))]


SCHEMA = jsonschema.Draft7Validator(json.loads(schema_text()))
PLAIN = plain(parse(a_spec_text()).root)
LAB = plain(parse(a_lab_text()).root)
STEADY = plain(parse((ROOT / "stacks/steady.yaml").read_text()).root)
ODD = st.sampled_from([None, True, 0, -1, 3, 1.5, "", "x", "5m", "p5.48xlarge", [], ["x"], {}, {"x": 1}])


SPECS = [(values, path) for values in (PLAIN, LAB, STEADY) for path in _paths(values)[1:]]


@given(st.sampled_from(SPECS), ODD, st.sampled_from(["set", "drop", "add"]))
def test_what_the_schema_refuses_check_refuses(
    at: tuple[object, tuple[str | int, ...]], odd: object, how: str
) -> None:
    """An editor must not underline what passes. The other way is the rules' business: a schema knows no catalog."""
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
    passes = not inspect_text(json.dumps(values), "spec.yaml", catalog.load()).errors
    if passes:
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


def test_a_spec_cannot_be_changed() -> None:
    with pytest.raises(pydantic.ValidationError):
        a_spec().name = "other"  # type: ignore[misc]


def test_the_committed_schema_is_the_models(request: pytest.FixtureRequest) -> None:
    committed = ROOT / "schema/cluster.json"
    if request.config.getoption("--update-golden"):
        committed.write_text(schema_text())
    assert committed.read_text() == schema_text(), "run: make golden"


def test_the_schema_is_draft_07_and_takes_the_stack() -> None:
    schema = json.loads(schema_text())
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
def test_the_schema_refuses_what_the_models_refuse(old: str, new: str) -> None:
    values = plain(parse(a_spec_text((old, new))).root)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(json.loads(schema_text())).validate(values)


@given(st.integers(min_value=1, max_value=10**8))
def test_a_duration_is_read_as_it_is_written(seconds: int) -> None:
    assert parse_duration(write_duration(seconds)) == seconds
