"""What a newcomer does first: the README's commands as they stand there, and the `data` image that they use."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from warren.core.images.catalog import Catalog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.path.dirname(sys.executable)
IMPORTS = """
    bs4 dateutil docx duckdb html5lib httpx IPython jinja2 lxml.etree matplotlib.pyplot networkx numpy openpyxl pandas
    PIL.Image pip plotly.express pptx pyarrow.parquet pypdf pytz reportlab.pdfgen.canvas requests scipy.stats seaborn
    sklearn.ensemble statsmodels.api sympy tabulate tqdm xlrd xlsxwriter yaml
"""
WORK = """
import os
import duckdb, numpy as np, pandas as pd, seaborn as sns, matplotlib.pyplot as plt
from sklearn.linear_model import LinearRegression
frame = pd.DataFrame({"x": np.arange(100.0), "y": np.arange(100.0) * 2 + 1, "kind": ["a", "b"] * 50})
frame.to_excel("frame.xlsx", index=False)
frame.to_parquet("frame.parquet")
assert pd.read_excel("frame.xlsx").equals(pd.read_parquet("frame.parquet").astype({"x": int, "y": int}))
assert duckdb.sql("select sum(x) from frame where kind = 'a'").fetchall() == [(2450.0,)]
assert round(LinearRegression().fit(frame[["x"]], frame.y).coef_[0]) == 2
sns.scatterplot(frame, x="x", y="y", hue="kind")
plt.savefig("plot.png")
print(os.path.getsize("plot.png") > 5000)
"""
INTERACTIVE = ".venv/bin/warren shell"


def commands() -> list[str]:
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        lines = file.read().splitlines()
    found = [re.sub(r"\s+#.*", "", line) for line in lines if line.startswith(".venv/bin/warren")]
    return [line for line in found if line != INTERACTIVE]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory, images_dir: str) -> Iterator[Path]:
    """A data folder that has the `data` image."""
    Catalog(images_dir).build("data")
    folder = tmp_path_factory.mktemp("readme")
    os.symlink(os.path.join(images_dir, "images"), folder / "images")
    yield folder
    run(".venv/bin/warren stop-engine", folder)


def run(command: str, data_dir: Path) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.defpath, "HOME": str(data_dir), "WARREN_DATA_DIR": str(data_dir)}
    if os.geteuid() != 0:
        env["WARREN_OPTIONAL_LAYERS"] = "memory,cpu"
    argv = ["bash", "-c", command.replace(".venv/bin", BIN)]
    return subprocess.run(argv, env=env, cwd=data_dir, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_readme_works_as_it_stands_there(command: str, data_dir: Path) -> None:
    (data_dir / "script.py").write_text("print('from the script')\n")

    done = run(command, data_dir)

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    expected = {"pd.Series": "2.0\n", "--json": '"from the script\\n"', "script.py": "from the script\n"}
    assert next((text for part, text in expected.items() if part in command), "") in done.stdout


def test_everything_an_analyst_reaches_for_is_there_and_starts_no_thread(data_dir: Path) -> None:
    (data_dir / "imports.py").write_text(
        f"import importlib, os\nfor name in {IMPORTS!r}.split(): importlib.import_module(name)\n"
        "print(len(os.listdir('/proc/self/task')))\n"
    )

    done = run(".venv/bin/warren run imports.py", data_dir)

    assert (done.stdout, done.stderr) == ("1\n", "")


def test_tables_queries_models_and_plots_work_together(data_dir: Path) -> None:
    (data_dir / "work.py").write_text(WORK)

    done = run(".venv/bin/warren run work.py --memory 1G", data_dir)

    assert (done.stdout, done.stderr) == ("True\n", "")
