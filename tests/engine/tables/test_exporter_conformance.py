from __future__ import annotations

import pytest

from gemmtune.engine.records.errors import ContractError
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.testing import exporter_conformance


@pytest.mark.parametrize("check", exporter_conformance.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", registry.names(Exporter))
def test_registered_exporter_keeps_the_contract(name, check):
    check(type(registry.exporter(name)))


class Escaping(Exporter):
    def export(self, table):
        return {"../table.json": str(len(table.rows))}


class Forgetful(Exporter):
    calls = 0

    def export(self, table):
        Forgetful.calls += 1
        return {"table.txt": str(Forgetful.calls)}


class Careless(Exporter):
    spaces = ("aten",)

    def export(self, table):
        return {"table.txt": repr([row.choices[0].space for row in table.rows])}


@pytest.mark.parametrize(
    ("exporter", "check", "broken"),
    [
        (Escaping, exporter_conformance.writes_texts_to_plain_files, "not a path of plain names"),
        (Forgetful, exporter_conformance.repeats_itself, "second export"),
        (Careless, exporter_conformance.refuses_an_unknown_space, "does not exist"),
    ],
)
def test_suite_catches_a_broken_exporter(exporter, check, broken):
    with pytest.raises(ContractError, match=broken):
        check(exporter)
