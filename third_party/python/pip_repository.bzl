"""Installs the packages of a lock file, each when a target first needs it.

Only where Bazel is too old for rules_python, whose pip extension gives the
same labels. In WORKSPACE:

    pip_hub(name = "pypi", lock = "//third_party/python:requirements.lock")
    load("@pypi//:requirements.bzl", "install")
    install()

then `@pypi//numpy` is numpy and everything that numpy needs. The hub holds one
package per distribution and fetches nothing. Each distribution lies in a
repository of its own (`@pypi__numpy`) that installs that one distribution, so
Bazel fetches what a build needs, several at a time, and nothing else.
"""

load(":interpreter.bzl", "find_python")
load(":lock.bzl", "parse_lock")

_HUB_PACKAGE = """
load("@rules_python//python:py_library.bzl", "py_library")

py_library(
    name = "{package}",
    visibility = ["//visibility:public"],
    deps = {deps},
)
"""

_INSTALL = """
load("@{workspace}//third_party/python:pip_repository.bzl", "pip_package")

_PACKAGES = {packages}

def install():
    for name, attributes in _PACKAGES.items():
        pip_package(name = name, **attributes)
"""

# What the default build of a package needs and its CPU build does not.
_CUDA_PREFIXES = ("cuda_", "nvidia_", "triton")

def _pip_hub_impl(ctx):
    locked = parse_lock(ctx.read(ctx.attr.lock))
    packages = {}
    for package, pinned in locked.items():
        attributes = {"requirements": [pinned.requirement]}
        needs = pinned.needs
        if package in ctx.attr.source_only:
            attributes["build_requirement"] = locked["setuptools"].requirement
        if package in ctx.attr.cpu_builds:
            attributes["cpu_requirement"] = "%s --hash=%s" % (
                pinned.requirement.split(" ")[0],
                ctx.attr.cpu_builds[package],
            )
            attributes["requirements"] += [
                locked[need].requirement
                for need in needs
                if need.startswith(_CUDA_PREFIXES)
            ]
            needs = [n for n in needs if not n.startswith(_CUDA_PREFIXES)]
        if package in ctx.attr.merged:
            attributes["requirements"] += [
                locked[need].requirement
                for need in needs
            ]
            needs = []
        packages["%s__%s" % (ctx.name, package)] = attributes

        # All that is needed, not only the direct needs: Bazel then learns of
        # every repository at once and fetches them side by side.
        deps = [
            "@%s__%s//:lib" % (ctx.name, needed)
            for needed in [package] + needs
        ]
        ctx.file(
            package + "/BUILD",
            _HUB_PACKAGE.format(package = package, deps = deps),
        )

    ctx.file("BUILD")
    ctx.file("requirements.bzl", _INSTALL.format(
        packages = packages,
        workspace = ctx.attr.lock.workspace_name,
    ))

pip_hub = repository_rule(
    implementation = _pip_hub_impl,
    doc = "Labels for every distribution of a lock file, and their installer.",
    attrs = {
        "cpu_builds": attr.string_dict(
            doc = "Distribution -> hash of its CPU build's wheel, which is " +
                  "tried first and needs no CUDA packages. Where pip finds " +
                  "none, the default build comes with all it needs.",
        ),
        "lock": attr.label(
            doc = "Pinned and hashed requirements, annotated with `# via`.",
            allow_single_file = True,
            mandatory = True,
        ),
        "merged": attr.string_list(
            doc = "Distributions that are installed into one directory with " +
                  "all that they need, since their libraries look for each " +
                  "other by relative paths (RPATH).",
        ),
        "source_only": attr.string_list(
            doc = "Distributions published without a wheel; they are built " +
                  "with the lock's setuptools.",
        ),
    },
)

_PACKAGE = """
load("@rules_python//python:py_library.bzl", "py_library")

# One directory, not its files: a single link in a program's runfiles.
py_library(
    name = "lib",
    data = ["site-packages"],
    imports = ["site-packages"],
    visibility = ["//visibility:public"],
)
"""

_PIP_REMEDY = """{python} has no pip.
On Debian 12: apt-get install python3-pip
Elsewhere: {python} -m ensurepip"""

_INSTALL_REMEDY = """pip could not install {requirement} (exit {code}):

{output}
The lock file pins it by hash, from wherever pip's own settings (PIP_INDEX_URL,
PIP_FIND_LINKS, pip.conf ...) point. Check the network or those settings, then
run the same command again: what is already fetched is kept."""

def _pip_install(ctx, python, requirements, target, environment, options):
    """Installs pinned requirements into a directory; returns pip's result."""
    file = target + ".txt"
    ctx.file(file, "".join([
        requirement.replace(" --hash", " \\\n    --hash") + "\n"
        for requirement in requirements
    ]))
    return ctx.execute(
        [python, "-m", "pip", "install", "--no-deps", "--require-hashes"] +
        ["--no-compile", "--no-warn-script-location", "--retries", "5"] +
        ["--disable-pip-version-check", "--quiet", "--target", target] +
        options + ["--requirement", file],
        environment = dict(environment, PIP_ROOT_USER_ACTION = "ignore"),
        # The default, ten minutes, is short for torch on a slow line.
        timeout = 3600,
    )

def _check(result, python, requirements):
    if result.return_code:
        if "No module named pip" in result.stderr:
            fail(_PIP_REMEDY.format(python = python))
        fail(_INSTALL_REMEDY.format(
            code = result.return_code,
            output = result.stdout + result.stderr,
            requirement = ", ".join([r.split(" ")[0] for r in requirements]),
        ))

def _install(ctx, python):
    """Fills site-packages."""
    options = ["--only-binary", ":all:"]
    environment = {}
    if ctx.attr.cpu_requirement:
        result = _pip_install(
            ctx,
            python,
            [ctx.attr.cpu_requirement],
            "site-packages",
            environment,
            options,
        )
        if not result.return_code:
            return
    if ctx.attr.build_requirement:
        build = [ctx.attr.build_requirement]
        _check(
            _pip_install(ctx, python, build, "build", environment, options),
            python,
            build,
        )

        # An isolated build would fetch its own, unpinned setuptools.
        options = ["--no-build-isolation", "--no-binary", ":all:"]
        environment["PYTHONPATH"] = str(ctx.path("build"))
    _check(
        _pip_install(
            ctx,
            python,
            ctx.attr.requirements,
            "site-packages",
            environment,
            options,
        ),
        python,
        ctx.attr.requirements,
    )

def _pip_package_impl(ctx):
    python = find_python(ctx)
    _install(ctx, python)

    # Tests may not write here, so byte code comes now or is made at every
    # start. Hash-based: the files' times are no part of what was locked.
    # Nothing imports the packages' own tests.
    ctx.execute(
        [python, "-m", "compileall", "-q", "-x", "/tests/"] +
        ["--invalidation-mode", "unchecked-hash", "site-packages"],
        timeout = 3600,
    )
    ctx.file("BUILD", _PACKAGE)

pip_package = repository_rule(
    implementation = _pip_package_impl,
    doc = "One distribution, installed into `site-packages`.",
    attrs = {
        "build_requirement": attr.string(
            doc = "Pinned setuptools, for a distribution without a wheel.",
        ),
        "cpu_requirement": attr.string(
            doc = "Pinned CPU build to try before the requirements.",
        ),
        "requirements": attr.string_list(
            doc = "The pinned distribution, then what must lie beside it. " +
                  "Each is a pin and its hashes, space-separated.",
            mandatory = True,
        ),
    },
)
