"""Findings on planted surveys, streams and attention: each run's value, and if it shows it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from carry_core import carries, measure, sums
from carry_core.errors import BadInput
from carry_core.interventions import INTACT, Ablation
from carry_core.measure import ClassAccuracies
from carry_core.model import ModelConfig, Transformer
from carry_paper.findings import base, geometry, heads, lengths, survey
from carry_paper.findings.base import DECODER, DFF1024, DIGITS4, N1, N3, S01
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.survey import Dissected, Survey
from carry_paper.ledger import registry
from carry_train.groups import GROUPS, MAIN
from tests.conftest import random_model
from tests.helpers.measured import Answers
from tests.helpers.measured import measured as answers
from tests.helpers.tolerances import assert_close

pytestmark = pytest.mark.machine

Plant = Callable[..., Evidence]
ONE, OTHER = (Ablation(heads={(1, head)}) for head in (0, 1))
MLP = Ablation(mlps={1})


def cells(
    carry: float, right: float, off: float | None = None, whole: float = 0.0, n_digits: int = 3
) -> ClassAccuracies:
    """Accuracies with so many digits correct with a carry-in (`carry`) and without (`right`).

    All others with a carry-in are one too small. Without one, a share of `off` is one too large,
    or all others.
    """
    carry_in = carries.carry_in(n_digits)
    off = 1 - right if off is None else off
    accuracy, corrected = (
        torch.where(carry_in, torch.tensor(x), torch.tensor(y))
        for x, y in ((carry, right), (1 - carry, off))
    )
    return ClassAccuracies(accuracy, corrected, whole)


def covering_heads(cells: Mapping[Ablation, ClassAccuracies]) -> Survey:
    """Return a survey whose decision head is the one that leaves the fewest exact matches."""
    head = min((ONE, OTHER), key=lambda part: cells[part].exact_match)
    return Survey(cells, decision_head=head)


@pytest.fixture
def surveyed(monkeypatch) -> Plant:
    def plant(group: str, *surveys: Survey) -> Evidence:
        monkeypatch.setattr(
            Evidence, "surveys", lambda self, name: {group: dict(enumerate(surveys))}[name]
        )
        return Evidence("ours")

    return plant


def measured(name: str, evidence: Evidence) -> Answers:
    return answers(f"finding/{name}", evidence)


def values(measurement: Answers) -> list[float]:
    return list(measurement.runs.values())


def shown(measurement: Answers) -> list[bool]:
    return list(measurement.shows.values())


def judged(measurement: Answers) -> tuple[list[float], list[bool]]:
    return values(measurement), shown(measurement)


# ---------------------------------------------------------------- surveys


def test_a_decision_head_costs_more_than_the_other_and_only_adds(surveyed):
    idle = cells(1.0, 1.0, whole=0.95)
    enough, too_little = (cells(1.0, 0.4, 0.6, whole=whole) for whole in (0.84, 0.945))
    wrong, otherwise_wrong = cells(0.98, 0.4, 0.6, whole=0.3), cells(1.0, 0.4, 0.58, whole=0.3)
    runs = (
        covering_heads({ONE: idle, OTHER: x}) for x in (enough, too_little, wrong, otherwise_wrong)
    )
    evidence = surveyed(MAIN, *runs)
    measurement = measured("decision_head", evidence)
    assert judged(measurement) == (
        pytest.approx([0.11, 0.005, 0.65, 0.65]),
        [True, False, True, True],
    )
    assert shown(measured("decision_head_carries", evidence)) == [True, True, False, True]
    assert shown(measured("decision_head_adds", evidence)) == [True, True, True, False]


def test_the_decision_head_is_the_one_that_every_page_names():
    """A survey of other sums may rank the heads otherwise."""
    head = Ablation(heads={(1, 1)})
    survey = Survey(
        {ONE: cells(1.0, 0.4, 0.6, 0.3), head: cells(1.0, 0.5, 0.5, 0.4)}, decision_head=head
    )
    assert survey.heads == [head, ONE]
    assert heads.decision(survey)["decision_head"] == "head 1:1"
    with pytest.raises(BadInput, match="This survey names no decision head"):
        heads.decision(Survey({ONE: cells(1.0, 1.0), head: cells(1.0, 1.0)}))


def test_without_head_and_mlp_digits_without_a_carry_in_are_right_again(surveyed):
    head_alone, mlp_alone = cells(1.0, 0.4), cells(0.0, 0.95)
    runs = []
    for again in (0.92, 0.88):
        both = cells(0.0, again)
        both.accuracy[:, 2] = 0.1  # at 9 the head had no say
        runs.append(
            covering_heads(
                {
                    MLP: mlp_alone,
                    ONE: head_alone,
                    OTHER: cells(1.0, 1.0, whole=0.9),
                    heads.with_final_mlp(ONE): both,
                    heads.with_final_mlp(OTHER): cells(0.0, 1.0),
                }
            )
        )
    measurement = measured("joint_ablation", surveyed(MAIN, *runs))
    assert judged(measurement) == (pytest.approx([0.92, 0.88]), [True, False])
    assert measurement.fields[0]["without_the_head_alone"] == pytest.approx(0.4)
    assert heads.with_final_mlp(ONE) == Ablation(heads={(1, 0)}, mlps={1})


def test_a_dissection_is_compared_with_random_neurons(surveyed):
    keeps, loses = cells(0.7, 1.0), cells(0.3, 1.0)
    runs = []
    for without_carry_neurons, random in (
        (loses, [keeps, keeps]),
        (keeps, [keeps]),
        (loses, [keeps, loses]),
    ):
        samples = tuple(Dissected(8, table) for table in random)
        runs.append(
            Survey({MLP: loses}, Dissected(8, without_carry_neurons), random_samples=samples)
        )
    for group, name in (
        (MAIN, "beyond/dissection_control"),
        (base.DFF512, "beyond/dissection_control_dff512"),
    ):
        measurement = answers(name, surveyed(group, *runs))
        assert judged(measurement) == (pytest.approx([0.4, 0, 0], abs=1e-6), [True, False, False])


def test_four_digits_need_the_final_mlp_and_a_decision_head(surveyed):
    decides, idle = (
        cells(1.0, right, whole=whole, n_digits=4) for right, whole in ((0.4, 0.3), (1.0, 0.95))
    )
    carries, spared = cells(0.0, 1.0, n_digits=4), cells(1.0, 0.0, n_digits=4)
    runs = ((carries, idle), (spared, idle), (carries, decides))
    surveys = (
        covering_heads({MLP: mlp, ONE: decides, OTHER: other_head}) for mlp, other_head in runs
    )
    measurement = measured("four_digits", surveyed(DIGITS4, *surveys))
    assert judged(measurement) == (pytest.approx([1, -1, 1]), [True, False, False])


def test_the_final_mlp_carries_where_without_it_nothing_does(surveyed):
    without = cells(0.0, 1.0), cells(1.0, 0.0), cells(0.0, 0.5)
    measurement = measured(
        "final_mlp_carries", surveyed(MAIN, *(Survey({MLP: x}) for x in without))
    )
    assert values(measurement)[:2] == pytest.approx([1, -1])
    assert 0 < values(measurement)[2] < 0.9
    assert shown(measurement) == [True, False, False]


def test_a_wide_mlp_cannot_go_but_its_carry_neurons_can(surveyed):
    missed, whole = cells(0.0, 0.89), cells(0.0, 0.91)
    one_cell_kept = cells(0.2, 0.91)
    one_cell_kept.accuracy[1, 0] = 0.92  # C@1 at 7, more than what is left without a carry-in
    carry, keeps, uneven, harmful = (
        Dissected(650, table)
        for table in (cells(0.89, 0.91), cells(0.905, 0.91), one_cell_kept, cells(0.1, 0.89))
    )
    runs = ((missed, carry), (whole, keeps), (missed, uneven), (missed, harmful))
    surveys = [Survey({MLP: mlp}, dissected) for mlp, dissected in runs]
    measurement = measured("wide_mlp", surveyed(DFF1024, *surveys))
    assert judged(measurement) == (
        pytest.approx([0.89, 0.91, 0.89, 0.89]),
        [True, False, True, True],
    )
    measurement = measured("wide_mlp_neurons", surveyed(DFF1024, *surveys))
    assert shown(measurement) == [True, False, False, False]
    assert values(measurement)[:2] == pytest.approx([0.89, 0.905])


def test_with_three_layers_carries_are_lost_but_for_the_exception_of_the_paper(surveyed):
    lost, keeps = cells(0.2, 0.9), cells(0.51, 0.9)
    excepted, other_class = cells(0.2, 0.9), cells(0.2, 0.9)
    excepted.accuracy[4, 1] = 0.99  # C all con. at 8
    other_class.accuracy[3, 1] = 0.99  # C all at 8
    runs = [Survey({Ablation(mlps={2}): table}) for table in (lost, excepted, keeps, other_class)]
    measurement = measured("three_layers", surveyed(N3, *runs))
    assert shown(measurement) == [True, True, False, False]
    assert measurement.fields[1]["C_all_con_at_8"] == pytest.approx(0.99)


def test_with_three_layers_digits_are_correct_or_off_by_one(surveyed):
    runs = [Survey({MLP: cells(0.2, 0.9, off)}) for off in (0.1, 0.08)]
    measurement = measured("three_layers_off_by_one", surveyed(N3, *runs))
    assert judged(measurement) == (pytest.approx([1.0, 0.98]), [True, False])


def test_of_three_layers_no_single_head_matters(surveyed):
    heads = [Ablation(heads={(layer, head)}) for layer in (1, 2) for head in (0, 1)]

    def survey(costs: list[float]) -> Survey:
        without = {
            head: cells(1.0, 1.0, whole=1.0 - cost) for head, cost in zip(heads, costs, strict=True)
        }
        return Survey({INTACT: cells(1.0, 1.0, whole=1.0), **without})

    runs = ([0, 0.09, 0, 0], [0.11, 0, 0, 0], [0, 0, 0, 0.11])
    measurement = measured("three_layers_heads", surveyed(N3, *(survey(costs) for costs in runs)))
    assert judged(measurement) == (pytest.approx([0.09, 0.11, 0.11]), [True, False, False])


def test_three_layer_runs_that_show_the_pattern_of_pairs(surveyed):
    """Without layer 1's attention and a head of layer 2 a carry is always added (App. C)."""
    idle, shows = cells(1.0, 0.99, 0.01, whole=0.97), cells(1.0, 0.4, 0.6, whole=0.3)
    wrong_carry, otherwise_wrong = cells(0.9, 0.4, 0.6, whole=0.3), cells(1.0, 0.4, 0.5, whole=0.3)
    pairs = [
        (idle, shows),
        (shows, idle),
        (idle, idle),
        (wrong_carry, idle),
        (idle, otherwise_wrong),
    ]
    costs = [
        dict(zip(heads.LAYER_1_AND_A_LAST_HEAD, both, strict=True))
        | {INTACT: cells(1.0, 1.0, whole=1.0)}
        for both in pairs
    ]
    measurement = measured("three_layers_pairs", surveyed(N3, *map(Survey, costs)))
    assert judged(measurement) == (
        pytest.approx([0.7, 0.7, 0.03, 0.7, 0.7]),
        [True, True, False, False, False],
    )


def test_a_decoder_adds_carries_without_its_decision_head(surveyed):
    idle = cells(1.0, 1.0, whole=0.9)
    always, divided = cells(1.0, 0.0, 1.0, whole=0.2), cells(1.0, 0.3, 0.7, whole=0.2)
    forgets, otherwise_wrong = cells(0.9, 0.3, 0.7, whole=0.2), cells(1.0, 0.3, 0.6, whole=0.2)
    tables = (always, divided, forgets, otherwise_wrong)
    surveys = [covering_heads({ONE: table, OTHER: idle}) for table in tables]
    measurement = measured("decoder", surveyed(DECODER, *surveys))
    # The value is the share of digits that are one too large.
    assert judged(measurement) == (pytest.approx([1, 0.7, 0.7, 0.6]), [True, True, False, False])


# ---------------------------------------------------------------- attention


@pytest.fixture
def models(monkeypatch) -> Callable[[str, int], list[Transformer]]:
    """So many random runs of a group, and few random sums."""

    def plant(group: str, count: int) -> list[Transformer]:
        config = replace(GROUPS[group].config, d_model=16, d_ff=8)
        planted_models = [Transformer(config).eval() for _ in range(count)]
        monkeypatch.setattr(survey, "SAMPLE", 2_000)
        monkeypatch.setattr(
            Evidence,
            "models",
            lambda self, name, epoch=None: {group: dict(enumerate(planted_models))}[name],
        )
        return planted_models

    return plant


def looking(
    models: list[Transformer], patterns: list[torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern_of = {id(model): pattern for model, pattern in zip(models, patterns, strict=True)}
    monkeypatch.setattr(measure, "attention", lambda model, a, b: pattern_of[id(model)])


def test_the_attention_of_each_head_by_hand():
    layout = ModelConfig().layout
    pattern = torch.rand(2, 2, 10, 10, generator=torch.Generator().manual_seed(0))
    expected = {}
    for head, of_head in enumerate(pattern[0]):
        pairs = [(0, 4), (1, 5), (2, 6)]  # the digits of a column
        both_ways = [of_head[pair] + of_head[pair[::-1]] for pair in pairs]
        expected["partner", f"0:{head}"] = sum(both_ways).item() / 6
    for name, columns in (("to the right", (1, 2)), ("own column", (0, 1))):
        for head, of_head in enumerate(pattern[1]):
            hundreds, tens = layout.answer[:2]
            mass = of_head[hundreds, [columns[0], columns[0] + 4]].sum()
            mass += of_head[tens, [columns[1], columns[1] + 4]].sum()
            expected[name, f"1:{head}"] = mass.item() / 2
    measured_means = heads.attention_of_heads(pattern, layout)
    assert list(measured_means) == list(expected)
    assert measured_means == pytest.approx(expected)


def test_the_share_to_the_right_leaves_other_tokens_out():
    layout = ModelConfig().layout
    pattern = torch.zeros(2, 10, 10)
    hundreds, tens = layout.answer[:2]
    pattern[0, hundreds, [0, 4]] = torch.tensor([0.1, 0.2])  # its own column
    pattern[0, hundreds, [1, 5]] = torch.tensor([0.3, 0.0])  # the column on its right
    pattern[0, hundreds, [2, 3]] = 0.2
    pattern[:, tens, 1] = 0.5
    pattern[1, tens, 6] = 1.5
    pattern[1, hundreds, 0] = 1.0
    share = heads.share_to_the_right(pattern, layout)
    assert_close(share, torch.tensor([[0.5, 0.0], [0.0, 0.75]]))


def test_every_digit_needs_a_stair(models, monkeypatch):
    whole = torch.zeros(2, 2, 10, 10)
    for head, (queries, keys) in enumerate([(range(3), range(4, 7)), (range(4, 7), range(3))]):
        whole[0, head, list(queries), list(keys)] = 0.51
    broken = whole.clone()
    broken[0, 1, 5, 1] = 0.49
    looking(models(MAIN, 2), [whole, broken], monkeypatch)
    measurement = measured("staircase", Evidence("ours"))
    assert judged(measurement) == (pytest.approx([0.51, 0.49]), [True, False])


@pytest.mark.parametrize(
    ("name", "group", "head", "shift"),
    [("previous_sum", MAIN, 1, 1), ("decoder_current_sum", DECODER, 0, 0)],
)
def test_a_head_attends_to_a_column_more_than_the_other(
    models, monkeypatch, name, group, head, shift
):
    """The decision head, 1, attends to the column on its right, the other one to its own."""

    def pattern(mass: float, of_other_head: float) -> torch.Tensor:
        """Return attention in which both heads give so much to the digits of the column."""
        attention = torch.zeros(2, 2, 10, 10)
        hundreds_and_tens = GROUPS[group].config.layout.answer[:2]  # the units are not asked
        for column, row in enumerate(hundreds_and_tens, start=shift):
            keys = [column, column + 4]
            attention[1, head, row, keys] = torch.tensor([0.75, 0.25]) * mass
            attention[1, 1 - head, row, keys] = of_other_head / 2
        return attention

    three = [pattern(0.21, 0.1), pattern(0.19, 0.1), pattern(0.21, 0.22)]  # chance gives 2 of 10
    looking(models(group, 3), three, monkeypatch)
    monkeypatch.setattr(measure, "decision_head", lambda model: 1)
    measurement = measured(name, Evidence("ours"))
    assert judged(measurement) == (pytest.approx([0.21, 0.19, 0.21]), [True, False, False])
    assert measurement.fields[0]["decision_head"] == "1:1"


def test_heads_share_what_both_give(models, monkeypatch):
    """Half of the rows are the same in both heads, the others have nothing in common."""
    length = GROUPS[DIGITS4].config.layout.length
    rows = torch.arange(length)
    first = torch.zeros(2, 2, length, length)
    first[:, :, rows, 0] = 1.0
    same_heads = first.clone()
    first[0, 1, rows[::2]] = torch.eye(length)[1]
    looking(models(DIGITS4, 2), [first, same_heads], monkeypatch)
    measurement = measured("four_digits_first_layer", Evidence("ours"))
    n_same = len(rows[1::2])
    assert judged(measurement) == (pytest.approx([n_same / length, 1.0]), [False, True])


def test_each_class_is_asked_where_its_carries_come_from(models, monkeypatch):
    """Class by class, the decision head looks to the right where there is a carry-in."""
    layout = GROUPS[DIGITS4].config.layout
    carry_in = carries.carry_in(4)

    def attention(model: Transformer, classes: Any, n_examples: int, seed: int) -> torch.Tensor:
        by_class = torch.zeros(len(classes), 2, 2, layout.length, layout.length)
        for carry_class, pos in carry_in.nonzero().tolist():
            by_class[carry_class, 1, 0, layout.answer[pos], [pos + 1, pos + 6]] = 0.3
        if model is weak:
            by_class[-1, 1, 0, layout.answer[0], 1] = 0.1
        return by_class

    _, weak = models(DIGITS4, 2)
    monkeypatch.setattr(measure, "class_attention", attention)
    monkeypatch.setattr(measure, "decision_head", lambda model: 0)
    measurement = measured("four_digits_by_class", Evidence("ours"))
    assert judged(measurement) == (pytest.approx([0.6, 0.4]), [True, False])


# ---------------------------------------------------------------- the residual stream


def streaming(
    monkeypatch: pytest.MonkeyPatch,
    models: list[Transformer],
    plant: Callable[[int, str, Ablation, torch.Tensor, torch.Tensor], Mapping[int, torch.Tensor]],
) -> None:
    """Noise, plus `plant(run, site, ablation, a, b)` along each position's first coordinates."""
    number = {id(model): run for run, model in enumerate(models)}

    def streams(
        model: Transformer,
        a: Any,
        b: Any,
        names: Any,
        ablation: Ablation = INTACT,
        read: Any = None,
    ) -> dict[str, torch.Tensor]:
        measurement = {}
        for name in names:
            stream = torch.randn(len(a), 10, 16, generator=torch.Generator().manual_seed(0))
            for position, values in plant(number[id(model)], name, ablation, a, b).items():
                stream[:, position, : values.shape[1]] += values
            measurement[name] = stream[:, list(model.config.positions_at(name, read))]
        return measurement

    monkeypatch.setattr(measure, "activations", streams)


def arriving(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return carries.carry_in(3)[carries.classify(a, b)].float()


def at_answer(x: torch.Tensor) -> dict[int, torch.Tensor]:
    """The first two columns at positions 7 and 8, along one coordinate each."""
    return {7 + i: x[:, i : i + 1] for i in range(2)}


def test_tens_and_carries_are_told_by_the_leading_axis(models, monkeypatch):
    def plant(
        run: int, site: str, ablation: Ablation, a: torch.Tensor, b: torch.Tensor
    ) -> dict[int, torch.Tensor]:
        big = (sums.digits(a, 3) + sums.digits(b, 3) >= 10).float()
        if site == "blocks.0.resid_post":
            return {i: 12 * big[:, i : i + 1] for i in ((1, 2), (1,))[run]}
        assert site == "blocks.1.resid_mid"
        return at_answer(12 * arriving(a, b)) if run else {7: 12 * arriving(a, b)[:, :1]}

    streaming(monkeypatch, models(MAIN, 2), plant)
    for measurement, expected in (
        (measured("layer0_tens", Evidence("ours")), [True, False]),
        (measured("layer1_carry_at_8", Evidence("ours")), [False, True]),
    ):
        assert shown(measurement) == expected
        assert [x > 0.99 for x in values(measurement)] == expected
        assert all(0.5 <= x < 0.7 or x > 0.99 for x in values(measurement))


def test_ten_or_more_may_be_on_the_second_axis_but_not_on_the_third(models, monkeypatch):
    def plant(
        run: int, site: str, ablation: Ablation, a: torch.Tensor, b: torch.Tensor
    ) -> dict[int, torch.Tensor]:
        big = (sums.digits(a, 3) + sums.digits(b, 3) >= 10).float()
        parities = torch.stack([40.0 * (a % 2), 30.0 * (b % 2)][: run + 1], 1)
        return {i: torch.cat([parities, 12 * big[:, i : i + 1]], 1) for i in (1, 2)}

    streaming(monkeypatch, models(MAIN, 2), plant)
    measurement = measured("layer0_tens_either", Evidence("ours"))
    assert shown(measurement) == [True, False]
    assert values(measurement)[0] > 0.99
    assert shown(measured("layer0_tens", Evidence("ours"))) == [False, False]


def test_nine_is_on_the_second_axis_or_on_either(models, monkeypatch):
    def plant(
        run: int, site: str, ablation: Ablation, a: torch.Tensor, b: torch.Tensor
    ) -> dict[int, torch.Tensor]:
        nine = (sums.digits(a, 3) + sums.digits(b, 3) == 9).float()
        parity, size = 40.0 * (a % 2)[:, None], (12, 200)[run]
        return {i: torch.cat([parity, size * nine[:, i : i + 1]], 1) for i in (1, 2)}

    streaming(monkeypatch, models(MAIN, 2), plant)
    measurement = measured("layer0_nine", Evidence("ours"))
    assert shown(measurement) == [True, False]  # in the second run it is on the first axis


def test_a_later_axis_may_tell_a_carry_in(models, monkeypatch):
    def plant(
        run: int, site: str, ablation: Ablation, a: torch.Tensor, b: torch.Tensor
    ) -> dict[int, torch.Tensor]:
        remainders = torch.stack([40.0 * (a % 2), 30.0 * (b % 2), 25.0 * (a % 3 == 0)], 1)
        carry_in = 12 * arriving(a, b)[:, : 2 - run]  # in the second run at 7 alone
        return {7 + i: torch.cat([remainders, x[:, None]], 1) for i, x in enumerate(carry_in.T)}

    streaming(monkeypatch, models(MAIN, 2), plant)
    assert shown(measured("carry_on_some_axis", Evidence("ours"))) == [True, False]
    assert shown(measured("layer1_carry", Evidence("ours"))) == [False, False]


def test_no_leading_axis_of_one_layer_may_tell_a_carry(models, monkeypatch):
    def plant(
        run: int, site: str, ablation: Ablation, a: torch.Tensor, b: torch.Tensor
    ) -> dict[int, torch.Tensor]:
        # there, but not along the leading axis
        second = torch.stack([20.0 * (a % 2), 8 * arriving(a, b)[:, 1]], 1)
        return {8: [second, second[:, 1:]][run]} if site == "blocks.0.resid_post" else {}

    streaming(monkeypatch, models(N1, 2), plant)
    measurement = measured("one_layer_no_carry", Evidence("ours"))
    assert values(measurement)[0] < 0.7
    assert values(measurement)[1] > 0.99
    assert shown(measurement) == [True, False]


def test_pockets_by_outcome_after_the_mlp(models, monkeypatch):
    def plant(
        run: int, site: str, ablation: Ablation, a: torch.Tensor, b: torch.Tensor
    ) -> dict[int, torch.Tensor]:
        label = [sums.digits(a + b, 3), carries.classify(a, b)[:, None].expand(-1, 3)][run]
        if site == "blocks.1.resid_mid":
            return {}
        return {
            7 + i: 40 * torch.stack([torch.cos(label[:, i]), torch.sin(label[:, i])], 1)
            for i in range(2)
        }

    streaming(monkeypatch, models(MAIN, 2), plant)
    measurement = measured("outcome_pockets", Evidence("ours"))
    assert values(measurement)[0] == pytest.approx(1)
    assert values(measurement)[1] < 0.5
    assert shown(measurement) == [True, False]


def test_without_the_decision_head_no_axis_tells_a_carry(models, monkeypatch):
    def plant(
        run: int, site: str, ablation: Ablation, a: torch.Tensor, b: torch.Tensor
    ) -> dict[int, torch.Tensor]:
        assert (site, ablation in (ONE, OTHER)) == ("blocks.1.resid_mid", True)
        knows = {0: ablation == OTHER, 1: True, 2: False, 3: ablation == ONE}[run]
        return {8: 12 * arriving(a, b)[:, 1:2]} if knows else {}

    streaming(monkeypatch, models(MAIN, 4), plant)
    monkeypatch.setattr(measure, "decision_head", lambda model: 0)
    measurement = measured("pca_without_decision_head", Evidence("ours"))
    assert [x > 0.99 for x in values(measurement)] == [False, True, False, True]
    assert shown(measurement) == [True, False, False, False]


def test_a_carry_that_layer_0_knows(models, monkeypatch):
    known_positions = [{7, 8}, {7}, {0, 1}]

    def plant(
        run: int, site: str, ablation: Ablation, a: torch.Tensor, b: torch.Tensor
    ) -> dict[int, torch.Tensor]:
        assert (site, ablation) == ("blocks.0.resid_post", INTACT)
        return {p: 12 * arriving(a, b)[:, p % 7 : p % 7 + 1] for p in known_positions[run]}

    streaming(monkeypatch, models(S01, 3), plant)
    pattern = torch.zeros(2, 2, 10, 10)
    pattern[0, 1, 7, [1, 5]] = 0.3
    monkeypatch.setattr(geometry, "mean_attention", lambda model: pattern)
    measurement = measured("carry_in_layer0", Evidence("ours"))
    assert shown(measurement) == [True, False, False]
    assert values(measurement)[0] > 0.99
    assert all(0.5 <= x < 0.7 for x in values(measurement)[1:])


# ---------------------------------------------------------------- measured elsewhere, judged here


class Known(Transformer):
    """A run of which it is known what is to be measured on it."""

    def __init__(self, answer: Any, layers: int) -> None:
        super().__init__(ModelConfig(layers, d_model=16, d_ff=8))
        self.known = answer


def each_run(monkeypatch: pytest.MonkeyPatch, planted: dict[str, list[Any]]) -> Evidence:
    runs = {
        group: {run: Known(x, GROUPS[group].config.layers) for run, x in enumerate(costs)}
        for group, costs in planted.items()
    }
    monkeypatch.setattr(Evidence, "models", lambda self, group, epoch=None: runs[group])
    monkeypatch.setattr(Evidence, "has", lambda self, group: group in planted)
    return Evidence("ours")


def test_biases_are_needed_by_one_layer_and_not_by_two(monkeypatch):
    monkeypatch.setattr(heads, "bias_cost", lambda model, a, b: model.known)
    deep = registry.ROWS["finding/biases"].groups
    planted = {group: [0.0, 0.02] for group in deep}
    measurement = measured("biases", each_run(monkeypatch, planted))
    assert shown(measurement) == [True, False] * len(deep)
    assert measurement.value == pytest.approx(0.01)
    measurement = measured("biases_one_layer", each_run(monkeypatch, {N1: [0.3, 0.001]}))
    assert shown(measurement) == [True, False]


def test_order_is_lost_where_less_than_half_of_it_is_left(monkeypatch):
    monkeypatch.setattr(geometry, "journey", lambda model, a, b: model)
    monkeypatch.setattr(geometry, "digit_orders", lambda model, carry_out: {"MLP": [model.known]})
    measurement = measured(
        "decay_matters_one_layer",
        each_run(monkeypatch, {N1: [0.8, 0.6, 0.7], base.N1_W0: [0.3, 0.65, 0.34]}),
    )
    assert judged(measurement) == (pytest.approx([0.3, 0.65, 0.34]), [True, False, True])


def test_what_biases_cost_is_counted_without_them():
    """Linear layers' make a model answer 11; without them it answers 22 by a LayerNorm's."""
    model = random_model(ModelConfig(width=2, d_model=16, d_ff=8))
    model.norm.weight.zero_()
    model.norm.bias.fill_(1)
    model.unembed.weight.zero_()[2] = 1
    model.unembed.bias.zero_()[1] = 100
    a = torch.tensor([0, 11, 22, 22])
    assert heads.bias_cost(model, a, torch.zeros_like(a)) == 0.25 - 0.5
    assert model.unembed.bias.any()


def test_the_head_that_carries_has_to_be_the_authors_in_his_release_only(monkeypatch):
    heads = [Ablation(heads={(0, head)}) for head in (0, 1)]
    rest = {"corrected": 0.3, "trained": 0.3, "spared": 0.0}
    runs = [{"head": head, "carried": carried, **rest} for head in heads for carried in (0.8, 0.4)]
    monkeypatch.setattr(lengths, "without_parts", lambda model, a, b: model.known)
    monkeypatch.setattr(lengths, "part_costs", lambda costs, n_long: costs)
    evidence = each_run(monkeypatch, {base.PRIMED: runs})
    measurement = measured("primed_head", evidence)
    assert (values(measurement), shown(measurement)) == (
        [0.8, 0.4, 0.8, 0.4],
        [True, False, True, False],
    )
    measurement = measured("primed_parts", evidence)  # of the same measurement, another field
    assert (values(measurement), shown(measurement)) == ([0.3] * 4, [True] * 4)
    measurement = measured("primed_spared", evidence)
    assert (values(measurement), shown(measurement)) == ([0.0] * 4, [True] * 4)
    his = each_run(monkeypatch, {base.PRIMED: runs})
    his.source = "author"
    assert shown(measured("primed_head", his)) == [True, False, False, False]
