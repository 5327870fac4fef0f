"""A task in a module that Django does not import when it starts."""

from django_tasks import task


@task
def send(name):
    return f"Dear {name}"
