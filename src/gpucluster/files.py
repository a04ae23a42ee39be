"""The location of our own data files: beside the checkout, or inside the installed wheel. And one form of file: KEY=VALUE lines."""

from collections.abc import Mapping
from pathlib import Path

_PACKAGE = Path(__file__).parent
_CHECKOUT = _PACKAGE.parent.parent


def shipped(kind: str) -> Path:
    """Return the folder of `templates`, `playbooks` or `policies`, in either layout."""
    wheel = _PACKAGE / "_data" / kind
    return wheel if wheel.is_dir() else _CHECKOUT / kind


def checkout() -> Path | None:
    """Return the root of our source tree if the program runs from one; None in an installed wheel."""
    return _CHECKOUT if (_CHECKOUT / "pyproject.toml").is_file() else None


def variables(path: Path) -> Mapping[str, str]:
    """Return the KEY=VALUE lines of an EnvironmentFile of systemd; none if there is no such file."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}
