"""Load only the parts of `pulumi_aws` that a program uses. Installed in the child process of the offline planner, never in `pulumi up`.

`pulumi_aws.ec2` imports 200 modules and creates 2000 classes at its first use; a program uses 30 of the modules.
Here a service's package does not run: reading a name from it imports the one module that defines the name.
The classes of `_inputs` and `outputs` are compiled when they are first read.
The names in annotations resolve through the modules' `__builtins__`: CPython reads a name there last, so only missing names cost.
That a subclass of dict may stand there is a detail of CPython, tested with 3.11. `install` tries it first. On a Python that
does not call `__missing__` there, nothing is installed: the SDK imports whole, which is slower and declares the same.
"""

import builtins
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

SDK: Final = "pulumi_aws"
CLASSES: Final = ("_inputs", "outputs")  # modules that only hold classes
_CLASS: Final = re.compile(r"^(?:@\S.*\n)*class (\w+)", re.MULTILINE)
_EXPORTS: Final = re.compile(r"^__all__ = \[(.*?)\]", re.MULTILINE | re.DOTALL)
_NAME: Final = re.compile(r"'(\w+)'")
LOADED: Final[list[tuple[str, str]]] = []  # modules and the names that were read from them, in order


def install() -> bool:
    """Make the services of `pulumi_aws` lazy in this process. Call it before the first import of `pulumi_aws`.

    Return whether this Python can do it.
    """
    if not asks_builtins_for_missing_names():
        return False
    sys.meta_path.insert(0, _Finder())
    return True


def load(names: Iterable[tuple[str, str]]) -> None:
    """Read names that another process has read."""
    for module, name in names:
        with suppress(ImportError, AttributeError):
            getattr(import_module(module), name)


def asks_builtins_for_missing_names() -> bool:
    """Return whether Python calls `__missing__` of a module's `__builtins__`, in a module and in a function."""
    try:
        for text in ("absent", "(lambda: absent)()"):
            eval(text, {"__builtins__": _Probe()})  # noqa: S307  our own text
    except (NameError, KeyError, TypeError, SystemError):
        return False
    return True


class _Probe(dict[str, object]):
    def __missing__(self, name: str) -> object:
        return name


class _Finder(MetaPathFinder):
    """Finds the services, and the modules in them, of the SDK."""

    def __init__(self) -> None:
        self._names: dict[str, _Names] = {}  # by service

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        parts = fullname.split(".")
        if parts[0] != SDK or path is None or len(parts) not in {2, 3}:
            return None
        if len(parts) == 2:
            return _service_spec(fullname, Path(path[0]) / parts[1])
        service = f"{SDK}.{parts[1]}"
        if not isinstance(getattr(sys.modules.get(service), "__loader__", None), _ServiceLoader | None):
            return None
        return self._module_spec(fullname, service, path)

    def _module_spec(self, fullname: str, service: str, path: Sequence[str]) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path)
        if spec is None or spec.origin is None or not isinstance(spec.loader, SourceFileLoader):
            return spec
        names = self._names.setdefault(service, _Names(service))
        kind = _ClassesLoader if fullname.rpartition(".")[2] in CLASSES else _ModuleLoader
        spec.loader = kind(fullname, spec.origin, names)
        return spec


def _service_spec(fullname: str, folder: Path) -> ModuleSpec | None:
    """None for what is no service: a module, or the package of settings, which replaces itself."""
    if not (folder / "__init__.py").exists() or (folder / "vars.py").exists():
        return None
    return spec_from_file_location(
        fullname,
        folder / "__init__.py",
        loader=_ServiceLoader(folder),
        submodule_search_locations=[str(folder)],
    )


class _ServiceLoader(Loader):
    """Gives a service's package its names without importing the modules that define them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def exec_module(self, module: ModuleType) -> None:
        def __getattr__(name: str) -> Any:  # noqa: N807
            where = self._module_of.get(name)
            if where is None:
                return _submodule(module, name)
            defining = import_module(f"{module.__name__}.{where}")
            exported = (name,) if where in CLASSES else defining.__all__
            for one in exported:  # some modules are named like a function in them
                setattr(module, one, getattr(defining, one))
            LOADED.append((module.__name__, name))
            return getattr(defining, name)

        vars(module)["__getattr__"] = __getattr__

    @cached_property
    def _module_of(self) -> Mapping[str, str]:
        """The module of each name, in the order of the package's own imports."""
        text = (self._folder / "__init__.py").read_text(encoding="utf-8")
        modules = re.findall(r"^from \.(\w+) import \*$", text, re.MULTILINE)
        return {name: module for module in modules for name in _exports(self._folder / f"{module}.py")}


def _submodule(package: ModuleType, name: str) -> ModuleType:
    full = f"{package.__name__}.{name}"
    if name.startswith("__") or PathFinder.find_spec(full, package.__path__) is None:
        raise AttributeError(f"module {package.__name__!r} has no attribute {name!r}")
    return import_module(full)


def _exports(path: Path) -> Iterable[str]:
    """Read `__all__` of a module from its text."""
    found = _EXPORTS.search(path.read_text(encoding="utf-8"))
    return _NAME.findall(found[1]) if found else ()


class _Names(dict[str, Any]):
    """The built-in names, and after them the classes of one service's `_inputs`."""

    def __init__(self, service: str) -> None:
        super().__init__(vars(builtins))
        self._service = service

    def __missing__(self, name: str) -> object:
        if not name.startswith("__"):
            try:
                return getattr(import_module(f"{self._service}._inputs"), name)
            except (AttributeError, ModuleNotFoundError):
                pass
        raise KeyError(name)


class _ModuleLoader(SourceFileLoader):
    """Runs a module whose missing names are classes of `_inputs`."""

    def __init__(self, fullname: str, path: str, names: _Names) -> None:
        super().__init__(fullname, path)
        self.names = names

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = self.names
        super().exec_module(module)


class _ClassesLoader(_ModuleLoader):
    """Runs a module's head, and each of its classes when it is first read."""

    def exec_module(self, module: ModuleType) -> None:
        text = Path(self.path).read_text(encoding="utf-8")
        parts = dict(_classes(text))
        first = min((start for start, _ in parts.values()), default=len(text))

        def __getattr__(name: str) -> object:  # noqa: N807
            if name not in parts:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            start, end = parts[name]
            exec(self._compiled(text[start:end]), vars(module))  # noqa: S102  the installed SDK's own text
            LOADED.append((module.__name__, name))
            return vars(module)[name]

        vars(module).update({"__builtins__": self.names, "__getattr__": __getattr__})
        exec(self._compiled(text[:first]), vars(module))  # noqa: S102
        vars(module)["__all__"] = []  # a star import takes no name; `_Names` gives them

    def _compiled(self, text: str) -> CodeType:
        return compile(text, self.path, "exec", dont_inherit=True)


def _classes(text: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Each class and where its text, with its decorators, starts and ends."""
    found = list(_CLASS.finditer(text))
    ends = [one.start() for one in found[1:]] + [len(text)]
    for one, end in zip(found, ends, strict=True):
        yield one[1], (one.start(), end)
