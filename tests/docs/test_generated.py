import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tickwork._domain.runs.status import NEXT
from unit.test_errors import KINDS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module", name="generate")
def generate_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestGeneratedPages:
    """The generated pages in docs/reference are up to date."""

    def test_they_are_up_to_date(self, generate):
        stale = [
            path.name
            for path, text in generate.pages().items()
            if not path.exists() or path.read_text(encoding="utf-8") != text
        ]

        assert stale == [], "run `make docs`"

    def test_generating_them_again_changes_nothing(self, generate, tmp_path, monkeypatch):
        monkeypatch.setattr(generate, "FOLDER", tmp_path)
        generate.main()

        for path in generate.pages():
            kept = DOCS / path.relative_to(tmp_path)
            assert path.read_text(encoding="utf-8") == kept.read_text(encoding="utf-8")

    def test_every_error_code_has_a_section(self, generate):
        page = "\n".join(generate.errors_page())

        assert [
            code for code in (kind.code for kind in KINDS) if f"\n## {code}\n" not in page
        ] == []

    def test_every_step_is_in_the_diagram(self, generate):
        page = "\n".join(generate.statuses_page())

        steps = [f"    {status} --> {target}" for status in NEXT for target in NEXT[status]]
        assert [step for step in steps if step not in page] == []
