"""Where do the JVM packages come from, without fetching any?"""

import pytest

from twice import jars
from twice.errors import Misuse


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TWICE_JARS", str(tmp_path / "jars"))
    return jars.cache_folder()


def put(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()


def jars_of(conf):
    return [f"{package.split(':')[1]}-{package.split(':')[2]}.jar" for package in jars.pinned(conf)]


def test_every_configuration_has_pinned_packages():
    assert "delta" in jars.configurations()
    assert all(package.count(":") == 2 for conf in jars.configurations() for package in jars.pinned(conf))
    assert all(jars.pinned(conf) for conf in jars.configurations())


def test_an_unknown_configuration_has_no_packages():
    assert (jars.pinned("none"), jars.pinned("del")) == ([], [])


def test_the_cache_is_named_by_the_pins(cache, tmp_path, monkeypatch):
    assert cache.parent == tmp_path / "jars"
    monkeypatch.setattr(jars, "IVY_FILE", tmp_path / "ivy.xml")
    (tmp_path / "ivy.xml").write_text("<other/>")
    assert jars.cache_folder() != cache


def test_the_users_cache_is_used_where_nothing_else_is_said(tmp_path, monkeypatch):
    monkeypatch.delenv("TWICE_JARS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jars.cache_folder().parent == tmp_path / "twice" / "jars"


def test_what_is_cached_is_not_fetched(cache, monkeypatch):
    put(cache / "delta", "b.jar", "a.jar", "notes.txt")
    monkeypatch.setattr(jars, "fetch", pytest.fail)
    assert [jar.name for jar in jars.ensure(["delta"])] == ["a.jar", "b.jar"]


def test_what_is_missing_is_fetched_and_said_once(cache, monkeypatch, capsys):
    monkeypatch.setattr(jars, "fetch", lambda confs: [put(cache / conf, "a.jar") for conf in confs])
    for _ in range(2):
        assert [jar.name for jar in jars.ensure(["delta"])] == ["a.jar"]
    assert capsys.readouterr().err.count("fetching JVM packages") == 1


def test_a_folder_of_ones_own_is_checked_against_the_pins(tmp_path):
    put(tmp_path, *jars_of("delta"))
    assert len(jars.in_folder(tmp_path, "delta")) == len(jars.pinned("delta"))


def test_a_package_that_is_not_in_the_folder_is_named(tmp_path):
    put(tmp_path / "delta", *jars_of("delta")[1:])
    with pytest.raises(Misuse, match=f"holds no {jars.pinned('delta')[0].split(':')[1]}"):
        jars.in_folder(tmp_path, "delta")


def test_of_two_that_fetch_at_once_the_first_copy_stays(tmp_path):
    put(tmp_path / "mine", "a.jar")
    put(tmp_path / "final", "b.jar")
    jars._move_into_place(tmp_path / "mine", tmp_path / "final")
    assert [jar.name for jar in (tmp_path / "final").iterdir()] == ["b.jar"]


def test_java_that_is_not_there_is_misuse(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(Misuse, match="Java was not found"):
        jars._java()
