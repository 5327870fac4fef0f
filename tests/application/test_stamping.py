"""A running program marks its definitions as seen every hour, and writes missing rows again."""


def rule_of(app, name):
    return app._services.store.get_schedule("", name)


class TestStamping:
    """The newest start wins: a program that runs longer does not write its definitions again."""

    def test_a_schedule_is_stamped_every_hour(self, app, clock):
        app.schedule("report", lambda: None).daily()
        app.run()
        began_at = clock.now()

        clock.advance(minutes=59)
        app.run()
        assert rule_of(app, "report").seen_at == began_at

        clock.advance(minutes=1)
        app.run()
        assert rule_of(app, "report").seen_at == clock.now()

    def test_the_definition_of_a_later_start_stays(self, make_app, clock):
        old, new = make_app(), make_app()
        old.schedule("report", lambda: None).daily()
        old.run()
        before = rule_of(old, "report").spec.rule
        new.schedule("report", lambda: None).hourly()
        new.run()

        clock.advance(hours=2)
        old.run()

        after = rule_of(old, "report")
        assert after.spec.rule != before
        assert after.seen_at == clock.now()
