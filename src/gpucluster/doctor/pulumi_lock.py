"""The lock of a Pulumi stack, in a backend of files or S3. A backend that is a service is not queried."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from ruamel.yaml import YAML, YAMLError

from gpucluster.doctor.facts import LockFact, Unknown
from gpucluster.doctor.queries import Clients, query
from gpucluster.engine.target import PROJECT
from gpucluster.json_text import parse_json

_LOCKS = f".pulumi/locks/organization/{PROJECT}"


def state_lock(
    stack: str, folder: Path, environment: Mapping[str, str], clients: Clients
) -> LockFact | Unknown:
    """Return the lock in the backend of PULUMI_BACKEND_URL, else of Pulumi.yaml."""
    backend = environment.get("PULUMI_BACKEND_URL") or _of_project(folder)
    if not backend:
        return Unknown(
            "no backend is set: neither PULUMI_BACKEND_URL nor `backend: {url: ...}` in Pulumi.yaml"
        )
    parts = urlsplit(backend)
    if parts.scheme == "file":
        return _of_files(backend, Path(parts.netloc + parts.path).expanduser(), stack)
    if parts.scheme == "s3":
        return query("s3:ListBucket", lambda: _of_bucket(parts.netloc, parts.path.strip("/"), stack, clients))
    return Unknown(f"the backend is a service ({parts.scheme or 'unknown'}), which manages its own lock")


def _of_project(folder: Path) -> str:
    try:
        text = (folder / "Pulumi.yaml").read_text(encoding="utf-8")
        project = YAML(typ="safe").load(text)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    except (OSError, ValueError, YAMLError):
        return ""
    found: Any = cast(dict[str, Any], project).get("backend") if isinstance(project, dict) else None
    return str(cast(dict[str, Any], found).get("url") or "") if isinstance(found, dict) else ""


def _of_files(backend: str, root: Path, stack: str) -> LockFact | Unknown:
    if not root.is_dir():
        return Unknown(f"{backend} is not a folder on this machine")
    found = sorted((root / _LOCKS / stack).glob("*.json"))
    return LockFact(backend=backend, holders=tuple(_holder(_text(path), path.name) for path in found))


def _of_bucket(bucket: str, prefix: str, stack: str, clients: Clients) -> LockFact:
    s3 = clients("s3")
    at = "/".join(part for part in (prefix, _LOCKS, stack, "") if part) or ""
    at = at if at.endswith("/") else f"{at}/"
    rows: list[Any] = s3.list_objects_v2(Bucket=bucket, Prefix=at).get("Contents") or []
    keys = [str(row["Key"]) for row in rows if str(row["Key"]).endswith(".json")]
    holders = (
        _holder(s3.get_object(Bucket=bucket, Key=k)["Body"].read(65536).decode(errors="replace"), k)
        for k in keys
    )
    return LockFact(backend=f"s3://{bucket}", holders=tuple(holders))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _holder(text: str, name: str) -> str:
    try:
        found = parse_json(text)
        return f"process {int(found['pid'])} of {str(found['username'])!r} on {str(found['hostname'])!r}"
    except (ValueError, KeyError, TypeError):
        return f"an unreadable lock {name!r}"
