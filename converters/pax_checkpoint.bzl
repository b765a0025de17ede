"""Rule that converts a Hugging Face model to a PAX checkpoint at build time."""

def _pax_checkpoint_impl(ctx):
    configs = [f for f in ctx.files.base if f.basename == "config.json"]
    if len(configs) != 1:
        fail("base of %s has %d files named config.json; expected one" %
             (ctx.label, len(configs)))
    directory = configs[0].dirname
    for f in ctx.files.base:
        if f.dirname != directory:
            fail("base of %s has %s; expected all files to be in %s" %
                 (ctx.label, f.path, directory))

    out = ctx.actions.declare_directory(ctx.label.name)
    args = ctx.actions.args()
    args.add("--base", directory)
    args.add("--pax", out.path)
    args.add("--dtype", ctx.attr.dtype)
    ctx.actions.run(
        executable = ctx.executable.converter,
        arguments = [args],
        inputs = ctx.files.base,
        outputs = [out],
        mnemonic = "PaxCheckpoint",
        progress_message = "Converting %s to PAX" % directory,
    )
    return [DefaultInfo(
        files = depset([out]),
        runfiles = ctx.runfiles(files = [out]),
    )]

pax_checkpoint = rule(
    implementation = _pax_checkpoint_impl,
    doc = """Runs convert_hf on the files of `base`.

The output is one directory of the target's name, which holds
checkpoint_00000000, gptj_config.json and the tokenizer; name the target in
`data` of a program to have it in its runfiles.""",
    attrs = {
        "base": attr.label(
            mandatory = True,
            allow_files = True,
            doc = "Files of one Hugging Face directory: config.json, weights.",
        ),
        "dtype": attr.string(
            default = "float32",
            values = ["float32", "bfloat16"],
            doc = "Type of the variables.",
        ),
        # In the target's configuration, the engine's kernels are built once.
        "converter": attr.label(
            default = Label("//converters:convert_hf"),
            executable = True,
            cfg = "target",
        ),
    },
)
