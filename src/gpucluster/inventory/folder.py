"""The folder for Ansible: inventory, bundle, our code, and optionally the hosts' keys."""

import hashlib
import io
import json
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.representer import SafeRepresenter

from gpucluster import artifacts, shipment
from gpucluster.artifacts import Artifact
from gpucluster.errors import GpuclusterError
from gpucluster.inventory import ansible
from gpucluster.inventory.ansible import Cargo
from gpucluster.json_text import parse_json
from gpucluster.plan.model import SlurmOnHosts

_YAML_WIDTH = 100_000  # YAML must not fold a line of fstab or a key
# Words of YAML 1.1 (bool, null), and everything that may begin a number, a time, a merge or a default key.
_OTHER_TYPE = re.compile(r"(?:y|n|yes|no|on|off|true|false|null)\Z|[-+.0-9~<=]", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SshAccess:
    """The trusted host keys, and a rehearsal's own key; both None: the operator's ssh configuration is used."""

    known_hosts: bytes | None = None
    private_key: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The inventory, as values and as text, and the other files of the folder."""

    values: dict[str, Any]
    text: str
    files: tuple[str, ...]


def write(plan: SlurmOnHosts, files: Iterable[Artifact], access: SshAccess, to: Path | None) -> Written:
    """Create the files of the folder and write them below `to` if it is given; `files` are the bundle's.

    The same plan and code give the same bytes.
    """
    bundle = artifacts.pack(files)
    code, wheel = _code()
    made = ansible.inventory(plan, _cargo(bundle, code, wheel, access))
    text = yaml_text(made)
    files = [
        Artifact(ansible.BUNDLE, bundle),
        Artifact(ansible.CODE, code),
        Artifact(ansible.FILE, text.encode()),
        *(() if access.known_hosts is None else (Artifact(ansible.KNOWN_HOSTS, access.known_hosts),)),
    ]
    try:
        artifacts.write_tree(files if to is not None else (), to or Path())
    except OSError as error:
        step = "name a writable folder"
        raise GpuclusterError(f"{to}: cannot be written: {error.strerror}", next_step=step) from error
    return Written(values=made, text=text, files=tuple(sorted(one.path for one in files)))


def yaml_text(values: dict[str, Any]) -> str:
    """Return the text in block style with sorted keys. YAML 1.1, which Ansible reads, and YAML 1.2 agree on it."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _QuotingRepresenter
    yaml.default_flow_style = False
    yaml.width = _YAML_WIDTH
    text = io.StringIO()
    yaml.dump(parse_json(json.dumps(values, sort_keys=True)), text)  # pyright: ignore[reportUnknownMemberType]
    return text.getvalue()


class _QuotingRepresenter(SafeRepresenter):
    """Quote texts that YAML 1.1 or 1.2 read as another type: `no` is false in 1.1, `0o14` is a number in 1.2."""

    def represent_text(self, text: str) -> Any:
        style = '"' if _OTHER_TYPE.match(text) else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)  # pyright: ignore[reportUnknownMemberType]


_QuotingRepresenter.add_representer(str, _QuotingRepresenter.represent_text)  # pyright: ignore[reportUnknownMemberType]


def _cargo(bundle: bytes, code: bytes, wheel: str, access: SshAccess) -> Cargo:
    return Cargo(
        bundle_digest=artifacts.digest(bundle),
        code_digest=hashlib.sha256(code).hexdigest(),
        wheel=wheel,
        known_hosts=access.known_hosts is not None,
        private_key=None if access.private_key is None else str(access.private_key),
    )


def _code() -> tuple[bytes, str]:
    """Return our code for hosts as one archive, and the path of our wheel on the host."""
    with tempfile.TemporaryDirectory(prefix="gpucluster-") as scratch:
        out = Path(scratch) / ansible.CODE
        wheel = shipment.host_archive(shipment.sources(), scratch=Path(scratch), out=out)
        return out.read_bytes(), wheel
