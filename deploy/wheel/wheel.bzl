"""Builds a wheel of this workspace's own Python files and their data.

rules_python has no py_wheel for Bazel 4.2.3.
"""

load("//deploy:manifest.bzl", "write_manifest")

# A wheel contains sources, compiled kernels and the data files of programs.
# Directories are checkpoints and compiled programs of bundled models.
_KINDS = ["css", "html", "js", "json", "model", "py", "safetensors", "so"]

def _wheel_impl(ctx):
    own = depset([
        file
        for target in ctx.attr.deps
        for file in depset(transitive = [
            target[DefaultInfo].files,
            target[DefaultInfo].default_runfiles.files,
        ]).to_list()
        if not file.short_path.startswith("../") and
           (file.is_directory or file.extension in _KINDS)
    ]).to_list()
    wheel = ctx.actions.declare_file("{}-{}-{}.whl".format(
        ctx.attr.distribution,
        ctx.attr.version,
        ctx.attr.tag,
    ))
    manifest = write_manifest(ctx, own)
    arguments = ctx.actions.args()
    arguments.add(wheel, format = "--wheel=%s")
    arguments.add(manifest, format = "--manifest=%s")
    arguments.add(ctx.attr.summary, format = "--summary=%s")
    arguments.add(ctx.file.readme, format = "--readme=%s")
    arguments.add(ctx.file.license, format = "--license=%s")
    arguments.add(ctx.file.requirements, format = "--requirements=%s")
    arguments.add(ctx.file.lock, format = "--lock=%s")
    arguments.add_all(ctx.attr.pinned, format_each = "--pinned=%s")
    for extra, label in ctx.attr.extras.items():
        arguments.add("--extra=%s=%s" % (label, extra.files.to_list()[0].path))
    for name, module in ctx.attr.programs.items():
        arguments.add("--program=%s=%s" % (name, module))
    arguments.add_all(ctx.attr.modules, format_each = "--module=%s")
    extras = [file for extra in ctx.attr.extras for file in extra.files.to_list()]
    ctx.actions.run(
        executable = ctx.executable._builder,
        arguments = [arguments],
        inputs = own + extras + [
            manifest,
            ctx.file.license,
            ctx.file.lock,
            ctx.file.readme,
            ctx.file.requirements,
        ],
        mnemonic = "PyWheel",
        outputs = [wheel],
        progress_message = "Building %s" % wheel.short_path,
    )
    return [DefaultInfo(
        files = depset([wheel]),
        runfiles = ctx.runfiles([wheel]),
    )]

wheel = rule(
    implementation = _wheel_impl,
    doc = "One wheel with the programs of `deps`. The same sources give the " +
          "same bytes.",
    attrs = {
        "deps": attr.label_list(
            doc = "Programs and libraries whose own files it holds.",
            mandatory = True,
        ),
        "distribution": attr.string(
            doc = "Name of the distribution, as in a wheel's file name.",
            mandatory = True,
        ),
        "extras": attr.label_keyed_string_dict(
            doc = "Further requirements files, each with its extra's name.",
            allow_files = True,
        ),
        "license": attr.label(allow_single_file = True, mandatory = True),
        "lock": attr.label(
            doc = "Exact versions, for the pinned requirements.",
            allow_single_file = True,
            mandatory = True,
        ),
        "modules": attr.string_list(
            doc = "Programs that are top-level modules too, for `python3 -m`.",
        ),
        "pinned": attr.string_list(
            doc = "Requirements that need exactly the version in the lock.",
        ),
        "programs": attr.string_dict(
            doc = "Console script -> module that is run as __main__.",
            mandatory = True,
        ),
        "readme": attr.label(allow_single_file = True, mandatory = True),
        "requirements": attr.label(
            doc = "Requirements; those that the files import are declared.",
            allow_single_file = True,
            mandatory = True,
        ),
        "summary": attr.string(
            doc = "What it is, in one line.",
            mandatory = True,
        ),
        "tag": attr.string(
            doc = "Tags of Python, its ABI and the platform.",
            mandatory = True,
        ),
        "version": attr.string(mandatory = True),
        "_builder": attr.label(
            cfg = "exec",
            default = "//deploy/wheel:build_wheel",
            executable = True,
        ),
    },
)
