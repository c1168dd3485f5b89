"""The author's public release, converted to our own file formats without running anything that is in it.

`release` reads his files. The release has no licence: what this module writes is for the user alone and is
never committed. Under `out`:

    <group>.safetensors   weights, as `runs` describes; the record names each run's file and sha256
    <group>.history.npz   float32 [run, epoch, …]: our trainer's names, and `runs`; NaN where a run has no such epoch.
                          `pattern` [run, epoch, (layer if more than one,) head, query, key];
                          `class_accuracy`, `class_corrected` [run, epoch, class, pos] of the intact one-layer
                          model, classes NC, C@1, C@2 (C all con. among them), C all; `list_<i>` if not understood
    decoder_scores.npz    Tab. 5: `att` [class, (accuracy, corrected without head 1:1; the same without 1:0), pos],
                          `ffn` [class, (accuracy, corrected without the final MLP), pos]
    llm/<model>.safetensors   `inputs` and `gen_tokens` [prompt, token] (-1 after the end), `wins` [layer, head],
                          `attention_mean` and `attention_std` [map, query, key]
    llm/<model>.json      `prompts`, `correct`, `generations` (lists of one entry per prompt), `accuracy`
    sources.json          which released files, by sha256, each of these was made from
    manifest.json         sha256 of each of these files
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from carry_core import groups, release, runs
from carry_core.errors import BadInput
from carry_core.files import author_dir, data_dir, locked, read_manifest, replacing, sha256, update_manifest, write_json
from carry_core.manifest import home
from carry_core.release import Curves, Place, Unusable

VERSION = 1  # of the conversion: what another one wrote is converted anew
Checksums = Mapping[str, str]  # by path in the release


@dataclass
class Report:
    """What an import did.

    Attributes:
        imported: released files by the output that now holds them (written, or found there unchanged).
        missing: files of the release that the folder lacks.
        damaged: files that are there but cannot be used, and why.
        kept: outputs left as an earlier, fuller import made them, and why.
    """

    imported: dict[str, list[str]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    damaged: list[tuple[str, str]] = field(default_factory=list)
    kept: list[tuple[str, str]] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """2 if a file was damaged; a missing one is no error."""
        return 2 if self.damaged else 0

    def lines(self) -> list[str]:
        """The report as text: one line per output and per file that was not imported, then the totals."""
        n_imported = sum(map(len, self.imported.values()))
        return [
            *(f"imported {output} from {len(files)} file(s)" for output, files in self.imported.items()),
            *(f"missing {path}" for path in self.missing),
            *(f"kept {output}: {why}" for output, why in self.kept),
            *(f"damaged {path}: {why}" for path, why in self.damaged),
            f"{n_imported} files imported, {len(self.missing)} missing, {len(self.damaged)} damaged.",
        ]


@dataclass(frozen=True)
class Part:
    """One released file, converted."""

    place: Place
    path: str
    sha256: str
    content: Any

    @property
    def source(self) -> dict[str, str]:
        return {"file": self.path, "sha256": self.sha256}


def import_release(
    source: Path,
    out: Path | None = None,
    report: Callable[[str], None] = lambda line: None,
    checksums: Checksums | None = None,
) -> Report:
    """Convert what is in a clone of the author's repository.

    A file that is missing or damaged is named in the report and the rest is imported. An output that an
    earlier import made from more files than are usable here stays as it is.

    Args:
        source: the clone, or a part of it.
        out: where to write; `data/author` if None.
        report: called with one line for each output.
        checksums: sha256 by path; those of the public release if None. Other files are ignored.

    Raises:
        BadInput: the folder is not a clone of that repository, or `out` cannot be written to or holds something else.
    """
    out = author_dir() if out is None else out
    checksums = release.checksums() if checksums is None else checksums
    present = {path: None for path in checksums if (source / path).is_file()}
    if not present:
        what = "is not a clone of the author's repository" if source.is_dir() else "is not a folder"
        example = min(checksums, key=lambda path: (not path.startswith("Encoder-only"), path), default="")
        raise BadInput(
            f"{source} {what}: expected files such as `{example}` in it."
            " Clone the repository that the paper names and give its folder."
        )
    done = _sources(out)
    result = Report(missing=[path for path in checksums if path not in present])
    outputs: dict[str, dict[str, Place]] = {}
    for path in present:
        if (where := release.place(path)) is None:
            result.damaged.append((path, "its name fits no group of runs: take it off the list of sha256s"))
        else:
            outputs.setdefault(where.output, {})[path] = where
    for output, places in outputs.items():
        wanted = {path: (where, checksums[path]) for path, where in places.items()}
        _import_output(source, out, output, wanted, done.get(output, {}), result)
        if output in result.imported:
            report(f"{output}: {len(result.imported[output])} file(s)")
    return result


def _import_output(
    source: Path, out: Path, output: str, wanted: dict[str, tuple[Place, str]], done: dict[str, Any], result: Report
) -> None:
    contents: dict[str, bytes] = {}
    for path, (_, digest) in wanted.items():
        try:
            contents[path] = release.read(source / path, digest)
        except Unusable as error:
            result.damaged.append((path, str(error)))
    before = done.get("files", {})
    if done.get("version") == VERSION and before == {path: wanted[path][1] for path in contents}:
        result.imported[output] = list(contents)  # as it is: a second import leaves the same bytes
        return
    parts = []
    for path, content in contents.items():
        place, digest = wanted[path]
        try:
            parts.append(Part(place, path, digest, release.convert(place, release.unpack(path, content))))
        except Unusable as error:
            result.damaged.append((path, str(error)))
    if len(parts) < len(before):
        why = f"an earlier import made it from {len(before)} files, and only {len(parts)} of them are usable here"
        result.kept.append((output, why))
    elif parts:
        if not (out / "sources.json").exists():  # first: it tells a folder that we may fill from any other
            write_json(out / "sources.json", {})
        names = WRITERS[parts[0].place.kind](out, output, parts)
        files = {part.path: part.sha256 for part in parts}
        _publish(out, output, {"version": VERSION, "outputs": names, "files": files})
        result.imported[output] = list(files)


def _write_weights(out: Path, output: str, parts: list[Part]) -> list[str]:
    """The latest weights of each run, and earlier ones as snapshots where all runs have them."""
    by_epoch: dict[int, dict[int, Part]] = {}
    for part in sorted(parts, key=lambda part: (part.place.epoch, part.place.run)):
        by_epoch.setdefault(part.place.epoch, {})[part.place.run] = part
    *earlier, last = by_epoch
    snapshots = [epoch for epoch in earlier if by_epoch[epoch].keys() == by_epoch[last].keys()]
    weights: dict[str, Tensor] = {}
    for epoch in [last, *snapshots]:
        states = [part.content for part in by_epoch[epoch].values()]
        prefix = "" if epoch == last else f"epoch_{epoch}/"
        weights |= {prefix + name: torch.stack([state[name] for state in states]) for name in states[0]}
    record = {
        "recipe": "author", "epochs": last,
        "runs": [{"run": run} | part.source for run, part in by_epoch[last].items()],
        "snapshots": [{"run": r, "epoch": e} | part.source for e in snapshots for r, part in by_epoch[e].items()],
    }  # fmt: skip
    runs.save(out, output, groups.find(output).config, weights, record)
    return [f"{output}.safetensors"]


def _write_history(out: Path, output: str, parts: list[Part]) -> list[str]:
    by_run: dict[int, Curves] = {}
    for part in sorted(parts, key=lambda part: (part.place.run, part.place.epoch)):
        run = part.place.run
        by_run[run] = _continued(by_run.get(run, {}), part.content, part.place.epoch)
    history: dict[str, Any] = {"runs": np.array(list(by_run))}
    for key in dict.fromkeys(key for found in by_run.values() for key in found):
        arrays = [found[key] for found in by_run.values() if key in found]
        shape = np.max([array.shape for array in arrays], axis=0)
        stacked = np.full((len(by_run), *shape), np.nan, np.float32)
        for row, found in zip(stacked, by_run.values(), strict=True):
            if key in found:
                row[tuple(slice(size) for size in found[key].shape)] = found[key]
        history[key] = stacked
    return _write_arrays(out, output, history)


def _continued(before: Curves, after: Curves, end: int) -> Curves:
    """One run's curves to epoch `end`: where `after` does not reach back to the start, `before` precedes it."""
    gap = end - len(after["train_loss"])
    if gap <= 0:
        return after
    joined = {}
    for key, array in after.items():
        joined[key] = np.full((gap + len(array), *array.shape[1:]), np.nan, np.float32)
        known = before[key][:gap] if key in before else array[:0]
        joined[key][: len(known)], joined[key][gap:] = known, array
    return joined


def _write_scores(out: Path, output: str, parts: list[Part]) -> list[str]:
    return _write_arrays(out, output, {part.place.part: part.content for part in parts})


def _write_arrays(out: Path, output: str, arrays: dict[str, Any]) -> list[str]:
    with replacing(out / f"{output}.npz") as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)
    return [f"{output}.npz"]


def _write_answers(out: Path, output: str, parts: list[Part]) -> list[str]:
    tensors = {name: tensor for part in parts for name, tensor in part.content[0].items()}
    texts = {name: text for part in parts for name, text in part.content[1].items()}
    with replacing(out / f"{output}.safetensors") as temporary:
        save_file(tensors, temporary)
    write_json(out / f"{output}.json", texts)
    return [f"{output}.safetensors", f"{output}.json"]


WRITERS: dict[str, Callable[[Path, str, list[Part]], list[str]]] = {
    "weights": _write_weights, "history": _write_history, "scores": _write_scores, "llm": _write_answers,
}  # fmt: skip


def _publish(out: Path, output: str, entry: dict[str, Any]) -> None:
    """Note what an output was made from, and list its files in the manifest."""
    path = out / "sources.json"
    with locked(out):
        write_json(path, dict(sorted((json.loads(path.read_text()) | {output: entry}).items())))
        update_manifest(out, [*entry["outputs"], path.name])


def _sources(out: Path) -> dict[str, dict[str, Any]]:
    """What an earlier import made each output from, for those whose files are still as it wrote them.

    Raises:
        BadInput: `out` is no folder, or not one for this.
    """
    path = out / "sources.json"
    foreign = home(out)[0] != out or ((out / "manifest.json").exists() and not path.exists())
    if foreign or (out.exists() and not out.is_dir()):
        raise BadInput(f"Cannot import into {out}: expected a folder of its own, such as {data_dir() / 'author'}.")
    try:
        sources = json.loads(path.read_text()) if path.exists() else {}
        manifest = read_manifest(out)
        return {output: entry for output, entry in sources.items() if _intact(out, entry["outputs"], manifest)}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{path} or its manifest.json is damaged: delete {out} and import again.") from error


def _intact(out: Path, names: list[str], manifest: dict[str, str]) -> bool:
    return all((out / name).is_file() and sha256(out / name) == manifest.get(name) for name in names)
