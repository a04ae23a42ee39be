"""The file that names a machine's cluster and role: from user data on AWS, from Ansible on existing hosts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gpucluster.json_text import parse_json
from gpucluster.plan import names


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFile:
    """The cluster and role of this machine, and the place of its bundle. On existing hosts `region` is empty."""

    cluster: str
    role: str
    region: str = ""
    bucket: str = ""


def read(path: Path = Path(names.USER_DATA_FILE)) -> MachineFile | None:
    """Return the file's values; None if this machine has no such file."""
    try:
        found: Any = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return None
    values = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    cluster, role, region, bucket = (
        value if isinstance(value := values.get(key), str) else ""
        for key in ("cluster", "role", "region", "bucket")
    )
    return MachineFile(cluster=cluster, role=role, region=region, bucket=bucket) if cluster and role else None
