"""Write src/gpucluster/catalog/data/machines.json from moto's tables of instance types and offerings.

    .venv/bin/python tools/make_catalog.py            # writes the file
    .venv/bin/python tools/make_catalog.py --check    # exit 1 if the committed file differs

To add machine types: their family in CORES, run this, read the diff.
"""

import argparse
import gzip
import importlib.metadata
import json
import re
import string
import sys
from pathlib import Path
from typing import Any

import moto.ec2

TARGET = Path(__file__).parent.parent / "src/gpucluster/catalog/data/machines.json"
TABLES = Path(moto.ec2.__file__).parent / "resources"
READ_ON = "2026-11-21"  # change it when the pinned moto has newer tables

# Family -> cores of one CPU. EC2 does not report sockets; the public descriptions of these families name the CPU.
CORES = {
    "c7i": 48,  # Xeon 8488C
    "g4dn": 24,  # Xeon 8259CL
    "g5": 48,  # EPYC 7R32
    "g6": 48,  # EPYC 7R13
    "g6e": 48,  # EPYC 7R13
    "g7e": 48,
    "gr6": 48,
    "m6i": 32,  # Xeon 8375C
    "m7a": 96,  # EPYC 9R14
    "m7i": 48,
    "p4d": 24,  # Xeon 8275CL
    "p4de": 24,
    "p5": 48,  # EPYC 7R13
    "p5e": 48,
    "p5en": 48,  # Xeon 8488C
    "p6-b200": 48,
    "p6-b300": 48,
    "r7i": 48,
}

# Known but not offered, by family, with the reason of the error message.
_ARM = "it is arm64, and gpucluster takes x86_64 alone: its image for Slurm is built for no other, and pods are tried on no other"
REFUSED = {
    "c7g": _ARM,
    "c8g": _ARM,
    "g5g": _ARM,
    "m6g": _ARM,
    "m7g": _ARM,
    "m8g": _ARM,
    "p6e-gb200": f"{_ARM}; it is also sold only as whole UltraServers of a capacity block",
    "r7g": _ARM,
    "r8g": _ARM,
    "t4g": _ARM,
}

# EC2's DescribeInstanceTopology supports these families (EC2 user guide, prerequisites of instance topology) with
# three layers or more; EKS makes node labels from the answer (cloud-provider-aws, pkg/resourcemanagers/topology.go).
LAYERED = re.compile(r"(?:hpc|p|trn)[0-9]")
LAYERS = 3

# moto's table is the view of one account. Zone letters differ by account, so every letter up to the highest counts;
# us-west-1 has three zones, and each account sees two of them.
HIGHEST_LETTER = {"us-west-1": "c"}


def build() -> dict[str, Any]:
    """Return the whole file as JSON values. SystemExit if moto's table lacks a family of CORES."""
    types = _read(TABLES / "instance_types.json.gz")
    if missing := sorted(CORES.keys() - {name.partition(".")[0] for name in types}):
        raise SystemExit(
            f"moto's table has no instance type of {', '.join(missing)}: update moto, or remove the family"
        )
    offers = {path.name.split(".")[0]: _read(path) for path in sorted(_offer_files())}
    return {
        "source": f"moto {importlib.metadata.version('moto')} (Apache-2.0), ec2/resources: describe-instance-types and "
        "describe-instance-type-offerings of one AWS account; sockets, network layers and refusals by tools/make_catalog.py",
        "date": READ_ON,
        "regions": {region: _zones(region, rows) for region, rows in offers.items()},
        "refused": REFUSED,
        "machines": {
            name: _machine(types[name], offers) for name in sorted(types) if _taken(name, types[name])
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare with the committed file, write nothing")
    text = json.dumps(build(), indent=1) + "\n"
    if parser.parse_args().check:
        same = TARGET.read_text() == text
        print("the catalog is up to date" if same else f"{TARGET} differs: run tools/make_catalog.py")
        return 0 if same else 1
    TARGET.write_text(text)
    return 0


def _offer_files() -> list[Path]:
    return list((TABLES / "instance_type_offerings/availability-zone").glob("*.json.gz"))


def _read(path: Path) -> Any:
    with gzip.open(path) as stream:
        return json.load(stream)


def _zones(region: str, rows: list[dict[str, str]]) -> str:
    """Return the letter of every zone that an account can have in the region."""
    seen = max(
        row["Location"].removeprefix(region) for row in rows if len(row["Location"]) == len(region) + 1
    )
    highest = max(seen, HIGHEST_LETTER.get(region, "a"))
    return string.ascii_lowercase[: string.ascii_lowercase.index(highest) + 1]


def _taken(name: str, row: dict[str, Any]) -> bool:
    """Return whole families without bare metal, whose firmware needs a quarter of an hour."""
    return name.partition(".")[0] in CORES and not row["BareMetal"]


def _machine(row: dict[str, Any], offers: dict[str, Any]) -> dict[str, Any]:
    cpu = row["VCpuInfo"]
    sockets = -(-cpu["DefaultCores"] // CORES[row["InstanceType"].partition(".")[0]])
    if cpu["DefaultCores"] % sockets:
        raise SystemExit(
            f"{row['InstanceType']}: {cpu['DefaultCores']} cores do not divide into {sockets} sockets"
        )
    network, disks = row["NetworkInfo"], row.get("InstanceStorageInfo", {}).get("Disks", [])
    cards = network["NetworkCards"]
    counts = {region: _offered(row["InstanceType"], rows) for region, rows in offers.items()}
    return {
        "arch": row["ProcessorInfo"]["SupportedArchitectures"][0],
        "vcpus": cpu["DefaultVCpus"],
        "sockets": sockets,
        "cores_per_socket": cpu["DefaultCores"] // sockets,
        "threads_per_core": cpu["DefaultThreadsPerCore"],
        "memory_mib": row["MemoryInfo"]["SizeInMiB"],
        "gpu": _gpu(row.get("GpuInfo")),
        "network_cards": network["MaximumNetworkCards"],
        "efa": network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        "efa_cards": [card["NetworkCardIndex"] for card in cards if "efa-only" in card["InterfaceTypes"]]
        if "EfaInfo" in network
        else [],
        "card_interfaces": min(card["MaximumNetworkInterfaces"] for card in cards),
        "network_layers": LAYERS if LAYERED.match(row["InstanceType"]) else 0,
        "local_disks": sum(disk["Count"] for disk in disks),
        "local_disks_gb": sum(disk["Count"] * disk["SizeInGB"] for disk in disks),
        "markets": sorted(row["SupportedUsageClasses"]),
        "zones_selling": {region: count for region, count in counts.items() if count},
    }


def _offered(name: str, rows: list[dict[str, str]]) -> int:
    return len({row["Location"] for row in rows if row["InstanceType"] == name})


def _gpu(info: dict[str, Any] | None) -> dict[str, Any] | None:
    if info is None:
        return None
    (gpu,) = info["Gpus"]  # every selected type has one GPU model
    model = gpu["Name"].lower().replace(" ", "-")  # a GRES type of Slurm is one word
    return {"model": model, "count": gpu["Count"], "memory_mib": gpu["MemoryInfo"]["SizeInMiB"]}


if __name__ == "__main__":
    sys.exit(main())
