"""Readers for files with a schema: JSON, YAML and tables.

A schema is a pydantic class. Whatever is wrong with a file raises one `BadInput`, which names the
file, the first place in it that the schema does not allow, and the remedy.
"""

import gzip
import io
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import yaml
from pydantic import AfterValidator, BaseModel, ValidationError

from carry_core.files import LARGEST, limited, read_bytes, read_text, reading

Schema = TypeVar("Schema", bound=BaseModel)

# A YAML file has no more collections within one another: its parser overflows the stack at some
# 10,000.
DEEPEST = 20


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
        first = error.errors(include_url=False)[0]
        place = ""
        for key in first["loc"]:
            place += f"[{key}]" if isinstance(key, int) else f".{key}"
        complaint = first["msg"].removeprefix("Value error, ")
        place = place.lstrip(".")
        raise ValueError(f"{place}: {complaint}" if place else complaint) from error


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
        depth = 0
        for event in yaml.parse(text, Loader=_YamlLoader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > DEEPEST:
                raise ValueError(f"it is nested more than {DEEPEST} deep")
        return schema.model_validate(yaml.load(text, Loader=_StrictLoader))


_YamlLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _StrictLoader(_YamlLoader):  # type: ignore[misc] # one of two classes
    """A loader of plain data that refuses duplicate keys, and merges of several mappings."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.checked: set[int] = set()  # merging doubles the keys of a node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        if id(node) not in self.checked:
            self.checked.add(id(node))
            line = node.start_mark.line + 1
            names: set[str] = set()
            for key, value in node.value:
                name = str(key.value)
                if name in names:
                    raise ValueError(f"{name} stands twice at line {line}")
                names.add(name)
                if name == "<<" and not isinstance(value, yaml.MappingNode):
                    raise ValueError(f"<< takes one mapping, line {line}")
        super().flatten_mapping(node)


def read_table(path: Path, schema: type[BaseModel], remedy: str) -> pd.DataFrame:
    """Return the table in a `.csv.gz` file; raise `BadInput` if it does not fit its schema.

    The schema has a list for each column, of its distinct values, with None for NaN.
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
    return frame
