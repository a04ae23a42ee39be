"""Convert the cloud's response to Pulumi's outputs and inputs. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpucluster.engine.values import UNKNOWN, Value, Values
from gpucluster.sandbox.provider.check import DEFAULTED
from gpucluster.sandbox.provider.schema import Change, Property, ResourceType
from gpucluster.sandbox.provider.shapes import empty, same


@dataclass(frozen=True, slots=True)
class Observed:
    """An observed resource: `outputs` for the state, `inputs` as a program would write them."""

    outputs: Values
    inputs: Values


def observed(
    kind: ResourceType,
    seen: Mapping[str, Value],
    inputs: Mapping[str, Value],
    default_tags: Mapping[str, str],
) -> Observed:
    """Normalise `seen`. Values equal to those of `inputs` keep the wording of `inputs`, so they show no difference."""
    outputs: Values = {}
    found: Values = {DEFAULTED: inputs.get(DEFAULTED, [])}
    for key, row in kind.properties.items():
        value = _value(key, row, seen, inputs)
        if empty(value):
            continue
        outputs[key] = value
        if row.change is not Change.COMPUTED and not (row.from_cloud and empty(inputs.get(key))):
            found[key] = value
    if kind.tagged:
        own = _own_tags(outputs.get("tagsAll", {}), inputs.get("tags") or {}, default_tags)
        for side in (outputs, found):
            side.pop("tags", None)
            if own or "tags" in inputs:
                side["tags"] = own
            side.setdefault("tagsAll", {})
    return Observed(outputs, found)


def foreseen(kind: ResourceType, inputs: Mapping[str, Value], olds: Mapping[str, Value] | None) -> Values:
    """Return the outputs of a preview: inputs, and UNKNOWN for values that only the cloud knows."""
    outputs = {k: v for k, v in inputs.items() if k in kind.properties}
    for key, row in kind.properties.items():
        if key not in outputs and (row.change is Change.COMPUTED or row.from_cloud):
            keep = olds is not None and not row.moves
            outputs[key] = olds.get(key) if olds is not None and keep else UNKNOWN
    return outputs


def _value(key: str, row: Property, seen: Mapping[str, Value], inputs: Mapping[str, Value]) -> Value:
    if row.api is None:
        return inputs.get(key)
    if empty(seen.get(row.api)):
        return None
    value, written = row.shape.from_api(seen[row.api]), inputs.get(key)
    return written if not empty(written) and same(row.shape, written, value) else value


def _own_tags(every: Mapping[str, str], written: Mapping[str, str], default: Mapping[str, str]) -> Values:
    return {k: v for k, v in every.items() if k in written or default.get(k) != v}
