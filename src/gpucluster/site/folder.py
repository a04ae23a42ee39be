"""The folder that the operator hands to Ansible: inventory, bundle, our code, and perhaps the hosts' keys."""

import hashlib
import io
import json
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from gpucluster import artifacts, shipment
from gpucluster.artifacts import Artifact
from gpucluster.errors import GpuclusterError
from gpucluster.plan.model import ClusterPlan
from gpucluster.site import inventory
from gpucluster.site.inventory import Cargo

_YAML_WIDTH = 100_000  # a line of fstab or a key is one line here, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Whose host keys are trusted, and a rehearsal's own key; both None: the operator's ssh knows."""

    known_hosts: bytes | None = None
    private_key: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The inventory, as values and as the file's text; what stands in the folder with it."""

    values: dict[str, Any]
    text: str
    files: tuple[str, ...]


def write(plan: ClusterPlan, files: Iterable[Artifact], access: Access, to: Path | None) -> Written:
    """Make the folder's files and write them below `to` if there is one; `files` are the bundle's.

    The same plan and code give the same bytes.
    """
    bundle = artifacts.pack(files)
    code, wheel = _code()
    made = inventory.inventory(plan, _cargo(bundle, code, wheel, access))
    text = yaml_text(made)
    held = [
        Artifact(inventory.BUNDLE, bundle),
        Artifact(inventory.CODE, code),
        Artifact(inventory.FILE, text.encode()),
        *(() if access.known_hosts is None else (Artifact(inventory.KNOWN_HOSTS, access.known_hosts),)),
    ]
    try:
        artifacts.write_tree(held if to is not None else (), to or Path())
    except OSError as error:
        step = "name a folder that can be written"
        raise GpuclusterError(f"{to}: cannot be written: {error.strerror}", next_step=step) from error
    return Written(values=made, text=text, files=tuple(sorted(one.path for one in held)))


def yaml_text(values: dict[str, Any]) -> str:
    """Block style, keys sorted."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.width = _YAML_WIDTH
    text = io.StringIO()
    yaml.dump(json.loads(json.dumps(values, sort_keys=True)), text)  # pyright: ignore[reportUnknownMemberType]
    return text.getvalue()


def _cargo(bundle: bytes, code: bytes, wheel: str, access: Access) -> Cargo:
    return Cargo(
        bundle_digest=artifacts.digest(bundle),
        code_digest=hashlib.sha256(code).hexdigest(),
        wheel=wheel,
        known_hosts=access.known_hosts is not None,
        private_key=None if access.private_key is None else str(access.private_key),
    )


def _code() -> tuple[bytes, str]:
    """Our code for hosts as one archive, and our wheel's place there."""
    with tempfile.TemporaryDirectory(prefix="gpucluster-") as scratch:
        out = Path(scratch) / inventory.CODE
        wheel = shipment.host_archive(shipment.sources(), scratch=Path(scratch), out=out)
        return out.read_bytes(), wheel
