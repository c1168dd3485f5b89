"""Readers for files with a schema: JSON, YAML and tables; tables are written here, too.

A schema is a pydantic class. Whatever is wrong with a file raises one `BadInput`, which names the
file, the first place in it that the schema does not allow, and the remedy.
"""

import gzip
import io
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import yaml
from pydantic import AfterValidator, BaseModel, ValidationError

from carry_core.files import reading
from carry_train.files import LARGEST, limited, read_bytes, read_text, replacing

Schema = TypeVar("Schema", bound=BaseModel)


def one_of(names: Collection[str]) -> AfterValidator:
    """Return a validator for a part of a schema that has to be one of these names."""

    def check(name: str) -> str:
        if name not in names:
            raise ValueError(f"{name!r} is unknown, expected one of {', '.join(names)}")
        return name

    return AfterValidator(check)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn a schema's error into a `ValueError` with the first complaint and its place."""
    try:
        yield
    except ValidationError as error:
        raise ValueError(first_complaint(error)) from error


def first_complaint(error: ValidationError, content: object = None) -> str:
    """Return the first complaint of a schema after its place: `rows[3].value: ...`.

    If the content is a list of mappings with an `id`, the place begins with that of the entry.
    """
    first = error.errors(include_url=False)[0]
    complaint = first["msg"].removeprefix("Value error, ")
    place = ""
    for i, key in enumerate(first["loc"]):
        entry_id = _entry_id(content, key) if i == 0 else ""
        if entry_id:
            place += entry_id
        else:
            place += f"[{key}]" if isinstance(key, int) else f".{key}"
    place = place.lstrip(".")
    return f"{place}: {complaint}" if place else complaint


def _entry_id(content: object, key: object) -> str:
    """Return the `id` of an entry of a list; "" if it has none."""
    if not isinstance(content, list) or not isinstance(key, int):
        return ""
    entry = content[key]
    return str(entry.get("id", "")) if isinstance(entry, dict) else ""


def read_json(path: Path, schema: type[Schema], remedy: str) -> Schema:
    """Return the content of a JSON file by its schema; raise `BadInput` if it does not fit."""
    content = read_bytes(path, remedy)
    with reading(path, remedy), plain_errors():
        return schema.model_validate_json(content)


def read_yaml(path: Path, schema: type[Schema], remedy: str) -> Schema:
    """Return the content of a YAML file by its schema.

    Raises:
        BadInput: The file is missing or damaged, or a key occurs twice in a mapping.
    """
    text = read_text(path, remedy)
    with reading(path, remedy), plain_errors():
        content = yaml.load(text, Loader=_StrictLoader)
        try:
            return schema.model_validate(content)
        except ValidationError as error:
            raise ValueError(first_complaint(error, content)) from error


_YamlLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _StrictLoader(_YamlLoader):  # type: ignore[misc] # one of two classes
    """A loader of plain data that refuses duplicate keys, and has dates as texts."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        names = [key.value for key, _ in node.value]
        twice = {str(name) for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"{min(twice)} stands twice at line {node.start_mark.line + 1}")
        return super().construct_mapping(node, deep)


_StrictLoader.add_constructor("tag:yaml.org,2002:timestamp", _StrictLoader.construct_yaml_str)


def read_table(
    path: Path, schema: type[BaseModel], remedy: str, key: Sequence[str], row: str = "row"
) -> pd.DataFrame:
    """Return the table in a `.csv.gz` file.

    The `schema` has a list for each column, of its distinct values, with None for NaN. The columns
    of the `key` identify a `row`, which is what a row is called if it is there twice.

    Raises:
        BadInput: The file is missing or damaged, or a key occurs twice.
    """
    with reading(path, remedy), plain_errors(), gzip.open(path) as file:
        frame = pd.read_csv(io.BytesIO(limited(file.read(LARGEST + 1))))
        if not isinstance(frame.index, pd.RangeIndex):
            raise ValueError("its rows have more fields than its header")
        columns = {}
        for name, column in frame.items():
            distinct = column.unique().tolist()
            columns[name] = [None if value != value else value for value in distinct]
        schema.model_validate(columns)
        if frame.duplicated([*key]).any():
            raise ValueError(f"a {row} stands twice")
    return frame


def save_table(path: Path, table: pd.DataFrame) -> Path:
    """Write a table to a `.csv.gz` file; equal tables give equal bytes."""
    with replacing(path) as temporary:
        temporary.write_bytes(gzip.compress(table.to_csv(index=False).encode(), mtime=0))
    return path


def rounded(value: Any, decimals: int) -> Any:
    """Return nested fields with their numbers rounded."""
    if isinstance(value, dict):
        return {name: rounded(x, decimals) for name, x in value.items()}
    if isinstance(value, list):
        return [rounded(x, decimals) for x in value]
    return round(value, decimals) if isinstance(value, float) else value
