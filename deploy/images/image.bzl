"""Container images of programs, built without a container daemon."""

load("//deploy:manifest.bzl", "write_manifest")

def _layer(ctx, name, builder, arguments, inputs):
    layer = ctx.actions.declare_file("{}_{}.tar.gz".format(ctx.label.name, name))
    args = ctx.actions.args()
    args.add(layer, format = "--layer=%s")
    args.add_all(arguments)
    ctx.actions.run(
        executable = builder,
        arguments = [args],
        # Hashes of strings determine the order of sets in compiled Python.
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONHASHSEED": "0"},
        inputs = inputs,
        mnemonic = "ImageLayer",
        outputs = [layer],
        progress_message = "Building %s" % layer.short_path,
    )
    return layer

def _base_layer_impl(ctx):
    layer = _layer(ctx, "layer", ctx.executable._builder, [], [])
    return [DefaultInfo(files = depset([layer]))]

base_layer = rule(
    implementation = _base_layer_impl,
    doc = "The layer with Python and what it needs, of the machine that builds.",
    attrs = {
        "_builder": attr.label(
            cfg = "exec",
            default = "//deploy/images:base_layer",
            executable = True,
        ),
    },
)

def _image_impl(ctx):
    files = depset(transitive = [
        target[DefaultInfo].default_runfiles.files
        for target in ctx.attr.deps
    ]).to_list()
    manifest = write_manifest(ctx, files)
    manifest_flag = "--manifest=" + manifest.path
    inputs = files + [manifest]

    # A change of our own files leaves the layer of the packages as it is.
    packages = [
        file
        for file in inputs
        if file == manifest or "/site-packages" in file.short_path
    ]
    builder = ctx.executable._layer_builder
    layers = [
        ctx.file.base,
        _layer(
            ctx,
            "packages",
            builder,
            [manifest_flag, "--packages"],
            packages,
        ),
        _layer(ctx, "programs", builder, [manifest_flag] + [
            "--program=%s=%s" % (command, module)
            for command, module in ctx.attr.programs.items()
        ], inputs),
    ]
    archive = ctx.actions.declare_file(ctx.label.name + ".tar")
    args = ctx.actions.args()
    args.add(archive, format = "--archive=%s")
    args.add_all(layers, format_each = "--layer=%s")

    # With the commit of the sources, which deploy/status.sh prints.
    args.add(ctx.info_file, format = "--status=%s")
    args.add(ctx.attr.image_name, format = "--name=%s")
    args.add(ctx.attr.title, format = "--title=%s")
    args.add(ctx.attr.user, format = "--user=%s")
    args.add_all(ctx.attr.entrypoint, format_each = "--entrypoint=%s")
    args.add_all(ctx.attr.ports, format_each = "--port=%s")
    args.add_all([
        "%s=%s" % (name, value)
        for name, value in ctx.attr.variables.items()
    ], format_each = "--variable=%s")
    ctx.actions.run(
        executable = ctx.executable._archive_builder,
        arguments = [args],
        inputs = layers + [ctx.info_file],
        mnemonic = "Image",
        outputs = [archive],
        progress_message = "Building image %s" % ctx.attr.image_name,
    )
    return [DefaultInfo(
        files = depset([archive]),
        runfiles = ctx.runfiles([archive]),
    )]

_image = rule(
    implementation = _image_impl,
    doc = "An image as an archive. The same files, Python and commit give " +
          "the same bytes.",
    attrs = {
        "base": attr.label(allow_single_file = True, mandatory = True),
        "deps": attr.label_list(
            doc = "Programs whose files it holds.",
            mandatory = True,
        ),
        "entrypoint": attr.string_list(mandatory = True),
        "image_name": attr.string(mandatory = True),
        "ports": attr.int_list(),
        "programs": attr.string_dict(
            doc = "Command in /usr/bin -> module that is run as __main__.",
            mandatory = True,
        ),
        "title": attr.string(mandatory = True),
        "user": attr.string(mandatory = True),
        "variables": attr.string_dict(),
        "_archive_builder": attr.label(
            cfg = "exec",
            default = "//deploy/images:image_archive",
            executable = True,
        ),
        "_layer_builder": attr.label(
            cfg = "exec",
            default = "//deploy/images:program_layer",
            executable = True,
        ),
    },
)

def image(name, variables = {}, **kwargs):
    """Defines an image of Python programs above the base layer.

    `bazel build` makes it. `bazel test` does so only with --config=nightly,
    because compressing takes long.

    Args:
      name: The name of the target. The image's name has dashes instead of
        underscores.
      variables: The environment variables.
      **kwargs: The other attributes of the rule.
    """
    _image(
        name = name,
        base = ":base",
        image_name = name.replace("_", "-"),
        tags = ["nightly"],
        variables = dict({
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": "/opt/sax/lib:/opt/sax/packages",
            "PYTHONUNBUFFERED": "1",
        }, **variables),
        **kwargs
    )
