"""Who comes before whom?"""

import itertools

import pytest

import twice
from twice.errors import Misuse
from twice.upstream import upstream_first, upstream_of


def one(name, source, target=None):
    given = {"target": target or f"memory:lake/{name}", "pattern": twice.data_overwrite()}
    return twice.pipeline(name=name, source=source, **given)(lambda rows: rows)


def table(name, **given):
    return twice.table(f"memory:lake/{name}", **given)


FILES = twice.files("in/*.json", schema="id string")


def names(pipelines):
    return [pipeline.name for pipeline in pipelines]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (table("a"), ["a"]),
        (table("a/orders"), ["a"]),
        (table("a", version=3), []),
        (table("ab"), []),
        (twice.table("delta:lake/a"), []),
        (twice.query("SELECT * FROM x JOIN y", tables={"x": "memory:lake/b", "y": "memory:lake/a"}), ["a", "b"]),
        (twice.query("SELECT * FROM x", tables={"x": table("a", version=1)}), []),
        (FILES, []),
    ],
)
def test_a_pipeline_comes_after_those_whose_targets_it_follows(source, found):
    reader = one("reader", source)
    assert names(upstream_of(reader, [one("a", FILES), reader, one("b", FILES)])) == found


def test_all_sources_count():
    both = {"x": table("a"), "y": table("b")}
    reader = twice.pipeline(name="c", sources=both, target="memory:c", pattern=twice.data_overwrite())(dict)
    assert names(upstream_of(reader, [one("a", FILES), one("b", FILES)])) == ["a", "b"]


def test_what_is_read_comes_first_and_the_rest_stays_as_it_was():
    chain = [one("c", table("b")), one("x", FILES), one("b", table("a")), one("a", FILES), one("y", FILES)]
    order = names(upstream_first(chain))
    assert [name for name in order if name in "abc"] == ["a", "b", "c"]
    assert [name for name in order if name in "xy"] == ["x", "y"]
    assert names(upstream_first([one("b", FILES), one("a", FILES)])) == ["b", "a"]


def test_a_circle_is_refused_and_named_as_it_is_read():
    circle = [one("a", table("b")), one("b", table("c")), one("c", table("a")), one("d", FILES)]
    with pytest.raises(Misuse) as refused:
        upstream_first(circle)
    told = refused.value.what.partition(": ")[2].rstrip(".").split(" reads ")
    assert set(told) == {"'a'", "'b'", "'c'"}
    reads = {"'a'": "'b'", "'b'": "'c'", "'c'": "'a'"}
    assert all(reads[reader] == read for reader, read in itertools.pairwise(told))


def test_a_pipeline_that_reads_itself_is_told_so_when_it_runs():
    assert names(upstream_first([one("a", table("a"))])) == ["a"]
