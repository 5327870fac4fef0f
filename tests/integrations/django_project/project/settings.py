"""Settings of a project whose database is named by the environment, as JSON."""

import json
import os
from pathlib import Path

import django

import tickwork

assert tickwork.__file__.startswith(os.environ["SHOP_WHEEL"]), tickwork.__file__
assert django.__version__.startswith(os.environ["SHOP_DJANGO"]), django.__version__

if os.environ.get("SHOP_PYMYSQL"):
    import pymysql

    pymysql.install_as_MySQLdb()
    pymysql.version_info = (2, 2, 1, "final", 0)

BASE_DIR = Path(__file__).parent.parent
SECRET_KEY = "only for tests"
DEBUG = True
ALLOWED_HOSTS = ["*"]
USE_TZ = True
TIME_ZONE = "Europe/Berlin"
ROOT_URLCONF = "project.urls"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "tickwork.integrations.django",
    "django_tasks",
    "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]
DATABASES = {"default": json.loads(os.environ["SHOP_DATABASE"])}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
TICKWORK = {"REDACT": ["token"]}
TASKS = {
    "default": {
        "BACKEND": "tickwork.integrations.django.tasks.TickworkBackend",
        "QUEUES": ["default", "mail"],
    }
}
