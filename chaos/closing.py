"""Lets everything come to rest: schedules are paused, and what is there may end."""

import time
from typing import Final

from chaos import shop

SETTLE: Final = 3.0
"""Seconds in which workers catch up with what fell due while everything was harmed."""


def main() -> None:
    """Pause every schedule; the last instants are those before."""
    time.sleep(SETTLE)
    for _ in range(50):
        try:
            for view in shop.app.schedules.list():
                if not view.is_paused:
                    shop.app.schedules.pause(view.name, tenant=view.tenant)
        except Exception as error:  # noqa: BLE001  # the database may have to recover: again
            shop.journal.write("not closed", error=f"{type(error).__name__}: {error}"[:300])
            time.sleep(0.2)
        else:
            shop.journal.write("closed")
            return


if __name__ == "__main__":
    main()
