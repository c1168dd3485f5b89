"""The table of all rows: which function measures a row of `data/claims.yml`, and on which runs.

Search for a row's id, such as `finding/staircase`: its entry names the function, the group and, for
a finding, the rule that decides whether a run shows it. The cells of a table share an entry.
"""

import sys
from collections.abc import Mapping
from typing import Any

from carry_core import carries, sums
from carry_core.errors import BadInput
from carry_core.interventions import INTACT
from carry_paper.findings import (
    adder,
    cell_map,
    corner_table,
    dynamics,
    elsewhere,
    geometry,
    heads,
    lengths,
    line_table,
    neurons,
    pentagon,
    run_measures,
    typology,
)
from carry_paper.findings.base import (
    DECODER,
    DECODER_PAD6,
    DFF512,
    DFF1024,
    DIGITS4,
    FINETUNED,
    MAIN,
    N1,
    N1_W0,
    N1_W1,
    N3,
    PAD6,
    PRIMED,
    S01,
    W0,
    Rule,
)
from carry_paper.findings.survey import DRAWN, Need
from carry_paper.ledger import language_models, quantities
from carry_paper.ledger.claims import Claim
from carry_paper.ledger.entries import (
    Among,
    Beside,
    Entry,
    Function,
    finding,
    name_of,
    number,
)
from carry_paper.ledger.quantities import (
    LAST_HEADS,
    MAIN_RUN,
    NO_SKIP,
    S01_RUN,
    SIX_DIGITS,
    SQUASHING,
    THREE_DIGITS,
    dissection,
)
from carry_train.groups import GROUPS

EACH_LAST_HEAD = Need(frozenset(LAST_HEADS))
WITHOUT_SKIPS = Need(frozenset([NO_SKIP]))
UNCHANGED = Need(frozenset([INTACT]))
MAIN_LAYOUT = GROUPS[MAIN].config.layout
OF_SOME_RUNS = Among(heads.wide_mlp, heads.needs_whole_mlp, "cannot take the full ablation")


def squashing(group: str, pos: int, combine: str = "mean") -> Entry:
    """Return the entry of the squashing at an answer position, counted from the left."""
    field = f"at_7_8_9/{pos}"
    return number(group, heads.squashing, field=field, combine=combine, method=SQUASHING)


def six_digits(group: str, epoch: int | None = None) -> Entry:
    """Return the entry of a group's exact match on random six-digit sums."""
    function = quantities.accuracy_on_six_digits
    return number(group, function, epoch=epoch, method=SIX_DIGITS, drawn=DRAWN)


def weight_norm(field: str) -> Entry:
    """Return the entry of a squared norm of finetuned weights, or of its change (App. H.2)."""
    method = "The squared norm of all parameters."
    return number(FINETUNED, lengths.finetuning, field=field, parents=(PAD6,), method=method)


def of_model(key: str, function: Function) -> Entry:
    """Return the entry of a number of the 7B model with this key in `recordings.MODELS`."""
    return Entry(function, model=key)


def statement(field: str, method: str, shows: Rule = typology.decides) -> Entry:
    """Return the entry of a field of `typology.statements`; `method` says what its value is."""
    return finding(MAIN, typology.statements, shows=shows, value=field, method=method)


def swap_by_states(field: str, shows: Rule) -> Entry:
    """Return the entry of a field of `corner_table.swaps`."""
    return finding(MAIN, corner_table.swaps, shows=shows, value=field)


ROWS: dict[str, Entry] = {
    # Tab. 1
    **quantities.table(
        "tab1/decision_head", MAIN, quantities.without_decision_head, EACH_LAST_HEAD
    ),
    **quantities.table("tab1/final_mlp", MAIN, quantities.without_final_mlp),
    "n2/decision_head_spread": number(
        MAIN,
        quantities.without_decision_head,
        EACH_LAST_HEAD,
        field=quantities.UNSURE,
        combine="standard deviation",
        method="Mean over four cells of the standard deviation between runs",
    ),
    # Tab. 2, Sec. 6, App. G
    "tab2/alpaca/accuracy": of_model("alpaca", language_models.accuracy),
    "tab2/llemma/accuracy": of_model("llemma", language_models.accuracy),
    "tab2/zephyr/accuracy": of_model("zephyr", language_models.accuracy),
    "tab2/alpaca/staircase_heads": of_model("alpaca", language_models.staircase_heads),
    "tab2/llemma/staircase_heads": of_model("llemma", language_models.staircase_heads),
    "tab2/zephyr/staircase_heads": of_model("zephyr", language_models.staircase_heads),
    "tab2/alpaca/ablated_accuracy/0": of_model("alpaca", language_models.ablated_accuracy),
    "tab2/llemma/ablated_accuracy/0": of_model("llemma", language_models.ablated_accuracy),
    "tab2/zephyr/ablated_accuracy/0": of_model("zephyr", language_models.ablated_accuracy),
    "tab2/zephyr/ablated_accuracy/1": of_model(
        "zephyr", language_models.ablated_accuracy_of_second_pair
    ),
    "tab2/alpaca/addition_heads": of_model("alpaca", language_models.addition_heads),
    "tab2/llemma/addition_heads": of_model("llemma", language_models.addition_heads),
    "tab2/zephyr/addition_heads": of_model("zephyr", language_models.addition_heads),
    "llm/llemma/carry_mistakes": of_model("llemma", language_models.carry_mistakes),
    "llm/zephyr/carry_mistakes": of_model("zephyr", language_models.carry_mistakes),
    "llm/alpaca/first_position_accuracy": of_model(
        "alpaca", language_models.first_position_accuracy
    ),
    # Tab. 3, 4, 5
    **quantities.table("tab3/final_mlp", N3, quantities.without_final_mlp),
    **quantities.dissected_table("tab4/dissected", DFF512),
    **quantities.table("tab5/final_mlp", DECODER, quantities.without_final_mlp),
    **quantities.dissected_table("tab5/dissected", DECODER),
    # Sec. 2: the sums
    "data/sums3": Entry(constant=sums.n_sums(3)),
    "data/sums4": Entry(constant=sums.n_sums(4)),
    "data/vocabulary": Entry(constant=sums.VOCABULARY),
    "data/sequence_length3": Entry(constant=MAIN_LAYOUT.length),
    "data/classes3": Entry(constant=len(carries.patterns(3))),
    "data/classes4": Entry(constant=len(carries.patterns(4))),
    "data/classes6": Entry(constant=len(carries.patterns(6))),
    "data/train3": Entry(constant=GROUPS[MAIN].n_train),
    # Sec. 4 and 5: two layers
    "n2/accuracy": number(MAIN, quantities.exact_match, UNCHANGED, drawn=DRAWN),
    "n2/no_skip_accuracy": number(
        MAIN, quantities.exact_match_without_skips, WITHOUT_SKIPS, drawn=DRAWN
    ),
    "n2/squashing/pos7": squashing(MAIN, 0),
    "n2/squashing/pos8": squashing(MAIN, 1),
    "n2/squashing/pos9": squashing(MAIN, 2),
    "n2/no_skip_spread": number(
        MAIN, quantities.exact_match_without_skips, WITHOUT_SKIPS, combine="standard deviation"
    ),
    "n2/squashing_spread/pos7": squashing(MAIN, 0, combine="standard deviation"),
    "n2/squashing_spread/pos8": squashing(MAIN, 1, combine="standard deviation"),
    "n2/squashing_spread/pos9": squashing(MAIN, 2, combine="standard deviation"),
    "n2/dissection/neurons": dissection(MAIN, shown_run=MAIN_RUN),
    "n2/dissection/carry_accuracy": dissection(MAIN, "carry_accuracy", shown_run=MAIN_RUN),
    "n2/dissection/carry_corrected": dissection(MAIN, "carry_corrected", shown_run=MAIN_RUN),
    "n2/dissection/non_carry_accuracy": dissection(MAIN, "no_carry_accuracy", shown_run=MAIN_RUN),
    "n2/evolution/final_pcc": number(
        MAIN,
        heads.final_mlp_carries,
        combine="median",
        method="The median, since the paper does not name its run.",
    ),
    # App. C.2, C.4: other fractions, decays and widths; three layers
    "n2_w0/accuracy": number(W0, quantities.exact_match, UNCHANGED, drawn=DRAWN),
    "n2_w0/runs_full_mlp_ablation_works": number(
        W0,
        quantities.cells_without_final_mlp,
        combine="count",
        rule=heads.full_ablation_works,
        method="How many runs only fail to carry without the final MLP.",
    ),
    "n2_s01/accuracy": number(S01, quantities.exact_match, UNCHANGED, drawn=DRAWN),
    "n2_s01/dissection/neurons": dissection(S01, shown_run=S01_RUN, among=OF_SOME_RUNS),
    "n2_s01/dissection/carry_accuracy": dissection(
        S01, "carry_accuracy", shown_run=S01_RUN, among=OF_SOME_RUNS
    ),
    "n2_s01/dissection/carry_corrected": dissection(
        S01, "carry_corrected", shown_run=S01_RUN, among=OF_SOME_RUNS
    ),
    "n2_s01/dissection/non_carry_accuracy": dissection(
        S01, "no_carry_accuracy", shown_run=S01_RUN, among=OF_SOME_RUNS
    ),
    "n2_dff512/dissection/neurons": dissection(DFF512, shown_run=0),
    "n2_dff1024/dissection/neurons": dissection(DFF1024),
    "n3/accuracy": number(N3, quantities.exact_match, UNCHANGED, drawn=DRAWN),
    # App. D: the decoder
    "decoder/dissection/neurons": dissection(DECODER, shown_run=0),
    "decoder/ablate_head_1_0/carry_accuracy": number(
        DECODER,
        quantities.carry_accuracy_without_other_head,
        EACH_LAST_HEAD,
        shown_run=0,
        method="Mean of the six cells with a carry, without the head that is not the decision"
        " head.",
    ),
    # App. F: four digits
    "digits4/accuracy": number(DIGITS4, quantities.exact_match, UNCHANGED, drawn=DRAWN),
    "digits4/final_mlp/carry_accuracy": number(
        DIGITS4, quantities.carry_cells_without_final_mlp, field="accuracy", drawn=DRAWN
    ),
    "digits4/final_mlp/carry_corrected": number(
        DIGITS4, quantities.carry_cells_without_final_mlp, field="corrected", drawn=DRAWN
    ),
    "digits4/dissection/neurons": dissection(DIGITS4, shown_run=0),
    "digits4/squashing/pos0": squashing(DIGITS4, 0),
    "digits4/squashing/pos1": squashing(DIGITS4, 1),
    "digits4/squashing/pos2": squashing(DIGITS4, 2),
    "digits4/squashing/pos3": squashing(DIGITS4, 3),
    # App. H: six digits
    "pad6/accuracy_range": number(
        PAD6, lengths.best_on_longer_sums, combine="range", method=lengths.BEST_UNTIL
    ),
    "pad6/accuracy_epoch500": six_digits(PAD6, epoch=500),
    "pad6/accuracy_epoch1000": six_digits(PAD6, epoch=1000),
    "pad6_primed/accuracy": six_digits(PRIMED),
    "pad6_primed/fraction": Entry(constant=quantities.primed_share(PRIMED)),
    "pad6_finetuned/accuracy6": six_digits(FINETUNED),
    "pad6_finetuned/accuracy3": number(
        FINETUNED, quantities.accuracy_on_three_digits, method=THREE_DIGITS, drawn=DRAWN
    ),
    "pad6_finetuned/weight_norm_before": weight_norm("norm_before"),
    "pad6_finetuned/weight_norm_after": weight_norm("norm_after"),
    "pad6_finetuned/weight_norm_change": weight_norm("change_of_squared_norm"),
    "decoder_pad6_primed/accuracy6": six_digits(DECODER_PAD6),
    # Sec. 3: one layer
    "finding/transition": finding(N1, dynamics.transition, shows=dynamics.changes_together),
    "finding/heads_separately": finding(
        N1, dynamics.heads_change_apart, shows=dynamics.change_separately
    ),
    "finding/norm_bounce": finding(N1, dynamics.norm_bounce, shows=dynamics.norm_bounces),
    "finding/one_layer_imperfect": finding(
        N1, dynamics.one_layer_imperfect, shows=dynamics.is_imperfect
    ),
    # Sec. 4: two layers
    "finding/staircase": finding(MAIN, heads.staircase, shows=heads.has_staircase),
    "finding/decision_head": finding(
        MAIN, heads.decision, shows=heads.matters_more, ablate=LAST_HEADS
    ),
    "finding/decision_head_carries": finding(
        MAIN, heads.decision, shows=heads.carries_stay, value="lowest_carry_cell", ablate=LAST_HEADS
    ),
    "finding/decision_head_adds": finding(
        MAIN,
        heads.decision,
        shows=heads.carries_are_added,
        value="lowest_right_or_too_large",
        ablate=LAST_HEADS,
    ),
    "finding/previous_sum": finding(
        MAIN, heads.previous_sum, shows=heads.previous_sum_comes, shown_run=MAIN_RUN
    ),
    "finding/own_sum": finding(
        MAIN, typology.own_sum, shows=typology.others_bring_own_sum, shown_run=MAIN_RUN
    ),
    "finding/final_mlp_carries": finding(MAIN, heads.final_mlp_carries, shows=heads.cannot_carry),
    "finding/joint_ablation": finding(
        MAIN,
        heads.joint_ablation,
        shows=heads.adds_without_carrying,
        ablate=[*LAST_HEADS, *map(heads.with_final_mlp, LAST_HEADS)],
    ),
    "finding/layer0_tens": finding(
        MAIN, geometry.layer0_tens, shows=geometry.leads, shown_run=MAIN_RUN
    ),
    "finding/layer0_tens_either": finding(
        MAIN, geometry.layer0_tens_either, shows=geometry.separates
    ),
    "finding/layer0_nine": finding(
        MAIN, geometry.layer0_nine, shows=geometry.separates, shown_run=MAIN_RUN
    ),
    "finding/layer1_carry": finding(
        MAIN, geometry.layer1_carry, shows=geometry.carry_leads_at_7, value="axis_1_at_7"
    ),
    "finding/layer1_carry_at_8": finding(
        MAIN, geometry.layer1_carry, shows=geometry.carry_leads_at_8, value="axis_1_at_8"
    ),
    "finding/carry_on_some_axis": finding(
        MAIN, geometry.carry_on_some_axis, shows=geometry.separates
    ),
    "finding/outcome_pockets": finding(
        MAIN, geometry.outcome_pockets, shows=geometry.pockets_are_outcomes
    ),
    "finding/pca_without_decision_head": finding(
        MAIN,
        geometry.pca_without_decision_head,
        shows=geometry.only_the_other_head_leaves_it,
        shown_run=MAIN_RUN,
    ),
    "finding/squashing": finding(MAIN, heads.squashing, shows=heads.squashes),
    # Sec. 5: the final MLP
    "finding/carry_axis": finding(MAIN, neurons.carry_axis, shows=neurons.has_carry_axis),
    "finding/checkerboard": finding(MAIN, neurons.checkerboard, shows=neurons.gap_opens),
    "finding/kink": finding(MAIN, dynamics.kink, shows=dynamics.starts_at_the_kink),
    # App. A.1
    "finding/biases": finding(
        [MAIN, S01, W0, DFF512, DFF1024, N3, DIGITS4], heads.biases, shows=heads.spares_biases
    ),
    "finding/biases_one_layer": finding(N1, heads.biases, shows=heads.needs_biases),
    # App. B
    "finding/one_layer_no_carry": finding(
        N1, geometry.one_layer_no_carry, shows=geometry.separates_nowhere
    ),
    "finding/decay_matters_one_layer": finding(
        N1_W0,
        geometry.order_of_digits,
        shows=geometry.order_is_lost,
        beside=Beside(N1, "runs_with_decay"),
    ),
    # App. C
    "finding/strong_decay_transition": finding(
        N1_W1, dynamics.strong_decay_transition, shows=dynamics.changes_with_a_head
    ),
    "finding/loss_increases": finding(
        N1_W0,
        dynamics.rise_of_the_loss,
        shows=dynamics.rises_more_than_with_decay,
        beside=Beside(N1, "runs_with_decay"),
    ),
    "finding/weights_not_saturated": finding(
        S01,
        dynamics.change_of_the_norm,
        shows=dynamics.still_changes,
        beside=Beside(MAIN, "runs_at_s_0.3"),
    ),
    "finding/too_much_without_mlp": finding(S01, heads.wide_mlp, shows=heads.needs_whole_mlp),
    "finding/dissection_without_decay": finding(
        W0, heads.wide_mlp_neurons, shows=heads.full_ablation_works, dissect=True
    ),
    "finding/no_grokking": finding(
        list(GROUPS), dynamics.no_grokking, shows=dynamics.learns_at_once
    ),
    "finding/carry_in_layer0": finding(S01, geometry.carry_in_layer0, shows=geometry.separates),
    "finding/wide_mlp": finding(DFF1024, heads.wide_mlp, shows=heads.needs_whole_mlp),
    "finding/wide_mlp_neurons": finding(
        DFF1024, heads.wide_mlp_neurons, shows=heads.only_the_neurons_carry, dissect=True
    ),
    "finding/carry_axis_dff512": finding(DFF512, neurons.carry_axis, shows=neurons.has_carry_axis),
    "finding/three_layers": finding(N3, heads.three_layers, shows=heads.loses_carries),
    "finding/three_layers_off_by_one": finding(
        N3, heads.correct_or_off_by_one, shows=heads.is_correct_or_off_by_one
    ),
    "finding/three_layers_heads": finding(
        N3,
        heads.three_layers_heads,
        shows=heads.no_head_matters,
        ablate=[INTACT, *heads.HEADS_OF_LAST_TWO_LAYERS],
    ),
    "finding/three_layers_pairs": finding(
        N3,
        heads.three_layers_pairs,
        shows=heads.a_pair_decides,
        ablate=[INTACT, *heads.LAYER_1_AND_A_LAST_HEAD],
    ),
    # App. D: the decoder
    "finding/decoder": finding(DECODER, heads.decoder, shows=heads.adds_carries, ablate=LAST_HEADS),
    "finding/decoder_algorithm": finding(
        DECODER, typology.decoder_algorithm, shows=typology.decides
    ),
    "finding/decoder_mlp": finding(DECODER, heads.final_mlp_carries, shows=heads.cannot_carry),
    "finding/decoder_staircase": finding(DECODER, heads.staircase, shows=heads.has_staircase),
    "finding/decoder_previous_sum": finding(
        DECODER, heads.previous_sum, shows=heads.previous_sum_comes
    ),
    "finding/decoder_current_sum": finding(
        DECODER, heads.own_column, shows=heads.other_head_attends_to_own_column
    ),
    "finding/decoder_tens": finding(DECODER, geometry.decoder_tens, shows=geometry.separates),
    # App. E
    "finding/pentagon": finding(MAIN, pentagon.pentagon, shows=pentagon.can_be_seen),
    # App. F: four digits
    "finding/four_digits": finding(
        DIGITS4, lengths.four_digits, shows=lengths.works_the_same_way, ablate=LAST_HEADS
    ),
    "finding/four_digits_previous_sum": finding(
        DIGITS4, heads.previous_sum, shows=heads.previous_sum_comes
    ),
    "finding/four_digits_by_class": finding(
        DIGITS4, heads.previous_sum_by_class, shows=heads.attends_where_carries_come_from
    ),
    "finding/four_digits_first_layer": finding(
        DIGITS4, heads.first_layer_overlap, shows=heads.heads_are_similar
    ),
    # Sec. 6, App. H: six digits
    "finding/length": finding(PAD6, lengths.length, shows=lengths.forgets_unless_primed),
    "finding/length_primed": finding(PRIMED, lengths.length, shows=lengths.forgets_unless_primed),
    "finding/unprimed_staircase": finding(
        PAD6, heads.layer_staircases, shows=heads.has_staircase, epoch=500
    ),
    "finding/unprimed_previous_sum": finding(
        PAD6, lengths.previous_sums, shows=lengths.last_layer_brings_previous_sum, epoch=500
    ),
    "finding/unprimed_first_layer": finding(
        PAD6,
        lengths.previous_sums,
        shows=lengths.first_layer_brings_previous_sum,
        value="layer_0",
        epoch=500,
    ),
    "finding/unprimed_steps": finding(
        PAD6, lengths.unprimed_steps, shows=lengths.separates_where_trained
    ),
    "finding/mlp_2500": finding(PAD6, lengths.mlp_2500, shows=lengths.comes_to_carry),
    "finding/primed_staircase": finding(PRIMED, heads.layer_staircases, shows=heads.has_staircase),
    "finding/primed_previous_sum": finding(
        PRIMED, lengths.previous_sums, shows=lengths.last_layer_brings_previous_sum
    ),
    "finding/primed_first_layer": finding(
        PRIMED,
        lengths.previous_sums,
        shows=lengths.first_layer_brings_most,
        value="layer_0_exceeds_last_by",
    ),
    "finding/finetuned_previous_sum": finding(
        FINETUNED, lengths.previous_sums, shows=lengths.last_layer_brings_previous_sum
    ),
    "finding/finetuned_first_layer": finding(
        FINETUNED,
        lengths.previous_sums,
        shows=lengths.first_layer_brings_previous_sum,
        value="layer_0",
    ),
    "finding/primed_parts": finding(
        PRIMED,
        lengths.primed_parts,
        shows=lengths.mlp_corrects,
        value="no_carry_cells_lose_without_the_final_MLP",
    ),
    "finding/primed_head": finding(PRIMED, lengths.primed_parts, shows=lengths.head_carries),
    "finding/primed_spared": finding(
        PRIMED,
        lengths.primed_parts,
        shows=lengths.mlp_spares_long_carries,
        value="long_carry_cells_lose",
    ),
    "finding/carry_axis_long": finding(
        PRIMED, lengths.carry_axis_long, shows=neurons.has_carry_axis
    ),
    "finding/carry_axis_finetuned": finding(
        FINETUNED, lengths.carry_axis_long, shows=neurons.has_carry_axis
    ),
    "finding/unpadded_fail": finding(MAIN, lengths.unpadded_fail, shows=lengths.fails_at_length),
    "finding/finetune_small_change": finding(
        FINETUNED, lengths.finetuning, shows=lengths.barely_moves, parents=(PAD6,)
    ),
    # Sec. 6: language models
    "finding/llm_heads": finding(
        (), language_models.llm_heads, shows=language_models.below_random_pairs, combine="lowest"
    ),
    # App. I
    "finding/full_adder": finding(
        MAIN, adder.full_adder, shows=adder.first_layer_adds, value="first_layer"
    ),
    "finding/full_adder_carry": finding(
        MAIN, adder.full_adder, shows=adder.attention_is_the_carry_line, value="carry"
    ),
    "finding/full_adder_xor": finding(
        MAIN, adder.full_adder, shows=adder.mlp_is_the_second_xor, value="bypassed"
    ),
    # Controls, by the paper's own method
    "beyond/dissection_control": finding(
        MAIN, heads.dissection_control, shows=heads.only_carry_neurons_matter, dissect=True
    ),
    "beyond/dissection_control_dff512": finding(
        DFF512, heads.dissection_control, shows=heads.only_carry_neurons_matter, dissect=True
    ),
    # A control for Tab. 2
    "beyond/llm_control": finding(
        (),
        language_models.staircases_without_addition,
        shows=language_models.is_below_models_that_add,
    ),
    "beyond/llm_control_random": finding(
        (),
        language_models.staircases_of_random_weights,
        shows=language_models.is_below_models_that_add,
    ),
    # The abstract
    "finding/range": finding((), cell_map.settings, shows=cell_map.holds),
    "finding/elsewhere_attention": finding(
        elsewhere.HYPERPARAMETERS, elsewhere.last_attention, shows=typology.decides
    ),
    "finding/elsewhere_mlp": finding(
        elsewhere.HYPERPARAMETERS, elsewhere.final_mlp, shows=heads.cannot_carry
    ),
    # App. A.1
    "beyond/biases_decoder": finding(DECODER, heads.biases, shows=heads.needs_biases),
    # The carry line, and who writes it
    "beyond/one_line": finding(MAIN, corner_table.line, shows=corner_table.moves_in_each_state),
    "beyond/line_and_nine": swap_by_states("plane", corner_table.moves_in_each_state),
    "beyond/explained": swap_by_states("explained", corner_table.explains),
    "beyond/written_late": finding(
        MAIN, line_table.written_late, shows=line_table.last_attention_writes
    ),
    # The paper's statements in the terms of interchange
    "beyond/final_mlp": statement("final_mlp", "Interchange accuracy of the final MLP."),
    "beyond/mlp_adds_only": statement(
        "mlp_adds_only", "Share of swaps of the final MLP that move the carry alone."
    ),
    "beyond/zero_names_it": statement(
        "costliest_moves_most", "1 in a run where it is so.", shows=typology.is_the_same_head
    ),
    "beyond/carry_neurons": statement("carry_neurons", "Their interchange accuracy."),
    "beyond/adder_digit_sum": statement(
        "adder_digit_sum", "Share of answers that are the full adder's with its digit sums set."
    ),
    "beyond/adder_digit_sum_at_digits": statement(
        "adder_digit_sum_at_digits", "The same, with its digit sums set at the digits alone."
    ),
    "beyond/adder_carry_in": statement(
        "adder_carry_in", "Share of answers that are the full adder's with its carry-ins set."
    ),
    "beyond/adder_all": statement(
        "adder_all", "Share of answers that are the full adder's with its variables set."
    ),
}


# Quantities that no claim is about, by the names under which `carry measure --only` finds them.
UNCLAIMED: dict[str, Entry] = {
    name_of(function): Entry(function, (MAIN,))
    for function in (
        run_measures.in_short,
        run_measures.deciding_parts,
        run_measures.epoch_of_learning,
        run_measures.on_the_way,
    )
}


def constants(name: str) -> Mapping[str, Any]:
    """Return the constants of the module that has a row's function, by name."""
    function = entry(name).function
    return vars(sys.modules[function.__module__]) if function is not None else {}


def reason(claim: Claim) -> str:
    """Return the reason for a claim's rule, with the criteria that it names in braces filled in.

    The names are constants of the module that has the claim's function.

    Raises:
        BadInput: There is no such constant.
    """
    try:
        return claim.reason.format_map(constants(claim.id))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise BadInput(
            f"The reason of {claim.id} in claims.yml cannot be filled in ({error!r}): expected "
            "constants of the module of its function in braces, such as {PARTNER_ATTENTION}."
        ) from error


def entry(name: str) -> Entry:
    """Return the entry that measures a row; raise `BadInput` if there is none."""
    if name not in ROWS:
        raise BadInput(f"Nothing measures {name!r} of claims.yml: expected a row of {__name__}.")
    return ROWS[name]
