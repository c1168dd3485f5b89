"""The reproduction of *Carrying over Algorithm in Transformers*, on top of `carry_core`.

It needs more packages than the core: `pip install 'carry-core[paper]'`.
"""

import carry_core as carry_core  # which says where modules have gone
