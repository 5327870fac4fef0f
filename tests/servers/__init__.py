"""Private database servers for the tests, and a proxy that injects faults.

guard      ends what a test process started, even if that process was killed
workspace  the temporary folders of a test process, and its guard
install    finds the programs of a server, or installs Debian's packages
private    what every private server can do: start, stop, crash, restart
postgres   PostgresServer
mariadb    MariaDBServer
mysql      MySQLServer
unpacked   newer servers and interpreters, in a folder of their own
choice     which of them the tests start
nginx      NginxServer: a proxy in front of the dashboard
pgbouncer  PgBouncer: a pooler in front of a PostgreSQL
given      a server that TICKWORK_TEST_URL names instead
proxy      TcpProxy: cuts, stalls, delays, and loses the answer to a commit
"""
