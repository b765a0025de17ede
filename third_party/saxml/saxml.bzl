"""Upstream Saxml, fetched only by what asks for @saxml_checkout.

Its own BUILD files need the repositories of its own WORKSPACE, so nothing here
depends on its targets. `//third_party/saxml:workspace` lays our overlay over a
copy of it, which is a workspace to build in.
"""

load("@bazel_tools//tools/build_defs/repo:git.bzl", "git_repository")

# Release r1.2.0 of 2024-02-20. MLPerf Inference v4.0 was submitted from a
# branch named mlperf4.0 of the fork tpu-inference/saxml: for that, name a
# checkout of it with --override_repository=saxml=DIR.
#
# A commit's name is the hash of all that it holds, and git checks it as it
# fetches: so this pins every byte, where the archives that GitHub makes of a
# commit have no hash of their own that is promised to stay.
SAXML_COMMIT = "be31b49b1f8ae03e2c296bfb2f945e7ad471c5e9"

_REMOTE = "https://github.com/google/saxml.git"

_BUILD = """\
load("@rules_python//python:py_library.bzl", "py_library")

py_library(
    name = "saxml_checkout",
    srcs = ["saxml_checkout.py"],
    imports = ["."],
    visibility = ["//visibility:public"],
)
"""

_MODULE = '''\
"""Where @saxml lies, fetched or overridden."""

ROOT = {root}
'''

def _saxml_checkout_impl(ctx):
    # Naming a file of @saxml is what fetches it; no package of it is loaded.
    root = ctx.path(ctx.attr.file_in_package).dirname.dirname
    ctx.file("BUILD", _BUILD)
    ctx.file("saxml_checkout.py", _MODULE.format(root = repr(str(root))))

saxml_checkout = repository_rule(
    implementation = _saxml_checkout_impl,
    attrs = {
        "file_in_package": attr.label(
            allow_single_file = True,
            default = Label("@saxml//saxml:BUILD"),
            doc = "A file in the directory saxml of Saxml's repository.",
        ),
    },
    doc = "A Python module saxml_checkout whose ROOT is @saxml's directory.",
)

def saxml_repositories():
    """Declares @saxml and @saxml_checkout; fetches neither."""
    git_repository(
        name = "saxml",
        commit = SAXML_COMMIT,
        remote = _REMOTE,
    )
    saxml_checkout(name = "saxml_checkout")
