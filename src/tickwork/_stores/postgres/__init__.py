"""PostgreSQL from version 13 on."""
