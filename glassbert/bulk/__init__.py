"""Predictions and vectors for whole folders of files, on this machine or on a Ray cluster.

    files → pieces of some thousand rows → a worker reads, computes and writes one piece → part-000017.parquet

A piece is named by its file and its rows, so its output does not depend on the worker, on the number of workers or on
how often it was tried. `glassbert.on_ray` runs the same worker in the processes of a cluster.
"""
