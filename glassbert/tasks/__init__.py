"""Task data: reading files, inferring targets, checks, splits, windows and time series.

data = TaskData.of("reviews.csv", text="review", target="stars")
for finding in check_data(data): print(finding)
train, dev = train_dev_split(data)
targets = train.encoded()
dev_targets = dev.encoded(targets.labels)
"""

from glassbert.tasks.alignment import WordPieces, align_words
from glassbert.tasks.checks import Finding, check_data
from glassbert.tasks.data import TaskData
from glassbert.tasks.labels import LabelMap
from glassbert.tasks.reading import read_table
from glassbert.tasks.ready import ReadyTask, ready_task, ready_tasks
from glassbert.tasks.series import (
    Forecasts,
    Scale,
    Series,
    find_period,
    forecast_windows,
    seasonal_naive,
    split_by_time,
)
from glassbert.tasks.splits import folds, train_dev_split
from glassbert.tasks.table import Table
from glassbert.tasks.targets import InferredKind, Targets, encode_targets, infer_kind
from glassbert.tasks.template import Template, auto_template, parse_template
from glassbert.tasks.windows import Windows, cut_windows

__all__ = [
    "Finding",
    "Forecasts",
    "InferredKind",
    "LabelMap",
    "ReadyTask",
    "Scale",
    "Series",
    "Table",
    "Targets",
    "TaskData",
    "Template",
    "Windows",
    "WordPieces",
    "align_words",
    "auto_template",
    "check_data",
    "cut_windows",
    "encode_targets",
    "find_period",
    "folds",
    "forecast_windows",
    "infer_kind",
    "parse_template",
    "read_table",
    "ready_task",
    "ready_tasks",
    "seasonal_naive",
    "split_by_time",
    "train_dev_split",
]
