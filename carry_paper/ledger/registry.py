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


def statement(field: str, method: str, shows: Rule = typology.decides) -> Entry:
    """Return the entry of a field of `typology.statements`; `method` says what its value is."""
    return finding(MAIN, typology.statements, shows, value=field, method=method)


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
    "tab2/alpaca/accuracy": Entry(language_models.accuracy, model="alpaca"),
    "tab2/llemma/accuracy": Entry(language_models.accuracy, model="llemma"),
    "tab2/zephyr/accuracy": Entry(language_models.accuracy, model="zephyr"),
    "tab2/alpaca/staircase_heads": Entry(language_models.staircase_heads, model="alpaca"),
    "tab2/llemma/staircase_heads": Entry(language_models.staircase_heads, model="llemma"),
    "tab2/zephyr/staircase_heads": Entry(language_models.staircase_heads, model="zephyr"),
    "tab2/alpaca/ablated_accuracy/0": Entry(language_models.ablated_accuracy, model="alpaca"),
    "tab2/llemma/ablated_accuracy/0": Entry(language_models.ablated_accuracy, model="llemma"),
    "tab2/zephyr/ablated_accuracy/0": Entry(language_models.ablated_accuracy, model="zephyr"),
    "tab2/zephyr/ablated_accuracy/1": Entry(
        language_models.ablated_accuracy_of_second_pair, model="zephyr"
    ),
    "tab2/alpaca/addition_heads": Entry(language_models.addition_heads, model="alpaca"),
    "tab2/llemma/addition_heads": Entry(language_models.addition_heads, model="llemma"),
    "tab2/zephyr/addition_heads": Entry(language_models.addition_heads, model="zephyr"),
    "llm/llemma/carry_mistakes": Entry(language_models.carry_mistakes, model="llemma"),
    "llm/zephyr/carry_mistakes": Entry(language_models.carry_mistakes, model="zephyr"),
    "llm/alpaca/first_position_accuracy": Entry(
        language_models.first_position_accuracy, model="alpaca"
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
    "finding/transition": finding(N1, dynamics.transition, dynamics.changes_together),
    "finding/heads_separately": finding(
        N1, dynamics.heads_change_apart, dynamics.change_separately
    ),
    "finding/norm_bounce": finding(N1, dynamics.norm_bounce, dynamics.norm_bounces),
    "finding/one_layer_imperfect": finding(N1, dynamics.one_layer_imperfect, dynamics.is_imperfect),
    # Sec. 4: two layers
    "finding/staircase": finding(MAIN, heads.staircase, heads.has_staircase),
    "finding/decision_head": finding(MAIN, heads.decision, heads.matters_more, ablate=LAST_HEADS),
    "finding/decision_head_carries": finding(
        MAIN, heads.decision, heads.carries_stay, value="lowest_carry_cell", ablate=LAST_HEADS
    ),
    "finding/decision_head_adds": finding(
        MAIN,
        heads.decision,
        heads.carries_are_added,
        value="lowest_right_or_too_large",
        ablate=LAST_HEADS,
    ),
    "finding/previous_sum": finding(
        MAIN, heads.previous_sum, heads.previous_sum_comes, shown_run=MAIN_RUN
    ),
    "finding/own_sum": finding(
        MAIN, typology.own_sum, typology.others_bring_own_sum, shown_run=MAIN_RUN
    ),
    "finding/final_mlp_carries": finding(MAIN, heads.final_mlp_carries, heads.cannot_carry),
    "finding/joint_ablation": finding(
        MAIN,
        heads.joint_ablation,
        heads.adds_without_carrying,
        ablate=[*LAST_HEADS, *map(heads.with_final_mlp, LAST_HEADS)],
    ),
    "finding/layer0_tens": finding(MAIN, geometry.layer0_tens, geometry.leads, shown_run=MAIN_RUN),
    "finding/layer0_tens_either": finding(MAIN, geometry.layer0_tens_either, geometry.separates),
    "finding/layer0_nine": finding(
        MAIN, geometry.layer0_nine, geometry.separates, shown_run=MAIN_RUN
    ),
    "finding/layer1_carry": finding(
        MAIN, geometry.layer1_carry, geometry.carry_leads_at_7, value="axis_1_at_7"
    ),
    "finding/layer1_carry_at_8": finding(
        MAIN, geometry.layer1_carry, geometry.carry_leads_at_8, value="axis_1_at_8"
    ),
    "finding/carry_on_some_axis": finding(MAIN, geometry.carry_on_some_axis, geometry.separates),
    "finding/outcome_pockets": finding(
        MAIN, geometry.outcome_pockets, geometry.pockets_are_outcomes
    ),
    "finding/pca_without_decision_head": finding(
        MAIN,
        geometry.pca_without_decision_head,
        geometry.only_the_other_head_leaves_it,
        shown_run=MAIN_RUN,
    ),
    "finding/squashing": finding(MAIN, heads.squashing, heads.squashes),
    # Sec. 5: the final MLP
    "finding/carry_axis": finding(MAIN, neurons.carry_axis, neurons.has_carry_axis),
    "finding/checkerboard": finding(MAIN, neurons.checkerboard, neurons.gap_opens),
    "finding/kink": finding(MAIN, dynamics.kink, dynamics.starts_at_the_kink),
    # App. A.1
    "finding/biases": finding(
        [MAIN, S01, W0, DFF512, DFF1024, N3, DIGITS4], heads.biases, heads.spares_biases
    ),
    "finding/biases_one_layer": finding(N1, heads.biases, heads.needs_biases),
    # App. B
    "finding/one_layer_no_carry": finding(
        N1, geometry.one_layer_no_carry, geometry.separates_nowhere
    ),
    "finding/decay_matters_one_layer": finding(
        N1_W0,
        geometry.order_of_digits,
        geometry.order_is_lost,
        beside=Beside(N1, "runs_with_decay"),
    ),
    # App. C
    "finding/strong_decay_transition": finding(
        N1_W1, dynamics.strong_decay_transition, dynamics.changes_with_a_head
    ),
    "finding/loss_increases": finding(
        N1_W0,
        dynamics.rise_of_the_loss,
        dynamics.rises_more_than_with_decay,
        beside=Beside(N1, "runs_with_decay"),
    ),
    "finding/weights_not_saturated": finding(
        S01,
        dynamics.change_of_the_norm,
        dynamics.still_changes,
        beside=Beside(MAIN, "runs_at_s_0.3"),
    ),
    "finding/too_much_without_mlp": finding(S01, heads.wide_mlp, heads.needs_whole_mlp),
    "finding/dissection_without_decay": finding(
        W0, heads.wide_mlp_neurons, heads.full_ablation_works, dissect=True
    ),
    "finding/no_grokking": finding(list(GROUPS), dynamics.no_grokking, dynamics.learns_at_once),
    "finding/carry_in_layer0": finding(S01, geometry.carry_in_layer0, geometry.separates),
    "finding/wide_mlp": finding(DFF1024, heads.wide_mlp, heads.needs_whole_mlp),
    "finding/wide_mlp_neurons": finding(
        DFF1024, heads.wide_mlp_neurons, heads.only_the_neurons_carry, dissect=True
    ),
    "finding/carry_axis_dff512": finding(DFF512, neurons.carry_axis, neurons.has_carry_axis),
    "finding/three_layers": finding(N3, heads.three_layers, heads.loses_carries),
    "finding/three_layers_off_by_one": finding(
        N3, heads.correct_or_off_by_one, heads.is_correct_or_off_by_one
    ),
    "finding/three_layers_heads": finding(
        N3,
        heads.three_layers_heads,
        heads.no_head_matters,
        ablate=[INTACT, *heads.HEADS_OF_LAST_TWO_LAYERS],
    ),
    "finding/three_layers_pairs": finding(
        N3,
        heads.three_layers_pairs,
        heads.a_pair_decides,
        ablate=[INTACT, *heads.LAYER_1_AND_A_LAST_HEAD],
    ),
    # App. D: the decoder
    "finding/decoder": finding(DECODER, heads.decoder, heads.adds_carries, ablate=LAST_HEADS),
    "finding/decoder_algorithm": finding(DECODER, typology.decoder_algorithm, typology.decides),
    "finding/decoder_mlp": finding(DECODER, heads.final_mlp_carries, heads.cannot_carry),
    "finding/decoder_staircase": finding(DECODER, heads.staircase, heads.has_staircase),
    "finding/decoder_previous_sum": finding(DECODER, heads.previous_sum, heads.previous_sum_comes),
    "finding/decoder_current_sum": finding(
        DECODER, heads.own_column, heads.other_head_attends_to_own_column
    ),
    "finding/decoder_tens": finding(DECODER, geometry.decoder_tens, geometry.separates),
    # App. E
    "finding/pentagon": finding(MAIN, pentagon.pentagon, pentagon.can_be_seen),
    # App. F: four digits
    "finding/four_digits": finding(
        DIGITS4, lengths.four_digits, lengths.works_the_same_way, ablate=LAST_HEADS
    ),
    "finding/four_digits_previous_sum": finding(
        DIGITS4, heads.previous_sum, heads.previous_sum_comes
    ),
    "finding/four_digits_by_class": finding(
        DIGITS4, heads.previous_sum_by_class, heads.attends_where_carries_come_from
    ),
    "finding/four_digits_first_layer": finding(
        DIGITS4, heads.first_layer_overlap, heads.heads_are_similar
    ),
    # Sec. 6, App. H: six digits
    "finding/length": finding(PAD6, lengths.length, lengths.forgets_unless_primed),
    "finding/length_primed": finding(PRIMED, lengths.length, lengths.forgets_unless_primed),
    "finding/unprimed_staircase": finding(
        PAD6, heads.layer_staircases, heads.has_staircase, epoch=500
    ),
    "finding/unprimed_previous_sum": finding(
        PAD6, lengths.previous_sums, lengths.last_layer_brings_previous_sum, epoch=500
    ),
    "finding/unprimed_first_layer": finding(
        PAD6,
        lengths.previous_sums,
        lengths.first_layer_brings_previous_sum,
        value="layer_0",
        epoch=500,
    ),
    "finding/unprimed_steps": finding(
        PAD6, lengths.unprimed_steps, lengths.separates_where_trained
    ),
    "finding/mlp_2500": finding(PAD6, lengths.mlp_2500, lengths.comes_to_carry),
    "finding/primed_staircase": finding(PRIMED, heads.layer_staircases, heads.has_staircase),
    "finding/primed_previous_sum": finding(
        PRIMED, lengths.previous_sums, lengths.last_layer_brings_previous_sum
    ),
    "finding/primed_first_layer": finding(
        PRIMED,
        lengths.previous_sums,
        lengths.first_layer_brings_most,
        value="layer_0_exceeds_last_by",
    ),
    "finding/finetuned_previous_sum": finding(
        FINETUNED, lengths.previous_sums, lengths.last_layer_brings_previous_sum
    ),
    "finding/finetuned_first_layer": finding(
        FINETUNED, lengths.previous_sums, lengths.first_layer_brings_previous_sum, value="layer_0"
    ),
    "finding/primed_parts": finding(
        PRIMED,
        lengths.primed_parts,
        lengths.mlp_corrects,
        value="no_carry_cells_lose_without_the_final_MLP",
    ),
    "finding/primed_head": finding(PRIMED, lengths.primed_parts, lengths.head_carries),
    "finding/primed_spared": finding(
        PRIMED, lengths.primed_parts, lengths.mlp_spares_long_carries, value="long_carry_cells_lose"
    ),
    "finding/carry_axis_long": finding(PRIMED, lengths.carry_axis_long, neurons.has_carry_axis),
    "finding/carry_axis_finetuned": finding(
        FINETUNED, lengths.carry_axis_long, neurons.has_carry_axis
    ),
    "finding/unpadded_fail": finding(MAIN, lengths.unpadded_fail, lengths.fails_at_length),
    "finding/finetune_small_change": finding(
        FINETUNED, lengths.finetuning, lengths.barely_moves, parents=(PAD6,)
    ),
    # Sec. 6: language models
    "finding/llm_heads": finding(
        (), language_models.llm_heads, language_models.below_random_pairs, combine="lowest"
    ),
    # App. I
    "finding/full_adder": finding(
        MAIN, adder.full_adder, adder.first_layer_adds, value="first_layer"
    ),
    "finding/full_adder_carry": finding(
        MAIN, adder.full_adder, adder.attention_is_the_carry_line, value="carry"
    ),
    "finding/full_adder_xor": finding(
        MAIN, adder.full_adder, adder.mlp_is_the_second_xor, value="bypassed"
    ),
    # Controls, by the paper's own method
    "beyond/dissection_control": finding(
        MAIN, heads.dissection_control, heads.only_carry_neurons_matter, dissect=True
    ),
    "beyond/dissection_control_dff512": finding(
        DFF512, heads.dissection_control, heads.only_carry_neurons_matter, dissect=True
    ),
    # A control for Tab. 2
    "beyond/llm_control": finding(
        (), language_models.staircases_without_addition, language_models.is_below_models_that_add
    ),
    "beyond/llm_control_random": finding(
        (), language_models.staircases_of_random_weights, language_models.is_below_models_that_add
    ),
    # The abstract
    "finding/range": finding((), cell_map.settings, cell_map.holds),
    "finding/elsewhere_attention": finding(
        elsewhere.HYPERPARAMETERS, elsewhere.last_attention, typology.decides
    ),
    "finding/elsewhere_mlp": finding(
        elsewhere.HYPERPARAMETERS, elsewhere.final_mlp, heads.cannot_carry
    ),
    # App. A.1
    "beyond/biases_decoder": finding(DECODER, heads.biases, heads.needs_biases),
    # The carry line, and who writes it
    "beyond/one_line": finding(MAIN, corner_table.line, corner_table.moves_in_each_state),
    "beyond/line_and_nine": finding(
        MAIN, corner_table.swaps, corner_table.moves_in_each_state, value="plane"
    ),
    "beyond/explained": finding(MAIN, corner_table.swaps, corner_table.explains, value="explained"),
    "beyond/written_late": finding(MAIN, line_table.written_late, line_table.last_attention_writes),
    # The paper's statements in the terms of interchange
    "beyond/final_mlp": statement("final_mlp", "Interchange accuracy of the final MLP."),
    "beyond/mlp_adds_only": statement(
        "mlp_adds_only", "Share of swaps of the final MLP that move the carry alone."
    ),
    "beyond/zero_names_it": statement(
        "costliest_moves_most", "1 in a run where it is so.", typology.is_the_same_head
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
