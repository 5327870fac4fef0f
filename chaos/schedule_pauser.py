"""Pauses all schedules and resumes everything else, so that every run can finish."""

import time
from typing import Final

from chaos import application

SETTLE: Final = 3.0
"""Seconds in which workers catch up with what fell due during the faults."""


def main() -> None:
    """Pause every schedule; retry while the database recovers."""
    time.sleep(SETTLE)
    for _ in range(50):
        try:
            for view in application.app.schedules.list():
                if not view.is_paused:
                    application.app.schedules.pause(view.name, tenant=view.tenant)
            application.app.resume(job="narrow")
            application.app.resume(queue="lane")
            for limit in application.app.limits.list():
                application.app.limits.reset(limit.name)
        except Exception as error:  # noqa: BLE001  # the database may be recovering
            application.journal.write(
                "pause failed", error=f"{type(error).__name__}: {error}"[:300]
            )
            time.sleep(0.2)
        else:
            application.journal.write("schedules paused")
            return


if __name__ == "__main__":
    main()
