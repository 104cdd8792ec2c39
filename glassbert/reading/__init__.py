"""Files of any origin as text and rows: compression, encodings, delimiters, decimal commas, JSON, Parquet, Excel.

Tasks, corpora and predictions read through this package. Nothing here knows what a column is used for.
"""

from glassbert.reading.options import OPTIONS, ReadingOptions, applicable

__all__ = ["OPTIONS", "ReadingOptions", "applicable"]
