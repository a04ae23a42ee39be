"""Python's collector of cycles, held back where it walks millions of objects that all stay."""

import gc
from collections.abc import Generator
from contextlib import contextmanager

YOUNG = 50_000  # new objects before a look; Python's 700 is for small programs


@contextmanager
def resting() -> Generator[None]:
    """No collection meanwhile: for work that makes much and drops nothing."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def settle() -> None:
    """What is loaded by now stays as long as the process: look at it no more, and at what comes more seldom."""
    gc.freeze()
    gc.set_threshold(YOUNG, 20, 20)
