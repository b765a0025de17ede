"""inference.bzl for MODULE.bazel; Bazel 4 knows no module extensions."""

load(":inference.bzl", "mlperf_repositories")

def _mlperf_impl(_ctx):
    mlperf_repositories()

mlperf = module_extension(implementation = _mlperf_impl)
