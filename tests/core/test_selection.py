"""Which pipelines does a selector name? Decided from declarations alone."""

import subprocess
import sys

import pytest

import twice
from twice.cli.selection import selected
from twice.errors import Misuse


def one(name, *reads, tags=()):
    tables = {source: twice.table(f"memory:lake/{source}") for source in reads}
    given = {"sources": tables} if tables else {"source": twice.files("in/*.json", schema="id string")}
    declare = twice.pipeline(
        name=name, target=f"memory:lake/{name}", pattern=twice.data_overwrite(), tags=tags, **given
    )
    return declare(lambda *rows, **named: rows)


# visits and orders are read by joined, which is read by report; prices stands alone.
SHOP = [
    one("report", "joined", tags=["nightly", "finance"]),
    one("joined", "visits", "orders"),
    one("visits", tags="nightly"),
    one("orders", tags=["finance"]),
    one("prices"),
]


def names(*select, exclude=()):
    return [pipeline.name for pipeline in selected(SHOP, select, exclude)]


@pytest.mark.parametrize(
    ("select", "found"),
    [
        ((), "report joined visits orders prices"),
        (("visits",), "visits"),
        (("prices", "visits"), "visits prices"),
        (("prices visits",), "visits prices"),
        (("*r*s",), "orders prices"),
        (("[jv]*",), "joined visits"),
        (("tag:nightly",), "report visits"),
        (("tag:f*",), "report orders"),
        (("+joined",), "joined visits orders"),
        (("visits+",), "report joined visits"),
        (("+joined+",), "report joined visits orders"),
        (("+report",), "report joined visits orders"),
        (("prices+",), "prices"),
        (("tag:nightly,tag:finance",), "report"),
        (("+report,tag:nightly",), "report visits"),
        (("tag:nightly,tag:finance prices",), "report prices"),
        (("+tag:finance",), "report joined visits orders"),
    ],
)
def test_a_selector_names_pipelines_in_the_order_of_the_project(select, found):
    assert names(*select) == found.split()


@pytest.mark.parametrize(
    ("select", "exclude", "found"),
    [
        ((), ("prices",), "report joined visits orders"),
        (("+report",), ("tag:nightly",), "joined orders"),
        (("visits+",), ("joined+",), "visits"),
        (("visits",), ("prices",), "visits"),
    ],
)
def test_what_is_excluded_is_left_out(select, exclude, found):
    assert names(*select, exclude=exclude) == found.split()


@pytest.mark.parametrize(
    ("select", "exclude", "what", "fix"),
    [
        (("vists",), (), "'vists' matches no pipeline.", "Did you mean 'visits'?"),
        (("visits", "x*"), (), "'x*' matches no pipeline.", "There is: joined, orders, prices, report, visits."),
        (("tag:nighty",), (), "'tag:nighty' matches no pipeline.", "Did you mean 'tag:nightly'?"),
        ((), ("vists",), "'vists' matches no pipeline.", "Did you mean 'visits'?"),
        (("+joind+",), (), "'joind' matches no pipeline.", "Did you mean 'joined'?"),
        (("tag:nightly,prices",), (), "No pipeline matches all of 'tag:nightly,prices'.", "Write a space"),
        (("visits+",), ("+report",), "--exclude +report leaves no pipeline.", "Exclude fewer"),
        (("",), (), "'' selects nothing.", "Write a name"),
        (("  ",), (), "'  ' selects nothing.", "Write a name"),
        (("visits,",), (), "'' selects nothing.", "Write a name"),
        (("2+visits",), (), "'2+visits' selects nothing.", "Write a name"),
        (("+",), (), "'+' selects nothing.", "Write a name"),
        (("path:visits",), (), "'path:visits' selects nothing.", "Write a name"),
    ],
)
def test_a_selector_that_matches_nothing_is_refused_with_what_there_is(select, exclude, what, fix):
    with pytest.raises(Misuse) as refused:
        names(*select, exclude=exclude)
    assert refused.value.what == what
    assert refused.value.why.endswith("Nothing was done.")
    assert fix in refused.value.fix


def test_a_circle_of_reads_ends_where_it_began():
    circle = [one("a", "b"), one("b", "a"), one("c")]
    assert [pipeline.name for pipeline in selected(circle, ["+a+"])] == ["a", "b"]


@pytest.mark.parametrize("tags", ["night ly", ["ok", ""], ["a:b"]])
def test_a_tag_that_no_selector_could_name_is_refused(tags):
    with pytest.raises(Misuse, match="cannot name a tag"):
        one("a", tags=tags)


def test_tags_are_no_part_of_the_code_so_that_a_new_one_makes_nothing_stale():
    assert one("a", tags="x").code == one("a").code


def test_selecting_loads_no_spark():
    program = (
        "import sys, twice.cli.selection;"
        "print([name for name in ('pyspark', 'pyarrow', 'psycopg', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
