"""What a page shows of groups whose weights may not be there yet."""

from dataclasses import replace

import pytest
import torch

from carry_core import at_hand, runs
from carry_core.errors import BadInput
from carry_core.groups import GROUPS
from carry_core.model import Transformer

PAD6, PRIMED, DIGITS4 = "pad6_n2_s0.3_w0.2", "pad6_primed100_n2_s0.3_w0.2", "digits4_n2_s0.3_w0.2"


@pytest.fixture
def save(data, monkeypatch):
    """Writes small random runs of a group into an empty data folder."""

    def write(
        group: str, source: str, recipe: str, numbers: tuple[int, ...] = (0,), snapshots=(), curves=None, epochs=None
    ) -> None:
        config = replace(GROUPS[group].config, d_model=16, d_ff=12)
        monkeypatch.setitem(GROUPS, group, replace(GROUPS[group], config=config))
        torch.manual_seed(0)
        weights = {key: torch.stack([value] * len(numbers)) for key, value in Transformer(config).state_dict().items()}
        weights |= {f"epoch_{epoch}/{key}": 0.5 * value for epoch in snapshots for key, value in weights.items()}
        some = {"device": "cpu", "precision": "bf16", "torch": "2"}
        epochs = epochs or (60 if recipe == "quick" else GROUPS[group].epochs)
        record = {"recipe": recipe, "epochs": epochs, "runs": [{"run": run} | some for run in numbers]}
        runs.save(runs.folder(source), group, config, weights, record, curves)

    return write


def look(group: str = PAD6, source: str = "ours", **more) -> at_hand.AtHand:
    return at_hand.check(awaited=PAD6, source=source, group=group, **more)


def test_a_page_whose_group_is_nowhere_says_how_to_get_it(save):
    shown = look()
    assert list(shown) == []
    assert "`carry train pad6_n2_s0.3_w0.2 --recipe quick --precision bf16` makes a stand-in" in shown.told
    assert "`carry import-author DIR` imports them" in shown.told
    told = at_hand.check(awaited=DIGITS4, source="ours", group=DIGITS4).told
    assert "The author's release has no weights of `digits4_n2_s0.3_w0.2`" in told
    assert "import-author" not in told


def test_the_authors_come_first_unless_ours_are_of_the_papers_recipe(save):
    save(PAD6, "author", "author")
    assert [loaded.source for loaded in look()] == ["author"]
    assert "`carry train pad6_n2_s0.3_w0.2 --recipe quick --precision bf16` makes a stand-in" in look().told
    save(PAD6, "ours", "quick")
    assert [at_hand.mark(loaded) for loaded in look()] == ["author’s", "ours (quick)"]
    assert "stands in for a run of all 2500 epochs by the recipe “paper”" in look().told
    assert [loaded.source for loaded in look(source="author")] == ["author"]
    save(PAD6, "ours", "paper", epochs=900)
    assert [at_hand.mark(loaded) for loaded in look()] == ["author’s", "ours (paper, 900 of 2500 epochs)"]
    assert "stands in for a run of all 2500 epochs by the recipe “paper”" in look().told
    save(PAD6, "ours", "paper")
    assert [loaded.source for loaded in look()] == ["ours"]
    assert "stands in" not in look().told


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"group": "n9"}, "Unknown group 'n9': expected one of"),
        ({"group": PRIMED}, "No pad6_primed100_n2_s0.3_w0.2.safetensors from ours"),
        ({"source": "authr"}, "Unknown source 'authr': expected"),
        ({"source": "author"}, "No pad6_n2_s0.3_w0.2.safetensors from author"),
        ({"run": 99}, "No run 99 of pad6_n2_s0.3_w0.2 from ours: expected None, since there are no weights yet"),
        ({"epoch": 7}, "epoch=7: expected an epoch at which pad6_n2_s0.3_w0.2 is kept, one of 500, 1000, 2500"),
        ({"n_examples": -1}, "n_examples=-1: expected"),
        ({"seed": -1}, "seed=-1: expected"),
        ({"seed": None}, "seed=None: expected"),
        ({"n_examples": None}, "n_examples=None: expected"),
    ],
)
def test_only_the_awaited_group_may_be_missing(save, wrong, complaint):
    with pytest.raises(BadInput, match=complaint) as error:
        look(**wrong)
    assert "\n" not in str(error.value)


def test_a_damaged_file_is_not_a_missing_one(save):
    save(PAD6, "ours", "quick")
    (runs.folder("ours") / f"{PAD6}.safetensors").write_bytes(b"nothing")
    with pytest.raises(BadInput, match="damaged"):
        look()


def test_a_run_may_be_one_of_any_source_that_is_shown(save):
    save(PAD6, "author", "author", numbers=(1,))
    save(PAD6, "ours", "quick", numbers=(0, 2))
    assert look(run=1).run == 1
    with pytest.raises(BadInput, match="No run 3 of .* expected one of 0, 1, 2"):
        look(run=3)
    with pytest.raises(BadInput, match="No run 0 of .* expected one of 1"):
        look(run=0, source="author")


def test_a_snapshot_that_is_not_kept_is_missing_too(save):
    save(PAD6, "author", "author", snapshots=(500,))
    save(PAD6, "ours", "quick")
    shown = look(epoch=500)
    assert [loaded.source for loaded in shown] == ["author"]
    assert "at epoch 500 are not here yet: `carry train" in shown.told
    save(PAD6, "ours", "quick", snapshots=(500,))
    shown = look(epoch=500)
    assert [loaded.source for loaded in shown] == ["author", "ours"]
    assert "Epoch 500 of that recipe is epoch 12 here, the same share of the whole" in shown.told


def test_curves_are_there_or_not(save):
    save(PAD6, "ours", "quick")
    assert look().history("ours") == look().history("author") == ()
    save(PRIMED, "ours", "quick", curves={"runs": torch.arange(1).numpy()})
    (found,) = at_hand.check(awaited=PRIMED, source="ours", group=PRIMED).history("ours")
    assert found["runs"].tolist() == [0]


def test_a_page_of_several_groups_goes_without_some(save):
    wanted = {"a": (PAD6, PAD6), "b": (PRIMED, PRIMED)}
    assert [list(shown) for shown in at_hand.check_each(wanted, source="ours").values()] == [[], []]
    with pytest.raises(BadInput, match="No pad6_n2_s0.3_w0.2.safetensors from author"):
        at_hand.check_each(wanted, source="author")
    save(PRIMED, "author", "author")
    found = at_hand.check_each(wanted, source="author")
    assert [len(shown.found) for shown in found.values()] == [0, 1]
    assert "are not here: `carry import-author DIR`" in found["a"].told
    with pytest.raises(BadInput, match="No n3_s0.3_w0.2.safetensors from ours"):
        at_hand.check_each(wanted | {"c": (PAD6, "n3_s0.3_w0.2")}, source="ours")
