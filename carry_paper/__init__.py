"""The reproduction of *Carrying over Algorithm in Transformers*, on top of `carry_core`.

It needs more packages than the core: `pip install 'carry-core[paper]'`.
"""
