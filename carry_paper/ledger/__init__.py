"""The ledger judges the paper: its printed numbers, how each is measured, and the verdicts.

`claims` reads the paper's numbers and findings. `registry` says which function measures each, and
on whose runs; `entries` are its kinds of rows, and `quantities` and `language_models` the functions
of the printed numbers. `measuring` measures them on runs, for the table of measurements.
`ledger` is a query of this table: a row (`results`) for each claim, judged by the rules in
`verdicts`. `moved` compares the rows with earlier ones, and `report` prints them. `kinds_of_run` is
the table of many runs of the main group.
"""
