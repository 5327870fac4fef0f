"""A shop that is observed by OpenTelemetry, Prometheus and Sentry."""
