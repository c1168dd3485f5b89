"""Trained runs as scripts for the playground, which computes in the reader's browser.

Each `<run>.js` hands the page one object: config, a table of tensors, and their float16 values,
deflated: the weights, the means of a mean ablation, the planes of Fig. 4 with some sums on them,
the linear probes of App. I, the coordinates of carries and nines. `runs.js` lists the runs, in the
main group with who writes the carry. `fig02.js` and `fig05.js` have the histories that these pages
slide over.

The page's address says what it shows, so that a link can open it on anything (`address`):

    playground.html#run=n2_s0.3_w0.2/2&sum=352+271&do={"kind":"Ablation","heads":[[1,0]]}&frame=5

`run` is a group and a run's number, `beside` another to compare it with, `sum` two numbers of at
most three digits, and `do` an intervention as its `to_json` writes it, or a list of several;
without it nothing is switched off. `line`, such as `hundreds:0.2,tens-nine:1`, has the coordinates
that are held (`Line`): of a carry, from 0 (none) to 1, and of a nine likewise; all others are as
the model computes them. `frame`, from 1 to 7, is the step of the sum that the page explains. What
is left out is as the page opens.
`playground/state.js` reads and writes the same on the page.
"""

import json
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import torch
from torch import Tensor

from carry_core import measure, runs, sums
from carry_core.errors import BadInput
from carry_core.hooks import HookAt, Point
from carry_core.interventions import REFERENCE_SUMS, Combined, Intervention, means
from carry_core.model import Transformer
from carry_paper import catalogue
from carry_paper.catalogue import load_curves
from carry_paper.findings import adder, carry_line, corners, dynamics, geometry, line_table
from carry_train.files import replacing
from carry_train.groups import MAIN, find

CHOSEN = {MAIN: range(6), "n1_s0.3_w0.2": (0,), "n3_s0.3_w0.2": (0,), "decoder_n2_s0.3_w0.2": (0,)}
# The sliders over training: a group, a curve, and the number of epochs from one step to the next.
SLIDERS = {"fig02": ("n1_s0.3_w0.2", "pattern", 5), "fig05": (MAIN, "test_ablated_accuracy", 2)}
# The first sum that a reader sees. Its answer changes without the decision head of the first run,
# and without its final MLP.
FIRST_SUM = (352, 271)
PLACES = ("hundreds", "tens")  # columns with a carry-in
FITTED = 3_000  # random sums to which probes are fitted, and as many on which they are tested
TUPLES = 500  # sums of each state to which the directions of carry and nine are fitted
# Who writes the carry, by the words of `carry_line.WHO_WRITES`.
WRITERS = {
    "late": "the last attention writes the carry",
    "shared": "the last attention writes a part of the carry",
    "early": "the carry is there before the last attention",
}
POINTS = ("resid_mid", "resid_post")  # of the planes: after the attention, after the MLP
SHOWN = 100  # sums on each plane
# A description of each part for the page, and the part's tensors.
Parts = Iterator[tuple[dict[str, Any], dict[str, Tensor]]]


def address(group: str, run: int, intervention: Intervention | Combined | None = None) -> str:
    """Return a link from a notebook that opens the page on the first sum of a run.

    It is "" for a run that the page does not have; those that it has are shipped. What is switched
    off, the `intervention`, may be a patch with a source.
    """
    if run not in CHOSEN.get(group, ()):
        return ""
    a, b = FIRST_SUM
    link = f"../book/playground.html#run={group}/{run}&sum={a}+{b}"
    if intervention is not None:
        compact = json.dumps(json.loads(intervention.to_json()), separators=(",", ":"))
        link += f"&do={quote(compact, safe='/:,')}"
    return link


def probes(model: Transformer) -> Parts:
    """Yield linear probes (App. I) of digit sums, after the first layer, of carry-ins and answers.

    Carry-ins are read after the last attention, answers after the last MLP. Each probe has its
    label, column (0 for the leftmost), hook point, position, accuracy on sums that it was not
    fitted on, bias; and its `weight`, a row for each of ten digits, or one, positive for yes.
    """
    config = model.config
    a, b = sums.long_sums(2 * FITTED, config.width, torch.Generator().manual_seed(1))
    wires = adder.schoolbook(a, b, config.width)
    first, _, last = adder.stream_names(model)
    end = f"blocks.{config.layers - 1}.resid_post"
    stream = measure.activations(model, a, b, list(dict.fromkeys([first, last, end])))
    start = config.width + 1 if config.causal else 0
    answer = config.layout.answer
    columns = range(config.width)
    places = [("ones", i, first, start + i, wires.ones) for i in columns]
    places += [("tens", i, first, start + i, wires.tens) for i in columns[1:]]
    places += [("carry_in", i, last, answer[i], wires.carry_in) for i in columns[:-1]]
    places += [("digit", i, end, answer[i], wires.digit) for i in columns]
    for label, column, name, position, wire in places:
        x, y = stream[name][:, position].double().numpy(), wire[:, column].long().numpy()
        probe = adder.linear_probe().fit(x[:FITTED], y[:FITTED])
        metadata = {"label": label, "column": column, "name": name, "position": position}
        metadata |= {
            "accuracy": probe.score(x[FITTED:], y[FITTED:]),
            "bias": probe.intercept_.round(4).tolist(),
        }
        yield metadata, {"weight": torch.from_numpy(probe.coef_)}


def planes(model: Transformer) -> Parts:
    """Yield the planes of Fig. 4, each with its description, its `axes` and its `points`."""
    config = model.config
    a, b = sums.long_sums(FITTED, config.width, torch.Generator().manual_seed(2))
    columns = geometry.default_columns(model, config.width)
    names = [
        f"blocks.{layer}.{point}" for layer in {column[0] for column in columns} for point in POINTS
    ]
    stream = measure.activations(model, a, b, names)
    # The sums are the same on all planes, so only the first one lists them.
    shown_sums: Any = torch.stack([a[:SHOWN], b[:SHOWN]], 1).tolist()
    for layer, position, column in columns:
        final = layer == config.layers - 1
        labels = geometry.column_labels(config, a, b, layer, column)
        for point in POINTS:
            name = f"blocks.{layer}.{point}"
            x = stream[name][:, position]
            points, _ = geometry.principal_axes(x, labels)
            axes = geometry.axis_directions(x, points[:, :2])
            metadata = {
                "name": name,
                "position": position,
                "column": column,
                "label": "carry_in" if final else "tens",
            }
            metadata |= {"centre": (axes @ x.mean(0)).tolist(), "sums": shown_sums}
            yield metadata, {"axes": axes, "points": points[:SHOWN, :2]}
            shown_sums = None


class Line(NamedTuple):
    """A coordinate of the stream that says if a carry comes, or if the next column is a nine.

    Both are directions of `findings.corners`, fitted on all digits, at the position that answers
    the column; the nine's is orthogonal to the carry's.
    """

    id: str  # in an address: `hundreds`, `hundreds-nine`
    column: int  # 0 for the leftmost
    name: str  # the hook point
    position: int  # that answers the column
    # The mean coordinates of sums without and with a carry; or whose next column is less than nine,
    # and nine without a carry into it.
    zero: float
    one: float
    # The share of swaps that make the other digit, in the two states where it is lowest: of the
    # carry alone, or of carry and nine together. To two decimals.
    share: float
    direction: Tensor  # [d_model], about unit length, in float16


@lru_cache(1)  # the page and its test use the same lines
def lines(model: Transformer) -> list[Line]:
    """Return a line of the carry and one of the nine for each column; none for one layer.

    A column has none either if the run gets too few of its sums right. All sums are fixed.
    """
    if model.config.layers == 1:
        return []
    fitted_lines = []
    for column in carry_line.carry_columns(model.config):
        generator = torch.Generator().manual_seed(0)
        fitted = corners.corners_of(model, column, generator, TUPLES)
        if corners.can_be_fitted(fitted):
            fitted_lines += _lines_of(model, fitted)
    return fitted_lines


def _lines_of(model: Transformer, fitted: corners.Corners) -> list[Line]:
    """Return the line of a column's carry, and that of its nine."""
    everything = torch.ones_like(fitted.own, dtype=torch.bool)
    place = PLACES[fitted.column.answer]
    with_carry = [x for x in corners.WITH_CARRY if fitted.has(x)]
    ends = {
        place: (corners.WITHOUT_CARRY, with_carry),
        f"{place}-nine": ((corners.LOW,), (corners.NINE,)),
    }
    swapped = (corners.line_basis, corners.plane_basis)
    directions = corners.plane_basis(fitted, everything)
    column_lines = []
    for (name, (without, having)), direction, fit in zip(
        ends.items(), directions, swapped, strict=True
    ):
        direction = direction.half().to(direction)
        bases = corners.fitted_bases(fitted, fit)
        moved = corners.moved_by(model, fitted, bases, corners.carry_swaps(fitted))
        shares = [cell["accuracy"] for cell in corners.cells(fitted, moved)]
        line = Line(
            id=name,
            column=fitted.column.answer,
            name=f"blocks.{model.config.layers - 1}.resid_mid",
            position=fitted.column.position,
            zero=_mean_coordinate(fitted, direction, without),
            one=_mean_coordinate(fitted, direction, having),
            share=round(min(share for share in shares if share is not None), 2),
            direction=direction,
        )
        column_lines.append(line)
    return column_lines


def _mean_coordinate(fitted: corners.Corners, direction: Tensor, states: Collection[int]) -> float:
    """Return the mean over states of the mean coordinate of the sums that the model gets right."""
    means_of_states = []
    for number in states:
        place = fitted.place(number)
        resid_mid = fitted.resid_mid[place, fitted.right[place]].double()
        means_of_states.append((resid_mid @ direction.double()).mean().item())
    return round(sum(means_of_states) / len(means_of_states), 6)


def coordinate_hook(model: Transformer, coordinates: Mapping[str, float]) -> HookAt:
    """Return a hook that holds the coordinates of carries and nines.

    0 is the mean without a carry, or of a next column less than nine; 1 is that with a carry, or of
    a nine. The stream is moved along the line, at the position that answers the column, until the
    coordinate has this value. Everything else in the stream stays. Coordinates are by the id of
    their line, such as `hundreds` or `tens-nine`.

    Raises:
        BadInput: There is no such line.
    """
    by_id = {line.id: line for line in lines(model)}
    missing = sorted(set(coordinates) - set(by_id))
    if missing:
        raise BadInput(f"This model has no coordinate {missing[0]}: expected one of {[*by_id]}.")
    held = [(by_id[name], value) for name, value in coordinates.items()]

    def hold(point: str, x: Tensor) -> Tensor:
        assert isinstance(point, Point)
        x = x.clone()
        for line, value in held:
            if line.position not in point.positions:
                continue
            row = point.positions.index(line.position)
            target = line.zero + value * (line.one - line.zero)
            step = (target - x[:, row] @ line.direction) / line.direction.square().sum()
            x[:, row] += step[:, None] * line.direction
        return x

    return HookAt(frozenset(line.name for line, _ in held), hold)


def line_parts(model: Transformer) -> Parts:
    """Yield the description of each line, and its `direction`."""
    for line in lines(model):
        metadata = line._asdict()
        yield metadata, {"direction": metadata.pop("direction")}


@lru_cache(1)  # the page and its test use the same means
def reference_means(model: Transformer) -> dict[str, Tensor]:
    """Return the means for a mean ablation, over its default reference set."""
    points = ("attn.skip", "attn.z", "mlp.skip", "mlp.post", "mlp_out")
    names = [
        "embed",
        *(f"blocks.{layer}.{point}" for layer in range(model.config.layers) for point in points),
    ]
    generator = torch.Generator().manual_seed(0)
    return means(model, *sums.long_sums(REFERENCE_SUMS, model.config.width, generator), names)


def packed(model: Transformer, name: str) -> dict[str, Any]:
    """Return everything that the page needs of a run."""
    tensors: dict[str, Tensor] = dict(model.state_dict())
    # The page computes the linear maps between these itself.
    stored = ("embed", "attn.z", "mlp.post")
    tensors |= {
        f"mean.{name}": x for name, x in reference_means(model).items() if name.endswith(stored)
    }
    config = asdict(model.config) | {"answer": model.config.layout.answer}
    metadata: dict[str, Any] = {
        "id": name,
        "config": config,
        "probes": [],
        "planes": [],
        "lines": [],
    }
    metadata["decision_head"] = measure.decision_head(model)
    kinds = {"plane": planes(model), "probe": probes(model), "line": line_parts(model)}
    for kind, parts in kinds.items():
        for i, (of_part, part_tensors) in enumerate(parts):
            metadata[f"{kind}s"].append(of_part)
            tensors |= {f"{kind}.{i}.{key}": x for key, x in part_tensors.items()}
    return _packed(metadata, tensors)


def _packed(metadata: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return JSON and float16 tensors, deflated, as text: 15 bits a character, from U+3000 on.

    High bytes stand before low ones, since these hardly deflate. In UTF-16 the text is a fifth
    shorter than base64.
    """
    values = np.concatenate([x.numpy().astype("<f2").ravel() for x in tensors.values()])
    high_and_low = values.view("u1").reshape(-1, 2)[:, ::-1].T.tobytes()
    shapes = {name: list(x.shape) for name, x in tensors.items()}
    header = json.dumps({**metadata, "shapes": shapes}).encode()
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15, 8, zlib.Z_FILTERED)
    deflated = squeeze.compress(header + high_and_low) + squeeze.flush()
    bits = np.unpackbits(np.frombuffer(deflated, "u1"))
    characters = np.pad(bits, (0, -len(bits) % 15)).reshape(-1, 15)
    numbers = characters @ (1 << np.arange(15)[::-1]) + 0x3000
    text = numbers.astype("<u2").tobytes().decode("utf-16-le")
    return {"id": metadata["id"], "header": len(header), "deflated": len(deflated), "text": text}


def export(out: Path) -> list[Path]:
    """Write all scripts into the folder `out`."""
    listed = export_runs(out, CHOSEN)
    sliders = [
        _write(out / f"{name}.js", "CarryTraining.receive", training(*arguments))
        for name, arguments in SLIDERS.items()
    ]
    scripts = [out / entry["file"] for entry in listed]
    return [*scripts, *sliders, _write(out / "runs.js", "CarryRuns.list", listed, "utf-8")]


def export_runs(out: Path, selection: Mapping[str, Collection[int]]) -> list[dict[str, str]]:
    """Write a script for each of the chosen runs, and return their entries in `runs.js`.

    Of the main group that says who writes the carry.
    """
    listed = []
    for group, numbers in selection.items():
        loaded = catalogue.load(group)
        writers = who_writes(loaded) if group == MAIN else {}
        for run in (run for run in loaded.numbers if run in numbers):
            label = (
                f"run {run}: {writers[run]}" if run in writers else f"run {run} of {find(group)}"
            )
            entry = {"id": f"{group}/{run}", "file": f"{group}-run{run}.js", "label": label}
            listed.append(entry | {"training": loaded.training})
            _write(out / entry["file"], "CarryRuns.receive", packed(loaded.model(run), entry["id"]))
    return listed


def who_writes(loaded: runs.Runs) -> dict[int, str]:
    """Return who writes the carry in each run that has a stored line, in words."""
    rows = line_table.of_weights(line_table.saved(), loaded)
    if rows.empty:
        return {}
    lines = line_table.by_run(rows)
    with_line = lines[lines.late.notna()]
    return {int(line.run): WRITERS[line.who] for line in with_line.itertuples()}


def training(group: str, measured: str, distance: int) -> dict[str, Any]:
    """Return a group's histories for the slider over training (Fig. 2, 5), with what is `measured`.

    Losses in float16, at least 1e-6; accuracies and attention in hundredths; all after `distance`
    many epochs, or a multiple of it, so that the runs were tested after all of these.
    """
    loaded, history = catalogue.load(group), load_curves(group)
    tested, planned = history["epochs"], loaded.planned_epochs
    steps = count(distance, distance)
    step = next(x for x in steps if np.isin(np.arange(x, tested[-1] + 1, x), tested).all())
    rows = tested % step == 0
    if measured == "pattern":  # the run and the middle epoch of Fig. 2
        transitions = dynamics.transitions(history, loaded.config.layout, planned)
        run = dynamics.shown_run(transitions)
        epoch = dynamics.shown_epochs(transitions.loc[run], tested)[1]
    else:
        run = loaded.numbers[0]
        epoch = dynamics.fit_kink(dynamics.curves(history, "test_loss")[run]).epoch
    names = ("train_loss", "test_loss", "test_accuracy", measured)
    tensors = {name: torch.from_numpy(history[name][:, rows]) for name in names}
    losses = {name: x.clamp(min=1e-6) for name, x in tensors.items() if name.endswith("loss")}
    shares = {
        name: x.double().mul(100).round().div(100)
        for name, x in tensors.items()
        if name not in losses
    }
    metadata = {"id": group, "runs": history["runs"].tolist(), "epochs": tested[rows].tolist()}
    return _packed(metadata | {"shown": {"run": int(run), "epoch": int(epoch)}}, losses | shares)


def _write(path: Path, function: str, value: Any, encoding: str = "utf-16") -> Path:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    with replacing(path) as temporary:
        temporary.write_text(f"{function}({text});\n", encoding=encoding)
    return path
