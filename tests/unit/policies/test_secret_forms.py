"""The scan for a secret finds it however it was written, and nothing where it is not."""

import base64
import gzip
import io
import json
import tarfile

import pytest
from planted import KEY
from secret_forms import shows, written_forms

FORMS = written_forms(KEY)


def archive(data: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        info = tarfile.TarInfo("plan.json")
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    return made.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        b"x" + KEY,
        KEY[100:180],
        b"key=" + KEY.hex().encode(),
        KEY.hex().upper().encode(),
        base64.b64encode(b"a" + KEY),
        base64.b64encode(b"ab" + KEY),
        base64.urlsafe_b64encode(KEY),
        base64.encodebytes(KEY),
        json.dumps({"key": base64.encodebytes(KEY).decode()}).encode(),
        repr(KEY).encode(),
        gzip.compress(base64.b64encode(KEY), mtime=0),
        archive(KEY.hex().encode()),
    ],
)
def test_a_key_is_seen_however_it_is_written(text: bytes) -> None:
    assert shows(text, FORMS)


@pytest.mark.parametrize(
    "text",
    [b"", b"no key", KEY[:20], bytes(range(256)) * 8, gzip.compress(b"no key", mtime=0), b"\x1f\x8b broken"],
)
def test_nothing_is_seen_where_it_is_not(text: bytes) -> None:
    assert not shows(text, FORMS)
