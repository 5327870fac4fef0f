"""Which release this is, for rows that say who wrote them."""

from typing import Final

VERSION: Final = "0.1.0"
