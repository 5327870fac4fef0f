"""Loads every TOML block of the guides."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tickwork import ScheduledJob, Tickwork
from tickwork._config.settings import settings_in
from tickwork._config.toml_document import Document

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guide"
BLOCK = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks():
    for page in sorted(GUIDES.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for found in BLOCK.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            yield pytest.param(found[1], id=f"{page.name}:{line}")


CALENDAR = """BEGIN:VCALENDAR
BEGIN:VEVENT
DTSTART;VALUE=DATE:20200101
RRULE:FREQ=YEARLY
END:VEVENT
END:VCALENDAR
"""


class Cleanup(ScheduledJob):
    """The class that the guides use."""

    def execute(self) -> bool:
        return True


def send_digest(kind: str = "short") -> None:
    """The function that the guides use."""


@pytest.mark.parametrize("text", list(blocks()))
def test_a_block_can_be_loaded(text, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "closed.ics").write_text(CALENDAR)
    for name, attribute in (("shop.jobs", Cleanup), ("shop.mail", send_digest)):
        module = ModuleType(name)
        setattr(module, attribute.__name__, attribute)
        monkeypatch.setitem(sys.modules, name, module)
    document = Document("tickwork.toml", text)
    settings_in(document)

    Tickwork("memory://")._declare(document)
