"""Encrypts stored payloads: ``{"$encrypted": "gAAAAA…"}`` instead of the JSON text."""

from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias, runtime_checkable

from tickwork.errors import InvalidOption

_START: Final = '{"$encrypted":"'
_END: Final = '"}'
_NOTHING: Final = "{}"  # no arguments: there is nothing to encrypt


@runtime_checkable
class Encryptor(Protocol):
    """``cryptography.fernet.Fernet``, or an object with the same two methods."""

    def encrypt(self, data: bytes, /) -> bytes:
        """Return a token of printable ASCII characters."""
        ...

    def decrypt(self, token: bytes, /) -> bytes:
        """Return the data of a token; raise an exception if it was made with another key."""
        ...


EncryptionKey: TypeAlias = Encryptor | str | bytes
"""A Fernet key as text or bytes, or an object that encrypts."""


class Cipher:
    """Encrypts with the first key, and decrypts with any of them."""

    def __init__(self, keys: Sequence[Encryptor]) -> None:
        self._keys = tuple(keys)

    def encrypt(self, text: str) -> str:
        if text == _NOTHING or text.startswith(_START):
            return text
        token = self._keys[0].encrypt(text.encode())
        return f"{_START}{token.decode('ascii')}{_END}"

    def decrypt(self, text: str) -> str:
        """Decrypt a text. Return it unchanged if it is not encrypted, or none of the keys fits."""
        if not text.startswith(_START):
            return text
        token = text[len(_START) : -len(_END)].encode()
        for key in self._keys:
            try:
                return key.decrypt(token).decode()
            except Exception:  # noqa: BLE001, S112  # each library has its own error
                continue
        return text


def make_cipher(source: object) -> Cipher:
    """Make a cipher of a key, or of a list of keys, the newest first.

    Raises:
        InvalidOption: One of them is not a key.
    """
    keys = list(source) if isinstance(source, list | tuple) else [source]
    if not keys:
        raise InvalidOption("encrypt", source, "must have at least one key")
    return Cipher([_encryptor_of(each) for each in keys])


def _encryptor_of(key: object) -> Encryptor:
    if isinstance(key, Encryptor):
        return key
    if not isinstance(key, str | bytes):
        # The value may be a part of a key, so the error shows only its type.
        raise _not_a_key(key)
    try:
        from cryptography.fernet import Fernet  # noqa: PLC0415  # an optional package
    except ImportError:
        raise InvalidOption(
            "encrypt",
            "a key",
            "needs the package cryptography",
            fix="Install it: pip install cryptography.",
        ) from None
    try:
        return Fernet(key)
    except ValueError:
        raise _not_a_key(key) from None


def _not_a_key(key: object) -> InvalidOption:
    return InvalidOption(
        "encrypt",
        type(key),
        "must be a valid Fernet key, or a list of keys",
        fix="Create one with cryptography.fernet.Fernet.generate_key().",
    )
