"""The recipe of an image: all its inputs, with one digest. A second image with the same digest is never built."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from gpucluster import shipment
from gpucluster.catalog.image import ImageFacts, Pin, System
from gpucluster.errors import GpuclusterError
from gpucluster.files import shipped
from gpucluster.plan import names

SUMS = "SHA256SUMS"  # beside the files: the published digests, in the format of sha256sum
PARTS = (  # the playbook's tags, in its order
    *("slurm", "pyxis", "enroot", "apptainer"),
    *("lustre", "nvidia", "nvlsm", "dcgm", "efs", "efa"),
)
NEEDS = {"pyxis": ("enroot",)}  # part -> parts that it cannot do without
HEADERS = "slurm-smd-dev"  # the headers of Slurm, for its plugins
MODULES = {  # part -> its kernel modules
    "lustre": ("lustre",),
    "nvidia": ("nvidia",),
    "nvlsm": ("mlx5_ib", "ib_umad"),
    "efa": ("efa",),
}
_ARCHIVES = frozenset({"lustre", "nvlsm", "dcgm"})  # parts whose file is an entry of apt's sources
KERNEL = "KERNEL"  # in the name of a package: the release of the image's kernel
_FORMAT = "1"  # raise it when a change of this program changes the image


class PinState(StrEnum):
    """The result of comparing a part's file with its digest."""

    RIGHT = "right"
    WRONG = "wrong"
    MISSING = "missing"
    UNKNOWN = "unknown"  # neither the catalog nor SHA256SUMS has a digest for the file
    NO_FILE = "no-file"  # packages from the archive of the distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class PinCheck:
    """One part, and the check of its file."""

    name: str  # in the catalog
    pin: Pin
    state: PinState
    found: str | None = None  # the file's digest
    wanted: str | None = None

    @property
    def good(self) -> bool:
        return self.state in (PinState.RIGHT, PinState.NO_FILE)

    def message(self) -> str:
        """Return one sentence: what was found, what was expected, what to do."""
        if self.state is PinState.RIGHT:
            return f"{self.name} {self.pin.version}: {self.pin.file} has the expected digest"
        if self.state is PinState.NO_FILE:
            return f"{self.name} {self.pin.version}: packages of {self.pin.upstream}"
        if self.state is PinState.MISSING:
            return f"{self.name} {self.pin.version}: {self.pin.file} is missing; download it from {self.pin.upstream}"
        if self.state is PinState.WRONG:
            return f"{self.name} {self.pin.version}: {self.pin.file} has the digest {self.found}, expected {self.wanted}"
        return (
            f"{self.name} {self.pin.version}: no digest is known for {self.pin.file}; compare with {self.pin.upstream}, "
            f"then put this line into {SUMS}: {self.found}  {self.pin.file}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that decides the content of the image, except the newest base image and the package archive of that day."""

    name: str
    os: str
    system: System
    slurm: str  # version
    pins: Mapping[str, Pin]  # by part, in the playbook's order
    files: Mapping[str, Path]  # by part
    digest: str = field(default="")

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.pins)

    def tags(self) -> tuple[str, ...]:
        """Return the tags of the playbook."""
        return ("builder", *self.parts, "system", "code")

    def variables(self) -> dict[str, object]:
        """Return the playbook's variables of the parts. The caller adds the paths of the archives."""
        slurm = self.pins["slurm"]
        return {
            **shipment.image_variables(),
            "part_files": {part: str(path) for part, path in self.files.items()},
            "part_archives": [part for part in self.files if part in _ARCHIVES],
            "part_packages": {p: list(pin.packages) for p, pin in self.pins.items() if p != "slurm"},
            "packages_built": [
                "libpam-slurm-adopt",
                "sackd",
                "slurm-client",
                "slurmctld",
                "slurmd",
                "slurmdbd",
            ],
            "slurm_archive": str(self.files["slurm"]),
            "slurm_packages": [*slurm.packages, *([HEADERS] if "pyxis" in self.pins else [])],
            "slurm_build": "/usr/src/gpucluster-slurm",
            "slurm_mark": "/opt/gpucluster/slurm",
            "slurm_digest": f"{slurm.version} {self.digest}",
            "efa_build": "/usr/src/gpucluster-efa",
            "pyxis_build": "/usr/src/gpucluster-pyxis",
            "efs_proxy_ports": list(names.EFS_PROXY_PORTS),
            "kernel_package": self.system.kernel,
            "kernel_series": list(self.system.lustre_series) if "lustre" in self.pins else [],
            "kernel_prefixes": self._kernel_prefixes(),
            "kernel_modules": [
                one for part, modules in MODULES.items() if part in self.pins for one in modules
            ],
            "fabric_modules": list(MODULES["nvlsm"]),
        }

    def _kernel_prefixes(self) -> list[str]:
        """Return the names, without the release, of the packages that must exist for the kernel of the image."""
        pinned = (name for pin in self.pins.values() for name in pin.packages if name.endswith(KERNEL))
        return ["linux-image-", "linux-headers-", *(name.removesuffix(KERNEL) for name in pinned)]


def check_pins(
    facts: ImageFacts, slurm: str, parts: Iterable[str], folder: Path | None
) -> tuple[PinCheck, ...]:
    """Compare the file of each part with its digest in the catalog or in SHA256SUMS."""
    sums = _sums(folder)
    return tuple(
        _checked(name, facts.pins[name], folder, sums) for name in (pin_name(p, slurm) for p in parts)
    )


def pin_name(part: str, slurm: str) -> str:
    """Return the name of a part in the catalog, which has one entry for each version of Slurm."""
    return f"slurm-{slurm}" if part == "slurm" else part


def recipe(
    facts: ImageFacts, os: str, slurm: str, checked: Iterable[PinCheck], folder: Path | None
) -> Recipe:
    """Return the recipe; GpuclusterError with all parts whose files are missing or wrong."""
    rows = tuple(checked)
    bad = [row.message() for row in rows if not row.good]
    if bad:
        raise GpuclusterError(
            "the image cannot be built:\n  " + "\n  ".join(bad),
            next_step="put the files into one folder and pass it: --files DIR; --check-pins checks them",
        )
    pins = {row.pin.part: row.pin for row in rows}
    made = Recipe(
        name=names.image_name(os, slurm),
        os=os,
        system=facts.systems[os],
        slurm=slurm,
        pins=pins,
        files={part: (folder or Path()) / pin.file for part, pin in pins.items() if pin.file is not None},
    )
    digest = _digest(made, {row.pin.part: row.found for row in rows})
    return Recipe(
        name=made.name,
        os=os,
        system=made.system,
        slurm=slurm,
        pins=pins,
        files=made.files,
        digest=digest,
    )


def chosen_parts(
    facts: ImageFacts, os: str, slurm: str, left_out: Iterable[str], added: Iterable[str]
) -> tuple[str, ...]:
    """Return the parts to build: all that are not optional, changed by the options. GpuclusterError for an unknown part."""
    _known("an operating system", os, facts.systems)
    _known("a version of Slurm", slurm, facts.slurm_versions())
    away, more = set(left_out), set(added)
    more |= {need for part in more for need in NEEDS.get(part, ())}
    for part in sorted(away | more):
        _known("a part of an image", part, PARTS)
    if "slurm" in away:
        raise GpuclusterError("the image cannot be built without Slurm", next_step="remove --without slurm")
    optional = {part for part in PARTS if facts.pins[pin_name(part, slurm)].optional}
    return tuple(p for p in PARTS if p not in away and (p not in optional or p in more))


def _known(what: str, word: str, known: Iterable[str]) -> None:
    if word not in known:
        raise GpuclusterError(f"{word!r} is not {what} that can be built", next_step=f"{', '.join(known)}")


def _sums(folder: Path | None) -> Mapping[str, str]:
    """Read the `DIGEST  NAME` lines; ignore all others."""
    if folder is None or not (folder / SUMS).is_file():
        return {}
    text = (folder / SUMS).read_text(encoding="utf-8", errors="replace")
    rows = (line.split(maxsplit=1) for line in text.splitlines())
    return {
        row[1].removeprefix("*").removeprefix("./").strip(): row[0].lower()
        for row in rows
        if len(row) == 2 and len(row[0]) == 64
    }


def _checked(name: str, pin: Pin, folder: Path | None, sums: Mapping[str, str]) -> PinCheck:
    if pin.file is None:
        return PinCheck(name=name, pin=pin, state=PinState.NO_FILE)
    wanted = pin.sha256 or sums.get(pin.file)
    path = (folder or Path()) / pin.file
    if folder is None or not path.is_file():
        return PinCheck(name=name, pin=pin, state=PinState.MISSING, wanted=wanted)
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    state = PinState.UNKNOWN if wanted is None else PinState.RIGHT if found == wanted else PinState.WRONG
    return PinCheck(name=name, pin=pin, state=state, found=found, wanted=wanted)


def _digest(made: Recipe, files: Mapping[str, str | None]) -> str:
    sources = shipment.sources()
    playbooks = shipped("playbooks")
    texts = [
        playbooks / "image.yml",
        playbooks / "packages.yml",
        *sorted((playbooks / "tasks").rglob("*.yml")),
        *sorted((playbooks / "tasks").rglob("*.py")),
    ]
    parts: list[object] = [
        _FORMAT,
        [made.system.owner, made.system.pattern, made.system.python],
        [(part, pin.version, pin.packages, files[part]) for part, pin in made.pins.items()],
        [(str(path.relative_to(playbooks)), path.read_text(encoding="utf-8")) for path in texts],
        sources.pins.read_text(encoding="utf-8"),
        sources.digest(),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
