"""Tests of one file run in one process, so that their fixtures are set up once."""

import pytest


def test_xdist_sees_the_group_of_a_test(request):
    if not hasattr(request.config, "workerinput"):
        pytest.skip("needs xdist")
    assert request.node.nodeid.endswith("@tests/test_groups.py")
