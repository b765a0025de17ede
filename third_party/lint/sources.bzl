"""What the tests of //tests/house read: the sources of every package."""

def sources(name):
    """Names a package's own files, for //tests/house alone.

    Args:
      name: "sources".
    """
    files = ["*"]
    if native.package_name():
        files.append("*/**")  # Folders that are no packages of their own.
    else:
        files += [".ci/*", ".github/**"]
    native.filegroup(
        name = name,
        srcs = native.glob(
            files,
            # Most packages have no folders, and Bazel 8 refuses a pattern
            # that matches nothing.
            allow_empty = True,
            exclude = [
                "**/*.pyc",
                "**/*.safetensors",
                "**/*_pb2*",
                ".git",
                "MODULE.bazel.lock",
                "bazel-*",
                "user.bazelrc",
            ],
        ),
        visibility = ["//tests/house:__pkg__"],
    )
