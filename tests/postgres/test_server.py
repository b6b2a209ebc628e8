"""Is the server that tests and the demo use started, killed, started again and removed as it should?"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from servers import empty_database
from twice.errors import Misuse
from twice.servers import postgres
from twice.servers.postgres import PostgresServer

STARTS_AND_DIES = """
import os
import shutil
from twice.servers.postgres import PostgresServer
server = PostgresServer().__enter__()
print(server.folder, server.pid, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.fixture(scope="module")
def own_server():
    with PostgresServer() as server:
        yield server


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_it_listens_on_the_loopback_address_alone_and_asks_for_a_password(own_server):
    with psycopg.connect(own_server.url()) as db:
        assert db.execute("SHOW listen_addresses").fetchone() == ("127.0.0.1",)
        assert db.execute("SHOW unix_socket_directories").fetchone() == ("",)
        assert db.info.server_version // 10000 == 18
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(own_server.url(user="postgres", password="a guess"))


def test_an_interrupt_while_it_starts_leaves_no_server_behind(monkeypatch):
    started = []

    def start(server, really=PostgresServer.start):
        really(server)
        started.append((server.folder, server.pid))
        raise KeyboardInterrupt

    monkeypatch.setattr(PostgresServer, "start", start)
    with pytest.raises(KeyboardInterrupt), PostgresServer():
        pass
    ((folder, pid),) = started
    assert (is_alive(pid), folder.exists()) == (False, False)


def test_what_was_committed_outlives_a_kill(own_server):
    with psycopg.connect(own_server.url()) as db:
        db.execute("CREATE TABLE kept (n int)")
        db.execute("INSERT INTO kept SELECT generate_series(1, 1000)")
    before = own_server.pid
    own_server.kill()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(own_server.url())
    own_server.start()
    assert own_server.pid != before
    with psycopg.connect(own_server.url()) as db:
        assert db.execute("SELECT count(*) FROM kept").fetchone() == (1000,)


def test_an_open_transaction_does_not_outlive_a_kill(own_server):
    db = psycopg.connect(own_server.url())
    db.execute("CREATE TABLE torn (n int)")
    own_server.kill()
    own_server.start()
    with pytest.raises(psycopg.OperationalError):
        db.execute("INSERT INTO torn VALUES (1)")
    with psycopg.connect(own_server.url()) as again:
        assert again.execute("SELECT to_regclass('torn')").fetchone() == (None,)


def test_a_standby_follows_and_can_only_be_read(own_server):
    with own_server.copy_as_standby() as standby, psycopg.connect(standby.url()) as db:
        assert db.execute("SELECT pg_is_in_recovery()").fetchone() == (True,)
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            db.execute("CREATE TABLE mine (n int)")


def test_nothing_is_left_when_it_is_left():
    with PostgresServer() as server:
        pid, folder = server.pid, server.folder
        assert is_alive(pid)
    assert not is_alive(pid)
    assert not folder.exists()


@pytest.fixture
def hidden_software(tmp_path):
    """A copy of the server's package that only its owner may look at."""
    package = Path(postgres._installed())
    for name in (package.name, f"{package.name}.libs"):
        shutil.copytree(package.with_name(name), tmp_path / name)
    tmp_path.chmod(0o700)
    return str(tmp_path)


def test_nothing_is_left_of_software_that_had_to_be_copied(hidden_software):
    nothing_is_left({**os.environ, "PYTHONPATH": os.pathsep.join([hidden_software, *sys.path])})


def test_nothing_is_left_when_its_starter_is_killed():
    nothing_is_left(None)


def nothing_is_left(environment):
    words = [sys.executable, "-c", STARTS_AND_DIES]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    folder, pid = done.stdout.split()
    deadline = time.monotonic() + 20
    while (is_alive(pid) or os.path.exists(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(pid)
    assert not os.path.exists(folder)


def test_a_folder_that_holds_a_server_is_left_alone(own_server):
    with pytest.raises(Misuse, match="holds a PostgreSQL server already"):
        PostgresServer(own_server.folder).__enter__()
    with psycopg.connect(own_server.url()) as db:
        assert db.execute("SELECT 1").fetchone() == (1,)


def test_without_its_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(postgres, "_PACKAGE", "not_there")
    with pytest.raises(Misuse, match=r"pip install 'twice\[postgres-server\]'"):
        PostgresServer().__enter__()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as somebody else")
def test_root_may_keep_the_binaries_where_nobody_else_can_read(tmp_path, monkeypatch):
    """As in an environment below root's home folder: the server's user runs a copy."""
    closed = tmp_path / "closed"
    package = postgres._installed()
    closed.mkdir(mode=0o700)
    (closed / package.name).symlink_to(package)
    (closed / f"{package.name}.libs").symlink_to(package.with_name(f"{package.name}.libs"))
    monkeypatch.setattr(postgres, "_installed", lambda: closed / package.name)
    with PostgresServer() as server, psycopg.connect(server.url()) as db:
        assert (server.folder / "software").is_dir()
        assert db.execute("SELECT 1").fetchone() == (1,)


def test_each_test_has_a_database_of_its_own(postgres_server):
    with empty_database(postgres_server) as one, empty_database(postgres_server) as two:
        with psycopg.connect(one) as db:
            db.execute("CREATE TABLE here (n int)")
        with psycopg.connect(two) as db:
            assert db.execute("SELECT to_regclass('here')").fetchone() == (None,)
