"""Control of Python's garbage collector. With millions of objects in use a collection takes long and frees nothing."""

import gc
from collections.abc import Generator
from contextlib import contextmanager

YOUNG = 50_000  # new objects before a collection; Python's default is 700


@contextmanager
def collection_disabled() -> Generator[None]:
    """Disable collection inside the block, for work that creates many objects and frees none."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def freeze_loaded() -> None:
    """Exclude all present objects from collection until the process ends, and collect less often."""
    gc.freeze()
    gc.set_threshold(YOUNG, 20, 20)
