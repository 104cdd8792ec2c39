"""API keys: from a file or the environment, kept as digests, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable
from pathlib import Path

from glassbert.errors import InputError
from glassbert.files import read_bytes

VARIABLE = "GLASSBERT_API_KEYS"
SHORTEST = 16  # characters


class Keys:
    """The keys that are accepted; without any, every request is."""

    def __init__(self, keys: Iterable[str] = ()):
        self._digests = [_digest(key) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def accept(self, authorization: str | None) -> bool:
        """Whether a header `Authorization: Bearer KEY` has one of the keys. All keys are compared, whichever fits."""
        scheme, _, key = (authorization or "").partition(" ")
        given = _digest(key.strip())
        fits = [hmac.compare_digest(given, known) for known in self._digests]
        return scheme.lower() == "bearer" and any(fits)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def read_keys(path: Path | None) -> Keys:
    """Keys of a file with one key a line (# begins a comment), or of GLASSBERT_API_KEYS, separated by spaces."""
    if path is None:
        where, keys = VARIABLE, os.environ.get(VARIABLE, "").split()
        if VARIABLE not in os.environ:
            return Keys()
    else:
        try:
            lines = read_bytes(path, InputError, 2**20).decode("utf-8").splitlines()
        except UnicodeDecodeError:
            raise InputError(f"{path} is not UTF-8; write one key a line") from None
        where, keys = str(path), [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not keys:
        raise InputError(f"{where} has no key; write one a line, or leave it out to accept every request")
    for number, key in enumerate(keys, 1):
        if len(key) < SHORTEST or not key.isascii() or any(character.isspace() for character in key):
            raise InputError(
                f"{where}: key {number} must have at least {SHORTEST} ASCII characters without spaces; "
                "make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
            )
    return Keys(keys)
