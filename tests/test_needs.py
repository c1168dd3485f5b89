"""What a machine may lack is tried, by one helper, and nothing else skips a test."""

import pytest

from tests.helpers import needs


def test_what_is_demanded_fails_where_it_is_lacking(monkeypatch):
    lacking = needs.Need(lambda: "there is none", "make it", demanded_by="CARRY_DEMANDS_IT")
    monkeypatch.setitem(needs.NEEDS, "something", lacking)
    with pytest.raises(pytest.skip.Exception, match=r"needs something \(there is none\): make it"):
        needs.require("something")
    monkeypatch.setenv("CARRY_DEMANDS_IT", "1")
    with pytest.raises(pytest.fail.Exception, match="something"):
        needs.require("something")
