"""What `nyala schema` shows of the writer schemas that the masters keep."""

from __future__ import annotations

import json

import pytest

from nyala.infra.cli.producers import _told

ROW = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}, {"name": "v", "type": "string"}]}


@pytest.mark.parametrize(
    "text", ['"long"', '{"type": "nonsense"}', "[]]", '["int"]', '{"type": "record", "fields": 5}']
)
def test_stored_schema_that_makes_no_rows_is_listed_beside_others(text: str) -> None:
    """IN-71. Goal: one schema that is no record, as masters of 0.2.0 stored it, does not hide the others from the list.
    Method: such texts, and a record."""
    name, fields = _told(text)
    assert name == text and "no Avro record" in fields
    assert _told(json.dumps(ROW)) == ("Row", "id, v")
