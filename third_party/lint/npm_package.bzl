"""Programs that are published on npm alone: buildifier.

`npm pack` fetches the archive from wherever npm's own settings point, and it is
taken only if it has the hash that stands here, which is the `dist.integrity`
that `npm view PACKAGE@VERSION` prints.
"""

_BUILD = """
exports_files(["program"], visibility = ["//visibility:public"])
"""

# What takes the program's place on a machine without npm. 127 is what a shell
# says of a command that it does not find.
_ABSENT = """#!/bin/sh
echo "npm is not on this machine, so {package} could not be fetched." >&2
exit 127
"""

def _npm_program_impl(ctx):
    ctx.file("BUILD", _BUILD)
    npm = ctx.which("npm")
    if not npm:
        ctx.file("program", _ABSENT.format(package = ctx.attr.package))
        return
    spec = "%s@%s" % (ctx.attr.package, ctx.attr.version)

    # Not npm's own cache: the user's home may be read-only.
    cache = str(ctx.path("cache"))
    packed = ctx.execute(
        [npm, "pack", "--loglevel=error", "--cache", cache, spec],
    )
    if packed.return_code:
        fail("npm could not fetch %s (exit %d):\n%s\n%s" % (
            spec,
            packed.return_code,
            packed.stdout,
            packed.stderr,
        ))
    archive = packed.stdout.strip().split("\n")[-1]

    # A download from the directory itself: Bazel then compares the hash.
    ctx.download(
        integrity = ctx.attr.integrity,
        output = "checked.tgz",
        url = "file://%s" % ctx.path(archive),
    )
    ctx.extract("checked.tgz")
    machine = ctx.execute(["uname", "-sm"]).stdout.strip()
    if machine not in ctx.attr.programs:
        fail("%s has no program for %s, only for %s." % (
            spec,
            machine,
            ", ".join(ctx.attr.programs),
        ))
    ctx.symlink("package/" + ctx.attr.programs[machine], "program")
    ctx.execute(["chmod", "+x", "package/" + ctx.attr.programs[machine]])

npm_program = repository_rule(
    implementation = _npm_program_impl,
    doc = "A program from npm as @NAME//:program; nothing of npm is run.",
    attrs = {
        "integrity": attr.string(
            doc = "sha512 of the archive, as npm's own lock files write it.",
            mandatory = True,
        ),
        "package": attr.string(mandatory = True),
        "programs": attr.string_dict(
            doc = "What `uname -sm` prints -> the file in the package.",
            mandatory = True,
        ),
        "version": attr.string(mandatory = True),
    },
    environ = ["PATH"],
)

def lint_repositories():
    npm_program(
        name = "buildifier",
        integrity = "sha512-eZ/Aq+2r4PcJa6LbPCT6ffgIJfTU/gYilqIzoX2OLM4nNkbQC6tTMPZNn7aHHjhGPxbNLv41zm4Xqt1olCLgXw==",
        package = "@bazel/buildifier",
        programs = {
            "Darwin arm64": "buildifier-darwin_arm64",
            "Darwin x86_64": "buildifier-darwin_amd64",
            "Linux aarch64": "buildifier-linux_arm64",
            "Linux x86_64": "buildifier-linux_amd64",
        },
        version = "8.2.1",
    )
