"""What is read of a processor, from texts like Linux's."""

import pytest

from carry_fast.processor import Processor, parse

X86 = """processor	: 0
model name	: Some Processor @ 2.00GHz
flags		: fma avx2
vmx flags	: vnmi

processor	: 1
model name	: Another
flags		: sse
"""
ARM = """processor	: 0
BogoMIPS	: 50.00
Features	: asimd bf16
"""


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (X86, Processor("Some Processor @ 2.00GHz", frozenset({"fma", "avx2"}))),
        (ARM, Processor(instructions=frozenset({"asimd", "bf16"}))),
        ("", Processor()),  # as on macOS, which has no such file
    ],
)
def test_a_processor_is_read_from_linux_s_text(info, expected):
    assert parse(info) == expected
