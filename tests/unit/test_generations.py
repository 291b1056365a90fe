"""Generations compared line by line."""

from __future__ import annotations

import pytest

from om_core.domain.generations import line_diff


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("a\nb", "a\nb", []),
        ("", "a\nb", [("gap", ""), ("added", "a"), ("added", "b")]),
        ("a\nb\nc", "a\nc", [("gap", ""), ("same", "a"), ("removed", "b"), ("same", "c")]),
        ("--- x", "+++ x", [("gap", ""), ("removed", "--- x"), ("added", "+++ x")]),
        ("@@ x", "y", [("gap", ""), ("removed", "@@ x"), ("added", "y")]),
        ("a\n\nb", "a\n\nc", [("gap", ""), ("same", "a"), ("same", ""), ("removed", "b"), ("added", "c")]),
    ],
)
def test_lines_that_came_and_went_with_the_lines_around_them(before, after, expected):
    assert [(line.op, line.text) for line in line_diff(before, after)] == expected


def test_far_equal_lines_are_left_out():
    before = "\n".join(f"line {number}" for number in range(50))
    found = line_diff(before, before.replace("line 10\n", "").replace("line 40\n", ""))
    assert [line.op for line in found].count("gap") == 2
    assert len(found) == 2 * (1 + 2 + 1 + 2)
