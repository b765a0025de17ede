"""Defines targets for program sets of TPUs and GPUs."""

load("//saxml_ext/aot:program_set.bzl", "program_set")

def tpu_program_set(name, params, **kwargs):
    """Compiles a model for a TPU slice on a machine without a TPU.

    The target is manual, because it takes minutes and fetches libtpu.

    Args:
      name: The name of the set. It ends in a name of topologies.py, such as
        v5e_2x2.
      params: The name of the serving params. The prefix
        `saxml_ext.params.gptj.` may be omitted.
      **kwargs: The other arguments of program_set.
    """
    program_set(
        name = name,
        args_of_compiler = ["--topology=" + "_".join(name.split("_")[-2:])],
        compiler = "//saxml_ext/aot/tpu:compile_programs",
        params = params if "." in params else "saxml_ext.params.gptj." + params,
        platform = "tpu",
        tags = ["manual"],
        visibility = ["//visibility:public"],
        **kwargs
    )

def gpu_program_set(name, params):
    """Compiles a model for an NVIDIA GPU on a machine without one.

    The target is manual, because it takes minutes and fetches JAX's compiler
    for CUDA.

    Args:
      name: The name of the set. It ends in a name of topologies.py, such as
        h100.
      params: The name of the serving params.
    """
    program_set(
        name = name,
        args_of_compiler = ["--topology=" + name.split("_")[-1]],
        compiler = "//saxml_ext/aot/tpu:compile_gpu_programs",
        params = params,
        platform = "gpu",
        tags = ["manual"],
        visibility = ["//visibility:public"],
    )
