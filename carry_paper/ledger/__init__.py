"""How the paper is judged: what it prints, how each number is found, and the verdicts.

`claims` reads the paper's numbers and findings; `quantities` and `billions` turn an id into its
value per run; `compute` makes a row of each by the rules in `verdicts`; `results` keeps the rows.
`report` has them as tables on a terminal, `box` on the pages of the book, and `webpage` as a page
of their own.
"""
