"""Executes the notebooks headlessly and stores them without anything that changes from run to run."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm.auto import tqdm

from fedentropy_core.files import atomic_write, project_root

if TYPE_CHECKING:
    from nbformat import NotebookNode

_KERNEL_NOISE = ("papermill", "execution", "language_info", "widgets")


class NotebookError(Exception):
    """A cell raised an exception."""


def notebook_paths() -> list[Path]:
    """All notebooks, in reading order."""
    return sorted((project_root() / "notebooks").glob("*.ipynb"))


def execute(paths: Sequence[Path], folder: Path, parameters: dict[str, object], progress: bool = True) -> None:
    """Runs each notebook, with those of the parameters that it has, and stores the result in `folder`.

    An error names the notebook and leaves the stored one as it was.
    """
    # Here, since who only trains (a node of a cluster or a federation) needs no Jupyter.
    import nbformat
    import papermill

    for path in tqdm(paths, desc="notebooks", unit="notebook", disable=not progress):
        with tempfile.TemporaryDirectory() as temporary:
            output = Path(temporary) / path.name
            try:
                papermill.execute_notebook(
                    path,
                    output,
                    {name: value for name, value in parameters.items() if name in papermill.inspect_notebook(path)},
                    cwd=path.parent,
                    kernel_name="python3",
                    progress_bar=False,
                    extra_arguments=["--log-level=CRITICAL"],  # the kernel's own remarks, not the notebook's
                )
            except papermill.exceptions.PapermillExecutionError as error:
                problem = f"{error.ename}: {error.evalue}"
                raise NotebookError(f"{path.name} failed in cell {error.exec_count}: {problem}") from error
            notebook = nbformat.read(output, as_version=4)
        with atomic_write(folder / path.name) as file:
            file.write(nbformat.writes(cleaned(notebook)).encode() + b"\n")


def cleaned(notebook: NotebookNode) -> NotebookNode:
    """Without timings, versions of the kernel, widget states and injected names."""
    for key in _KERNEL_NOISE:
        notebook.metadata.pop(key, None)
    for cell in notebook.cells:
        tags = cell.metadata.get("tags")
        cell.metadata.clear()
        if tags:
            cell.metadata["tags"] = tags
    return notebook
