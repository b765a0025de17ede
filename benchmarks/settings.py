"""Defines the settings of a run of the benchmark."""

from collections.abc import Sequence
import dataclasses

from benchmarks import contenders
from benchmarks import models
from benchmarks import request_sets
from benchmarks import workload
from benchmarks.workers import service
from converters.hf import checkpoint

SETS = ('fixed', 'ragged')
BEAM, GREEDY = 'beam', 'greedy'
MODES = (BEAM, GREEDY)
# The flag for the number of requests applies to this number of beams. Wider
# beams get fewer requests, with the same number of rows. With 100 beams, other
# engines generate only 2 tokens per CPU second.
_FULL_WIDTH = 4
# From this width on, a trial generates only this many tokens, which are enough
# to measure the speed.
_WIDE, _TRIAL_NEW_TOKENS = 16, 8


@dataclasses.dataclass(frozen=True)
class Settings:
  """The settings of a run; bench.py explains the flags.

  model is the Hugging Face directory. articles and tokenizer are None unless
  the model is the bundled one. modes are names of `modes`. counts are numbers
  of requests, ascending. beams are the numbers of beams of mode "beam". cores
  are the cores of every worker, one for each of its threads. trial_new_tokens
  is the limit of an answer when trials choose the settings of other engines, or
  None. llama_cpp is the directory of the built llama-cpp-python, or None.
  """

  model: str
  cache: str
  out: str
  articles: str | None
  tokenizer: str | None
  request_set: str
  modes: tuple[str, ...]
  engines: tuple[contenders.Contender, ...]
  counts: tuple[int, ...]
  prompt: int
  new_tokens: int
  beams: int
  slots: int
  cores: tuple[int, ...]
  rounds: int
  trial_new_tokens: int | None = None
  llama_cpp: str | None = None

  @property
  def config(self) -> dict:
    return models.read_config(self.model)

  @property
  def sizes(self) -> models.Sizes:
    family, config = checkpoint.read_config(self.model)
    return models.Sizes(
      layers=config.num_layers,
      dim=config.model_dim,
      hidden=config.hidden_dim,
      vocab=config.vocab_size,
      kv_dim=config.kv_heads * config.head_dim,
      gated=family.architecture.gated,
      tied=config.tied_embeddings,
    )

  def requests(self) -> tuple[workload.Request, ...]:
    """Returns the largest set of requests; smaller sets are its beginning."""
    count, vocab = self.counts[-1], self.config['vocab_size']
    if self.request_set == 'fixed':
      return request_sets.fixed(count, self.prompt, self.new_tokens, vocab)
    if self.articles is not None and self.tokenizer is not None:
      return request_sets.bundled(count, self.articles, self.tokenizer)
    return request_sets.ragged(count, self.prompt, vocab)

  def beams_of(self, mode: str) -> int:
    if mode == GREEDY:
      return 1
    return int(mode.removeprefix(BEAM) or self.beams)

  def for_mode(self, mode: str) -> 'Settings':
    """Returns the settings for one of several widths, else these settings."""
    if mode in MODES:
      return self
    beams = self.beams_of(mode)
    return dataclasses.replace(
      self,
      modes=(mode,),
      counts=tuple(sorted({requests_of(n, beams) for n in self.counts})),
      trial_new_tokens=(
        _TRIAL_NEW_TOKENS if beams >= _WIDE else self.trial_new_tokens
      ),
    )

  def job(
    self,
    contender: contenders.Contender,
    mode: str,
    requests: Sequence[workload.Request],
  ) -> dict:
    """Returns the job of a worker as a JSON object."""
    return dataclasses.asdict(
      service.Job(
        model=self.model,
        cache=self.cache,
        dtype=contender.dtype,
        threads=len(self.cores),
        beams=self.beams_of(mode),
        slots=self.slots,
        eos=self.config['eos_token_id'],
        requests=tuple(requests),
        counts=self.counts,
        llama_cpp=self.llama_cpp,
        trial_new_tokens=self.trial_new_tokens,
      )
    )


def modes(names: Sequence[str], widths: Sequence[int]) -> tuple[str, ...]:
  """Returns the names of the modes; "beam30" is beam search with 30 beams.

  Args:
    names: The names to expand, some of MODES.
    widths: The numbers of beams. Each of several widths is a mode of its own.

  Raises:
    ValueError: A name is unknown, or a width is not positive.
  """
  for name in names:
    if name not in MODES:
      raise ValueError(f'--modes has {name!r}. Use {MODES}.')
  for width in widths:
    if width < 2:
      raise ValueError(
        f'--beams has {width}. The minimum is 2. For one beam, use'
        ' --modes=greedy.'
      )
  if len(widths) == 1:
    return tuple(names)
  wide = [f'{BEAM}{width}' for width in widths]
  return tuple(m for name in names for m in (wide if name == BEAM else [name]))


def requests_of(count: int, beams: int) -> int:
  """Returns the number of requests to run with this number of beams."""
  return min(count, max(1, count * _FULL_WIDTH // beams))
