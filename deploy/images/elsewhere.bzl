"""Builds a file a second time, to compare the bytes of both builds."""

def _directory_impl(_ctx):
    return []

# Bazel builds each value of this setting in an output directory of its own.
directory = rule(
    implementation = _directory_impl,
    build_setting = config.string(flag = True),
)

def _transition_impl(_settings, _attr):
    return {"//deploy/images:directory": "elsewhere"}

_transition = transition(
    implementation = _transition_impl,
    inputs = [],
    outputs = ["//deploy/images:directory"],
)

def _elsewhere_impl(ctx):
    file = ctx.file.file
    copy = ctx.actions.declare_file(ctx.label.name + "." + file.extension)
    ctx.actions.symlink(output = copy, target_file = file)
    return [DefaultInfo(
        files = depset([copy]),
        runfiles = ctx.runfiles([copy]),
    )]

elsewhere = rule(
    implementation = _elsewhere_impl,
    doc = "A file that was built, with all it needs, in another output directory.",
    attrs = {
        "file": attr.label(
            allow_single_file = True,
            cfg = _transition,
            mandatory = True,
        ),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
)
