"""Tables, words, plots and the page, made from result records alone; nothing here loads a model."""

from residuum.reporting.run import Run
from residuum.reporting.writing import write_report

report = write_report
"""`residuum.report`: the same as `write_report`."""

__all__ = ["Run", "report", "write_report"]
