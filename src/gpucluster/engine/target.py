"""Where a stack's state stands and which cloud it is for: the file backend, the passphrase, the environment."""

import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = "gpucluster"
STAND_INS = {  # program on PATH -> what it runs
    "pulumi-resource-aws": "gpucluster.engine.provider",
    "pulumi-language-python": "gpucluster.engine.language",  # the Automation API brings its own
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One stack in a state directory of ours. `environment` carries endpoint, region and keys: never in the state."""

    stack: str
    state_dir: Path
    pulumi: Path
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @property
    def backend(self) -> Path:
        """Pulumi's files; locks stand below it."""
        return self.state_dir / "backend"

    @property
    def work_dir(self) -> Path:
        """The project that the Automation API writes for itself."""
        return self.state_dir / "project"

    @property
    def settings(self) -> Path:
        """The stack's settings, where the Automation API writes them."""
        return self.work_dir / f"Pulumi.{self.stack}.yaml"

    @property
    def plugins(self) -> Path:
        """The folder on PATH with the stand-ins."""
        return self.state_dir / "plugins"

    @property
    def passphrase(self) -> Path:
        """The file with the state's passphrase, 0600."""
        return self.state_dir / "passphrase"


def prepare(target: Target) -> None:
    """Make the directories, the passphrase and the stand-ins' executables; all may be there already."""
    target.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in (target.backend, target.work_dir, target.plugins, target.state_dir / "home"):
        folder.mkdir(mode=0o700, exist_ok=True)
    if not target.passphrase.exists():
        _write_secret(target.passphrase, secrets.token_urlsafe(32))
    for name, module in STAND_INS.items():
        _write_plugin(target.plugins / name, module)


def typed_environment(target: Target) -> dict[str, str]:
    """The same for a person's own shell: their variables but for Pulumi's and AWS's, and `pulumi` on PATH.

    The stack's settings stand with its state: in the checkout they are the real cluster's.
    """
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "PULUMI_")) and name != "BOTO_CONFIG"
    }
    ours = environment(target)
    rest = own.get("PATH", os.defpath)
    folders = (target.plugins, target.pulumi.parent, Path(sys.executable).parent)
    return {
        **own,
        **ours,
        "AWS_DEFAULT_REGION": ours.get("AWS_REGION", ""),
        "PATH": ":".join((*map(str, folders), rest)),
        "PULUMI_OPTION_CONFIG_FILE": str(target.settings),
    }


def environment(target: Target) -> dict[str, str]:
    """What the CLI and its provider see: nothing of the user's Pulumi or AWS settings."""
    return {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        **target.environment,
        "PATH": f"{target.plugins}:{os.environ.get('PATH', os.defpath)}",
        "PULUMI_BACKEND_URL": target.backend.as_uri(),
        "PULUMI_CONFIG_PASSPHRASE_FILE": str(target.passphrase),
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_HOME": str(target.state_dir / "home"),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }


def exists(target: Target) -> bool:
    """Whether the stack has a state here."""
    return (target.backend / ".pulumi" / "stacks" / PROJECT / f"{target.stack}.json").is_file()


def _write_secret(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(text)


def _write_plugin(path: Path, module: str) -> None:
    """The engine starts its plugins from PATH; -I keeps the working directory out of the imports."""
    text = f'#!/bin/sh\nexec "{sys.executable}" -I -m {module} "$@"\n'
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    path.chmod(0o700)
