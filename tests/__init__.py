from tests.helpers import shapes as shapes  # jaxtyping imports no more than `tests`
