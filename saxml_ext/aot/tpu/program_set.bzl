"""Program sets for TPU as targets."""

def _tpu_program_set_impl(ctx):
    directory = ctx.actions.declare_directory(ctx.label.name)
    arguments = ctx.actions.args()
    arguments.add("--params", ctx.attr.params)
    arguments.add("--topology", ctx.attr.topology)
    arguments.add("--output", directory.path)
    for name, value in ctx.attr.overrides.items():
        arguments.add("--override", name + "=" + value)
    arguments.add_all(ctx.attr.compiler_flags)
    ctx.actions.run(
        executable = ctx.executable._compiler,
        arguments = [arguments],
        outputs = [directory],
        mnemonic = "CompileForTpu",
        progress_message = "Compiling " + ctx.attr.params + " for " +
                           ctx.attr.topology,
    )
    return [DefaultInfo(
        files = depset([directory]),
        runfiles = ctx.runfiles(files = [directory]),
    )]

tpu_program_set = rule(
    implementation = _tpu_program_set_impl,
    doc = """Compiles what a model server calls on a TPU slice.

The output is a directory of the target's name, which a server takes by its flag
--programs. It takes minutes and fetches libtpu: mark it `manual`.""",
    attrs = {
        "compiler_flags": attr.string_list(
            doc = "More flags of compile_programs.",
        ),
        "overrides": attr.string_dict(
            doc = "Attribute of the serving params to its value as JSON.",
        ),
        "params": attr.string(
            doc = "Registered name of the serving params.",
            mandatory = True,
        ),
        "topology": attr.string(
            doc = "A name of topologies.py, such as v5e_2x2.",
            mandatory = True,
        ),
        "_compiler": attr.label(
            cfg = "exec",
            default = "//saxml_ext/aot/tpu:compile_programs",
            executable = True,
        ),
    },
)
