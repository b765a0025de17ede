"""Shapes of the model and settings of the engine.

Everything here is static: it is baked into the compiled programs, so a
different value means another compilation.
"""

from collections.abc import Mapping
import dataclasses
import math

import numpy as np

from saxml_ext.engine import architecture as architecture_lib
from saxml_ext.engine import config_checks
from saxml_ext.engine import logical
from saxml_ext.engine import variables as variables_lib

DTYPES = ('float32', 'bfloat16')
KV_DTYPES = (*DTYPES, 'int8')
EMBEDDINGS = ('last_token', 'mean')
GRADIENTS = ('embeddings',)
SEARCHES = ('beam', 'pax', 'sample', 'any')


@dataclasses.dataclass(frozen=True)
class ModelConfig:
  """Sizes of a model, and what kind of model it is.

  Attributes:
    num_layers: transformer layers.
    model_dim: width D of the residual stream.
    num_heads: attention heads N.
    head_dim: width H of a head.
    hidden_dim: width F of the feed-forward layer.
    rotary_dim: leading dims of each head that carry the position; even. 0
      unless the architecture's positions are rotary.
    vocab_size: rows V of the embedding and columns of the head.
    num_kv_heads: The number of heads of keys and values, each shared by an
      equal number of attention heads; 0: num_heads.
    rotary_base: the base of the wavelengths of rotary positions.
    ln_epsilon: added to the variance in layer norms.
    ln_direct_scale: True if the checkpoint stores a layer norm's scale itself
      (Sax's GPT-J), False if it stores scale - 1 (praxis' default).
    architecture: what is computed.
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
  ln_epsilon: float = 1e-5
  ln_direct_scale: bool = True
  architecture: architecture_lib.Architecture = architecture_lib.GPTJ

  def __post_init__(self) -> None:
    if self.architecture.positions != architecture_lib.ROTARY:
      if self.rotary_dim:
        raise ValueError(
          f'rotary_dim is {self.rotary_dim}; positions are'
          f' {self.architecture.positions}, so it must be 0.'
        )
    elif self.rotary_dim % 2 or not 0 < self.rotary_dim <= self.head_dim:
      raise ValueError(
        f'rotary_dim is {self.rotary_dim}; it must be even and between 2 and'
        f' head_dim ({self.head_dim}).'
      )
    if self.num_heads % self.kv_heads:
      raise ValueError(
        f'num_kv_heads is {self.num_kv_heads}; it must divide num_heads'
        f' ({self.num_heads}).'
      )
    if self.group > 1 and self.architecture.joined_qkv:
      raise ValueError(
        f'num_kv_heads is {self.num_kv_heads} of {self.num_heads} heads; an'
        ' architecture with joined_qkv has as many of both.'
      )

  @property
  def kv_heads(self) -> int:
    """The number of heads of keys and values."""
    return self.num_kv_heads or self.num_heads

  @property
  def group(self) -> int:
    """The number of queries that share a key, G."""
    return self.num_heads // self.kv_heads

  @classmethod
  def from_pax(
    cls, variables: Mapping[str, np.ndarray], rotary_dim: int, **kwargs
  ) -> 'ModelConfig':
    """Reads the sizes off the shapes of PAX variables.

    Args:
      variables: name -> array (only `.shape` is used), names as in
        `params.lm.transformer.x_layers_0.self_attention.combined_qkv.w`, or of
        repeated layers as in `variables.py`.
      rotary_dim: not visible in any shape.
      **kwargs: other fields, taken as they are.

    Raises:
      ValueError: a variable is missing or has another rank.
    """
    architecture = kwargs.get('architecture', architecture_lib.GPTJ)
    table = variables_lib.table_of(architecture).by_field
    repeated = variables_lib.is_repeated(variables)
    sizes: dict[str, int] = {}
    rows = [table['embedding'], table['layers.up'], table['layers.post']]
    if not architecture.joined_qkv:
      rows.append(table['layers.qkv'].parts[1])
    for row in rows:
      axes = row.stored_axes(repeated)
      name = row.below_prefix(repeated=repeated)
      sizes.update(zip(axes, _shape_of(variables, name, len(axes))))
    return cls(
      num_layers=sizes.get('layers') or _count_layers(variables),
      model_dim=sizes['embed'],
      num_heads=sizes['heads'],
      num_kv_heads=sizes.get('kv_heads', 0),
      head_dim=sizes['head_dim'],
      hidden_dim=sizes['hidden'],
      rotary_dim=rotary_dim,
      vocab_size=sizes['vocab'],
      **kwargs,
    )


def _count_layers(variables: Mapping[str, np.ndarray]) -> int:
  """Returns the number of layers, each of which has variables of its own."""
  found = map(variables_lib.layer_of, variables)
  layers = {layer for layer in found if layer is not None}
  if layers != set(range(len(layers))) or not layers:
    raise ValueError(
      f'layers {sorted(layers)} are not 0, 1, ...; the checkpoint needs'
      ' variables named `...x_layers_<i>....` for each layer.'
    )
  return len(layers)


def _shape_of(
  variables: Mapping[str, np.ndarray], suffix: str, rank: int
) -> tuple[int, ...]:
  """Shape of the variable that ends in `suffix`; ValueError if not `rank`-d."""
  name = variables_lib.find(variables, suffix)
  shape = tuple(variables[name].shape)
  if len(shape) != rank:
    raise ValueError(f'{name} has shape {shape}; expected {rank} dimensions.')
  return shape


@dataclasses.dataclass(frozen=True)
class EngineConfig:
  """The rules by which the engine batches, searches and stops.

  Attributes:
    eos_id: token that ends a hypothesis; None: the checkpoint's own, which is
      put in once it is read. No programs can be compiled before.
    pad_id: fills prompts up to their bucket; masked, so any valid id will do.
    num_slots: requests decoded together, S.
    decode_widths: numbers of slots for which decoding is compiled, ascending,
      the last one is num_slots. With fewer requests than slots the smallest
      that holds them is used, for a step costs as much as it is wide. Empty:
      a sixteenth, a quarter and all of the slots.
    max_prompt: longest prompt in tokens.
    prompt_buckets: lengths to which prompts are padded for prefill; ascending,
      the last one is max_prompt. Empty: about eight, multiples of 64.
    prompt_segments: boundaries at which the prompts' KV is cut; a step reads
      only the segments that some live prompt reaches. The last is at least
      max_prompt. Empty: as the buckets. See `tiled`.
    prefill_batches: numbers of prompts prefilled in one call, ascending; where
      devices split the slots, by each part of them.
    prefill_chunk: a longer prompt is prefilled in chunks of this many tokens,
      one chunk a step, between which the others decode on. 0: in one go.
    max_new_tokens: most tokens generated, and the limit of a request's own.
    min_new_tokens: stop ids are barred before this many.
    max_stop_ids: most tokens E that may end the answers of a request.
    search: "beam", the reference's beam search; "pax", Pax's, see
      `pax_beam.py`; "sample", which is greedy at temperature 0; or "any", the
      reference's and samples side by side, as each request chooses.
    num_beams: beams, or samples, of a request; it may ask for fewer.
    num_samples: of "any", the samples of a request; None: num_beams.
    beam_search: of "any", whether requests that do not say are answered by
      beam search.
    max_logprobs: most of the likeliest tokens in each place that requests may
      have told, beside the log-probabilities of the chosen ones; each slot,
      row and step has room for as many.
    embedding: "last_token" or "mean", what `Runner.embed` makes of a text;
      None: nothing.
    gradients: what `Runner.gradient` differentiates by, of GRADIENTS.
    length_penalty: a hypothesis scores sum(logprob) / length**length_penalty.
    early_stopping: True: stop at K finished hypotheses. False: stop when the
      best running beam cannot beat the worst hypothesis at its present length.
      "never": the same, at the most favourable length.
    length_norm_alpha: Pax's power: a hypothesis scores sum(logprob) / ((length
      + 5) / 5)**length_norm_alpha.
    tokens_per_beam: Pax's candidates of each beam; None: num_beams.
    early_exit: Pax's beams run on after their end until all have ended.
    max_top_k: samples come from this many tokens at most; 0: from all of the
      vocabulary.
    temperature, top_p: of samples whose request does not say.
    kv_dtype: "float32", "bfloat16" or "int8", of keys and values. The types of
      the weights are their own affair, see `weights.from_pax`.
    steps_per_call: most decode steps in one device call.
    exit_finished: a call ends once this many slots have finished, so that they
      can be refilled.
    suffix_block: decode steps whose KV shares one array; with max_new_tokens or
      more there is one array alone.
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
  max_new_tokens: int = 128
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
          f'{name} is {getattr(self, name)!r}; use one of {choices}.'
        )
    if not set(self.gradients) <= set(GRADIENTS):
      raise ValueError(
        f'gradients are {self.gradients}; use any of {GRADIENTS}.'
      )
    for name, values, last in (
      ('decode_widths', self.widths, self.num_slots),
      ('prompt_buckets', self.buckets, self.max_prompt),
      ('prompt_segments', self.segments, None),
      ('prefill_batches', self.prefill_batches, None),
    ):
      config_checks.ascending(name, values, last)
    if self.segments[-1] < self.max_prompt:
      raise ValueError(
        f'prompt_segments ends in {self.segments[-1]}; it must end in'
        f' {self.max_prompt} or above.'
      )

  @property
  def has_beams(self) -> bool:
    """True if requests can be answered by beam search."""
    return self.search != 'sample'

  @property
  def has_samples(self) -> bool:
    """True if requests can be answered by samples."""
    return self.search in ('sample', 'any')

  @property
  def most_samples(self) -> int:
    """Samples that a request may ask for; 0: none."""
    if not self.has_samples:
      return 0
    return self.num_beams if self.search == 'sample' else self._any_samples

  @property
  def most_beams(self) -> int:
    """Beams that a request may ask for; 0: none."""
    return self.num_beams if self.has_beams else 0

  @property
  def rows(self) -> int:
    """K, of each group: as many as its beams or samples may be."""
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
    """As prompt_buckets, and each number of whole chunks: then the last token
    of a prompt always lies in the last chunk of its bucket."""
    given = self.prompt_buckets or even_buckets(self.max_prompt)
    if not self.prefill_chunk:
      return given
    whole = range(self.prefill_chunk, self.max_prompt, self.prefill_chunk)
    return tuple(sorted({*given, *whole}))

  def chunks(self, bucket: int) -> tuple[tuple[int, int], ...]:
    """(start, end) of the parts in which prompts of a bucket are prefilled."""
    step = self.prefill_chunk or bucket
    return tuple((i, min(i + step, bucket)) for i in range(0, bucket, step))

  @property
  def segments(self) -> tuple[int, ...]:
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
    """Numbers of newest steps that a stream is told at once, ascending.

    The first call after a prefill tells of one step more than it has decoded.
    """
    most = min(self.steps_per_call + 1, self.max_new_tokens)
    return tuple(sorted({min(2, most), most}))

  @property
  def num_suffix_blocks(self) -> int:
    """Blocks in the ring: a request may begin anywhere in its first one.

    A single one has a row for each step of a request, and wraps.
    """
    if self.suffix_block >= self.max_new_tokens:
      return 1
    return -(-self.max_new_tokens // self.suffix_block) + 1


def at_least(value: int, choices: tuple[int, ...]) -> int:
  """Returns the smallest of the ascending choices that is not below `value`."""
  return next(choice for choice in choices if choice >= value)


def suffix_block(max_new_tokens: int) -> int:
  """A suffix_block for such answers: of short ones no step too many.

  With wide beams a slot's memory is that of their suffixes, above all.
  """
  return min(EngineConfig.suffix_block, max_new_tokens)


def even_buckets(limit: int) -> tuple[int, ...]:
  """Returns at most eight equal steps up to `limit`, multiples of 64 each."""
  step = 64 * -(-limit // 512)
  return (*range(step, limit, step), limit)


def tiled(config: EngineConfig, parts: int = 1) -> EngineConfig:
  """The same, with KV as TPUs like it, in lengths that are multiples of TILE.

  A prompt's is in one piece, for the kernel reads no more of it than there is;
  the suffixes' in one block that wraps, with no more rows than a request needs.

  Args:
    config: As the serving params have it.
    parts: The number of parts that the mesh splits the slots into. The kernel
      needs as many slots in each.
  """
  steps = logical.TILE // math.gcd(logical.TILE, config.rows)
  if any(width % parts for width in config.widths):
    whole = {width + -width % parts for width in config.widths}
    config = dataclasses.replace(config, decode_widths=tuple(sorted(whole)))
  return dataclasses.replace(
    config,
    prompt_segments=(logical.TILE * -(-config.segments[-1] // logical.TILE),),
    suffix_block=steps * -(-config.max_new_tokens // steps),
  )
