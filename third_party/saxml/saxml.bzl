"""Upstream Saxml, fetched only by what asks for @saxml_checkout or its like.

Its own BUILD files need the repositories of its own WORKSPACE, so nothing here
depends on its targets. `//third_party/saxml:workspace` lays our overlay over a
copy of the branch mlperf4.0, and `:workspace_r1_2_0` over one of the release
r1.2.0: these are workspaces to build in.
"""

load("@bazel_tools//tools/build_defs/repo:git.bzl", "git_repository")

# A commit's name is the hash of all that it holds, and git checks it as it
# fetches: so this pins every byte, where the archives that GitHub makes of a
# commit have no hash of their own that is promised to stay.
_RELEASES = {
    # Branch mlperf4.0 of 2024-02-23: MLPerf Inference v4.0 was submitted from it.
    "saxml": struct(
        name = "mlperf4.0",
        commit = "8d3aa0791964605182055c210557cee309927bba",
        remote = "https://github.com/tpu-inference/saxml.git",
    ),
    # Release r1.2.0 of 2024-02-20.
    "saxml_r1_2_0": struct(
        name = "r1.2.0",
        commit = "be31b49b1f8ae03e2c296bfb2f945e7ad471c5e9",
        remote = "https://github.com/google/saxml.git",
    ),
}

_BUILD = """\
load("@rules_python//python:py_library.bzl", "py_library")

py_library(
    name = "{name}",
    srcs = ["saxml_checkout.py"],
    imports = ["."],
    visibility = ["//visibility:public"],
)
"""

_MODULE = '''\
"""Where Saxml lies, fetched or overridden."""

ROOT = {root}
RELEASE = {release}
'''

def _saxml_checkout_impl(ctx):
    # Naming a file of Saxml is what fetches it; no package of it is loaded.
    root = ctx.path(ctx.attr.file_in_package).dirname.dirname
    ctx.file("BUILD", _BUILD.format(name = ctx.attr.target))
    ctx.file("saxml_checkout.py", _MODULE.format(
        release = repr(ctx.attr.release),
        root = repr(str(root)),
    ))

saxml_checkout = repository_rule(
    implementation = _saxml_checkout_impl,
    attrs = {
        "file_in_package": attr.label(
            allow_single_file = True,
            doc = "A file in the directory saxml of Saxml's repository.",
            mandatory = True,
        ),
        "release": attr.string(
            doc = "Name of the record of its files, in records/.",
            mandatory = True,
        ),
        # Not ctx.name, to which MODULE.bazel adds a prefix.
        "target": attr.string(mandatory = True),
    },
    doc = "A Python module saxml_checkout whose ROOT is Saxml's directory, " +
          "and whose RELEASE is what it has to be.",
)

def saxml_repositories():
    """Declares Saxml's releases and where each lies; fetches none of them."""
    for name, release in _RELEASES.items():
        git_repository(
            name = name,
            commit = release.commit,
            remote = release.remote,
        )
        saxml_checkout(
            name = name + "_checkout",
            file_in_package = Label("@" + name + "//saxml:BUILD"),
            release = release.name,
            target = name + "_checkout",
        )
