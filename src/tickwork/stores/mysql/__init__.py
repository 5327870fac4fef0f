"""MariaDB, from version 10.6 on; and MySQL 8, in whose dialect it is written where they differ."""
