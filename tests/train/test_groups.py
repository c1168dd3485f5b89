"""Groups by their names: the grammar, one name for each group, and what refuses to parse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carry_core.errors import BadInput
from carry_core.model import ModelConfig
from carry_train import groups
from carry_train.groups import find


def test_every_part_of_a_name_is_read():
    group = find("decoder_pad7_primed40_n3_s0.25_w1.5_dff256_h4_d64_p0.05")
    assert group.config == ModelConfig(3, 7, causal=True, d_model=64, heads=4, d_ff=256)
    assert (group.fraction, group.decay, group.dropout) == (0.25, 1.5, 0.05)
    assert (group.n_digits, group.primed, group.parent) == (3, 40, None)
    assert str(group) == (
        "3 layers, causal, d_ff 256, 4 heads, d_model 64, dropout 0.05, 25% of the sums, "
        "weight decay 1.5, padded to 7 digits, with 40 7-digit sums"
    )


def test_digits_change_the_sums_and_large_batches_are_for_four():
    two, four = find("digits2_n1_s0.5_w0.0"), find("digits4_n1_s0.5_w0.0")
    assert (two.n_digits, two.config.width, two.batch, two.n_train) == (2, 2, 1024, 2525)
    assert (four.n_digits, four.config.width, four.batch) == (4, 4, 8192)


def test_a_finetuned_group_starts_from_a_snapshot_of_its_parent():
    group = find("decoder_pad5_finetuned9_n1_s0.1_w0.0_h4")
    name, epoch = group.parent
    parent = find(name)
    assert name == "decoder_pad5_n1_s0.1_w0.0_h4"
    assert epoch in parent.snapshots
    assert parent.config == group.config
    assert group.n_train == 9


LENGTHS = [
    st.just([]),
    st.just(["digits4"]),
    st.integers(4, 12).map(lambda width: [f"pad{width}"]),
    st.integers(1, 500).map(lambda primed: ["pad6", f"primed{primed}"]),
    st.integers(1, 500).map(lambda primed: ["pad6", f"finetuned{primed}"]),
]
SIZES = {
    "dff": st.integers(1, 2000),
    "h": st.sampled_from([1, 2, 4, 8]),
    "d": st.sampled_from([64, 128, 256]),
    "p": st.floats(0, 0.9),
}


@given(st.data(), st.integers(1, 9), st.floats(0.001, 0.5), st.floats(0, 100))
def test_each_group_has_one_name(data, layers, fraction, decay):
    """Whatever the order of its parts, a name is the group's own or is answered with it."""
    parts = [*data.draw(st.one_of(LENGTHS)), f"n{layers}", f"s{fraction}", f"w{decay}"]
    for word in sorted(data.draw(st.sets(st.sampled_from(sorted(SIZES))))):
        parts.append(f"{word}{data.draw(SIZES[word])}")
    name = "_".join(data.draw(st.permutations(parts)))
    own_name = name
    try:
        find(name)
    except BadInput as error:
        own_name = str(error).split(" is called ")[1].partition(":")[0]
    group = find(own_name)
    assert group.name == own_name
    assert (group.config.layers, group.fraction, group.decay) == (layers, fraction, decay)
    assert {*own_name.split("_")} <= {*parts}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("n2_s.3_w.2", "is called n2_s0.3_w0.2: expected that spelling"),
        ("n2_s0.3_w0.2_dff128_h2_d128_p0.1", "is called n2_s0.3_w0.2: expected that spelling"),
        ("n2_s0.3", "expected a name such as n2_s0.3_w0"),
        ("n2_s0.3_w0.2_dff256.5", "expected a name such as n2_s0.3_w0.2"),
        ("digits5_n2_s0.3_w0.2", "digits5: expected 2 to 4 digits, since all sums are enumerated"),
        ("primed5_n2_s0.3_w0.2", "expected a padded group"),
        ("n2_s0.6_w0.2", "s0.6: expected a share of the 500,500 sums"),
        ("n2_s0.3_w1e999", "winf: expected 0 to 100"),
        ("n2_s0.3_w0.2_h3", "expected heads of an even size"),
    ],
)
def test_a_name_that_almost_parses_gets_one_line(name, message):
    with pytest.raises(BadInput, match=message) as error:
        find(name)
    assert "\n" not in str(error.value)
    assert repr(name) in str(error.value)


@pytest.mark.parametrize(("fraction", "n_train"), [(0.299, 149_650), (0.3, 150_150)])
def test_a_share_of_all_sums_is_rounded_to_the_nearest(fraction, n_train):
    """0.299 x 500,500 is 149,649.5: a half goes to the even number."""
    assert groups.find(f"n2_s{fraction}_w0.2").n_train == n_train
