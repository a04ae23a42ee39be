"""JSON that others write: a bundle, a message, a program's answer. Standard library only: machines use it too."""

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Return the value. ValueError: it is no JSON, or it is nested deeper than Python reads (about 1,000 levels)."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
