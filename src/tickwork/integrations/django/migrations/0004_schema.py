"""Version 4 of the tables."""

from typing import Any, ClassVar

from django.db import migrations

from tickwork.integrations.django.schema_operation import InstallSchema


class Migration(migrations.Migration):
    """Version 4 of the tables."""

    dependencies: ClassVar[list[Any]] = [("tickwork", "0003_schema")]
    operations: ClassVar[list[Any]] = [InstallSchema(4)]
