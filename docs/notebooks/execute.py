"""Runs the notebooks of this folder and stores their outputs: ``make notebooks``.

Needs nbclient and ipykernel (requirements.txt in this folder) next to gemmsim. tests/test_notebooks.py runs the cells
without Jupyter and compares what they print with what is stored.
"""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent


def execute(path: Path) -> None:
    """Runs the notebook at ``path`` and rewrites it with its outputs, without times."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(HERE)}}).execute()
    for cell in notebook.cells:
        cell.metadata.clear()
        for output in cell.get("outputs", []):
            output.get("metadata", {}).clear()
    notebook.metadata = {"kernelspec": notebook.metadata.kernelspec, "language_info": {"name": "python"}}
    temporary = path.with_suffix(".tmp")
    nbformat.write(notebook, temporary)
    os.replace(temporary, path)


if __name__ == "__main__":
    for one in sorted(HERE.glob("*.ipynb")):
        execute(one)
        print(one.name)
