"""Load the messages of Pulumi's protocol without its SDK, which takes a third of each start of the provider.

`pulumi`, `pulumi.runtime` and `pulumi.runtime.proto` become packages that only have a path. Only the provider's own process
does it, before it imports a message.
"""

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

PACKAGES = ("pulumi", "pulumi.runtime", "pulumi.runtime.proto")


def load_messages_only() -> None:
    """Do it, unless the SDK is loaded already or is not found."""
    spec = find_spec(PACKAGES[0])
    if PACKAGES[0] in sys.modules or spec is None or spec.submodule_search_locations is None:
        return
    root = Path(next(iter(spec.submodule_search_locations)))
    for name in PACKAGES:
        package = ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
