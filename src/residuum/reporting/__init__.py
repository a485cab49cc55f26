"""Tables, words, plots and the page, made from result records alone; nothing here loads a model."""

from __future__ import annotations

from residuum.reporting.report import write_report

__all__ = ["write_report"]
