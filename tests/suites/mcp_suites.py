"""The official conformance suite of MCP and its Inspector, against a service of this checkout: `make mcp-suites`.

Not among the tests of `make test`: both come from npm, with a Node.js of their own, and take minutes to install.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from api.served import Served
from warren.core.images.catalog import Catalog
from warren.settings import Settings

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGES = ("node@22", "@modelcontextprotocol/conformance@0.2.0-alpha.12", "@modelcontextprotocol/inspector@0.15.0")
VERSIONS = ("2025-06-18", "2025-11-25", "2026-07-28")
SCENARIOS = (
    *("server-initialize", "server-session-lifecycle", "server-stateless", "ping", "tools-list", "resources-list"),
    *("server-sse-multiple-streams", "sep-2164-resource-not-found", "dns-rebinding-protection", "caching"),
    *("http-header-validation", "input-required-result-unsupported-methods"),
    "input-required-result-ignore-extra-params",
)
"""Those that ask nothing but what the protocol says. The others call tools and prompts of a server made for them."""
OF_THAT_SERVER = {
    "sep-2575-server-rejects-undeclared-capability",
    "sep-2575-missing-capability-http-400",
}
"""Checks within them that need such a tool."""
_INSTALL_S, _RUN_S = 900, 120
_FAILED = re.compile(r"\[([\w.-]+)\s*\] (?:\x1b\[\d+m)?FAILURE")


def main() -> int:
    """Install, run everything, say how it went, and leave nothing."""
    npm = shutil.which("npm")
    if npm is None:
        print("skipped: there is no npm (Debian: apt install npm)")
        return 0
    with tempfile.TemporaryDirectory(prefix="mcp-suites-") as folder:
        command = [npm, "install", "--no-audit", "--no-fund", "--prefix", folder, *PACKAGES]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
        if done.returncode:
            print(f"skipped: npm cannot install the suites: {done.stderr.strip()[-500:]}")
            return 0
        modules = os.path.join(folder, "node_modules")
        served = Served(_settings(folder))
        served.start()
        try:
            wrong = [*_conform(modules, served), *_inspect(modules, served, folder)]
        finally:
            served.stop()
    print("\n".join(wrong) or "everything holds")
    return 1 if wrong else 0


def _settings(folder: str) -> Settings:
    cache = os.path.join(ROOT, ".cache", "tests")
    Catalog(cache).build("python")
    data = os.path.join(folder, "data")
    os.mkdir(data)
    os.symlink(os.path.join(cache, "images"), os.path.join(data, "images"))
    values = {"data_dir": data, "engine": "bare", "allow_bare": True, "image": "python", "pool": {"size": 0}}
    return Settings.model_validate({**values, "serve": {"auth": False}})


def _conform(modules: str, served: Served) -> list[str]:
    wrong = []
    program = [os.path.join(modules, "node/bin/node"), os.path.join(modules, ".bin/conformance"), "server"]
    for version in VERSIONS:
        for scenario in SCENARIOS:
            command = [*program, "--url", f"{served.url}/mcp", "--scenario", scenario, "--spec-version", version]
            done = _run(command)
            failed = set(_FAILED.findall(done.stdout)) - OF_THAT_SERVER
            passed = re.search(r"Passed: \S+", done.stdout)
            if passed is None and done.returncode == 0:
                continue  # Not of this version.
            if failed or passed is None:
                wrong.append(f"{version} {scenario}: {', '.join(sorted(failed)) or done.stderr[-300:]}")
            else:
                print(f"{version} {scenario}: {passed[0]}")
    return wrong


def _inspect(modules: str, served: Served, folder: str) -> list[str]:
    wrong = []
    program = [os.path.join(modules, "node/bin/node"), os.path.join(modules, ".bin/mcp-inspector"), "--cli"]
    data = os.path.join(folder, "stdio")
    os.mkdir(data)
    os.symlink(os.path.join(ROOT, ".cache", "tests", "images"), os.path.join(data, "images"))
    names = {"DATA_DIR": data, "ENGINE": "bare", "ALLOW_BARE": "true", "IMAGE": "python"}
    variables = [part for name, value in names.items() for part in ("-e", f"WARREN_{name}={value}")]
    ways = {
        "http": [f"{served.url}/mcp", "--transport", "http"],
        "sse": [f"{served.url}/sse", "--transport", "sse"],
        "stdio": [*variables, os.path.join(os.path.dirname(sys.executable), "warren"), "mcp"],
    }
    asked = ["--method", "tools/call", "--tool-name", "run_python", "--tool-arg", "code=6 * 7"]
    for way, where in ways.items():
        done = _run([*program, *where, *asked], os.path.join(modules, "node/bin"))
        try:
            said = json.loads(done.stdout)["content"][0]["text"]
        except (ValueError, LookupError):
            said = (done.stdout + done.stderr)[-300:]
        if said == "42":
            print(f"Inspector over {way}: 42")
        else:
            wrong.append(f"Inspector over {way}: {said}")
    return wrong


def _run(command: list[str], path: str = "") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": os.pathsep.join(filter(None, (path, os.environ.get("PATH", os.defpath))))}
    return subprocess.run(command, capture_output=True, text=True, timeout=_RUN_S, check=False, env=env)


if __name__ == "__main__":
    sys.exit(main())
