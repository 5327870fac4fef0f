"""The application, after Django was set up: for processes that ``manage.py`` does not start.

Child processes of ``engine="process"`` import it. They need the environment variable
``DJANGO_SETTINGS_MODULE``, which ``manage.py`` sets, and inherit it.
"""

import django
from django.apps import apps

if not apps.ready:
    django.setup()  # it imports the jobs of all apps, too

from tickwork.integrations.django.application import app  # after the setup

__all__ = ["app"]
