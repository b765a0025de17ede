"""What a run of the benchmark is asked to do."""

from collections.abc import Sequence
import dataclasses

from saxml_ext.benchmark import contenders
from saxml_ext.benchmark import models
from saxml_ext.benchmark import request_sets
from saxml_ext.benchmark import workload
from saxml_ext.benchmark.workers import service

SETS = ('fixed', 'ragged')
MODES = ('beam', 'greedy')


@dataclasses.dataclass(frozen=True)
class Settings:
  """The flags of bench.py, which explains them.

  model is the Hugging Face directory; articles and tokenizer are None unless
  it is the bundled one. counts are numbers of requests, ascending; cores are
  where every worker runs, one for each of its threads. Trials of peers'
  settings ask for answers of at most trial_new_tokens, if that is given.
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

  @property
  def config(self) -> dict:
    return models.read_config(self.model)

  def requests(self) -> tuple[workload.Request, ...]:
    """The largest set; smaller ones are its beginning."""
    count, vocab = self.counts[-1], self.config['vocab_size']
    if self.request_set == 'fixed':
      return request_sets.fixed(count, self.prompt, self.new_tokens, vocab)
    if self.articles is not None and self.tokenizer is not None:
      return request_sets.bundled(count, self.articles, self.tokenizer)
    return request_sets.ragged(count, self.prompt, vocab)

  def beams_of(self, mode: str) -> int:
    return self.beams if mode == 'beam' else 1

  def job(
    self,
    contender: contenders.Contender,
    mode: str,
    requests: Sequence[workload.Request],
  ) -> dict:
    """The worker's job, as it travels."""
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
        trial_new_tokens=self.trial_new_tokens,
      )
    )
