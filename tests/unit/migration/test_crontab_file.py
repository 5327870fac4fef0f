"""The printed code of a crontab fires when cron would."""

from datetime import UTC
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim

from tickwork._migration.crontab_file import read_crontab
from unit.migration.printed_code import NOW, execute, firings, rules_of


def read(text, *, zone="UTC", **given):
    return read_crontab(text, source="file", zone=zone, now=NOW, **given)


def options_of(app, name):
    [found] = [each for each in app.registry.schedules() if each.name == name]
    return found.options


class TestFirings:
    @pytest.mark.parametrize(
        "expr",
        [
            "30 2 * * *",
            "*/15 9-17 * * MON-FRI",
            "0 0 13 * 5",  # either is enough
            "0 0 */2 * 1",  # both must match
            "5,35 */3 1 jan,jul *",
            "0 4 * * 7",
            "0 4 * * 0",
            "10-50/20 0 1-7 * *",
        ],
    )
    def test_they_are_those_of_the_line(self, expr):
        app = execute(read(f"{expr} /bin/true"))

        expected = [at.replace(tzinfo=UTC) for at in islice(CronSim(expr, NOW), 60)]
        assert firings(rules_of(app)["true"]) == expected

    @pytest.mark.parametrize(
        ("macro", "expr"),
        [
            ("@yearly", "0 0 1 1 *"),
            ("@annually", "0 0 1 1 *"),
            ("@monthly", "0 0 1 * *"),
            ("@weekly", "0 0 * * 0"),
            ("@daily", "0 0 * * *"),
            ("@midnight", "0 0 * * *"),
            ("@hourly", "0 * * * *"),
        ],
    )
    def test_macros(self, macro, expr):
        app = execute(read(f"{macro} /bin/true"))

        expected = [at.replace(tzinfo=UTC) for at in islice(CronSim(expr, NOW), 20)]
        assert firings(rules_of(app)["true"], 20) == expected

    def test_a_zone_applies_to_the_lines_below_it(self):
        text = "0 9 * * * first\nCRON_TZ=Asia/Tokyo\n0 9 * * * second\n"

        rules = rules_of(execute(read(text, zone="Europe/Berlin")))

        tokyo = CronSim("0 9 * * *", NOW.astimezone(ZoneInfo("Asia/Tokyo")))
        assert rules["first"].tz == "Europe/Berlin"
        assert firings(rules["second"], 9) == [at.astimezone(UTC) for at in islice(tokyo, 9)]


class TestCommands:
    def test_environment_lines_apply_to_the_lines_below_them(self):
        text = "0 1 * * * a\nSHELL=/bin/bash\nPATH = '/opt/bin:/bin'\n0 2 * * * b\n"

        app = execute(read(text))

        assert options_of(app, "a").args == {"command": "a"}
        assert options_of(app, "b").args == {
            "command": "b",
            "shell": "/bin/bash",
            "environment": {"PATH": "/opt/bin:/bin"},
        }

    def test_a_percent_sign_begins_the_input(self):
        app = execute(read(r"@daily mail -s 50\% ann%Hello%Bye"))

        assert options_of(app, "mail").args == {
            "command": "mail -s 50% ann",
            "stdin": "Hello\nBye\n",
        }

    def test_a_user_column(self):
        app = execute(read("0 1 * * *  root  /usr/bin/backup -v", has_user_column=True))

        assert options_of(app, "backup").args == {
            "command": "/usr/bin/backup -v",
            "user": "root",
        }

    def test_overlaps_and_missed_firings_are_as_in_cron(self):
        found = options_of(execute(read("@daily x")), "x")

        assert (found.overlap, found.misfire) == ("allow", "skip")

    def test_names_differ(self):
        found = read(
            "@daily cd /srv && ./sync\n@hourly sync\n@hourly sudo -n sync.sh\n@daily run_command"
        )

        assert found.converted == ["sync", "sync-2", "sync-3", "run_command-2"]
        assert len(rules_of(execute(found))) == 4

    def test_the_command_runs(self, tmp_path):
        file = tmp_path / "out"
        text = f"WHAT=tea\n* * * * * cat > {file}; echo $WHAT >> {file}%milk\n"
        app = execute(read(text))

        app.dispatch("run_command", **options_of(app, "cat").args)
        app.run()

        assert file.read_text() == "milk\ntea\n"

    def test_a_command_that_fails_is_a_failed_attempt(self):
        app = execute(read("* * * * * exit 3"))
        run = app.dispatch("run_command", command="exit 3")

        app.run()

        assert "exit status 3" in str(run.read().reason)


class TestNotConverted:
    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ("@reboot start", "@reboot is no time"),
            ("@often start", "There is no macro @often"),
            ("61 * * * * x", "'61' is not in 0-59"),
            ("0 22-2 * * * x", "Write '22-23,0-2'"),
            ("0 0 30 2 * x", "does not fire any more"),
            ("0~30 * * * * x", "~ is a random value"),
            ("0 0 * *", "fewer than five fields"),
            ("0 0 * * *", "has no command"),
            ("MAILTO=ops@example.org", "sends no mail"),
        ],
    )
    def test_a_comment_has_the_reason(self, line, reason):
        found = read(f"{line}\n@daily other\n")

        [entry] = found.unconverted
        assert entry.source == line
        assert reason in entry.reason
        assert f"#   {line}\n#   Reason: {entry.reason}\n" in found.code
        assert found.converted == ["other"]
        execute(found)

    def test_lines_below_an_unknown_zone(self):
        found = read("CRON_TZ=Mars/Olympus\n@daily a\nCRON_TZ=UTC\n@daily b\n")

        assert found.converted == ["b"]
        assert "There is no time zone 'Mars/Olympus'" in found.unconverted[0].reason

    def test_a_line_with_a_user_column_but_no_command(self):
        found = read("0 0 * * * root", has_user_column=True)

        assert "no user and command" in found.unconverted[0].reason

    @pytest.mark.parametrize("mark", ["\r", "\x0c", "\x85", "\u2028", "\x00"])
    def test_a_line_end_inside_of_a_comment_does_not_end_it(self, mark):
        found = read(
            f"# hello{mark}raise SystemExit\n@daily x{mark}raise SystemExit\n@reboot y{mark}1/0"
        )

        execute(found)

    def test_an_empty_file(self):
        found = read("\n# nothing\n")

        assert found.converted == []
        execute(found)


def test_comments_above_a_line_are_kept():
    code = read("# the old one\n\n# nightly\n#  backup\n@daily x\n").code

    assert "# nightly\n# backup\n# @daily x\n" in code
    assert "the old one" not in code
