"""What stands in the cluster's bucket for its head: the published bundle, and the last status of the head's agent.

Existing hosts have no bucket: Ansible copies the bundle into a folder of the head, and the agent writes its status there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gpucluster import artifacts
from gpucluster.cloud.aws import boto3_client, client_config, translated
from gpucluster.cloud.port import CloudError
from gpucluster.json_text import parse_json
from gpucluster.plan import names

_LIMIT = 64 * 1024 * 1024  # bytes

Read = Callable[[str], bytes]  # the object of a key; OSError or CloudError


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """`bundle` is the digest of the published bundle. The rest is the status of the agent. Empty: not read, or not written."""

    bundle: str = ""
    ready: bool = False
    detail: str = ""  # what the agent waits for
    refused: str = ""  # why the agent does not apply the bundle
    unread: str = ""  # why the bundle or the status cannot be read


def of_bucket(region: str, bucket: str, client: Callable[[], Any] | None = None) -> Published:
    """Read both objects with the rights of the head."""
    s3 = client or (
        lambda: boto3_client("s3", region, client_config(attempts=3, read_timeout_s=10))
    )  # no call is made here: a missing credential is an answer, too

    def get(key: str) -> bytes:
        with translated():
            return bytes(s3().get_object(Bucket=bucket, Key=key)["Body"].read(_LIMIT))

    return _published(get, names.STATUS_KEY)


def of_folder(folder: Path = Path(names.SITE_DIR)) -> Published:
    """Read both files of an existing host."""
    return _published(lambda key: (folder / key).read_bytes(), names.SITE_STATUS)


def _published(read: Read, status_key: str) -> Published:
    try:
        bundle = artifacts.digest(read(names.BUNDLE_KEY))
    except (CloudError, OSError) as error:
        return Published(unread=f"the published bundle cannot be read: {error}")
    try:
        status = _object(read(status_key))
    except (CloudError, OSError, ValueError) as error:
        return Published(bundle=bundle, unread=f"the agent's status cannot be read: {error}")
    if status.get("bundle") != bundle:  # of an earlier bundle
        return Published(bundle=bundle, detail="the agent has not read the published bundle yet")
    return Published(
        bundle=bundle,
        ready=status.get("ready") is True,
        detail=str(status.get("detail") or ""),
        refused=str(status.get("refused") or ""),
    )


def _object(body: bytes) -> Mapping[str, Any]:
    found: Any = parse_json(body)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
