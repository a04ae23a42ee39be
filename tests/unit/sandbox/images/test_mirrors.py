"""Read the apt sources of the host, in both formats of apt, and replace the suite."""

import pytest

from gpucluster.errors import HostError
from gpucluster.sandbox.images import mirrors
from gpucluster.sandbox.images.mirrors import Source

DEB822 = """\
Types: deb
# a comment: with a colon
URIs: mirror://one mirror://two
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /keys/debian.gpg

Types: deb-src
URIs: mirror://sources
Suites: bookworm
Components: main

Enabled: no
Types: deb
URIs: mirror://off
Suites: bookworm
Components: main
"""
ONE_LINE = """\
# deb mirror://commented bookworm main
deb [arch=amd64 signed-by=/keys/a.gpg] mirror://one bookworm main
deb   mirror://two   bookworm-security   main contrib
deb-src mirror://three bookworm main
deb mirror://other stable main
"""


def swapped(sources):
    return mirrors.swapped(sources, codename="bookworm", suite="trixie")


def test_stanza_gives_each_of_its_mirrors_and_suites():
    assert swapped(mirrors.deb822(DEB822)) == tuple(
        f"deb [signed-by=/keys/debian.gpg] mirror://{which} trixie{part} main"
        for which in ("one", "two")
        for part in ("", "-updates")
    )


def test_one_line_entries_keep_their_key_or_get_debians():
    assert swapped(mirrors.one_line(ONE_LINE)) == (
        "deb [signed-by=/keys/a.gpg] mirror://one trixie main",
        "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] mirror://two trixie-security main",
    )


ODD = {
    "a suite that only begins like ours is another": Source(
        uri="m", suites=("bookworm-backports",), components=("main",), signed_by=None
    ),
    "an entry without main has none of our packages": Source(
        uri="m", suites=("bookworm",), components=("contrib",), signed_by=None
    ),
}


@pytest.mark.parametrize("source", ODD.values(), ids=ODD)
def test_entries_outside_of_debian_main_are_ignored(source):
    assert swapped([source]) == ()


def test_same_entry_twice_counts_once():
    source = Source(uri="m", suites=("bookworm",), components=("main",), signed_by="/k")
    assert len(swapped([source, source])) == 1


def test_host_without_a_debian_mirror_is_refused(tmp_path):
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text("deb mirror://other elsewhere main\n")
    with pytest.raises(HostError, match="no mirror is known for trixie"):
        mirrors.debian_lines(tmp_path, suite="trixie")


def test_proxies_and_dates_are_carried_and_nothing_else():
    dump = (
        'Acquire::http::Proxy "proxy://here";\nAcquire::Check-Valid-Until "false";\n'
        'Acquire::Languages "none";\nDPkg::Post-Invoke "";\nAcquire::https "";\n'
    )
    assert mirrors.carried(dump) == (
        'Acquire::http::Proxy "proxy://here"',
        'Acquire::Check-Valid-Until "false"',
    )
