"""Program sets for TPU as targets."""

load("//saxml_ext/aot:program_set.bzl", "program_set")

def tpu_program_set(name, params, topology, **kwargs):
    """Compiles GPT-J for a TPU slice, on a machine that needs none.

    It takes minutes and fetches libtpu, so no pattern of targets includes it.

    Args:
      name: of the set.
      params: what follows `saxml_ext.params.gptj.` in the serving params' name.
      topology: a name of topologies.py, such as v5e_2x2.
      **kwargs: as of program_set.
    """
    program_set(
        name = name,
        args_of_compiler = ["--topology=" + topology],
        compiler = "//saxml_ext/aot/tpu:compile_programs",
        params = "saxml_ext.params.gptj." + params,
        platform = "tpu",
        tags = ["manual"],
        visibility = ["//visibility:public"],
        **kwargs
    )
