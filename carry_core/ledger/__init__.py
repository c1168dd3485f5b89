"""How `carry_core.claims` judges the paper: what is needed, how each number is found, and the verdicts.

`survey` passes over all sums once per run; `evidence` holds one source's weights and surveys; `readings` and
`quantities` turn an id into its value per run; `behaviour`, `insides` and `findings` do so for what the paper says in
words; `verdicts` has the rules, and `report` the tables on a terminal.
"""
