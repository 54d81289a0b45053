"""Sphinx: the pages of this folder, and the reference from the docstrings. `make docs` builds it."""

import hashlib
import shutil
import sys
from pathlib import Path

import polyembed

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

# Sphinx reads below this folder only; a copy that is the same stays, else each build would read it
# again
notebooks = {
    path.name: path for path in (HERE.parent / "examples" / "notebooks").glob("*.ipynb")
}
for copy in (HERE / "notebooks").glob("*.ipynb"):
    if copy.name not in notebooks:
        copy.unlink()
for name, path in notebooks.items():
    copy = HERE / "notebooks" / name
    if not copy.exists() or copy.read_bytes() != path.read_bytes():
        shutil.copyfile(path, copy)

project = "polyembed"
author = copyright = "The polyembed contributors"
release = polyembed.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "gallery",
    "mathml",
    "public_names",
    "results",
]
exclude_patterns = ["_ext", "_static"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# Notebooks run when the site is built, and an error in one fails the build. What was run is kept
# for as long as neither the cells nor the package change.
code = b"".join(
    path.read_bytes() for path in sorted(Path(polyembed.__file__).parent.rglob("*.py"))
)
nb_execution_mode = "cache"
nb_execution_cache_path = str(
    HERE.parent / "build" / "notebooks" / hashlib.sha256(code).hexdigest()[:16]
)
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_merge_streams = True
nb_output_stderr = "remove"  # warnings name packages of this machine

html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"polyembed {release}"
html_static_path = ["_static"]
html_css_files = ["polyembed.css"]
html_copy_source = False
html_show_sphinx = False

default_role = "py:obj"  # docstrings name things in `single` backticks
add_module_names = False
python_use_unqualified_type_names = True
maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"
autosummary_generate = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_default_options = {
    "members": True,
    "imported-members": True,
    "show-inheritance": True,
    # not again what torch and Python describe, and what the page on saving does
    "inherited-members": "Module,CRF,PretrainedModule,Configurable,Protocol,object,tuple,dict,str",
}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Shape"]
