"""Ship unfinished trainings: copy the checkpoints of the main group's `paper` runs, as they are, to data/unfinished/.

    CARRY_DATA=WHERE_IT_TRAINS unfinished.py DATA

`carry train` goes on from these where it has none as far. What a run that is finished by now had left goes.
"""

import sys
from pathlib import Path

from carry_core import groups
from carry_core.files import data_dir
from carry_core.training.checkpoints import Checkpoints


def main(out: Path) -> None:
    recipe = groups.RECIPES["paper"]
    trained = Checkpoints(data_dir() / "checkpoints", groups.find(groups.MAIN), recipe)
    shipped = Checkpoints(out / "unfinished", trained.group, recipe)
    for run in range(trained.group.n_runs):
        state = trained.load(run)
        if state is not None and state[1]["epoch"] < recipe.epochs(trained.group):
            shipped.save([state])
            print(f"{shipped.path(run)}: {state[1]['epoch']} epochs")
        elif state is not None:
            shipped.path(run).unlink(missing_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
