"""Executes the notebooks headlessly and stores them without anything that changes from run to run."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm.auto import tqdm

from fedentropy_core.extras import needs
from fedentropy_core.files import atomic_write, project_root

if TYPE_CHECKING:
    from nbformat import NotebookNode

_PACKAGES = ("papermill", "nbconvert", "ipykernel", "ipywidgets", "matplotlib", "seaborn", "scipy")


class NotebookError(Exception):
    """A cell raised an exception."""


def notebook_paths() -> list[Path]:
    """All notebooks, in reading order."""
    return sorted((project_root() / "notebooks").glob("*.ipynb"))


def check_packages() -> None:
    """Said before hours of training rather than after them: something that the notebooks need is not installed."""
    with needs("report"):
        for name in _PACKAGES:
            import_module(name)


def execute(paths: Sequence[Path], folder: Path, parameters: dict[str, object], progress: bool = True) -> None:
    """Runs each notebook, with those of the parameters that it has, and stores the result in `folder`.

    An error names the notebook and leaves the stored one as it was.
    """
    # Here, since who only trains (a node of a cluster or a federation) needs no Jupyter.
    with needs("report"):
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
    with needs("report"):
        from nbconvert.preprocessors import ClearMetadataPreprocessor

    for cell in notebook.cells:  # papermill marks text as well, and nbconvert looks at code only
        cell.metadata.pop("papermill", None)
        if not cell.metadata.get("tags"):
            cell.metadata.pop("tags", None)
    kept = {"preserve_nb_metadata_mask": {"jupytext", "kernelspec"}, "preserve_cell_metadata_mask": {"tags"}}
    return ClearMetadataPreprocessor(**kept).preprocess(notebook, {})[0]
