"""Print the newest kernel release for which the archives of this machine have every package.

`choose_kernel.py --series 6.8,6.14 PREFIX...`: PREFIX and a release make the name of a package. Without series every
series is good. Standard library only, because it runs on the builder before anything is installed.
"""

import argparse
import re
import subprocess
import sys

RELEASE = re.compile(r"(\d+)\.(\d+)\.(\d+)-(\d+)-aws")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--series", default="")
    parser.add_argument("prefixes", nargs="+")
    wanted = parser.parse_args()
    series = tuple(filter(None, wanted.series.split(",")))
    found = {prefix: releases(prefix, series) for prefix in wanted.prefixes}
    common = set.intersection(*found.values())
    if not common:
        rows = "; ".join(f"{prefix}KERNEL for {listed(known)}" for prefix, known in found.items())
        within = f" of the series {', '.join(series)}" if series else ""
        sys.exit(f"no kernel{within} has every package that this image needs. The archives have {rows}")
    print(max(common, key=numbers))


def releases(prefix: str, series: tuple[str, ...]) -> set[str]:
    """Return the releases of kernels for which the archives have the package."""
    done = subprocess.run(["apt-cache", "pkgnames", prefix], capture_output=True, text=True, check=True)
    names = (line.removeprefix(prefix) for line in done.stdout.splitlines() if line.startswith(prefix))
    return {name for name in names if RELEASE.fullmatch(name) and (not series or series_of(name) in series)}


def series_of(release: str) -> str:
    return ".".join(release.split(".")[:2])


def numbers(release: str) -> tuple[int, ...]:
    """Return the numbers of a release, for comparison: 6.14 is newer than 6.8."""
    found = RELEASE.fullmatch(release)
    return tuple(map(int, found.groups())) if found else ()


def listed(found: set[str]) -> str:
    """Return the newest releases."""
    newest = sorted(found, key=numbers, reverse=True)[:3]
    return ", ".join(newest) or "no kernel"


if __name__ == "__main__":
    main()
