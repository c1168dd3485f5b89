"""Files that are read by a schema: JSON, YAML and tables.

A schema is a class of pydantic's. Whatever is wrong with a file is one `BadInput`, which names the
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

# collections within collections of a YAML file: its parser overflows the stack at some 10,000
DEEPEST = 20


def one_of(names: Collection[str]) -> AfterValidator:
    """A part of a schema: one of these names."""

    def check(name: str) -> str:
        if name not in names:
            raise ValueError(f"{name!r} is unknown, expected one of {', '.join(names)}")
        return name

    return AfterValidator(check)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn a schema's error into a `ValueError` with the first complaint and its place in the file."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in first["loc"])
        complaint = first["msg"].removeprefix("Value error, ")
        raise ValueError(": ".join(filter(None, [place.lstrip("."), complaint]))) from error


def read_json(path: Path, schema: type[Schema], remedy: str) -> Schema:
    """A JSON file as its schema has it, else `BadInput`."""
    content = read_bytes(path, remedy)
    with reading(path, remedy), plain_errors():
        return schema.model_validate_json(content)


def read_yaml(path: Path, schema: type[Schema], remedy: str) -> Schema:
    """A YAML file as its schema has it, else `BadInput`; also where a key stands twice in a mapping."""
    text = read_text(path, remedy)
    with reading(path, remedy), plain_errors():
        depth = 0
        for event in yaml.parse(text, Loader=_YamlLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(
                event, yaml.CollectionEndEvent
            )
            if depth > DEEPEST:
                raise ValueError(f"it is nested more than {DEEPEST} deep")
        return schema.model_validate(yaml.load(text, Loader=_StrictLoader))


_YamlLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _StrictLoader(_YamlLoader):  # type: ignore[misc] # one of two classes
    """Loads plain data, in which no key stands twice and no mapping takes over more than one other."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.checked: set[int] = set()  # merging doubles the keys of a node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        if id(node) not in self.checked:
            self.checked.add(id(node))
            names = [str(key.value) for key, _ in node.value]
            twice = [name for name in names if names.count(name) > 1]
            if twice:
                raise ValueError(f"{twice[0]} stands twice at line {node.start_mark.line + 1}")
            if any(
                key.value == "<<" and not isinstance(value, yaml.MappingNode)
                for key, value in node.value
            ):
                raise ValueError(f"<< takes one mapping, line {node.start_mark.line + 1}")
        super().flatten_mapping(node)


def read_table(path: Path, schema: type[BaseModel], remedy: str) -> pd.DataFrame:
    """A `.csv.gz` file, else `BadInput`.

    The schema has a list for each column, which stands for its distinct values, with None for NaN.
    """
    with reading(path, remedy), plain_errors(), gzip.open(path) as file:
        frame = pd.read_csv(io.BytesIO(limited(file.read(LARGEST + 1))))
        if not isinstance(frame.index, pd.RangeIndex):
            raise ValueError("its rows have more fields than its header")
        distinct = {name: column.unique().tolist() for name, column in frame.items()}
        schema.model_validate(
            {name: [None if x != x else x for x in values] for name, values in distinct.items()}
        )
    return frame
