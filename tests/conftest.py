"""Fixtures only: one Spark session for all tests that can share it, and worlds on every store."""

import itertools

import pytest

from databases import Database, drop_what_was_made
from inboxes import Inbox
from telling import is_left_to_prove
from worlds import STORES, WITHOUT_SPARK, World, lacks

pytest_plugins = ("servers",)


def pytest_addoption(parser):
    parser.addoption("--stores", default=",".join(STORES), help=f"which stores to try: {','.join(STORES)}")
    parser.addoption("--every-kill", action="store_true", help="kill at every point with SIGKILL, not at a sample")


def pytest_collection_modifyitems(config, items):
    for item in items:
        if "postgres_server" in item.fixturenames:
            item.add_marker("postgres")
    every = config.getoption("--every-kill")
    left = [item for item in items if lacks(item) or (is_left_to_prove(item) and not every)]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


def pytest_generate_tests(metafunc):
    if "kind" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--stores").split(",")
        only = metafunc.definition.get_closest_marker("stores")
        wanted = [kind for kind in (only.args if only else STORES) if kind in chosen]
        metafunc.parametrize("kind", [pytest.param(kind, marks=_marks(kind)) for kind in wanted])


def _marks(kind):
    needed = {"postgres": [pytest.mark.postgres]}
    return needed.get(kind, [] if kind in WITHOUT_SPARK else [pytest.mark.spark])


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    from twice import settings
    from twice.engine import Engine

    root = tmp_path_factory.mktemp("spark")
    (root / "twice.toml").write_text(
        "[spark]\nmaster = 'local[2]'\n[spark.conf]\n"
        f"'spark.sql.warehouse.dir' = '{root}/warehouse'\n"
        # Hundreds of tables pass through this one JVM, and Delta would keep the plans of each for an hour.
        "'spark.driver.memory' = '3g'\n"
        "'spark.driver.extraJavaOptions' = '-Ddelta.log.cacheSize=8 -XX:+UseSerialGC'\n"
        # A query over ten rows is answered sooner than code or another plan is made for it; runs in processes of
        # their own make both.
        "'spark.sql.codegen.wholeStage' = 'false'\n'spark.sql.codegen.factoryMode' = 'NO_CODEGEN'\n"
        "'spark.sql.adaptive.enabled' = 'false'\n"
    )
    engine = Engine(settings.load(root), lambda: {"delta"})
    yield engine.spark
    engine.stop()


@pytest.fixture
def session(kind, request):
    return None if kind in WITHOUT_SPARK else request.getfixturevalue("spark")


@pytest.fixture
def new_database(kind, request):
    """Return a maker of empty databases, where the store is one; they go with the test."""
    if kind != "postgres":
        yield lambda: None
        return
    server = request.getfixturevalue("postgres_server")
    yield lambda: Database.made(server)
    drop_what_was_made()


@pytest.fixture
def world(kind, session, tmp_path, new_database):
    return World(tmp_path / "world", kind, session, database=new_database())


@pytest.fixture
def make_world(kind, session, tmp_path, new_database):
    """Return a maker of fresh worlds on one store."""
    count = 0

    def make(**settings):
        nonlocal count
        count += 1
        return World(tmp_path / f"world{count}", kind, session, database=new_database(), **settings)

    return make


@pytest.fixture(scope="session")
def filled_worlds():
    """What was filled already, for `filled_once`."""
    return {}


@pytest.fixture
def filled_once(kind, session, tmp_path, tmp_path_factory, make_world, filled_worlds, request):
    """Return a maker of worlds that are filled once, for all tests of a module, and copied for each of them."""

    def make(fill, **settings):
        if kind in WITHOUT_SPARK:
            world = make_world(**settings)
            fill(world)
            return world
        key = (request.module.__name__, fill.__name__, kind, repr(settings))
        if key not in filled_worlds:
            world = World(tmp_path_factory.mktemp("filled") / "world", kind, session, **settings)
            fill(world)
            filled_worlds[key] = world
        return filled_worlds[key].copied(tmp_path / "world")

    return make


@pytest.fixture
def make_inbox(kind, session, tmp_path, new_database):
    """Return a maker of fresh ingests on one store."""
    count = 0

    def make(**settings):
        nonlocal count
        count += 1
        return Inbox(tmp_path / f"inbox{count}", kind, session, database=new_database(), **settings)

    return make


@pytest.fixture
def copies_of(tmp_path):
    """Return a maker of copies of one prepared world."""

    def copies(template):
        numbers = itertools.count()
        return lambda: template.copied(tmp_path / f"copy{next(numbers)}")

    return copies
