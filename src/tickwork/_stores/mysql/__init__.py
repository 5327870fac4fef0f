"""MariaDB from version 10.6 on, and MySQL from version 8.0.17 on."""
