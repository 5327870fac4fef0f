"""A program that stays says every hour that it is there, and nothing else."""


def rule_of(app, name):
    return app._services.store.get_schedule("", name)


class TestStamping:
    """Newest start wins: a program that is still there does not take its word back."""

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

    def test_what_a_later_start_said_is_not_taken_back(self, make_app, clock):
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
