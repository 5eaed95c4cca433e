"""One list of columns is a table, JSON and CSV."""

import io
from typing import NamedTuple

from zae_limiter_ops.cli.shared.records import print_csv, print_records
from zae_limiter_ops.views.columns import (
    Column,
    PlainTable,
    as_text,
    cells_of,
    json_of,
    of_part,
    titles_of,
    write_csv,
)


class Key(NamedTuple):
    name: str
    tokens: int
    is_child: bool = False


COLUMNS = (
    Column(title="key", key="id", csv="key_id", value=lambda key: key.name),
    Column(title="tokens>", csv="tokens", value=lambda key: key.tokens),
    Column(key="tokens_milli", value=lambda key: 1000 * key.tokens),
    Column(title="child", value=lambda key: key.is_child),
)


def csv_of(columns, record):
    file = io.StringIO()
    write_csv(columns, [record], file)
    return file.getvalue()


def test_each_form_leaves_out_columns_without_a_name_there():
    key = Key("a", 1200)
    assert titles_of(COLUMNS) == ["key", "tokens>", "child"]
    assert cells_of(COLUMNS, key) == ["a", "1,200", "no"]
    assert json_of(COLUMNS, key) == {"id": "a", "tokens_milli": 1_200_000}
    assert csv_of(COLUMNS, key) == "key_id,tokens\na,1200\n"


def test_a_format_is_for_tables_only():
    columns = [
        Column(title="share>", key="share", csv="share", value=float, format="{:.0%}".format)
    ]
    assert cells_of(columns, 1) == ["100%"]
    assert json_of(columns, 1) == {"share": 1.0}
    assert csv_of(columns, 1) == "share\n1.0\n"


def test_columns_of_a_part_read_the_part():
    columns = of_part(COLUMNS, lambda pair: pair[1])
    assert titles_of(columns) == titles_of(COLUMNS)
    assert json_of(columns, ("x", Key("b", 2))) == {"id": "b", "tokens_milli": 2000}


def test_values_as_text():
    assert [as_text(value) for value in (None, True, 1234, 0, 1.5, "x")] == [
        "",
        "yes",
        "1,234",
        "0",
        "1.5",
        "x",
    ]


def test_records_are_printed_as_json_or_as_a_table(capsys):
    for output in ("table", "json"):
        print_records(output, COLUMNS, [Key("a", 1)], name="keys", if_none="none", more=None)
    table, _, json_text = capsys.readouterr().out.partition("{")
    assert table.splitlines()[0].split() == ["key", "tokens", "child"]
    assert table.splitlines()[2].split() == ["a", "1", "no"]
    assert '"tokens_milli": 1000' in json_text
    assert '"more": null' in json_text


def test_a_hint_says_that_there_are_no_records(capsys):
    print_records("table", COLUMNS, [], name="keys", if_none="no keys")
    assert capsys.readouterr() == ("", "no keys\n")


def test_csv_quotes_formulas_and_keeps_numbers(capsys):
    print_csv(COLUMNS, [Key("=1+1", -5)])
    assert capsys.readouterr().out == "key_id,tokens\n'=1+1,-5\n"


def test_a_plain_table_aligns_wide_characters():
    rows = [["日本", "1"], ["ab", "22"]]
    table = PlainTable(["id", "n>"], rows)
    assert [table.head, table.rule("-"), *map(table.line, rows)] == [
        "id     n",
        "--------",
        "日本   1",
        "ab    22",
    ]
