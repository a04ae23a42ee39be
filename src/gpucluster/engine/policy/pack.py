"""Load a policy pack from disk: its name and the rules of its package `rules`."""

import hashlib
import importlib
import importlib.util
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from gpucluster.engine.policy.model import Rule
from gpucluster.errors import GpuclusterError

PROJECT = "PulumiPolicy.yaml"
_STEP = "take the folder `policies` of gpucluster as the pattern: PulumiPolicy.yaml, __main__.py, rules/__init__.py with RULES"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """A named set of rules."""

    name: str
    version: str
    folder: Path
    rules: tuple[Rule, ...]


def load(folder: Path) -> Pack:
    """Read a pack and run its modules, which are trusted code of the site. GpuclusterError says what is missing."""
    described = _described(folder / PROJECT)
    listed: object = getattr(_package(folder), "RULES", None)
    rules = cast("tuple[Rule, ...]", listed if isinstance(listed, tuple) else ())
    if not rules or any(type(one) is not Rule for one in rules):
        raise _no_pack(folder, "its package `rules` has no RULES, a tuple of gpucluster.engine.policy.Rule")
    twice = [name for name, times in Counter(rule.name for rule in rules).items() if times > 1]
    if twice:
        raise _no_pack(folder, f"two of its rules are called {twice[0]!r}")
    name, version = str(described.get("name", folder.resolve().name)), str(described.get("version", "0.0.0"))
    return Pack(name=name, version=version, folder=folder, rules=rules)


def _described(file: Path) -> dict[str, object]:
    try:
        yaml: Any = YAML(typ="safe", pure=True)
        found: object = yaml.load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise _no_pack(file.parent, f"{PROJECT} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, YAMLError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise _no_pack(file.parent, f"{PROJECT} is no YAML: {first}") from error
    if not isinstance(found, dict):
        raise _no_pack(file.parent, f"{PROJECT} is no mapping")
    return {str(key): value for key, value in cast("dict[object, object]", found).items()}


def _package(folder: Path) -> ModuleType:
    """Import the package under a unique name, so that two packs can each have a module `network`."""
    start = folder / "rules" / "__init__.py"
    if not start.is_file():
        raise _no_pack(folder, "it has no package `rules`")
    name = "gpucluster_policies_" + hashlib.sha256(str(start.resolve()).encode()).hexdigest()[:16]
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, start, submodule_search_locations=[str(start.parent)])
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018  it is a Python file
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a site's module can raise any exception
        for loaded in [one for one in sys.modules if one == name or one.startswith(f"{name}.")]:
            del sys.modules[loaded]
        raise _no_pack(folder, f"its rules cannot be imported: {type(error).__name__}: {error}") from error
    return module


def _no_pack(folder: Path, why: str) -> GpuclusterError:
    return GpuclusterError(f"{folder}: not a policy pack: {why}", next_step=_STEP)
