"""Tasks: from files to examples with targets, checked, cut and split.

data = TaskData.of("reviews.csv", text="review", target="stars")
for finding in check_data(data): print(finding)
train, dev = train_dev_split(data)
targets = train.encoded()
dev_targets = dev.encoded(targets.labels)
"""

from glassbert.tasks.alignment import NOT_ASKED, WordPieces, align_words
from glassbert.tasks.checks import check_data
from glassbert.tasks.data import TaskData
from glassbert.tasks.findings import Finding
from glassbert.tasks.labels import LabelMap
from glassbert.tasks.periods import find_period
from glassbert.tasks.reading import read_table
from glassbert.tasks.ready import ReadyTask, ready_task, ready_tasks
from glassbert.tasks.series import Forecasts, Scale, Series, forecast_windows, seasonal_naive, split_by_time
from glassbert.tasks.splits import folds, train_dev_split
from glassbert.tasks.table import Table
from glassbert.tasks.targets import Recognised, Targets, encode_targets, recognise
from glassbert.tasks.template import Template, auto_template, parse_template
from glassbert.tasks.windows import Windows, cut_windows

__all__ = [
    "NOT_ASKED",
    "Finding",
    "Forecasts",
    "LabelMap",
    "ReadyTask",
    "Recognised",
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
    "parse_template",
    "read_table",
    "ready_task",
    "ready_tasks",
    "recognise",
    "seasonal_naive",
    "split_by_time",
    "train_dev_split",
]
