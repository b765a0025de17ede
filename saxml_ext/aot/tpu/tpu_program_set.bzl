"""Program sets for TPU as targets."""

load("//saxml_ext/aot:program_set.bzl", "program_set")

def tpu_program_set(name, params, **kwargs):
    """Compiles a model for a TPU slice, on a machine that needs none.

    It takes minutes and fetches libtpu, so no pattern of targets includes it.

    Args:
      name: of the set; it ends in a name of topologies.py, such as v5e_2x2.
      params: the serving params' name, of which `saxml_ext.params.gptj.` may be
        left out.
      **kwargs: as of program_set.
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
