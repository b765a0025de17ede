"""Which files among a program's runfiles are this repository's own."""

def is_own(file):
    """Returns whether a file is neither of another repository nor a launcher's.

    Args:
      file: A file of a program's runfiles. rules_python adds a virtual
        environment and a second launcher to each program.
    """
    path = file.short_path
    return not (
        path.startswith("../") or
        ".venv/" in path or
        path.endswith("_stage2_bootstrap.py")
    )
