"""machine.Store on a host that exists: the bucket is a folder that Ansible fills, and nothing is secret in it."""

import hashlib
from pathlib import Path

from gpucluster.artifacts import MAX_BUNDLE_BYTES
from gpucluster.node.machine import Fetched, Lent, NotYetError, StepError

MISSING_S = 30.0  # Ansible copies before it starts the agent


class FolderStore:
    """Objects are files; the key of munge is not one of them."""

    def get(self, bucket: str, key: str, *, unless: str | None) -> Fetched | None:
        try:
            with (Path(bucket) / key).open("rb") as file:
                body = file.read(MAX_BUNDLE_BYTES + 1)
        except OSError as error:
            raise NotYetError(f"{bucket}/{key}: {error.strerror}", limit_s=MISSING_S) from error
        etag = hashlib.sha256(body).hexdigest()
        return None if etag == unless else Fetched(body, etag)

    def put(self, bucket: str, key: str, body: bytes) -> None:
        target = Path(bucket) / key
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{target.name}.new")
        fresh.write_bytes(body)
        fresh.replace(target)

    def secret(self, arn: str) -> bytes | None:
        raise StepError(f"a host that exists has no vault to ask for {arn!r}")

    def offer_secret(self, arn: str, value: bytes, *, token: str) -> None:
        raise StepError(f"a host that exists has no vault to put {arn!r} in")

    def assume(self, role: str, session: str, seconds: int) -> Lent:
        raise StepError(f"a host that exists has no role to take on: {role!r}")
