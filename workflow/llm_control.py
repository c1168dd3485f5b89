"""Survey models that cannot add, which are the control of Table 2; `make llm` calls this.

They are SmolLM2, in a GGUF file, and the same network with random weights. The surveys are stored
without streams, in `data/llm/`.
"""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from carry_core.files import data_dir
from carry_paper.cli.progress import reporter
from carry_paper.llm import head_survey
from carry_paper.llm.model import inspect_model, library
from carry_paper.llm.prompts import TEMPLATES
from carry_paper.llm.recordings import CANNOT_ADD, RANDOM_WEIGHTS

# Prompts at a time. A processor reads all weights for each token that a batch generates, so large
# batches take less time.
BATCH = 250


def main(folder: Path, batches: Path) -> None:
    """Survey the one GGUF file of a folder, and its network; `batches` is what is done so far."""
    (file,) = folder.glob("*.gguf")
    library()
    source = inspect_model(str(file), TEMPLATES["bare"])
    sources = {CANNOT_ADD: source}
    for seed, name in enumerate(RANDOM_WEIGHTS):
        sources[name] = replace(source, init_seed=seed)
    for name, model in sources.items():
        report = partial(reporter(), model.title)
        surveyor = head_survey.Surveyor(
            model, batches, batch=BATCH, keeps_streams=False, report=report
        )
        survey = surveyor.run()
        path = data_dir() / "llm" / name / head_survey.FILE
        survey.save(path)
        print("\n".join(survey.lines()))
        print(head_survey.too_few_right(survey.answers))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
