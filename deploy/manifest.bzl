"""Lists a program's files for the programs that build wheels and images."""

def write_manifest(ctx, files):
    """Writes a line for each file: its path in runfiles, a tab and its path.

    Args:
      ctx: The context of the rule.
      files: The files in a program's runfiles. The files that rules_python
        adds are left out: a virtual environment and a second launcher.

    Returns:
      The manifest.
    """
    manifest = ctx.actions.declare_file(ctx.label.name + ".manifest")
    ctx.actions.write(manifest, "".join([
        "{}\t{}\n".format(file.short_path, file.path)
        for file in files
        if ".venv/" not in file.short_path and
           not file.short_path.endswith("_stage2_bootstrap.py")
    ]))
    return manifest
