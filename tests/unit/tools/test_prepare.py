"""`make prepare` says in one line what this machine lacks, by what is free and not by what is allowed."""

import re

import prepare
import pytest

CHECKS = (prepare.check_disk, prepare.check_memory, prepare.check_processes, prepare.check_inotify)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", ["DISK_GIB", "MEMORY_GIB", "PROCESSES", "MACHINES"])
def test_need_beyond_what_is_free_is_told(check, name, monkeypatch: pytest.MonkeyPatch) -> None:
    for need in ("DISK_GIB", "MEMORY_GIB", "PROCESSES", "MACHINES"):
        monkeypatch.setattr(prepare, need, 0)
    assert check() is None
    monkeypatch.setattr(prepare, name, 10**7)
    of = {"DISK_GIB": "disk", "MEMORY_GIB": "memory", "PROCESSES": "processes", "MACHINES": "inotify"}
    told = check()
    if not check.__name__.endswith(of[name]):
        assert told is None
        return
    assert re.search(r"(free|available|in use), [0-9]+ (more )?needed; next: ", told)
    assert "\n" not in told
