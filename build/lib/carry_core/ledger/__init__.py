"""How the paper is judged: what it prints, what is needed, how each number is found, and the verdicts.

`published` reads the paper's numbers and findings. `survey` passes over all sums once per run; `evidence` holds one
source's weights and surveys; `readings` and `quantities` turn an id into its value per run; `behaviour`, `insides` and
`findings` do so for what the paper says in words. `compute` makes a row of each by the rules in `verdicts`, `results`
keeps the rows, `report` has the tables on a terminal, and `webpage` the page.
"""
