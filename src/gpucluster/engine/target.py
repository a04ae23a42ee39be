"""Describe a stack's target: the file backend, the passphrase, and the environment of the CLI."""

import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = "gpucluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One stack in a state directory. `environment` has endpoint, region and keys; they are never in the state."""

    stack: str
    state_dir: Path
    pulumi: Path
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    plugins: Mapping[str, str] = field(
        default_factory=dict[str, str]
    )  # program name on PATH -> Python module

    @property
    def backend(self) -> Path:
        """The folder of Pulumi's files and locks."""
        return self.state_dir / "backend"

    @property
    def backend_url(self) -> str:
        """The URL of that folder. `metadata=skip`: no attribute file beside a checkpoint.

        The backend replaces a checkpoint by an atomic rename, but truncates and rewrites its attribute file in place. A
        kill or a read in between fails with `EOF`. Source: gocloud.dev/blob/fileblob, setAttrs and URLOpener.
        """
        return f"{self.backend.as_uri()}?metadata=skip"

    @property
    def work_dir(self) -> Path:
        """The folder of the project file that the Automation API writes."""
        return self.state_dir / "project"

    @property
    def settings(self) -> Path:
        """The file of the stack's settings, written by the Automation API."""
        return self.work_dir / f"Pulumi.{self.stack}.yaml"

    @property
    def plugin_dir(self) -> Path:
        """The folder of the plugins' executables. It is on PATH."""
        return self.state_dir / "plugins"

    @property
    def passphrase(self) -> Path:
        """The file with the passphrase of the state, mode 0600."""
        return self.state_dir / "passphrase"


def prepare(target: Target) -> None:
    """Make missing directories, the passphrase, and the executables of the plugins."""
    target.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in (target.backend, target.work_dir, target.plugin_dir, target.state_dir / "home"):
        folder.mkdir(mode=0o700, exist_ok=True)
    if not target.passphrase.exists():
        _write_secret(target.passphrase, secrets.token_urlsafe(32))
    for name, module in target.plugins.items():
        _write_plugin(target.plugin_dir / name, module)


def typed_environment(target: Target) -> dict[str, str]:
    """Return the environment for an interactive shell: the user's variables without Pulumi's and AWS's, `pulumi` on PATH.

    The shell uses the settings beside the stack's state, because the settings in the checkout are for the real cluster.
    """
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "PULUMI_")) and name != "BOTO_CONFIG"
    }
    ours = environment(target)
    rest = own.get("PATH", os.defpath)
    folders = (target.plugin_dir, target.pulumi.parent, Path(sys.executable).parent)
    return {
        **own,
        **ours,
        "AWS_DEFAULT_REGION": ours.get("AWS_REGION", ""),
        "PATH": ":".join((*map(str, folders), rest)),
        "PULUMI_OPTION_CONFIG_FILE": str(target.settings),
    }


def environment(target: Target) -> dict[str, str]:
    """Return the environment of the CLI and its provider, without the user's Pulumi and AWS settings."""
    return {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        **target.environment,
        "PATH": f"{target.plugin_dir}:{os.environ.get('PATH', os.defpath)}",
        "PULUMI_BACKEND_URL": target.backend_url,
        "PULUMI_CONFIG_PASSPHRASE_FILE": str(target.passphrase),
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_HOME": str(target.state_dir / "home"),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }


def project_name(file: Path) -> str:
    """Return the name in a Pulumi.yaml; empty if it has none. It may raise OSError."""
    lines = file.read_text(errors="replace").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("name:")), "")


def exists(target: Target) -> bool:
    """Return whether the stack has a state in this backend."""
    return (target.backend / ".pulumi" / "stacks" / PROJECT / f"{target.stack}.json").is_file()


def _write_secret(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(text)


def _write_plugin(path: Path, module: str) -> None:
    """Write an executable that the engine finds on PATH. `-I` keeps the working directory out of the imports."""
    text = f'#!/bin/sh\nexec "{sys.executable}" -I -m {module} "$@"\n'
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    path.chmod(0o700)
