"""The table of all rows: which function measures a row of `data/claims.yml`, and on which runs.

Search for a row's id, such as `finding/staircase`: its entry names the function, the group and, for
a finding, the rule that decides whether a run shows it. The cells of a table share an entry.
"""

import sys
from functools import partial
from statistics import median

from carry_core import carries, measure, sums
from carry_core.errors import BadInput
from carry_core.interventions import INTACT
from carry_paper.findings import (
    adder,
    dynamics,
    elsewhere,
    geometry,
    heads,
    lengths,
    line_table,
    neurons,
    pentagon,
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
from carry_paper.findings.survey import Need
from carry_paper.ledger import language_models, quantities, tables
from carry_paper.ledger.claims import Claim
from carry_paper.ledger.entries import (
    Entry,
    Statistic,
    computed,
    constant,
    number,
    number_on_models,
    on_column,
    on_evidence,
    on_models,
    on_surveys,
)
from carry_paper.ledger.language_models import on_language_model
from carry_paper.ledger.quantities import (
    CANNOT_TAKE_THE_ABLATION,
    MAIN_RUN,
    NO_SKIP,
    S01_RUN,
    SIX_DIGITS,
    SQUASHING,
    THREE_DIGITS,
    dissection,
)
from carry_train.groups import GROUPS

# The last layer's heads have the same names in each of these groups: 1:0 and 1:1.
LAST_HEADS = measure.last_heads(GROUPS[MAIN].config)
EACH_LAST_HEAD = Need(frozenset(LAST_HEADS))
WITHOUT_SKIPS = Need(frozenset([NO_SKIP]))
UNCHANGED = Need(frozenset([INTACT]))
MAIN_LAYOUT = GROUPS[MAIN].config.layout


def statement(column: str, method: str, shows: Rule = typology.decides) -> Entry:
    """Return the entry of a column of `typology.statements`; `method` says what its value is."""
    return on_column(MAIN, typology.statements, column, method, shows)


ROWS: dict[str, Entry] = {
    # Tab. 1
    **tables.cells("tab1/decision_head", MAIN, quantities.without_decision_head, EACH_LAST_HEAD),
    **tables.cells("tab1/final_mlp", MAIN, quantities.without_final_mlp),
    "n2/decision_head_spread": computed(MAIN, quantities.decision_head_spread, EACH_LAST_HEAD),
    # Tab. 2, Sec. 6, App. G
    "tab2/alpaca/accuracy": on_language_model("alpaca", language_models.accuracy),
    "tab2/llemma/accuracy": on_language_model("llemma", language_models.accuracy),
    "tab2/zephyr/accuracy": on_language_model("zephyr", language_models.accuracy),
    "tab2/alpaca/staircase_heads": on_language_model("alpaca", language_models.staircase_heads),
    "tab2/llemma/staircase_heads": on_language_model("llemma", language_models.staircase_heads),
    "tab2/zephyr/staircase_heads": on_language_model("zephyr", language_models.staircase_heads),
    "tab2/alpaca/ablated_accuracy/0": on_language_model("alpaca", language_models.ablated_accuracy),
    "tab2/llemma/ablated_accuracy/0": on_language_model("llemma", language_models.ablated_accuracy),
    "tab2/zephyr/ablated_accuracy/0": on_language_model("zephyr", language_models.ablated_accuracy),
    "tab2/zephyr/ablated_accuracy/1": on_language_model(
        "zephyr", language_models.ablated_accuracy_of_second_pair
    ),
    "tab2/alpaca/addition_heads": on_language_model("alpaca", language_models.addition_heads),
    "tab2/llemma/addition_heads": on_language_model("llemma", language_models.addition_heads),
    "tab2/zephyr/addition_heads": on_language_model("zephyr", language_models.addition_heads),
    "llm/llemma/carry_mistakes": on_language_model("llemma", language_models.carry_mistakes),
    "llm/zephyr/carry_mistakes": on_language_model("zephyr", language_models.carry_mistakes),
    "llm/alpaca/first_position_accuracy": on_language_model(
        "alpaca", language_models.first_position_accuracy
    ),
    # Tab. 3, 4, 5
    **tables.cells("tab3/final_mlp", N3, quantities.without_final_mlp),
    **tables.dissected_cells("tab4/dissected", DFF512),
    **tables.cells("tab5/final_mlp", DECODER, quantities.without_final_mlp),
    **tables.dissected_cells("tab5/dissected", DECODER),
    # Sec. 2: the sums
    "data/sums3": constant(sums.n_sums(3)),
    "data/sums4": constant(sums.n_sums(4)),
    "data/vocabulary": constant(sums.VOCABULARY),
    "data/sequence_length3": constant(MAIN_LAYOUT.length),
    "data/classes3": constant(len(carries.patterns(3))),
    "data/classes4": constant(len(carries.patterns(4))),
    "data/classes6": constant(len(carries.patterns(6))),
    "data/train3": constant(GROUPS[MAIN].n_train),
    # Sec. 4 and 5: two layers
    "n2/accuracy": number(MAIN, quantities.exact_match, UNCHANGED),
    "n2/no_skip_accuracy": number(MAIN, quantities.exact_match_without_skips, WITHOUT_SKIPS),
    "n2/squashing/pos7": number_on_models(MAIN, partial(quantities.squashing_at, 0), SQUASHING),
    "n2/squashing/pos8": number_on_models(MAIN, partial(quantities.squashing_at, 1), SQUASHING),
    "n2/squashing/pos9": number_on_models(MAIN, partial(quantities.squashing_at, 2), SQUASHING),
    "n2/no_skip_spread": computed(MAIN, quantities.no_skip_spread, WITHOUT_SKIPS),
    "n2/squashing_spread/pos7": computed(MAIN, partial(quantities.squashing_spread, 0)),
    "n2/squashing_spread/pos8": computed(MAIN, partial(quantities.squashing_spread, 1)),
    "n2/squashing_spread/pos9": computed(MAIN, partial(quantities.squashing_spread, 2)),
    "n2/dissection/neurons": dissection(MAIN, quantities.carry_neurons, MAIN_RUN),
    "n2/dissection/carry_accuracy": dissection(MAIN, quantities.carry_accuracy, MAIN_RUN),
    "n2/dissection/carry_corrected": dissection(MAIN, quantities.carry_corrected, MAIN_RUN),
    "n2/dissection/non_carry_accuracy": dissection(MAIN, quantities.no_carry_accuracy, MAIN_RUN),
    "n2/evolution/final_pcc": number(
        MAIN,
        quantities.final_mlp_correlation,
        statistic=Statistic(median, method="The median, since the paper does not name its run."),
    ),
    # App. C.2, C.4: other fractions, decays and widths; three layers
    "n2_w0/accuracy": number(W0, quantities.exact_match, UNCHANGED),
    "n2_w0/runs_full_mlp_ablation_works": number(
        W0,
        quantities.ablation_works,
        statistic=Statistic(sum, method="How many runs only fail to carry without the final MLP."),
    ),
    "n2_s01/accuracy": number(S01, quantities.exact_match, UNCHANGED),
    "n2_s01/dissection/neurons": dissection(
        S01, quantities.carry_neurons, S01_RUN, CANNOT_TAKE_THE_ABLATION
    ),
    "n2_s01/dissection/carry_accuracy": dissection(
        S01, quantities.carry_accuracy, S01_RUN, CANNOT_TAKE_THE_ABLATION
    ),
    "n2_s01/dissection/carry_corrected": dissection(
        S01, quantities.carry_corrected, S01_RUN, CANNOT_TAKE_THE_ABLATION
    ),
    "n2_s01/dissection/non_carry_accuracy": dissection(
        S01, quantities.no_carry_accuracy, S01_RUN, CANNOT_TAKE_THE_ABLATION
    ),
    "n2_dff512/dissection/neurons": dissection(DFF512, quantities.carry_neurons, shown_run=0),
    "n2_dff1024/dissection/neurons": dissection(DFF1024, quantities.carry_neurons),
    "n3/accuracy": number(N3, quantities.exact_match, UNCHANGED),
    # App. D: the decoder
    "decoder/dissection/neurons": dissection(DECODER, quantities.carry_neurons, shown_run=0),
    "decoder/ablate_head_1_0/carry_accuracy": number(
        DECODER,
        quantities.carry_accuracy_without_other_head,
        EACH_LAST_HEAD,
        Statistic(
            shown_run=0,
            method="Mean of the six cells with a carry, without the head that is not the decision"
            " head.",
        ),
    ),
    # App. F: four digits
    "digits4/accuracy": number(DIGITS4, quantities.exact_match, UNCHANGED),
    "digits4/final_mlp/carry_accuracy": number(DIGITS4, quantities.carry_accuracy_without_mlp),
    "digits4/final_mlp/carry_corrected": number(DIGITS4, quantities.carry_corrected_without_mlp),
    "digits4/dissection/neurons": dissection(DIGITS4, quantities.carry_neurons, shown_run=0),
    "digits4/squashing/pos0": number_on_models(
        DIGITS4, partial(quantities.squashing_at, 0), SQUASHING
    ),
    "digits4/squashing/pos1": number_on_models(
        DIGITS4, partial(quantities.squashing_at, 1), SQUASHING
    ),
    "digits4/squashing/pos2": number_on_models(
        DIGITS4, partial(quantities.squashing_at, 2), SQUASHING
    ),
    "digits4/squashing/pos3": number_on_models(
        DIGITS4, partial(quantities.squashing_at, 3), SQUASHING
    ),
    # App. H: six digits
    "pad6/accuracy_range": computed(PAD6, quantities.accuracy_range),
    "pad6/accuracy_epoch500": number_on_models(
        PAD6, quantities.accuracy_on_six_digits, SIX_DIGITS, epoch=500
    ),
    "pad6/accuracy_epoch1000": number_on_models(
        PAD6, quantities.accuracy_on_six_digits, SIX_DIGITS, epoch=1000
    ),
    "pad6_primed/accuracy": number_on_models(PRIMED, quantities.accuracy_on_six_digits, SIX_DIGITS),
    "pad6_primed/fraction": constant(quantities.primed_share(PRIMED)),
    "pad6_finetuned/accuracy6": number_on_models(
        FINETUNED, quantities.accuracy_on_six_digits, SIX_DIGITS
    ),
    "pad6_finetuned/accuracy3": number_on_models(
        FINETUNED, quantities.accuracy_on_three_digits, THREE_DIGITS
    ),
    "pad6_finetuned/weight_norm_before": computed(
        (FINETUNED, PAD6), partial(quantities.weight_norm, "before")
    ),
    "pad6_finetuned/weight_norm_after": computed(
        (FINETUNED, PAD6), partial(quantities.weight_norm, "after")
    ),
    "pad6_finetuned/weight_norm_change": computed(
        (FINETUNED, PAD6), partial(quantities.weight_norm, "change")
    ),
    "decoder_pad6_primed/accuracy6": number_on_models(
        DECODER_PAD6, quantities.accuracy_on_six_digits, SIX_DIGITS
    ),
    # Sec. 3: one layer
    "finding/transition": on_evidence(N1, dynamics.transition, shows=dynamics.changes_together),
    "finding/heads_separately": on_evidence(
        N1, dynamics.heads_change_apart, shows=dynamics.change_separately
    ),
    "finding/norm_bounce": on_evidence(N1, dynamics.norm_bounce, shows=dynamics.norm_bounces),
    "finding/one_layer_imperfect": on_evidence(
        N1, dynamics.one_layer_imperfect, shows=dynamics.is_imperfect
    ),
    # Sec. 4: two layers
    "finding/staircase": on_models(MAIN, heads.staircase, shows=heads.has_staircase),
    "finding/decision_head": on_surveys(
        MAIN, heads.decision, shows=heads.matters_more, ablate=LAST_HEADS
    ),
    "finding/decision_head_carries": on_surveys(
        MAIN, heads.decision, shows=heads.carries_stay, value="lowest_carry_cell", ablate=LAST_HEADS
    ),
    "finding/decision_head_adds": on_surveys(
        MAIN,
        heads.decision,
        shows=heads.carries_are_added,
        value="lowest_right_or_too_large",
        ablate=LAST_HEADS,
    ),
    "finding/previous_sum": on_models(MAIN, heads.previous_sum, shows=heads.previous_sum_comes),
    "finding/own_sum": on_models(MAIN, typology.own_sum, shows=typology.others_bring_own_sum),
    "finding/final_mlp_carries": on_surveys(
        MAIN, heads.final_mlp_carries, shows=heads.cannot_carry
    ),
    "finding/joint_ablation": on_surveys(
        MAIN,
        heads.joint_ablation,
        shows=heads.adds_without_carrying,
        ablate=[*LAST_HEADS, *map(heads.with_final_mlp, LAST_HEADS)],
    ),
    "finding/layer0_tens": on_models(MAIN, geometry.layer0_tens, shows=geometry.leads),
    "finding/layer0_tens_either": on_models(
        MAIN, geometry.layer0_tens_either, shows=geometry.separates
    ),
    "finding/layer0_nine": on_models(MAIN, geometry.layer0_nine, shows=geometry.separates),
    "finding/layer0_nine_either": on_models(
        MAIN, geometry.layer0_nine_either, shows=geometry.separates
    ),
    "finding/layer1_carry": on_models(
        MAIN, geometry.layer1_carry, shows=geometry.carry_leads_at_7, value="axis_1_at_7"
    ),
    "finding/layer1_carry_at_8": on_models(
        MAIN, geometry.layer1_carry, shows=geometry.carry_leads_at_8, value="axis_1_at_8"
    ),
    "finding/carry_on_some_axis": on_models(
        MAIN, geometry.carry_on_some_axis, shows=geometry.separates
    ),
    "finding/outcome_pockets": on_models(
        MAIN, geometry.outcome_pockets, shows=geometry.pockets_are_outcomes
    ),
    "finding/pca_without_decision_head": on_models(
        MAIN,
        geometry.pca_without_decision_head,
        shows=geometry.only_the_other_head_leaves_it,
    ),
    "finding/squashing": on_models(MAIN, heads.squashing, shows=heads.squashes),
    # Sec. 5: the final MLP
    "finding/carry_axis": on_models(MAIN, neurons.carry_axis, shows=neurons.has_carry_axis),
    "finding/checkerboard": on_models(MAIN, neurons.checkerboard, shows=neurons.gap_opens),
    "finding/kink": on_evidence(MAIN, dynamics.kink, shows=dynamics.starts_at_the_kink),
    # App. A.1
    "finding/biases": on_models(
        [MAIN, N1], heads.biases, shows=heads.needs_biases_if_one_layer, mean_over=MAIN
    ),
    # App. B
    "finding/one_layer_no_carry": on_models(
        N1, geometry.one_layer_no_carry, shows=geometry.separates_nowhere
    ),
    "finding/decay_matters_one_layer": on_evidence(
        [N1_W0, N1], geometry.decay_matters_one_layer, shows=geometry.order_is_lost
    ),
    # App. C
    "finding/strong_decay_transition": on_evidence(
        N1_W1, dynamics.strong_decay_transition, shows=dynamics.changes_with_both_heads
    ),
    "finding/loss_increases": on_evidence(
        [N1_W0, N1], dynamics.loss_increases, shows=dynamics.rises_more_than_with_decay
    ),
    "finding/weights_not_saturated": on_evidence(
        [S01, MAIN], dynamics.weights_not_saturated, shows=dynamics.still_changes
    ),
    "finding/dissection_without_decay": on_surveys(
        W0, heads.dissection_works, shows=heads.cannot_carry, dissect=True
    ),
    "finding/no_grokking": on_evidence(
        list(GROUPS), dynamics.no_grokking, shows=dynamics.learns_at_once
    ),
    "finding/carry_in_layer0": on_models(S01, geometry.carry_in_layer0, shows=geometry.separates),
    "finding/wide_mlp": on_surveys(DFF1024, heads.wide_mlp, shows=heads.needs_whole_mlp),
    "finding/wide_mlp_neurons": on_surveys(
        DFF1024, heads.wide_mlp_neurons, shows=heads.only_the_neurons_carry, dissect=True
    ),
    "finding/carry_axis_dff512": on_models(
        DFF512, neurons.carry_axis, shows=neurons.has_carry_axis
    ),
    "finding/three_layers": on_surveys(N3, heads.three_layers, shows=heads.loses_carries),
    "finding/three_layers_heads": on_surveys(
        N3,
        heads.three_layers_heads,
        shows=heads.no_head_matters,
        ablate=[INTACT, *heads.HEADS_OF_LAST_TWO_LAYERS],
    ),
    "finding/three_layers_pairs": on_surveys(
        N3,
        heads.three_layers_pairs,
        shows=heads.a_pair_decides,
        ablate=[INTACT, *heads.LAYER_1_AND_A_LAST_HEAD],
    ),
    # App. D: the decoder
    "finding/decoder": on_surveys(
        DECODER, heads.decoder, shows=heads.adds_carries, ablate=LAST_HEADS
    ),
    "finding/decoder_algorithm": on_evidence(
        DECODER, typology.decoder_algorithm, shows=typology.decides
    ),
    "finding/decoder_mlp": on_surveys(DECODER, heads.final_mlp_carries, shows=heads.cannot_carry),
    "finding/decoder_staircase": on_models(DECODER, heads.staircase, shows=heads.has_staircase),
    "finding/decoder_previous_sum": on_models(
        DECODER, heads.previous_sum, shows=heads.previous_sum_comes
    ),
    "finding/decoder_current_sum": on_models(
        DECODER, heads.own_column, shows=heads.other_head_attends_to_own_column
    ),
    "finding/decoder_tens": on_models(DECODER, geometry.decoder_tens, shows=geometry.separates),
    # App. E
    "finding/pentagon": on_models(MAIN, pentagon.pentagon, shows=pentagon.can_be_seen),
    # App. F: four digits
    "finding/four_digits": on_surveys(
        DIGITS4, lengths.four_digits, shows=lengths.works_the_same_way, ablate=LAST_HEADS
    ),
    "finding/four_digits_previous_sum": on_models(
        DIGITS4, heads.previous_sum, shows=heads.previous_sum_comes
    ),
    "finding/four_digits_by_class": on_models(
        DIGITS4, heads.previous_sum_by_class, shows=heads.attends_where_carries_come_from
    ),
    "finding/four_digits_first_layer": on_models(
        DIGITS4, heads.first_layer_overlap, shows=heads.heads_are_similar
    ),
    # Sec. 6, App. H: six digits
    "finding/length": on_evidence(
        [PAD6, PRIMED],
        lengths.length,
        shows=lengths.forgets_unless_primed,
        mean_over="unprimed",
    ),
    "finding/unprimed_staircase": on_models(
        PAD6, heads.layer_staircases, shows=heads.has_staircase, epoch=500
    ),
    "finding/unprimed_previous_sum": on_models(
        PAD6, lengths.previous_sums, shows=lengths.last_layer_brings_previous_sum, epoch=500
    ),
    "finding/unprimed_first_layer": on_models(
        PAD6,
        lengths.previous_sums,
        shows=lengths.first_layer_brings_previous_sum,
        value="layer_0",
        epoch=500,
    ),
    "finding/unprimed_steps": on_evidence(
        PAD6, lengths.unprimed_steps, shows=lengths.separates_where_trained
    ),
    "finding/mlp_2500": on_evidence(PAD6, lengths.mlp_2500, shows=lengths.comes_to_carry),
    "finding/primed_staircase": on_models(
        PRIMED, heads.layer_staircases, shows=heads.has_staircase
    ),
    "finding/primed_previous_sum": on_models(
        PRIMED, lengths.previous_sums, shows=lengths.last_layer_brings_previous_sum
    ),
    "finding/primed_first_layer": on_models(
        PRIMED,
        lengths.previous_sums,
        shows=lengths.first_layer_brings_most,
        value="layer_0_exceeds_last_by",
    ),
    "finding/finetuned_previous_sum": on_models(
        FINETUNED, lengths.previous_sums, shows=lengths.last_layer_brings_previous_sum
    ),
    "finding/finetuned_first_layer": on_models(
        FINETUNED,
        lengths.previous_sums,
        shows=lengths.first_layer_brings_previous_sum,
        value="layer_0",
    ),
    "finding/primed_parts": on_evidence(
        PRIMED,
        lengths.primed_parts,
        shows=lengths.mlp_corrects,
        value="no_carry_cells_lose_without_the_final_MLP",
    ),
    "finding/primed_head": on_evidence(PRIMED, lengths.primed_parts, shows=lengths.head_carries),
    "finding/primed_spared": on_evidence(
        PRIMED,
        lengths.primed_parts,
        shows=lengths.mlp_spares_long_carries,
        value="long_carry_cells_lose",
    ),
    "finding/carry_axis_long": on_models(
        PRIMED, lengths.carry_axis_long, shows=neurons.has_carry_axis
    ),
    "finding/carry_axis_finetuned": on_models(
        FINETUNED, lengths.carry_axis_long, shows=neurons.has_carry_axis
    ),
    "finding/unpadded_fail": on_models(MAIN, lengths.unpadded_fail, shows=lengths.fails_at_length),
    "finding/finetune_small_change": on_evidence(
        [FINETUNED, PAD6], lengths.finetune_small_change, shows=lengths.barely_moves
    ),
    # Sec. 6: language models
    "finding/llm_heads": computed((), language_models.llm_heads),
    # App. I
    "finding/full_adder": on_models(
        MAIN, adder.full_adder, shows=adder.first_layer_adds, value="first_layer"
    ),
    "finding/full_adder_carry": on_models(
        MAIN, adder.full_adder, shows=adder.attention_is_the_carry_line, value="carry"
    ),
    "finding/full_adder_xor": on_models(
        MAIN, adder.full_adder, shows=adder.mlp_is_the_second_xor, value="bypassed"
    ),
    # Controls, by the paper's own method
    "beyond/dissection_control": on_surveys(
        MAIN, heads.dissection_control, shows=heads.only_carry_neurons_matter, dissect=True
    ),
    "beyond/dissection_control_dff512": on_surveys(
        DFF512, heads.dissection_control, shows=heads.only_carry_neurons_matter, dissect=True
    ),
    # The abstract
    "beyond/elsewhere": on_evidence(
        list(elsewhere.HYPERPARAMETERS),
        elsewhere.elsewhere,
        shows=elsewhere.most_runs_work_in_the_same_way,
    ),
    # The carry line, and who writes it
    "beyond/one_line": on_evidence(MAIN, line_table.one_line, shows=line_table.carries_on_one_line),
    "beyond/written_late": on_evidence(
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


def reason(claim: Claim) -> str:
    """Return the reason for a claim's rule, with the criteria that it names in braces filled in.

    The names are constants of the module that has the claim's function.

    Raises:
        BadInput: There is no such constant.
    """
    function = entry(claim.id).function
    constants = vars(sys.modules[function.__module__]) if function is not None else {}
    try:
        return claim.reason.format_map(constants)
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
