"""Tables, words, plots and the page, made from result records alone; nothing here loads a model."""

from residuum.reporting.exports import to_frame
from residuum.reporting.figures import plot
from residuum.reporting.writing import write_report

report = write_report
"""`residuum.report`: the same as `write_report`."""

__all__ = ["plot", "report", "to_frame", "write_report"]
