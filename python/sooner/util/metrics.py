"""User-defined metrics: `sooner.metrics` under the name that Ray has for it."""

from __future__ import annotations

from sooner.metrics import Counter, Gauge, Histogram, Metric, prometheus_text

__all__ = ["Counter", "Gauge", "Histogram", "Metric", "prometheus_text"]
