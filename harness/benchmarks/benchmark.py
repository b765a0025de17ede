"""Defines the type of a benchmark: its rules, its model and its data.

A benchmark is a value of this type. The module `all` lists the values.
"""

from collections.abc import Collection, Iterator, Mapping
import dataclasses
import os
from typing import Any

from harness.rules import rounds
from serve import programs as programs_lib

ROOT = programs_lib.ROOT

_ONLINE = (rounds.SERVER, rounds.INTERACTIVE)
# CM's names of implementations and frameworks, mapped to our names of systems.
_BACKENDS = {
  'reference': 'reference',
  'pytorch': 'reference',
  'saxml': 'cell',
  'jax': 'engine',
}
# Answers need this share of the reference's characters for all targets. The
# other number is the upper bound, for the benchmarks that have one.
_LEAST_LENGTH, _MOST_LENGTH = 0.9, 1.1


@dataclasses.dataclass(frozen=True)
class Prompt:
  """The prompts of a benchmark that summarizes news.

  Attributes:
    template: The template of a prompt, with {input} for the article.
    max_tokens: The maximum number of tokens of a prompt.
    cuts: True if longer prompts are cut; False if they are refused.
  """

  template: str
  max_tokens: int
  cuts: bool


@dataclasses.dataclass(frozen=True)
class Search:
  """The search for an answer.

  Attributes:
    beams: The number of beams; 1 is greedy search.
    min_tokens: The minimum number of tokens of an answer.
    max_tokens: The maximum number of tokens of an answer.
  """

  beams: int
  min_tokens: int
  max_tokens: int

  @property
  def generation(self) -> dict[str, Any]:
    """The search as arguments of transformers' `generate`."""
    # Greedy search has no early stopping, and transformers would warn about it.
    beams = {'early_stopping': True} if self.beams > 1 else {}
    return {
      'num_beams': self.beams,
      **beams,
      'max_new_tokens': self.max_tokens,
      'min_new_tokens': self.min_tokens,
    }

  @property
  def attributes(self) -> dict[str, Any]:
    """The search as attributes of serving params."""
    search: dict[str, Any] = {
      'USE_BEAM_SEARCH': self.beams > 1,
      **({'BEAM_SIZE': self.beams} if self.beams > 1 else {}),
      'MIN_DECODE_STEPS': self.min_tokens,
      'MAX_DECODE_STEPS': self.max_tokens,
    }
    if self.beams > 1:
      return search
    return search | {'NUM_SAMPLES': 1, 'TEMPERATURE': 0.0}


@dataclasses.dataclass(frozen=True)
class Bundle:
  """The bundled model and samples of a benchmark.

  Attributes:
    directory: The directory of the files, relative to the repository.
    samples: The file of the samples, relative to the repository.
    params: The serving params of the model; '': a cell cannot serve it.
    max_input_length: The longest prompt in tokens that these params take.
  """

  directory: str
  samples: str
  params: str = ''
  max_input_length: int = 0

  @property
  def dataset(self) -> str:
    """The path of the samples."""
    return os.path.join(ROOT, self.samples)

  @property
  def reference(self) -> str:
    """The path of the reference's answers and scores for these samples."""
    return self._path('reference.json')

  @property
  def model(self) -> str:
    """The Hugging Face directory of the model."""
    return self._path('model')

  @property
  def tokenizer(self) -> str:
    """The path of the tokenizer."""
    return self._path('model', 'tokenizer.json')

  @property
  def vocabulary(self) -> str:
    """The path of the word pieces of a model without a tokenizer.json."""
    return self._path('model', 'vocab.txt')

  @property
  def pax(self) -> str | None:
    """The PAX checkpoint; None outside of Bazel, which makes it."""
    return self._built('pax')

  @property
  def programs(self) -> str | None:
    """The programs of `params`, compiled for the build machine's CPU.

    They are None outside of Bazel, because only the build compiles them.
    """
    return self._built('programs')

  def _path(self, *names: str) -> str:
    return os.path.join(ROOT, self.directory, *names)

  def _built(self, name: str) -> str | None:
    path = self._path(name)
    return path if os.path.isdir(path) else None


@dataclasses.dataclass(frozen=True)
class Category:
  """The scenarios of a benchmark in a category of submissions.

  Attributes:
    name: The name of the category.
    scenarios: The names of the scenarios.
    first: The first round.
    last: The last round.
    models: The submitted names of the models; (): all of the benchmark.
  """

  name: str
  scenarios: tuple[str, ...]
  first: str = rounds.FIRST
  last: str = rounds.LATEST
  models: tuple[str, ...] = ()

  def has(self, round_name: str, model: str) -> bool:
    """Returns True if the category has a model in a round."""
    return model in (self.models or (model,)) and rounds.is_between(
      round_name, self.first, self.last
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Benchmark:
  """A benchmark of MLPerf Inference.

  Attributes:
    name: LoadGen's name.
    title: The name of the model for messages.
    models: The share of the reference's figures that a model must reach, by the
      submitted name of the model.
    full_set: The number of samples in the whole set, which closed runs must
      hold.
    categories: The categories of submissions, with rounds and scenarios.
    reference: The figures of the reference model in float32, on the whole
      official set. Source: accuracy-target of submission_checker.py.
    scores: The figures that pages draw; the first one is the main figure.
    bundle: The bundled model and samples.
    scenarios: The scenarios in which it can run.
    server_latency_ms: The latency bound of the Server scenario in ms, the same
      in all rounds; 0: the bounds are on tokens instead.
    uses_tokens: True if LoadGen measures the latencies of tokens.
    token_limits: The bounds on them, by scenario.
    issues_equally: True if all samples must be issued equally often in the
      scenarios that the round names.
    reference_length: The total number of characters in the reference's answers
      to the whole set; 0: it has no meaning.
    limits_length: True if there is an upper bound on the characters too.
      Source: acc-limit of submission_checker.py.
    float32_tolerance: The maximum allowed difference between the figures of two
      float32 runs of one model that add sums in different orders. This is a
      rule of our harness, with ROUGE in points and F1 in percent.
    tests: The last round of each compliance test.
    test_percent: The maximum allowed difference between the scores of TEST01
      and of the accuracy run in percent, by submitted name of the model.
    family: The model_type in the config.json of its checkpoints.
    prompt: The prompts, if it summarizes news.
    search: The search, if it summarizes news.
    dtype: The type of the values in LoadGen's accuracy log.
    logs_end: True if the logs contain the end id of an answer.
    input_type: The type of the inputs, for the description of a submission.
    systems: The systems that can answer. The first one is the default.
    backends: The systems by CM's names of implementations and frameworks.
    beam_variable: The environment variable that sets the reference's beams.
    tokens_since: The first round whose published figures are in tokens, though
      LoadGen counts samples; '': none.
  """

  name: str
  title: str
  models: Mapping[str, float]
  full_set: int
  categories: tuple[Category, ...]
  reference: Mapping[str, float]
  scores: tuple[str, ...]
  bundle: Bundle
  scenarios: tuple[str, ...] = (
    *(rounds.OFFLINE, rounds.SERVER, rounds.SINGLE_STREAM, rounds.MULTI_STREAM),
  )
  server_latency_ms: int = 0
  uses_tokens: bool = False
  token_limits: Mapping[str, rounds.TokenLimits] = dataclasses.field(
    default_factory=dict
  )
  issues_equally: bool = True
  reference_length: int = 0
  limits_length: bool = False
  float32_tolerance: float = 0.01
  tests: Mapping[str, str] = dataclasses.field(default_factory=dict)
  test_percent: Mapping[str, float] = dataclasses.field(default_factory=dict)
  family: str = ''
  prompt: Prompt = Prompt('', 0, cuts=False)
  search: Search = Search(1, 0, 0)
  dtype: str = 'int64'
  logs_end: bool = False
  input_type: str = 'int32'
  systems: tuple[str, ...] = ('cell', 'engine', 'reference')
  backends: Mapping[str, str] = dataclasses.field(
    default_factory=lambda: _BACKENDS
  )
  beam_variable: str = ''
  tokens_since: str = ''

  @property
  def summarizes(self) -> bool:
    """True if it summarizes news; False if it answers questions."""
    return bool(self.prompt.template)

  @property
  def first_round(self) -> str:
    """The first round that has the benchmark."""
    return min(
      (category.first for category in self.categories), key=rounds.index
    )

  @property
  def last_round(self) -> str:
    """The latest round that has the benchmark."""
    return max(
      (category.last for category in self.categories), key=rounds.index
    )

  def is_in(self, round_name: str) -> bool:
    """Returns True if a round has the benchmark."""
    rows = self.categories
    return any(rounds.is_between(round_name, x.first, x.last) for x in rows)

  def loadgen_model(self, scenario: str) -> str:
    """Returns the name under which LoadGen's mlperf.conf has the settings."""
    if scenario == rounds.INTERACTIVE:
      return f'{self.name}-interactive'
    return self.name

  def must_issue_equally(self, round_name: str, scenario: str) -> bool:
    """Returns True if all samples must be issued equally often."""
    equal_issue = rounds.ROUNDS[round_name].equal_issue
    return self.issues_equally and scenario in equal_issue

  def min_queries(self, round_name: str, scenario: str) -> int:
    """Returns the minimum number of queries of a closed run.

    For Offline, it is the number of samples.
    """
    return (
      rounds.SCENARIOS[scenario].min_queries
      or rounds.ROUNDS[round_name].offline_min_queries
      or self.full_set
    )

  def official_key(self, scenario: str) -> str:
    """Returns the detail log's key of the figure in official results."""
    rules = rounds.SCENARIOS[scenario]
    return rules.tokens_key if self.uses_tokens else rules.official_key

  def least(self, model: str) -> dict[str, float]:
    """Returns the minimum figures of a model on the whole official set."""
    if model not in self.models:
      return {}
    share = self.models[model]
    figures = {name: share * value for name, value in self.reference.items()}
    if self.reference_length:
      figures['gen_len'] = _LEAST_LENGTH * self.reference_length
    return figures

  @property
  def most(self) -> dict[str, float]:
    """The maximum figures on the whole official set."""
    if not self.limits_length:
      return {}
    return {'gen_len': _MOST_LENGTH * self.reference_length}

  def missed(
    self, model: str, metrics: Mapping[str, float | None]
  ) -> Iterator[tuple[str, float, str]]:
    """Yields the figures of the whole official set that are out of bounds.

    Args:
      model: The submitted name of the model.
      metrics: The figures by name. Missing ones are skipped.

    Yields:
      The name of a figure, the figure, and its bound such as "at least
      89.96526".
    """
    for name, least in self.least(model).items():
      value = metrics.get(name)
      if value is not None and value < least:
        yield name, value, f'at least {least:.10g}'
    for name, most in self.most.items():
      value = metrics.get(name)
      if value is not None and value > most:
        yield name, value, f'at most {most:.10g}'

  def required(
    self, round_name: str, category: str, model: str
  ) -> tuple[str, ...]:
    """Returns the scenarios that a round has for a model in a category.

    Returns:
      The names of the scenarios, or an empty tuple if the round does not have
      the model in the category. For "datacenter,edge", the scenarios of both
      categories.
    """
    return tuple(
      dict.fromkeys(
        scenario
        for name in category.split(',')
        for entry in self.categories
        if entry.name == name and entry.has(round_name, model)
        for scenario in entry.scenarios
      )
    )

  def lacking(
    self, scenarios: Collection[str], round_name: str, category: str, model: str
  ) -> tuple[str, ...]:
    """Returns the scenarios that a closed submission of a model still needs.

    All scenarios of the category are required, but if Interactive is one of
    them, either Server or Interactive is enough.

    Args:
      scenarios: The scenarios of the submission.
      round_name: The round.
      category: The category.
      model: The submitted name of the model.
    """
    known = self.required(round_name, category, model)
    one_of = _ONLINE if rounds.INTERACTIVE in known else ()
    missing = tuple(
      scenario for scenario in known if scenario not in (*scenarios, *one_of)
    )
    if one_of and not any(scenario in scenarios for scenario in one_of):
      missing += (' or '.join(one_of),)
    return missing

  def rounds_of(self, category: str, model: str) -> tuple[str, ...]:
    """Returns the rounds that have a model in a category."""
    return tuple(
      name for name in rounds.ROUNDS if self.required(name, category, model)
    )

  def compliance_tests(self, round_name: str) -> tuple[str, ...]:
    """Returns the compliance tests that a closed result requires."""
    return tuple(
      test
      for test, last in self.tests.items()
      if rounds.is_at_least(last, round_name)
    )
