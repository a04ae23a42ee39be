"""Tests of the secret scan: it finds a secret in every encoding, and none elsewhere."""

import base64
import gzip
import io
import json
import tarfile

import pytest
from support.policy_mistakes import KEY
from support.secret_forms import shows, written_forms

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
def test_secret_is_found_in_every_encoding(text: bytes) -> None:
    assert shows(text, FORMS)


@pytest.mark.parametrize(
    "text",
    [b"", b"no key", KEY[:20], bytes(range(256)) * 8, gzip.compress(b"no key", mtime=0), b"\x1f\x8b broken"],
)
def test_no_secret_is_found_in_plain_text(text: bytes) -> None:
    assert not shows(text, FORMS)
