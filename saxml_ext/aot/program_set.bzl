"""Rule that compiles a model's programs at build time into a program set."""

def _program_set_impl(ctx):
    out = ctx.actions.declare_directory(ctx.label.name)
    args = ctx.actions.args()
    args.add("--params", ctx.attr.params)
    for name, value in ctx.attr.overrides.items():
        args.add("--override=%s=%s" % (name, value))
    if ctx.file.checkpoint:
        args.add("--checkpoint", ctx.file.checkpoint.path)
    args.add("--out", out.path)
    args.add_all(ctx.attr.args_of_compiler)

    # A program for this machine's CPU or GPU may work only here. Cache keys do
    # not contain the machine, so the output must not leave it.
    local = ctx.attr.platform in ["cpu", "cuda"]
    ctx.actions.run(
        executable = ctx.executable.compiler,
        arguments = [args],
        inputs = depset([ctx.file.checkpoint] if ctx.file.checkpoint else []),
        outputs = [out],
        env = {"JAX_PLATFORMS": "cuda" if ctx.attr.platform == "cuda" else "cpu"},
        execution_requirements = {"no-remote": "1"} if local else {},
        mnemonic = "ProgramSet",
        progress_message = "Compiling programs %s" % ctx.label,
    )
    return [DefaultInfo(
        files = depset([out]),
        runfiles = ctx.runfiles(files = [out]),
    )]

program_set = rule(
    implementation = _program_set_impl,
    doc = """Compiles all programs that a model needs into a directory.

The output is one directory of the target's name, to be given to a model server
as --programs; see docs/programs.md.""",
    attrs = {
        "params": attr.string(
            mandatory = True,
            doc = "Registered name of the serving params.",
        ),
        "overrides": attr.string_dict(
            doc = "Attribute of the params -> value as JSON.",
        ),
        "checkpoint": attr.label(
            allow_single_file = True,
            doc = "PAX checkpoint, a directory; sizes are read off it.",
        ),
        "platform": attr.string(
            default = "cpu",
            values = ["cpu", "cuda", "gpu", "tpu"],
            doc = "What to compile for. cpu and cuda are those of this machine;" +
                  " gpu and tpu need not be present.",
        ),
        "args_of_compiler": attr.string_list(
            doc = "More flags for the compiler, such as those of a topology.",
        ),
        # In the target's configuration, the engine and its kernels are built
        # once for both the set and the server.
        "compiler": attr.label(
            default = Label("//saxml_ext/server/commands:compile_programs"),
            executable = True,
            cfg = "target",
        ),
    },
)
