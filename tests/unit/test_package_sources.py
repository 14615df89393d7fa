"""Package sources: as the settings say, or `PIP_INDEX_URL`."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from warren.bootstrap.package_sources import build_sources
from warren.domain.errors import ConfigError
from warren.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from warren.core.packages.sources import PackageSources


def build(folder: Path, **environ: str) -> PackageSources:
    settings = Settings.load(environ, folder=str(folder))
    return build_sources(settings.packages, settings.read_pip_index())


def urls(sources: PackageSources) -> list[str]:
    return [source.url for source in sources.python]


def test_without_any_setting_the_public_indexes_are_asked(tmp_path: Path) -> None:
    sources = build(tmp_path)

    assert all(url.startswith("https://") and url.endswith("/") for url in (urls(sources)[0], sources.npm.url))  # type: ignore[union-attr]


def test_what_the_operator_says_counts_and_nothing_else(tmp_path: Path) -> None:
    sources = build(
        tmp_path,
        WARREN_PACKAGES_PYTHON_INDEX="https://ann:pa%20ss@packages.example.com/simple",
        WARREN_PACKAGES_PYTHON_EXTRA_INDEXES="http://10.0.0.1:8080/simple/, /srv/simple",
        WARREN_PACKAGES_PYTHON_FIND_LINKS="/srv/wheels",
        WARREN_PACKAGES_NPM_REGISTRY="https://npm.example.com",
        WARREN_PACKAGES_NPM_TOKEN="t0ken",
        WARREN_PACKAGES_HOSTS="files.example.com",
        PIP_INDEX_URL="https://other.example.com/simple",
    )

    assert urls(sources) == [
        "https://packages.example.com/simple/",
        "http://10.0.0.1:8080/simple/",
        "file:///srv/simple/",
        "file:///srv/wheels",
    ]
    assert sources.python[0].authorization == f"Basic {base64.b64encode(b'ann:pa ss').decode()}"
    assert (sources.python[3].is_links, sources.python[2].path) == (True, "/srv/simple")
    assert sources.npm is not None
    assert (sources.npm.url, sources.npm.authorization) == ("https://npm.example.com/", "Bearer t0ken")
    assert sources.hosts == {"files.example.com"}


def test_pips_variable_names_the_index_where_no_setting_names_one(tmp_path: Path) -> None:
    of_pip = {"PIP_INDEX_URL": "https://ann:hush@pip.example.com/simple"}
    chosen = build(tmp_path, **of_pip)
    links = build(tmp_path, **of_pip, WARREN_PACKAGES_PYTHON_FIND_LINKS="/opt/wheels")

    assert urls(chosen) == ["https://pip.example.com/simple/"]
    assert chosen.python[0].authorization == f"Basic {base64.b64encode(b'ann:hush').decode()}"
    assert urls(links) == ["file:///opt/wheels"]


def test_other_configuration_of_the_host_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://in-file.example.com/simple\n")
    given = {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "PIP_EXTRA_INDEX_URL": "https://b.example.com/"}
    given |= {"UV_DEFAULT_INDEX": "https://c.example.com/", "npm_config_registry": "https://d.example.com/"}

    assert build(tmp_path, **given, HTTPS_PROXY="http://e.example.com") == build(tmp_path)


def test_the_first_index_counts_unless_the_operator_wants_the_best_version(tmp_path: Path) -> None:
    assert not build(tmp_path).is_merged
    assert build(tmp_path, WARREN_PACKAGES_INDEX_STRATEGY="merge").is_merged


def test_a_scope_of_npm_may_have_its_own_registry(tmp_path: Path) -> None:
    sources = build(
        tmp_path, WARREN_PACKAGES_NPM_SCOPES="@corp=https://a:b@own.example.com/npm, @x=http://x.example.com"
    )

    scopes = {scope: (each.url, each.authorization) for scope, each in sources.npm_scopes.items()}
    assert scopes == {
        "@corp": ("https://own.example.com/npm/", "Basic YTpi"),
        "@x": ("http://x.example.com/", ""),
    }
    for wrong in ("corp=https://x.example.com", "@corp", "@corp=", "@corp=/srv/npm", "@a b=https://x.example.com"):
        with pytest.raises(ConfigError, match=r"@corp=https://npm\.example\.com/"):
            build(tmp_path, WARREN_PACKAGES_NPM_SCOPES=wrong)


@pytest.mark.parametrize("value", ["packages.example.com", "ftp://x/", "https://", "http://x:y/"])
def test_what_is_no_index_is_said_when_the_service_starts(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match="WARREN_PACKAGES_PYTHON_INDEX"):
        build(tmp_path, WARREN_PACKAGES_PYTHON_INDEX=value)


def test_packages_come_through_the_proxy_that_all_else_goes_through_unless_they_have_their_own(tmp_path: Path) -> None:
    environ = {"WARREN_EGRESS_UPSTREAM_PROXY": "http://ann:hush@proxy.example.com:3128"}
    settings = Settings.load(environ, folder=str(tmp_path))
    assert settings.egress.upstream_proxy is not None
    upstream = settings.egress.upstream_proxy.get_secret_value()
    plain = build_sources(settings.packages, upstream=upstream)
    chosen = Settings.load({"WARREN_PACKAGES_PROXY": "http://own.example.com", **environ}, folder=str(tmp_path))
    own = build_sources(chosen.packages, upstream=upstream)

    assert (plain.proxy, own.proxy) == (upstream, "http://own.example.com")
    assert "hush" not in repr(settings)
    addresses = ("proxy.example.com:3128", "https://proxy.example.com", "http://", "http://x/path", "http://x:y")
    for wrong in (*addresses, "http://ann:hush@x?y", "http://ann:hush@x#y", "http://ann:hush@x:99999"):
        with pytest.raises(ConfigError, match="WARREN_EGRESS_UPSTREAM_PROXY cannot be what it is") as refused:
            Settings.load({"WARREN_EGRESS_UPSTREAM_PROXY": wrong}, folder=str(tmp_path))
        assert "hush" not in str(refused.value)
    with pytest.raises(ConfigError, match=r"cannot be .*\*@index") as refused:
        Settings.load({"WARREN_PACKAGES_PYTHON_INDEX": "ftp://ann:hush@index.example.com/"}, folder=str(tmp_path))
    assert "hush" not in str(refused.value)


def test_secrets_are_shown_nowhere(tmp_path: Path) -> None:
    settings = Settings.load(
        {"WARREN_PACKAGES_PYTHON_CREDENTIALS": "ann:hush", "WARREN_PACKAGES_NPM_TOKEN": "hush"}, folder=str(tmp_path)
    )

    assert "hush" not in repr(settings)
