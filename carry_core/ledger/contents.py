"""The pages that a claim can be shown on."""

NOTEBOOKS = (
    "fig01_summary", "fig02_one_layer_transition", "fig03_attention_per_task", "fig04_pca_journey",
    "fig05_mlp_evolution", "fig06_llemma", "fig07_one_layer_journey", "fig08_one_layer_runs",
    "fig09_one_layer_without_decay", "fig10_one_layer_strong_decay", "fig11_learning_dynamics",
    "fig12_two_layers_without_decay", "fig13_carry_axis_dff512", "fig14_carry_axis", "fig15_decoder_attention",
    "fig16_decoder_journey", "fig17_pentagon", "fig18_four_digits_attention", "fig19_four_digits_journey",
    "fig20_length_generalisation", "fig21_unprimed_attention", "fig22_unprimed_journey", "fig23_primed_attention",
    "fig24_primed_journey", "fig25_finetuned", "fig26_full_adder", "tab01_decision_head_and_final_mlp",
    "tab02_language_models", "tab03_three_layers", "tab04_dissection", "tab05_decoder", "app_g_alpaca",
    "app_h_longer_sums", "beyond_the_paper", "beyond_74", "trained_groups",
)  # fmt: skip
