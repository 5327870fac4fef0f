import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
django_application = get_asgi_application()

from tickwork.integrations.django.dashboard import mount_dashboard  # needs settings

application = mount_dashboard(django_application, "/jobs", login_url="/admin/login/")
