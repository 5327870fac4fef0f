"""Which tests can notice a mutation: the fastest first."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

PACKAGE: Final = PurePosixPath("src/tickwork")
LEFT_OUT: Final = (
    "_stores/_sql/migrations",  # other tests compare the tables that they make
    "integrations/django",  # its tests run in a process of their own, for a project
)
WITHOUT_SERVERS: Final = "not servers and not long"
ON_POSTGRES: Final = "on_postgres and not long"
ON_MYSQL: Final = "on_mysql and not long"
STORES: Final = ("contract/stores/test_conformance.py", "contract/stores")


class Stage(NamedTuple):
    """Tests that run together: paths below ``tests``, an expression for ``-m``, and exceptions."""

    paths: tuple[str, ...]
    markers: str = WITHOUT_SERVERS
    without: tuple[str, ...] = ()


# The tests of each room, besides those that mirror its modules in `unit`. The longest path counts.
TESTS_BY_ROOM: Final[dict[str, tuple[str, ...]]] = {
    "": ("unit", "application", "cli"),
    "_calendars": ("unit/calendars", "application"),
    "_config": ("unit/config", "application/test_config.py", "properties/test_hostile_texts.py"),
    "_control": ("unit/control", "application", "cli/test_control_commands.py", "dashboard"),
    "_define": ("unit/define", "application", "contract/engines"),
    "_dispatch": ("unit/dispatch", "application"),
    "_domain": ("unit/domain", "unit/worker", *STORES, "application"),
    "_domain/schedules": (
        "unit/domain/schedules",
        "properties/test_cron_against_brute_force.py",
        "unit/export",
        "unit/config",
        "application",
    ),
    "_engines": ("unit/engines", "contract/engines", "contract/remote", "application"),
    "_handlers": ("unit/handlers", "contract/engines", "application"),
    "_inspect": ("unit/inspect", "contract/stores", "application", "cli", "dashboard"),
    "_kernel": ("unit/kernel", "unit", "application", "scenarios/test_signals.py"),
    "_masks": ("unit/masks", "application/test_secrets.py", "cli/test_url_masking.py"),
    "_migration": ("unit/migration", "cli/test_import_command.py"),
    "_payload": ("unit/payload", "application", "properties/test_payload_types.py"),
    "_stores": ("unit/stores", *STORES, "application"),
    "_stores/mysql": (*STORES, "application"),
    "_stores/postgres": (*STORES, "application"),
    "_watch": ("unit/watch", "unit/domain/test_watch.py", "contract/stores", "scenarios"),
    "_worker": ("unit/worker", "contract/engines", "contract/remote", "application", "scenarios"),
    "alerts": ("unit/alerts", "unit/watch", "application"),
    "app": ("unit/app", "application", "cli"),
    "cli": ("unit/cli", "cli", "scenarios"),
    "dashboard": ("dashboard",),
    "events": ("unit", "application"),
    "export": ("unit/export", "application/test_calendar_export.py"),
    "integrations": ("integrations", "application/test_tracing.py"),
    "testing": ("unit/testing", "application", "scenarios/test_clocks.py"),
}
# What only a server executes.
MARKERS_BY_ROOM: Final = {"_stores/postgres": ON_POSTGRES, "_stores/mysql": ON_MYSQL}


def list_sources(root: Path) -> list[PurePosixPath]:
    """The files that are mutated, below the root."""
    files = sorted([*(root / PACKAGE).rglob("*.py"), *(root / PACKAGE).rglob("*.sql")])
    names = [PurePosixPath(file.relative_to(root).as_posix()) for file in files]
    return [name for name in names if not _is_left_out(name.relative_to(PACKAGE))]


def stages_of(source: PurePosixPath, root: Path) -> list[Stage]:
    """The tests for a file, stage by stage. A later stage may repeat tests of an earlier one."""
    name = source.relative_to(PACKAGE)
    room = max((each for each in TESTS_BY_ROOM if name.is_relative_to(each)), key=len)
    markers = MARKERS_BY_ROOM.get(room, WITHOUT_SERVERS)
    stages = [Stage((path,)) for path in _mirrors(name, root)]
    stages += [Stage((path,), markers) for path in TESTS_BY_ROOM[room]]
    return list(dict.fromkeys(stages))


def _mirrors(name: PurePosixPath, root: Path) -> Iterator[str]:
    """The tests with the name of this module, and the unit tests of its package."""
    if name.suffix == ".sql":
        yield "architecture/test_queries.py"
    parts = [part.removeprefix("_") for part in name.parent.parts]
    stem = name.stem.strip("_")
    folder = "/".join(["unit", *parts])
    found = [file.relative_to(root / "tests") for file in (root / "tests").rglob(f"test_{stem}.py")]
    names = [file.as_posix() for file in found if not _is_slow(file)]
    yield from sorted(names, key=lambda name: (not name.startswith(f"{folder}/"), name))
    if parts and (root / "tests" / folder).is_dir():
        yield folder


def _is_slow(file: Path) -> bool:
    """Whether its tests need other systems, or a project of their own."""
    return file.parts[0] in {"remote", "scenarios"} or "django_project" in file.parts


def _is_left_out(name: PurePosixPath) -> bool:
    return any(name.is_relative_to(place) for place in LEFT_OUT)
