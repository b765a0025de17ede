"""saxml.bzl for MODULE.bazel; Bazel 4 knows no module extensions."""

load(":saxml.bzl", "saxml_repositories")

def _saxml_impl(_ctx):
    saxml_repositories()

saxml = module_extension(implementation = _saxml_impl)
