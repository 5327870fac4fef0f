"""Converts the schedules of cron, Celery beat and APScheduler to definitions in Python."""
