"""npm_package.bzl for MODULE.bazel; Bazel 4 knows no module extensions."""

load(":npm_package.bzl", "lint_repositories")

def _lint_impl(_ctx):
    lint_repositories()

lint = module_extension(implementation = _lint_impl)
