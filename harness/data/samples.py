"""Selects the samples of a run."""

import msgspec


class Samples(  # type: ignore[call-arg]
  msgspec.Struct, frozen=True, forbid_unknown_fields=True
):
  """The samples that LoadGen draws from.

  Attributes:
    dataset_path: The file of articles or questions; '': the bundled file.
    tokenizer_path: The tokenizer or the vocabulary; '': the one beside the
      checkpoint.
    max_input_length: The maximum number of tokens of a prompt; None: the
      default of the model.
    sample_count: The number of samples to take from the front; 0: all.
    benchmark: LoadGen's name of the benchmark, which decides the prompts.
  """

  dataset_path: str = ''
  tokenizer_path: str = ''
  max_input_length: int | None = None
  sample_count: int = 0
  benchmark: str = ''
