"""mlcommons/inference, fetched only by what asks for @mlperf_inference.

It holds the reference implementations and the submission checkers, a checker
for each round. A commit's name is the hash of all that it holds, and git checks
it as it fetches: so each line pins every byte.
"""

_REMOTE = "https://github.com/mlcommons/inference.git"

# The tags that rounds were judged by, and for v6.0 and v6.1, which have none,
# the head of 2026-08-20, which is what is checked out.
_TAGS = {
    "v3.1": "ce189bda3e3519b3b363e9f7ecf533c1cb0ab57e",
    "v4.0": "e39003a9c4c89a2215db0ca57ad7a57b16f9a785",
    "v4.1": "379ee5345a25ee123fd5faec33285b6e8be0dadf",
    "v5.0": "dcd0c3eadb6189051ba0efe0a1f251a995fe8895",
    "v5.1": "75f297d44c5e68d24a2f7643fe1eb11e49313238",
}
_HEAD = "b66003e10e2db4b8c36a448b0545ec90fcc6e9e9"

_BUILD = """\
load("@rules_python//python:py_library.bzl", "py_library")

py_library(
    name = "mlperf_inference",
    srcs = ["mlperf_inference_checkout.py"],
    imports = ["."],
    visibility = ["//visibility:public"],
)
"""

_MODULE = '''\
"""Where mlcommons/inference lies."""

ROOT = {root}
'''

def _git(ctx, *arguments):
    done = ctx.execute(["git", "-C", "checkout"] + list(arguments), timeout = 3600)
    if done.return_code:
        fail("git %s failed with exit code %d:\n%s" % (
            " ".join(arguments),
            done.return_code,
            done.stderr,
        ))

def _mlperf_inference_impl(ctx):
    ctx.execute(["mkdir", "checkout"])
    _git(ctx, "init", "--quiet")
    commits = [_HEAD] + _TAGS.values()
    _git(ctx, "fetch", "--quiet", "--depth=1", ctx.attr.remote, *commits)
    for tag, commit in _TAGS.items():
        _git(ctx, "tag", tag, commit)
    _git(ctx, "checkout", "--quiet", "--detach", _HEAD)
    root = str(ctx.path("checkout"))
    ctx.file("mlperf_inference_checkout.py", _MODULE.format(root = repr(root)))
    ctx.file("BUILD", _BUILD)

_mlperf_inference = repository_rule(
    implementation = _mlperf_inference_impl,
    attrs = {"remote": attr.string(default = _REMOTE)},
    doc = "A Python module mlperf_inference_checkout whose ROOT is a checkout.",
)

def mlperf_repositories():
    """Declares mlcommons/inference; fetches nothing."""
    _mlperf_inference(name = "mlperf_inference")
