"""What a run will take and reach, before it is paid for: time, memory, and the expected held-out loss.

`table` holds the reference runs, `expectation` the loss they let expect, `timing` the seconds of a run, `memory` its
bytes; `plan` puts them together, and `receipt` compares every finished run with what was planned.
"""
