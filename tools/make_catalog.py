"""Write src/gpucluster/catalog/data/machines.json from moto's tables of instance types and offerings.

    .venv/bin/python tools/make_catalog.py            # writes the file
    .venv/bin/python tools/make_catalog.py --check    # exit 1 if the committed file differs

To add a machine type: one line in MACHINES, run this, read the diff.
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
READ_ON = "2026-11-21"  # raise it when the pinned moto brings newer tables

# Machine -> CPU sockets. EC2 does not tell them; the public topology files of these types do.
MACHINES = {
    "g6e.48xlarge": 2,
    "m7i.xlarge": 1,
    "m7i.2xlarge": 1,
    "p4d.24xlarge": 2,
    "p4de.24xlarge": 2,
    "p5.48xlarge": 2,
    "p5e.48xlarge": 2,
    "p5en.48xlarge": 2,
}

# EC2's DescribeInstanceTopology answers for these families (EC2 user guide, prerequisites of instance topology), with
# three layers or more; EKS makes node labels of the answer (cloud-provider-aws, pkg/resourcemanagers/topology.go).
LAYERED = re.compile(r"(?:hpc|p|trn)[0-9]")
LAYERS = 3

# moto's table is one account's view. Letters differ by account, so every letter up to the highest counts;
# us-west-1 has three zones, of which an account sees two.
HIGHEST_LETTER = {"us-west-1": "c"}


def build() -> dict[str, Any]:
    """The whole file as JSON values."""
    types = _read(TABLES / "instance_types.json.gz")
    offers = {path.name.split(".")[0]: _read(path) for path in sorted(_offer_files())}
    return {
        "source": f"moto {importlib.metadata.version('moto')} (Apache-2.0), ec2/resources: describe-instance-types and "
        "describe-instance-type-offerings of one AWS account; sockets and network layers by tools/make_catalog.py",
        "date": READ_ON,
        "regions": {region: _zones(region, rows) for region, rows in offers.items()},
        "machines": {
            name: _machine(types[name], sockets, offers) for name, sockets in sorted(MACHINES.items())
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
    """The letter of every zone that some account may have in the region."""
    seen = max(
        row["Location"].removeprefix(region) for row in rows if len(row["Location"]) == len(region) + 1
    )
    highest = max(seen, HIGHEST_LETTER.get(region, "a"))
    return string.ascii_lowercase[: string.ascii_lowercase.index(highest) + 1]


def _machine(row: dict[str, Any], sockets: int, offers: dict[str, Any]) -> dict[str, Any]:
    cpu = row["VCpuInfo"]
    if cpu["DefaultCores"] % sockets:
        raise SystemExit(
            f"{row['InstanceType']}: {cpu['DefaultCores']} cores do not divide into {sockets} sockets"
        )
    network = row["NetworkInfo"]
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
        "network_layers": LAYERS if LAYERED.match(row["InstanceType"]) else 0,
        "local_disks": sum(disk["Count"] for disk in row.get("InstanceStorageInfo", {}).get("Disks", [])),
        "markets": sorted(row["SupportedUsageClasses"]),
        "zones_selling": {region: count for region, count in counts.items() if count},
    }


def _offered(name: str, rows: list[dict[str, str]]) -> int:
    return len({row["Location"] for row in rows if row["InstanceType"] == name})


def _gpu(info: dict[str, Any] | None) -> dict[str, Any] | None:
    if info is None:
        return None
    (gpu,) = info["Gpus"]  # every type that we take has one model
    return {"model": gpu["Name"].lower(), "count": gpu["Count"], "memory_mib": gpu["MemoryInfo"]["SizeInMiB"]}


if __name__ == "__main__":
    sys.exit(main())
