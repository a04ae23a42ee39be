"""Read the files of `catalog/data`. Standard library only, because machines import it with `xids`."""

import json
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "data"


def read_data(name: str) -> Any:
    """Return the values of a JSON file, such as `quotas.json`."""
    return json.loads((_FOLDER / name).read_text(encoding="utf-8"))
