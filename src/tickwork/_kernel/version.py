"""The version of tickwork, which workers write into their rows."""

from typing import Final

VERSION: Final = "0.1.0"
