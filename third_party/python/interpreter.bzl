"""The Python that runs everything here: the machine's own 3.11.

Only where Bazel is too old for rules_python, which brings its own.
"""

_REMEDY = """No Python 3.11 was found on PATH.
On Debian 12: apt-get install python3.11 python3-pip
Elsewhere: install Python 3.11 with pip so that `python3.11` is on PATH."""

_PROBE = """
import sys
if sys.version_info[:2] == (3, 11):
  print(sys.executable)
"""

def find_python(ctx):
    """The path of a Python 3.11.

    Args:
      ctx: the repository context.

    Returns:
      The interpreter's own path as a string, not that of a wrapper that picks
      one (pyenv's shims are such), since actions run without its environment.
    """
    for name in ["python3.11", "python3"]:
        candidate = ctx.which(name)
        if candidate:
            result = ctx.execute([candidate, "-c", _PROBE])
            if result.return_code == 0 and result.stdout.strip():
                return result.stdout.strip()
    fail(_REMEDY)

_BUILD = """
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")

py_runtime(
    name = "runtime",
    interpreter_path = "{python}",
    python_version = "PY3",
    stub_shebang = "#!{python}",
)

py_runtime_pair(
    name = "runtimes",
    py3_runtime = ":runtime",
)

toolchain(
    name = "toolchain",
    toolchain = ":runtimes",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
"""

def _local_python_impl(ctx):
    ctx.file("BUILD", _BUILD.format(python = find_python(ctx)))

local_python = repository_rule(
    implementation = _local_python_impl,
    doc = "A Python toolchain, `:toolchain`, over the machine's Python 3.11.",
    environ = ["PATH"],
    local = True,
)
