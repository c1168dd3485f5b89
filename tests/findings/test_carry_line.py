"""The carry line, by brute force and on networks whose algorithm was made by hand."""

import pytest
import torch
from torch import nn

from carry_core import sums
from carry_core.model import ModelConfig
from carry_core.pairs import Contrast, sample_pairs
from carry_paper.findings import carry_line
from carry_paper.findings.carry_line import Column, carry_columns, column_lines
from tests.conftest import SHAPES, drawn, random_model
from tests.findings.test_interchange import DIGIT, HALF, LOW, attend, hand_made
from tests.helpers.tolerances import assert_close

pytestmark = pytest.mark.machine

DEEP = ("decoder", "three layers")
# The code of a carry is in one of these coordinates, by the digit sum of the column it goes to.
SLOTS = [16, 17, 30, 31]
SOFT, FLAG, CHAIN = 17, 30, 31  # coordinates of the network whose decision is shared
SLOPE = 0.1  # of its early, soft step
PAIRS = 400


# ---- networks made by hand: `hand_made`, and three more


class Same(nn.Module):
    def forward(self, x):
        return x


def own_digit_sum(x):
    """Return the digit sum of a position's own column, and whether the position has one."""
    is_column = x[..., 7:10] > 0.5
    return ((2 * x[..., HALF]).round() * is_column).sum(-1).long(), is_column.any(-1)


def one_hot_digit(digit, is_column):
    return 10 * nn.functional.one_hot(digit % 10, 12) * is_column[..., None]


class Coder(nn.Module):
    """The first MLP writes a 1 for a carry into one of some slots, by the sum to the right."""

    def __init__(self, n_slots):
        super().__init__()
        self.slots = SLOTS[:n_slots]

    def forward(self, x):
        digit_sum, is_column = own_digit_sum(x)
        right = torch.tensor([2, 1, 0])
        total = (x[..., LOW].amax(-1, keepdim=True) * 2 * right).round()
        carry = ((total >= 10**right) * (x[..., 7:10] > 0.5)).any(-1) & is_column
        written = torch.zeros_like(x)
        written[..., LOW] = -x[..., LOW]
        slot = torch.tensor(self.slots)[digit_sum % len(self.slots)]
        return written.scatter_add(-1, slot[..., None], carry[..., None].float())


class Decoder(nn.Module):
    def forward(self, x):
        digit_sum, is_column = own_digit_sum(x)
        return one_hot_digit(digit_sum + (x[..., SLOTS].amax(-1) > 0.6), is_column)


def coded(n_slots):
    """A network that codes the carry in its first layer, along `n_slots` directions."""
    model = hand_made("first")
    model.blocks[0].up, model.blocks[0].down = Same(), Coder(n_slots)
    model.blocks[1].up = Decoder()
    return model


class Flags(nn.Module):
    """The first MLP writes exact steps of the own digit sum, less its soft step, for later."""

    def forward(self, x):
        digit_sum, is_column = own_digit_sum(x)
        carries, maybe = digit_sum >= 10, digit_sum == 9
        written = torch.zeros_like(x)
        written[..., FLAG] = (2 * carries + 1 * maybe - SLOPE * digit_sum) * is_column
        written[..., CHAIN] = carries * is_column
        return written


class Threshold(nn.Module):
    def forward(self, x):
        digit_sum, is_column = own_digit_sum(x)
        return one_hot_digit(digit_sum + (x[..., SOFT] > 1.5), is_column)


def shared():
    """A network whose first layer makes a soft step, which its last attention corrects."""
    model = hand_made("first")
    digits, flag, chain = torch.zeros(1, 32), torch.zeros(1, 32), torch.zeros(1, 32)
    digits[0, DIGIT], flag[0, FLAG], chain[0, CHAIN] = 2 * SLOPE, 1, 1
    write = slice(SOFT, SOFT + 1)
    model.blocks[0].o.weight.data[:, 16:] = 0  # what `hand_made` had its second head write
    attend(model.blocks[0], 1, {7: [1, 5], 8: [2, 6]}, digits, write)
    attend(model.blocks[1], 0, {7: [8], 8: [9]}, flag, write)
    attend(model.blocks[1], 1, {7: [9]}, chain, write)
    model.blocks[0].up, model.blocks[0].down = Same(), Flags()
    model.blocks[1].up = Threshold()
    return model


NETWORKS = {
    "late": lambda: hand_made("last"),
    "two heads": lambda: hand_made("both"),
    "early": lambda: hand_made("first"),
    "shared": shared,
    "two lines": lambda: coded(2),
    "no line": lambda: coded(4),
}


@pytest.fixture(scope="module")
def measured():
    """The fields of both columns of each network."""
    fields = {}
    for name, make in NETWORKS.items():
        fields[name] = column_lines(make(), None, PAIRS, 2_000)
    return fields


def test_the_networks_made_by_hand_add():
    for make in NETWORKS.values():
        a, b = sums.long_sums(300, 3, torch.Generator().manual_seed(0))
        model = make()
        answer = model(sums.encode(a, b, model.config.layout))[:, 7:].argmax(-1)
        assert torch.equal(answer, sums.digits(a + b, 3))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["late", "two heads", "early", "shared"])
def test_one_line_carries_whoever_writes_it(measured, name):
    for fields in measured[name]:
        assert fields["right"] == fields["up"] == fields["down"] == 1


@pytest.mark.slow
def test_a_carry_on_several_lines_is_on_no_single_one(measured):
    for name in ("two lines", "no line"):
        for fields in measured[name]:
            assert min(fields["up"], fields["down"]) < 0.7


@pytest.mark.slow
def test_late_shares_and_heads_tell_who_writes_the_line(measured):
    head, other_head, early_head = "blocks.1.attn.z:0", "blocks.1.attn.z:1", "blocks.0.attn.z:1"
    expected = {
        "late": {head: 1},
        "two heads": {head: 0.5, other_head: 0.5},
        "early": {early_head: 1},
        # the code replaces the sum to the right, which the head brought
        "two lines": {"blocks.0.mlp_out": 1},
        "no line": {"blocks.0.mlp_out": 1},
    }
    for name, shares in expected.items():
        for fields in measured[name]:
            writers = {part: share for part, share in fields["shares"].items() if abs(share) > 1e-5}
            if name in ("late", "two heads", "early"):
                assert writers == pytest.approx(shares)
            assert fields["late"] == pytest.approx(float(name in ("late", "two heads")), abs=1e-5)


@pytest.mark.slow
def test_a_soft_step_and_its_correction_show_in_the_coordinate(measured):
    tens, units = measured["shared"]
    for fields in (tens, units):
        assert 0.2 < fields["late"] < 0.8

    # In the units' case nothing can reach the next column, so that the parts are known exactly.
    rows = {row["digit_sum"]: row for row in units["profile"]}
    assert {row["chain"] for row in units["profile"]} == {0}
    assert list(rows) == list(range(19))
    growth = [
        {part: rows[i + 1][part] - rows[i][part] for part in ("early", "late")} for i in range(18)
    ]
    change = growth[8]["early"] + growth[8]["late"]  # of an exact step, in the coordinate's units
    for digit_sum, of in enumerate(growth):
        assert of["early"] == pytest.approx(SLOPE * change, abs=1e-4)
        exact = {8: 1, 9: 1}.get(digit_sum, 0)
        assert of["late"] == pytest.approx((exact - SLOPE) * change, abs=1e-4)
    assert {(row["digit_sum"], row["chain"]) for row in tens["profile"]} == {
        (digit_sum, chain) for digit_sum in range(19) for chain in (0, 1)
    }


def test_the_words_for_who_writes():
    words = {
        0.0: "early",
        0.05: "early",
        0.06: "shared",
        0.94: "shared",
        0.95: "late",
        1.01: "late",
    }
    assert {late: carry_line.who_writes(late) for late in words} == words
    config = SHAPES["three layers"]
    shares = {"blocks.1.attn.z:0": 0.5, "blocks.2.attn.z:0": 0.1, "blocks.2.attn.z:1": 0.09}
    assert carry_line.n_writers(shares | {"blocks.2.attn.z:2": -0.3}, config) == 1


@pytest.mark.slow
def test_a_run_that_gets_too_few_pairs_right_has_a_reason_and_no_line():
    model = hand_made("last")
    model.unembed.weight.data[3:8] = 0  # no answer has one of these digits
    for fields in column_lines(model, count=PAIRS):
        assert fields["reason"].endswith("of the pairs right, fewer than 0.5")
        assert "up" not in fields


# ---- brute force


def pairs_of(config, column, count=30):
    generator = torch.Generator().manual_seed(1)
    return sample_pairs(Contrast("carry_in", column.index), count, generator, config.layout)


@pytest.mark.parametrize("name", DEEP)
def test_a_swap_equals_a_hook_on_the_model(name):
    config = SHAPES[name]
    model = random_model(config, 3, noise=0.5).double()
    column = carry_columns(config)[0]
    pairs = pairs_of(config, column, 200)
    streams = carry_line.stream(model, pairs[:, 0], pairs[:, 1], column.position)
    tokens = [sums.encode(a, b, config.layout) for a, b in pairs]
    answers = torch.stack([model(x)[:, column.position].argmax(-1) for x in tokens])
    assert torch.equal(carry_line.digits_of(model, streams.resid_mid), answers)

    basis = torch.linalg.qr(torch.randn(config.d_model, 9, dtype=torch.float64)).Q.T.contiguous()
    shares = []
    for base in (0, 1):
        source = streams.resid_mid[1 - base]

        def swap(point, x, source=source):
            if point == f"blocks.{config.layers - 1}.resid_mid":
                row = point.positions.index(column.position)
                x = x.clone()
                x[:, row] += (source - x[:, row]) @ basis.T @ basis
            return x

        digit = model(tokens[base], swap)[:, column.position].argmax(-1)
        shares.append((digit == answers[1 - base]).double().mean().item())
    moved = carry_line.interchange_accuracy(model, streams.resid_mid, answers, basis)
    assert moved == pytest.approx(tuple(shares))
    assert 0 < min(shares) < max(shares) < 1


def test_a_swap_takes_the_coordinates_of_the_source_and_no_others():
    generator = torch.Generator().manual_seed(0)
    base, source = torch.randn(2, 5, 7, generator=generator)
    axes = torch.linalg.qr(torch.randn(7, 7, generator=generator)).Q.T
    patched = carry_line.swapped(base, source, axes[:3])
    assert_close(patched @ axes[:3].T, source @ axes[:3].T)
    assert_close(patched @ axes[3:].T, base @ axes[3:].T)


@pytest.mark.parametrize("name", DEEP)
def test_the_parts_are_what_the_hooks_say_and_their_shares_sum_to_one(name):
    config = SHAPES[name]
    model = random_model(config, 3, noise=0.5).double()
    for column in carry_columns(config):
        pairs = pairs_of(config, column)
        streams = carry_line.stream(model, pairs[:, 0], pairs[:, 1], column.position)
        rest = streams.resid_mid - torch.stack(list(streams.parts.values())).sum(0)
        assert_close(rest, rest[:1, :1].expand_as(rest))

        line = carry_line.difference_in_means(streams.resid_mid)
        step = (streams.resid_mid[1] - streams.resid_mid[0]).mean(0)
        assert_close(line, step / step.norm())
        shares = carry_line.shares(line, streams)
        assert sum(shares.values()) == pytest.approx(1)
        late = [part for part in shares if carry_line.is_late(part, config)]
        assert len(late) == config.heads
        assert carry_line.late_share(shares, config) == pytest.approx(
            sum(shares[part] for part in late)
        )
        for part, share in shares.items():
            assert share == pytest.approx(_share_by_hooks(model, pairs, column, line, part))


def _share_by_hooks(model, pairs, column, line, part):
    """Return a part's share, from its block's output projection of the cached activation."""
    point, _, head = part.partition(":")
    change = []
    for a, b in pairs:
        _, cache = model.run_with_cache(sums.encode(a, b, model.config.layout))
        written = cache[point][:, column.position]
        if head:
            block = model.blocks[int(point.split(".")[1])]
            only = torch.zeros_like(written)
            only[:, int(head)] = written[:, int(head)]
            written = block.o(only.flatten(1))
        mid = cache[f"blocks.{model.config.layers - 1}.resid_mid"][:, column.position]
        change.append(torch.stack([written.mean(0), mid.mean(0)]))
    part_change, whole_change = (change[1] - change[0]) @ line
    return (part_change / whole_change).item()


def test_columns_are_read_as_in_writing():
    config = SHAPES["padded"]
    a, b = drawn(ModelConfig(width=3), count=200)
    first, second = carry_columns(config, 3)
    assert (first, second) == (Column(0, 3, 1, 10), Column(1, 3, 2, 11))
    for column in (first, second):
        for i in range(len(a)):
            x, y = f"{a[i]:03}", f"{b[i]:03}"
            next_index, after_next = column.index + 1, column.index + 2
            assert column.digits(a)[i] == int(x[column.index])
            assert column.next_digit_sum(a, b)[i] == int(x[next_index]) + int(y[next_index])
            lower = int(x[next_index:]) + int(y[next_index:])
            assert column.carry_in(a, b)[i] == (lower >= 10 ** (3 - next_index))
            chain = int(x[after_next:] or 0) + int(y[after_next:] or 0)
            assert column.next_column.carry_in(a, b)[i] == (chain >= 10 ** (3 - after_next))
    assert carry_columns(config, 1) == []


def test_the_test_half_has_no_sum_of_the_fitting_half():
    """With two digits there are few sums to the right, so that many occur twice."""
    model = hand_made("last")
    fitted = carry_line.fit_column(
        model, carry_columns(model.config)[1], torch.Generator().manual_seed(0), 4_000
    )
    assert 1_000 < fitted.pairs.shape[-1] < 2_000
    assert fitted.test.resid_mid.shape[1] == fitted.answers.shape[1] == fitted.pairs.shape[-1]
    digits = model(sums.encode(*fitted.pairs[1], model.config.layout))[:, 8].argmax(-1)
    assert torch.equal(digits, fitted.answers[1])

    generator, contrast = torch.Generator().manual_seed(0), Contrast("carry_in", 1)
    pairs = sample_pairs(contrast, 4_000, generator, model.config.layout)
    fit_sums = {sum_ for side in pairs[..., :2_000] for sum_ in zip(*side.tolist(), strict=True)}
    test_sums = {sum_ for side in fitted.pairs for sum_ in zip(*side.tolist(), strict=True)}
    assert fit_sums.isdisjoint(test_sums)
    fitting = carry_line.stream(model, pairs[:, 0, :2_000], pairs[:, 1, :2_000], 8)
    assert torch.equal(carry_line.difference_in_means(fitting.resid_mid), fitted.line)
