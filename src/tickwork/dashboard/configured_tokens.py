"""The tokens that the environment and a file have, and the proxies that may name a client."""

import ipaddress
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tickwork.dashboard.access import AccessToken, Role, TokenTable, parse_tokens
from tickwork.errors import InvalidOption

TOKEN_VARIABLE: Final = "TICKWORK_UI_TOKEN"  # noqa: S105  # the name of a variable
FILE_VARIABLE: Final = "TICKWORK_UI_TOKEN_FILE"
PROXY_VARIABLE: Final = "TICKWORK_UI_TRUSTED_PROXY"

_log: Final = logging.getLogger("tickwork.dashboard")


class ConfiguredTokens:
    """The tokens of the environment and of a file, which is read again when it has changed.

    While a changed file cannot be read, the tokens stay as they were, and the log has the reason.
    """

    def __init__(self, file: Path | None = None) -> None:
        """Read the tokens.

        Raises:
            InvalidOption: A token is too short, or the file cannot be read, or has no token.
        """
        self._fixed: tuple[AccessToken, ...] = ()
        if os.environ.get(TOKEN_VARIABLE):
            secret = os.environ[TOKEN_VARIABLE]
            self._fixed = (AccessToken(name="admin", secret=secret, role=Role.ADMIN),)
        if file is None and os.environ.get(FILE_VARIABLE):
            file = Path(os.environ[FILE_VARIABLE])
        self._file = file
        self._version = self._read_version()
        self._found = self._read()
        if file is not None and not self._found:
            raise InvalidOption("the token file", str(file), "must have at least one token")

    def __bool__(self) -> bool:
        """Whether tokens are configured: a file can be empty later, and then all are refused."""
        return self._file is not None or bool(self._fixed)

    def __call__(self) -> tuple[AccessToken, ...]:
        """The tokens that are valid now."""
        version = self._read_version()
        if version != self._version:
            self._version = version
            try:
                self._found = self._read()
            except InvalidOption as error:
                _log.error("The tokens stay as they were: %s", error.what)
            else:
                _log.info("The token file has changed: %d tokens.", len(self._found))
        return self._found

    def _read(self) -> tuple[AccessToken, ...]:
        if self._file is None:
            return self._fixed
        try:
            text = self._file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidOption(
                "the token file", str(self._file), f"must be a text file that can be read: {error}"
            ) from error
        found = (*self._fixed, *parse_tokens(text))
        TokenTable(found)  # refuses equal secrets
        return found

    def _read_version(self) -> tuple[int, ...]:
        if self._file is None:
            return ()
        try:
            found = self._file.stat()
        except OSError:
            return ()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def read_proxies(given: Sequence[str] = ()) -> tuple[str, ...]:
    """The addresses and networks of the proxies whose headers are believed.

    Raises:
        InvalidOption: One is neither an address nor a network.
    """
    found = tuple(given) or tuple(os.environ.get(PROXY_VARIABLE, "").replace(",", " ").split())
    for text in found:
        try:
            ipaddress.ip_network(text)
        except ValueError as error:
            raise InvalidOption(
                "the trusted proxy",
                text,
                f"must be an address or a network: {error}",
                fix="Write 10.0.0.7 or 10.0.0.0/24.",
            ) from error
    return found
