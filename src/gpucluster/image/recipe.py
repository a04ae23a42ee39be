"""What an image will be made of, as a value with a digest: of the same digest there is never a second image."""

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

SUMS = "SHA256SUMS"  # beside the files: what their makers publish, as sha256sum writes it
PARTS = ("slurm", "lustre", "nvidia", "dcgm", "efa")  # the playbook's tags, in its order
MODULES = {"lustre": "lustre", "nvidia": "nvidia", "efa": "efa"}  # part -> the kernel module that it brings
_ARCHIVES = frozenset({"lustre", "dcgm"})  # parts whose file is an entry of apt's sources
_FORMAT = "1"  # raised when the way of building changes what is built


class PinState(StrEnum):
    """How a part's file stands to its digest."""

    RIGHT = "right"
    WRONG = "wrong"
    MISSING = "missing"
    UNKNOWN = "unknown"  # there, but neither the catalog nor SHA256SUMS has a digest for it
    NO_FILE = "no-file"  # packages of the system's own archive


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One part, and its file at hand."""

    name: str  # in the catalog
    pin: Pin
    state: PinState
    found: str | None = None  # the file's digest
    wanted: str | None = None

    @property
    def good(self) -> bool:
        return self.state in (PinState.RIGHT, PinState.NO_FILE)

    def sentence(self) -> str:
        """What was found, what was expected, what to do."""
        if self.state is PinState.RIGHT:
            return f"{self.name} {self.pin.version}: {self.pin.file} is what its digest says"
        if self.state is PinState.NO_FILE:
            return f"{self.name} {self.pin.version}: packages of {self.pin.upstream}"
        if self.state is PinState.MISSING:
            return f"{self.name} {self.pin.version}: {self.pin.file} is not there; it is from {self.pin.upstream}"
        if self.state is PinState.WRONG:
            return f"{self.name} {self.pin.version}: {self.pin.file} is {self.found}, its digest says {self.wanted}"
        return (
            f"{self.name} {self.pin.version}: no digest is known for {self.pin.file}; compare with {self.pin.upstream}, "
            f"then put this line into {SUMS}: {self.found}  {self.pin.file}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that decides what is in the image, but for the maker's newest image and the archive of that day."""

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
        """The playbook's."""
        return ("builder", *self.parts, "system", "code")

    def variables(self) -> dict[str, object]:
        """What the playbook is told of the parts; paths of ours and of the archives come from whoever runs it."""
        slurm = self.pins["slurm"]
        return {
            **shipment.image_variables(),
            "part_files": {part: str(path) for part, path in self.files.items()},
            "part_archives": [part for part in self.files if part in _ARCHIVES],
            "part_packages": {p: list(pin.packages) for p, pin in self.pins.items() if p != "slurm"},
            "packages_built": ["sackd", "slurm-client", "slurmctld", "slurmd"],
            "slurm_archive": str(self.files["slurm"]),
            "slurm_packages": list(slurm.packages),
            "slurm_build": "/usr/src/gpucluster-slurm",
            "slurm_mark": "/opt/gpucluster/slurm",
            "slurm_digest": f"{slurm.version} {self.digest}",
            "efa_build": "/usr/src/gpucluster-efa",
            "kernel_package": self.system.kernel,
            "kernel_modules": [module for part, module in MODULES.items() if part in self.pins],
        }


def check_pins(
    facts: ImageFacts, slurm: str, parts: Iterable[str], folder: Path | None
) -> tuple[Checked, ...]:
    """Each chosen part's file against its digest, the catalog's or the one in SHA256SUMS."""
    sums = _sums(folder)
    return tuple(
        _checked(name, facts.pins[name], folder, sums) for name in (pin_name(p, slurm) for p in parts)
    )


def pin_name(part: str, slurm: str) -> str:
    """The catalog's name of a part: Slurm has one for each version."""
    return f"slurm-{slurm}" if part == "slurm" else part


def recipe(facts: ImageFacts, os: str, slurm: str, checked: Iterable[Checked], folder: Path | None) -> Recipe:
    """The recipe of parts whose files are right; else a GpuclusterError that names every one that is not."""
    rows = tuple(checked)
    bad = [row.sentence() for row in rows if not row.good]
    if bad:
        raise GpuclusterError(
            "the image cannot be built:\n  " + "\n  ".join(bad),
            next_step="put the files into one folder and name it: --files DIR; --check-pins says how they stand",
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
    """All parts but the optional ones, as the options change it; a GpuclusterError for what there is not."""
    _known("an operating system", os, facts.systems)
    _known("a version of Slurm", slurm, facts.slurm_versions())
    away, more = set(left_out), set(added)
    for part in sorted(away | more):
        _known("a part of an image", part, PARTS)
    if "slurm" in away:
        raise GpuclusterError(
            "an image without Slurm is none of ours", next_step="leave --without slurm away"
        )
    optional = {part for part in PARTS if facts.pins[pin_name(part, slurm)].optional}
    return tuple(p for p in PARTS if p not in away and (p not in optional or p in more))


def _known(what: str, word: str, known: Iterable[str]) -> None:
    if word not in known:
        raise GpuclusterError(f"{word!r} is not {what} that can be built", next_step=f"{', '.join(known)}")


def _sums(folder: Path | None) -> Mapping[str, str]:
    """`DIGEST  NAME` lines; others are no digest of anything."""
    if folder is None or not (folder / SUMS).is_file():
        return {}
    text = (folder / SUMS).read_text(encoding="utf-8", errors="replace")
    rows = (line.split(maxsplit=1) for line in text.splitlines())
    return {
        row[1].removeprefix("*").removeprefix("./").strip(): row[0].lower()
        for row in rows
        if len(row) == 2 and len(row[0]) == 64
    }


def _checked(name: str, pin: Pin, folder: Path | None, sums: Mapping[str, str]) -> Checked:
    if pin.file is None:
        return Checked(name=name, pin=pin, state=PinState.NO_FILE)
    wanted = pin.sha256 or sums.get(pin.file)
    path = (folder or Path()) / pin.file
    if folder is None or not path.is_file():
        return Checked(name=name, pin=pin, state=PinState.MISSING, wanted=wanted)
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    state = PinState.UNKNOWN if wanted is None else PinState.RIGHT if found == wanted else PinState.WRONG
    return Checked(name=name, pin=pin, state=state, found=found, wanted=wanted)


def _digest(made: Recipe, files: Mapping[str, str | None]) -> str:
    sources = shipment.sources()
    playbooks = shipped("playbooks")
    texts = [
        playbooks / "image.yml",
        playbooks / "packages.yml",
        *sorted((playbooks / "tasks").rglob("*.yml")),
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
