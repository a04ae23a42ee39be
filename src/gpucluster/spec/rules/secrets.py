"""Secrets of workloads: never literal in a file, and given from a Secret of the team's namespace."""

import re
from collections.abc import Iterator

from gpucluster.spec.problem import Finding, Path
from gpucluster.spec.rules.findings import error
from gpucluster.spec.secret_values import HARMLESS, is_secret, is_secret_option
from gpucluster.spec.workloads import Serve, Train
from gpucluster.text import quoted

_NAMES = re.compile(
    r"(?:^|_)(?:PASSWORD|PASSWD|SECRET|SECRET_(?:ACCESS_)?KEY|API_?KEY|PRIVATE_KEY|TOKEN)$", re.I
)
_PASSWORDS = re.compile(r".*(?:PASSWORD|PASSWD|PASSPHRASE|_PASS)", re.I)  # with any character in their value
_WORDS = re.compile(r"[A-Za-z0-9_.+=~:-][A-Za-z0-9_.+/=~:-]{7,}")  # `</s>` and `/run/token` are no secrets


def literal(one: Serve | Train, path: Path) -> Iterator[Finding]:
    """Refuse a variable or an argument that looks like a secret. The message does not repeat the value."""
    for name, value in one.env.items():
        if _is_named(name, value) or is_secret(value):
            message = f"the value of '{name}' looks like a secret, and everybody who reads the file or the pod sees it; write `secrets: {{{name}: {{name: SECRET, key: KEY}}}}`"
            yield error(*path, "env", name, id="literal-secret", message=message)
    for key in programs(one):
        for index, value in enumerate(getattr(one, key)):
            if is_secret(value) or is_secret_option(value):
                message = "this looks like a secret, and everybody who reads the file or the pod sees it; give it as a variable by `secrets`"
                yield error(*path, key, index, id="literal-secret", message=message)


def _is_named(name: str, value: str) -> bool:
    """Return whether a value is a secret by the name of its variable."""
    if _PASSWORDS.fullmatch(name):
        return "\n" not in value.strip() and not HARMLESS.fullmatch(value.strip())
    return bool(_NAMES.search(name) and _WORDS.fullmatch(value))


def programs(one: Serve | Train) -> tuple[str, ...]:
    """Return the keys with what the pods run."""
    return ("args", "command", *(("worker_command",) if isinstance(one, Serve) else ()))


def variables(one: Serve | Train, path: Path) -> Iterator[Finding]:
    """Refuse a variable that has a value and a secret."""
    for name in one.secrets:
        if name in one.env:
            message = f"{quoted(name)} is already in 'env'"
            yield error(*path, "secrets", name, id="duplicate-name", message=message)
