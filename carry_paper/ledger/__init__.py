"""The ledger judges the paper: its printed numbers, how each is measured, and the verdicts.

`claims` reads the paper's numbers and findings. `registry` says which function measures each, and
on whose runs; `entries` are its kinds of rows, and `quantities`, `tables` and `language_models` the
functions of the printed numbers. `compute` makes a row of each by the rules in `verdicts`;
`results` keeps the rows, `moved` compares them with earlier ones, and `report` prints them.
`seeds` is the table of many runs of the main group.
"""
