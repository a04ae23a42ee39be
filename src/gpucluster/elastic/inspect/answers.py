"""The JSON results of the head's programs, as every `gpucluster ... -o json` prints them."""

from typing import Any, cast

from gpucluster.json_text import parse_json


def answer_values(cluster: str, code: int, text: str) -> dict[str, Any]:
    """Return the values of a program's JSON with the cluster and whether it is well. ValueError if it is not JSON."""
    found: Any = parse_json(text)
    answered: dict[str, Any] = {}
    if isinstance(found, list):  # a job without events is unknown to the journal
        answered = {"moments": found, "ok": bool(cast("list[Any]", found))}
    elif isinstance(found, dict):
        answered = cast("dict[str, Any]", found)
    values = {key: value for key, value in answered.items() if key != "schema"}
    return {"ok": code == 0, "cluster": cluster, **values}
