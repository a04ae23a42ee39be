"""Parsed manifests with the place that they were read from."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gpucluster.k8s.lint.tree import Path


def _nowhere(_path: Path) -> int:
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document of a file, or one manifest of a renderer."""

    value: Any
    file: str = ""
    number: int = 0
    line_of: Callable[[Path], int] = _nowhere
    is_base: bool = False  # a Kustomization lists the file, and can complete its objects


def documents(manifests: Iterable[Any], *, file: str = "") -> tuple[Document, ...]:
    """Return documents of manifests that come from a renderer and not from a file."""
    return tuple(
        Document(value=value, file=file, number=number) for number, value in enumerate(manifests, start=1)
    )
