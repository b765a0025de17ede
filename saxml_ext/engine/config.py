"""Defines the sizes of the model and the settings of the engine.

All values are static. They are constants of the compiled programs, so a
different value requires another compilation.
"""

from collections.abc import Mapping
import dataclasses

import numpy as np

from saxml_ext.engine import architecture as architecture_lib
from saxml_ext.engine import config_checks
from saxml_ext.engine import variables as variables_lib

DTYPES = ('float32', 'bfloat16')
KV_DTYPES = (*DTYPES, 'int8')
EMBEDDINGS = ('last_token', 'mean')
GRADIENTS = ('embeddings',)
SEARCHES = ('beam', 'pax', 'sample', 'any')


@dataclasses.dataclass(frozen=True)
class ModelConfig:
  """The sizes and the architecture of a model.

  Attributes:
    num_layers: The number of transformer layers.
    model_dim: The width of the residual stream, D.
    num_heads: The number of attention heads, N.
    head_dim: The width of a head, H.
    hidden_dim: The width of the feed-forward layer, F.
    rotary_dim: The number of leading dimensions of each head that are rotated
      by position, an even number. 0 unless the architecture's positions are
      rotary.
    vocab_size: The rows of the embedding and the columns of the head, V.
    num_kv_heads: The number of heads of keys and values, each shared by an
      equal number of attention heads. 0 stands for num_heads.
    rotary_base: The base of the wavelengths of rotary positions.
    rotary_scaling: The scaling of rotary positions for long texts; None for no
      scaling.
    ln_epsilon: The number added to the variance in layer norms.
    ln_direct_scale: True if the checkpoint stores a layer norm's scale itself
      (Sax's GPT-J), False if it stores scale - 1 (praxis' default).
    architecture: The switches of the model family.
    details: Further numbers of the model.
  """

  num_layers: int
  model_dim: int
  num_heads: int
  head_dim: int
  hidden_dim: int
  rotary_dim: int
  vocab_size: int
  num_kv_heads: int = 0
  rotary_base: float = 10000.0
  rotary_scaling: architecture_lib.RotaryScaling | None = None
  ln_epsilon: float = 1e-5
  ln_direct_scale: bool = True
  architecture: architecture_lib.Architecture = architecture_lib.GPTJ
  details: architecture_lib.Details = architecture_lib.Details()

  def __post_init__(self) -> None:
    config_checks.sizes(self)

  @property
  def kv_heads(self) -> int:
    """The number of heads of keys and values."""
    return self.num_kv_heads or self.num_heads

  @property
  def group(self) -> int:
    """The number of queries that share a key, G."""
    return self.num_heads // self.kv_heads

  @property
  def plain_residual(self) -> bool:
    """True if results of layers join the residual as they are."""
    before = self.architecture.norm_policy == architecture_lib.PRE
    return before and self.details.residual == 1

  @classmethod
  def from_pax(
    cls, variables: Mapping[str, np.ndarray], rotary_dim: int, **kwargs
  ) -> 'ModelConfig':
    """Returns the sizes that the shapes of PAX variables imply.

    Args:
      variables: The arrays by name (only `.shape` is used). The names are like
        `params.lm.transformer.x_layers_0.self_attention.combined_qkv.w`, or
        those of repeated layers in `variables.py`.
      rotary_dim: The number of rotated dimensions, which no shape implies.
      **kwargs: The other fields.

    Raises:
      ValueError: A variable is missing or has another rank.
    """
    architecture = kwargs.get('architecture', architecture_lib.GPTJ)
    table = variables_lib.table_of(architecture).by_field
    repeated = variables_lib.is_repeated(variables)
    sizes: dict[str, int] = {}
    rows = [table['embedding'], table['layers.up'], table['layers.post']]
    if not variables_lib.is_joined(variables):
      rows.append(table['layers.qkv'].parts[1])
    for row in rows:
      axes = row.stored_axes(repeated)
      name = row.below_prefix(repeated=repeated)
      sizes.update(zip(axes, _shape_of(variables, name, len(axes))))
    return cls(
      num_layers=sizes.get('layers') or variables_lib.count_layers(variables),
      model_dim=sizes['embed'],
      num_heads=sizes['heads'],
      num_kv_heads=sizes.get('kv_heads', 0),
      head_dim=sizes['head_dim'],
      hidden_dim=sizes['hidden'],
      rotary_dim=rotary_dim,
      vocab_size=sizes['vocab'],
      **kwargs,
    )


def _shape_of(
  variables: Mapping[str, np.ndarray], suffix: str, rank: int
) -> tuple[int, ...]:
  """Returns the shape of the variable ending in `suffix`; checks its rank."""
  name = variables_lib.find(variables, suffix)
  shape = tuple(variables[name].shape)
  if len(shape) != rank:
    raise ValueError(f'{name} has shape {shape}, not {rank} dimensions.')
  return shape


@dataclasses.dataclass(frozen=True)
class EngineConfig:
  """The rules by which the engine batches, searches and stops.

  Attributes:
    eos_id: The token that ends a hypothesis. None stands for the checkpoint's
      own token, which is set when it is read. Compilation requires the token.
    pad_id: The padding of prompts; masked, so any valid id is suitable.
    num_slots: The number of requests decoded together, S.
    decode_widths: The numbers of slots for which decoding is compiled,
      ascending, num_slots last. A step uses the smallest width that holds all
      requests, because its cost grows with the width. Empty: 1/16, 1/4 and all
      slots.
    max_prompt: The length of the longest prompt in tokens.
    prompt_buckets: The lengths to which prompts are padded, ascending,
      max_prompt last. Empty: at most eight multiples of 64.
    prompt_segments: The boundaries of the segments of the prompts' KV. A step
      reads only segments that live prompts reach. The last is at least
      max_prompt. Empty: the buckets. See `tiled`.
    prefill_batches: The numbers of prompts in one prefill call, ascending. If
      devices split the slots, the numbers apply to each part.
    prefill_chunk: The number of tokens in a chunk of a longer prompt. Other
      requests are decoded between chunks. 0: no chunks.
    prefill_interval: The number of decode steps between chunks. More steps
      delay the prompt's first token; fewer delay the tokens of other requests.
    prefill_tokens: The number of tokens in a call that prefills several prompts
      in one row. It requires one segment and no chunks. 0: no such calls.
    max_new_tokens: The maximum number of generated tokens, for all requests.
      With max_context, it applies only to requests with several rows.
    max_context: The maximum length of prompt and answer together, in tokens,
      for a CPU. An answer with one row may use all that its prompt leaves: its
      steps move to the prompt's segment each time the ring is full. Prompts
      are prefilled in chunks of prefill_chunk tokens, the last padded to a
      bucket, by one program for all positions. 0: separate limits.
    min_new_tokens: The number of tokens before which stop ids are excluded.
    max_stop_ids: The maximum number of stop ids of a request, E.
    search: The search. "beam" is the reference's beam search, "pax" that of Pax
      (see `pax_beam.py`). "sample" is greedy at temperature 0. With "any", each
      request chooses the reference's beam search or samples.
    num_beams: The maximum and default number of beams, or samples.
    num_samples: The number of samples with "any". None: num_beams.
    beam_search: True if beam search is the default with "any".
    max_logprobs: The maximum number of alternatives that requests may ask for
      at each position, in addition to the log-probabilities of chosen tokens.
      Each slot, row and step has memory for this number.
    embedding: The kind of `Runner.embed`, "last_token" or "mean". None: none.
    gradients: The variables of `Runner.gradient`, from GRADIENTS.
    length_penalty: The power in the score, sum(logprob) /
      length**length_penalty.
    early_stopping: True to stop at K finished hypotheses. False to stop when
      the best running beam cannot beat the worst hypothesis at its present
      length. "never" does the same at the most favorable length.
    length_norm_alpha: The power in Pax's score, sum(logprob) / ((length + 5) /
      5)**length_norm_alpha.
    tokens_per_beam: The number of Pax's candidates per beam. None: num_beams.
    early_exit: True if Pax's beams run on after their end until all have ended.
    max_top_k: The default number of tokens from which samples are drawn. It is
      also the maximum, unless `any_top_k`. 0: the whole vocabulary.
    temperature: The default temperature of samples.
    top_p: The default top_p of samples.
    kv_dtype: The number format of KV, "float32", "bfloat16" or "int8". The
      format of weights is independent; see `weights.from_pax`.
    steps_per_call: The maximum number of decode steps in one device call.
    exit_finished: The number of finished slots that ends a call, so that they
      can be refilled.
    suffix_block: The number of decode steps whose KV shares one array. From
      max_new_tokens on, there is only one array.
  """

  eos_id: int | None
  pad_id: int = 0
  num_slots: int = 32
  decode_widths: tuple[int, ...] = ()
  max_prompt: int = 512
  prompt_buckets: tuple[int, ...] = ()
  prompt_segments: tuple[int, ...] = ()
  prefill_batches: tuple[int, ...] = (1,)
  prefill_chunk: int = 0
  prefill_interval: int = 4
  prefill_tokens: int = 0
  max_new_tokens: int = 128
  max_context: int = 0
  min_new_tokens: int = 30
  max_stop_ids: int = 1
  search: str = 'beam'
  num_beams: int = 4
  num_samples: int | None = None
  beam_search: bool = True
  max_logprobs: int = 0
  embedding: str | None = None
  gradients: tuple[str, ...] = ()
  length_penalty: float = 1.0
  early_stopping: bool | str = True
  length_norm_alpha: float = 0.8
  tokens_per_beam: int | None = None
  early_exit: bool = False
  max_top_k: int = 0
  temperature: float = 1.0
  top_p: float = 1.0
  kv_dtype: str = 'float32'
  steps_per_call: int = 32
  exit_finished: int = 1
  suffix_block: int = 16

  def __post_init__(self) -> None:
    config_checks.numbers(self)
    for name, choices in (
      ('early_stopping', (True, False, 'never')),
      ('kv_dtype', KV_DTYPES),
      ('search', SEARCHES),
      ('embedding', (None, *EMBEDDINGS)),
    ):
      if getattr(self, name) not in choices:
        raise ValueError(
          f'{name} is {getattr(self, name)!r}, but must be one of {choices}.'
        )
    if not set(self.gradients) <= set(GRADIENTS):
      raise ValueError(
        f'gradients is {self.gradients}. Use any of {GRADIENTS}.'
      )
    for name, values, last in (
      ('decode_widths', self.widths, self.num_slots),
      ('prompt_buckets', self.buckets, self._longest_bucket),
      ('prompt_segments', self.segments, None),
      ('prefill_batches', self.prefill_batches, None),
    ):
      config_checks.ascending(name, values, last)
    config_checks.context(self)
    config_checks.packing(self)
    if self.segments[-1] < self.max_prompt:
      raise ValueError(
        f'prompt_segments ends in {self.segments[-1]}, but must end in at'
        f' least {self.max_prompt}.'
      )

  @property
  def max_length(self) -> int:
    """The maximum length of prompt and answer together, in tokens."""
    return self.max_context or self.max_prompt + self.max_new_tokens

  @property
  def max_steps(self) -> int:
    """The maximum number of generated tokens of any request, M."""
    return max(self.max_new_tokens, self.max_context)

  @property
  def has_beams(self) -> bool:
    """True if requests can be answered by beam search."""
    return self.search != 'sample'

  @property
  def has_samples(self) -> bool:
    """True if requests can be answered by samples."""
    return self.search in ('sample', 'any')

  @property
  def any_top_k(self) -> bool:
    """True if samples may be drawn from any number of tokens, up to all."""
    unlimited = self.search == 'sample' and not self.max_top_k
    return unlimited or self.search == 'any'

  @property
  def most_samples(self) -> int:
    """The maximum number of samples of a request; 0 for none."""
    if not self.has_samples:
      return 0
    return self.num_beams if self.search == 'sample' else self._any_samples

  @property
  def most_beams(self) -> int:
    """The maximum number of beams of a request; 0 for none."""
    return self.num_beams if self.has_beams else 0

  @property
  def rows(self) -> int:
    """The number of rows of each group, K: the maximum of beams and samples."""
    return max(self.most_beams, self.most_samples)

  @property
  def _any_samples(self) -> int:
    return self.num_beams if self.num_samples is None else self.num_samples

  @property
  def widths(self) -> tuple[int, ...]:
    if self.decode_widths:
      return self.decode_widths
    return tuple(sorted({-(-self.num_slots // part) for part in (16, 4, 1)}))

  @property
  def buckets(self) -> tuple[int, ...]:
    """The prompt buckets and all multiples of prefill_chunk, ascending."""
    given = self.prompt_buckets or even_buckets(self._longest_bucket)
    if not self.prefill_chunk or self.max_context:
      return given
    # So a prompt's last token is always in the last chunk of its bucket.
    whole = range(self.prefill_chunk, self.max_prompt, self.prefill_chunk)
    return tuple(sorted({*given, *whole}))

  @property
  def _longest_bucket(self) -> int:
    return self.prefill_chunk if self.max_context else self.max_prompt

  def padded(self, length: int) -> int:
    """Returns the length to which a prompt is padded."""
    whole = 0
    if self.max_context:  # All chunks but the last are whole.
      whole = (length - 1) // self.prefill_chunk * self.prefill_chunk
    return whole + at_least(length - whole, self.buckets)

  def chunks(self, bucket: int) -> tuple[tuple[int, int], ...]:
    """Returns the chunks of a bucket's prompts as (start, end) pairs."""
    step = self.prefill_chunk or bucket
    return tuple((i, min(i + step, bucket)) for i in range(0, bucket, step))

  @property
  def segments(self) -> tuple[int, ...]:
    if self.max_context:
      # Writes are whole chunks or rings, so the last may exceed the context.
      return (self.max_context + max(self.prefill_chunk, self.max_new_tokens),)
    return self.prompt_segments or self.buckets

  @property
  def segment_lengths(self) -> tuple[int, ...]:
    ends = self.segments
    return tuple(b - a for a, b in zip((0, *ends), ends))

  def segments_for(self, length: int) -> int:
    """Returns the number of segments that `length` tokens reach."""
    return self.segments.index(at_least(length, self.segments)) + 1

  @property
  def progress_windows(self) -> tuple[int, ...]:
    """The numbers of newest steps that a stream can report, ascending.

    The first call after a prefill reports one step more than it decodes.
    """
    most = min(self.steps_per_call + 1, self.max_new_tokens)
    return tuple(sorted({min(2, most), most}))

  @property
  def num_suffix_blocks(self) -> int:
    """The number of blocks in the ring; requests may begin anywhere in a block.

    A single block has a row for each step of a request, and wraps.
    """
    if self.suffix_block >= self.max_new_tokens:
      return 1
    return -(-self.max_new_tokens // self.suffix_block) + 1


def at_least(value: int, choices: tuple[int, ...]) -> int:
  """Returns the smallest of the ascending choices that is not below `value`."""
  return next(choice for choice in choices if choice >= value)


def suffix_block(max_new_tokens: int) -> int:
  """Returns a suffix_block for these answers without unused steps.

  The memory of a slot with wide beams consists mostly of their suffixes.
  """
  return min(EngineConfig.suffix_block, max_new_tokens)


def even_buckets(limit: int) -> tuple[int, ...]:
  """Returns at most eight equal steps up to `limit`, multiples of 64 each."""
  step = 64 * -(-limit // 512)
  return (*range(step, limit, step), limit)
