"""Check a node's GPUs, memory and fabric in seconds, while jobs run: nvidia-smi, the kernel log, /proc and /sys.

A value that nvidia-smi cannot read (`[Unknown Error]`, `[GPU requires reset]`, `ERR!`) is a fault of the GPU. A value
that the GPU does not have (`[N/A]`, `[Not Supported]`) is not checked. (S30)
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpucluster.catalog import xids
from gpucluster.checks.check import CheckResult, ParseError, Query, QueryOutput, failed, listed, passed
from gpucluster.plan.messages import GpuFault
from gpucluster.text import ascii_line, short

NVIDIA_SMI = "/usr/bin/nvidia-smi"
KERNEL_LOG, PORTS = "@kernel-log", "@ports"  # no programs: the health program reads them itself
SLOWED = 0xE8  # HW slowdown 0x8, SW thermal 0x20, HW thermal 0x40, HW power brake 0x80
ABSENT = frozenset({"[N/A]", "N/A", "[Not Supported]", "[Not Found]"})
NO_FIELD = "is not a valid field to query"
MEMORY_PERCENT = 98  # of the data sheet: firmware reserves a little
_FORMAT = "--format=csv,noheader,nounits"
_LINK = re.compile(r"^\s+Link (\d{1,2}): (.{1,40})$")
_SPEED = re.compile(r"[0-9]+(?:\.[0-9]+)? GB/s")
_GPU = re.compile(r"^GPU (\d{1,3}): ")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuWant:
    """The GPUs of a node. `memory_mib`: of each, by the data sheet; None is not compared. `nvlinks`: of each; 0 is not compared."""

    count: int
    memory_mib: int | None = None
    nvlinks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultWant:
    """The kernel log, and the time of the last drain for a fault in it (Unix time): older faults were counted then."""

    path: str
    judged_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryWant:
    """The least memory of the node in MiB."""

    mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PortWant:
    """The least number of active ports of EFA or InfiniBand below `path`."""

    count: int
    path: str = "/sys/class/infiniband"


Rows = Mapping[str, tuple[str, ...]]  # GPU's index -> its values


# --- nvidia-smi: number and memory of the GPUs ---------------------------------------------------------------
def query_smi(_want: GpuWant) -> tuple[Query, ...]:
    return (_smi("--query-gpu=index,memory.total"),)


def parse_rows(got: tuple[QueryOutput, ...]) -> Rows:
    """One line for each GPU: its index, then values, with `, ` between them."""
    return _rows(got[0], 2)


def evaluate_smi(found: Rows, want: GpuWant) -> CheckResult:
    expected = f"{want.count} GPUs" + (f" of {want.memory_mib} MiB" if want.memory_mib else "")
    wrong = list(_unreadable(found))
    if len(found) != want.count:
        return failed(f"nvidia-smi lists {len(found)} GPUs", expected)
    least = (want.memory_mib or 0) * MEMORY_PERCENT // 100
    for gpu, (memory,) in found.items():
        if memory.isdecimal() and int(memory) < least:
            wrong.append(f"GPU {gpu} has {memory} MiB")
    return failed(listed(wrong), expected) if wrong else passed(expected)


# --- ECC, remapped rows, clocks -----------------------------------------------------------------------------------
def query_ecc(_want: GpuWant) -> tuple[Query, ...]:
    return (_smi("--query-gpu=index,ecc.errors.uncorrected.volatile.total"),)


def evaluate_ecc(found: Rows, _want: GpuWant) -> CheckResult:
    """Uncorrectable ECC errors since the driver was loaded."""
    expected = "no uncorrectable ECC error"
    wrong = [
        *_unreadable(found),
        *(
            f"GPU {gpu} has {count} uncorrectable ECC errors"
            for gpu, (count,) in found.items()
            if _above_zero(count)
        ),
    ]
    return failed(listed(wrong), expected) if wrong else passed(expected)


def query_remap(_want: GpuWant) -> tuple[Query, ...]:
    return (_smi("--query-remapped-rows=gpu_bus_id,remapped_rows.pending,remapped_rows.failure"),)


def parse_remap(got: tuple[QueryOutput, ...]) -> Rows:
    """PCI address, `pending`, `failure`; a GPU before Ampere has no such rows and may be missing."""
    return _rows(got[0], 3)


def evaluate_remap(found: Rows, _want: GpuWant) -> CheckResult:
    expected = "no pending and no failed row remapping"
    wrong = list(_unreadable(found))
    for gpu, (pending, failure) in found.items():
        wrong += [
            f"{gpu} has {word}"
            for word, value in (("a failed row remapping", failure), ("a pending row remapping", pending))
            if value.lower() in ("yes", "1")
        ]
    return failed(listed(wrong), expected) if wrong else passed(expected)


def query_clocks(_want: GpuWant) -> tuple[Query, ...]:
    return (_smi("--query-gpu=index,clocks_event_reasons.active"),)


def evaluate_clocks(found: Rows, _want: GpuWant) -> CheckResult:
    """Reasons that slow an idle GPU: heat, the power brake, a hardware slowdown."""
    expected = "no GPU slowed by heat or power"
    wrong = list(_unreadable(found))
    for gpu, (reasons,) in found.items():
        try:
            slowed = int(reasons, 16) & SLOWED
        except ValueError:
            continue  # absent, or listed by `_unreadable`
        if slowed:
            wrong.append(f"GPU {gpu} is slowed, reasons {slowed:#x}")
    return failed(listed(wrong), expected) if wrong else passed(expected)


# --- NVLink -------------------------------------------------------------------------------------------------------
def query_links(_want: GpuWant) -> tuple[Query, ...]:
    return (Query(argv=(NVIDIA_SMI, "nvlink", "--status")),)


def parse_links(got: tuple[QueryOutput, ...]) -> Mapping[int, tuple[str, ...]]:
    """GPU -> the state of each of its links: a speed such as `26.562 GB/s`, or `<inactive>`."""
    found: dict[int, tuple[str, ...]] = {}
    gpu = None
    for line in got[0].text().splitlines():
        if head := _GPU.match(line):
            gpu = int(head[1])
            found[gpu] = ()
        elif (link := _LINK.match(line)) and gpu is not None:
            found[gpu] = (*found[gpu], link[2].strip())
    if not found:
        raise ParseError(f"nvidia-smi nvlink printed {short(got[0].stdout, 60)!r}")
    return found


def evaluate_links(found: Mapping[int, tuple[str, ...]], want: GpuWant) -> CheckResult:
    expected = f"{want.nvlinks} active links on each of {want.count} GPUs"
    active = {
        gpu: sum(1 for link in found.get(gpu, ()) if _SPEED.fullmatch(link)) for gpu in range(want.count)
    }
    wrong = [f"GPU {gpu} has {count} active links" for gpu, count in active.items() if count != want.nvlinks]
    return failed(listed(wrong), expected) if wrong else passed(expected)


# --- the kernel log ------------------------------------------------------------------------------------------------
def query_faults(want: FaultWant) -> tuple[Query, ...]:
    return (Query(argv=(KERNEL_LOG, want.path)),)


def parse_faults(got: tuple[QueryOutput, ...]) -> tuple[GpuFault, ...]:
    """One fault each line: XID, time, count, PCI address, then the driver's text, with blanks between them."""
    return tuple(_faults(got[0].text()))


def fault_line(fault: GpuFault) -> str:
    """The line that `parse_faults` reads."""
    return f"{fault.xid} {fault.last_at:.3f} {fault.count} {fault.device} {ascii_line(fault.text)}"


def evaluate_faults(found: tuple[GpuFault, ...], want: FaultWant) -> CheckResult:
    """XIDs since the boot whose remedy is a reset, a reboot or another machine. An XID of a user's program passes."""
    expected = "no XID with a remedy"
    new = [fault for fault in found if fault.last_at > want.judged_at]
    bad = [f for f in new if xids.severity_of(f.xid, f.text) is not xids.Severity.MONITOR]
    words = [f"XID {f.xid} on {f.device} ({xids.severity_of(f.xid, f.text).value})" for f in bad]
    return failed(listed(words), expected) if words else passed(expected)


# --- memory and fabric --------------------------------------------------------------------------------------------
def query_memory(_want: MemoryWant) -> tuple[Query, ...]:
    return (Query(argv=("cat", "/proc/meminfo")),)


def parse_memory(got: tuple[QueryOutput, ...]) -> int:
    """MiB of `MemTotal`."""
    found = re.search(r"^MemTotal: +([0-9]{1,15}) kB$", got[0].text(), re.MULTILINE)
    if found is None:
        raise ParseError(f"/proc/meminfo has no MemTotal: {short(got[0].stdout, 60)!r}")
    return int(found[1]) // 1024


def evaluate_memory(found: int, want: MemoryWant) -> CheckResult:
    return (passed if found >= want.mib else failed)(f"{found} MiB of memory", f"at least {want.mib} MiB")


def query_ports(want: PortWant) -> tuple[Query, ...]:
    return (Query(argv=(PORTS, want.path)),)


def parse_ports(got: tuple[QueryOutput, ...]) -> Mapping[str, str]:
    """`DEVICE/PORT STATE`, for example `mlx5_0/1 4: ACTIVE`, one port each line."""
    pairs = (line.partition(" ") for line in got[0].text().splitlines())
    return {name: state.strip() for name, _, state in pairs}


def evaluate_ports(found: Mapping[str, str], want: PortWant) -> CheckResult:
    expected = f"{want.count} active ports"
    active = sum(1 for state in found.values() if state == "4: ACTIVE")
    if active >= want.count:
        return passed(f"{active} active ports", expected)
    other = [f"{name} is {short(state, 30)}" for name, state in sorted(found.items()) if state != "4: ACTIVE"]
    return failed(
        f"{active} active ports of {len(found)}" + (f": {listed(other)}" if other else ""), expected
    )


def _smi(query: str) -> Query:
    return Query(argv=(NVIDIA_SMI, query, _FORMAT))


def _rows(got: QueryOutput, columns: int) -> Rows:
    if got.code and NO_FIELD in f"{got.stdout}{got.stderr}":
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for line in got.text().splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) != columns or words[0] in found or not re.fullmatch(r"[0-9A-Fa-f:.]{1,20}", words[0]):
            raise ParseError(f"nvidia-smi printed {short(line, 60)!r}")
        found[words[0]] = tuple(words[1:])
    return found


def _unreadable(found: Rows) -> Iterator[str]:
    for gpu, values in found.items():
        for value in values:
            if value not in ABSENT and not re.fullmatch(r"[0-9]{1,12}|0x[0-9A-Fa-f]{1,16}|Yes|No", value):
                yield f"GPU {gpu} answers {short(value, 40)!r}"


def _above_zero(value: str) -> bool:
    return value.isdecimal() and int(value) > 0


def _faults(text: str) -> Iterator[GpuFault]:
    for line in text.splitlines():
        words = line.split(" ", 4)
        try:
            xid, at, count, device, text = (*words, "")[:5]
            yield GpuFault(xid=int(xid), device=device, count=int(count), last_at=float(at), text=text)
        except ValueError as error:
            raise ParseError(f"the kernel log: {short(line, 60)!r}") from error
