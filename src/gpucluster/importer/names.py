"""The names of a site as a spec takes them."""

import re
from collections.abc import Callable, Iterable

from gpucluster.spec.fields import MAX_NAME
from gpucluster.spec.host_fields import OTHERS_NAMES


def new_names(found: Iterable[str], change: Callable[[str], str]) -> tuple[dict[str, str], dict[str, str]]:
    """Each name as the spec takes it; names that become equal are refused from the second on."""
    made: dict[str, str] = {}
    refused: dict[str, str] = {}
    taken = set[str]()
    for name in found:
        new = change(name)
        if not new:
            refused[name] = "its name has no letter or digit of a-z, 0-9"
        elif new in taken:
            refused[name] = f"its name becomes {new}, which another one has"
        else:
            taken.add(new)
            made[name] = new
    return made, refused


def host_name(name: str) -> str:
    """A short host name of a-z, 0-9 and '-'."""
    low = re.sub(r"[^a-z0-9-]", "-", name.lower().partition(".")[0]).strip("-")[:63].strip("-")
    return f"{low}-node" if low in {*OTHERS_NAMES, "head"} or low.isdecimal() else low


def partition_name(name: str) -> str:
    """A name of letters, digits and `._-` that is not DEFAULT."""
    made = re.sub(r"[^A-Za-z0-9._-]", "-", name)[:64].strip("._-")
    return f"{made}-jobs" if made.lower() == "default" else made


def short_name(text: str, otherwise: str) -> str:
    low = re.sub(r"-+", "-", re.sub(r"[^a-z0-9-]", "-", text.lower())).strip("-").lstrip("0123456789-")
    return low[:MAX_NAME].rstrip("-") or otherwise


def unused(base: str, taken: set[str]) -> str:
    if base not in taken:
        return base
    return next(name for count in range(2, 100_000) if (name := f"{base}-{count}") not in taken)
