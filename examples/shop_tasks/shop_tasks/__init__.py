"""A program as Celery users know it: tasks, periodic tasks, a worker. There is no broker."""
