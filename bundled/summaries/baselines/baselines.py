"""Prints baselines for the figures of a bundled model that summarizes.

    bazel run //bundled/summaries/baselines [-- --benchmark=llama3_1-8b]

The table compares the reference's ROUGE with answers that need no model, and
with modified versions of the model. "same" counts the answers
that are equal to the reference's, token for token. KL is the mean divergence of
the next token's distribution along the reference's answers. The bundled set
cannot detect a modification that changes no answer.
"""

from collections.abc import Callable, Sequence
import json
import time

from absl import flags

from bundled.news import corpus
from bundled.news import writing
from bundled.summaries import reference_model
from bundled.summaries.baselines import matcher
from bundled.summaries.baselines import retrieval
from bundled.summaries.baselines import variants
from harness.benchmarks import all as benchmarks
from harness.benchmarks import gptj
from harness.systems.reference import causal_lm
from saxml_ext.common import program
from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import rouge
from saxml_ext.evaluation import tokenizer as tokenizer_lib

_BENCHMARK = flags.DEFINE_enum(
  'benchmark',
  benchmarks.DEFAULT.name,
  [
    name
    for name, benchmark in benchmarks.BENCHMARKS.items()
    if benchmark.summarizes
  ],
  "LoadGen's name of the benchmark whose bundled model is measured.",
)
_ANSWERS = flags.DEFINE_integer(
  'answers',
  0,
  'The number of articles that the model also answers with other settings; 0'
  ' means all.',
)
_STORIES = flags.DEFINE_integer(
  'stories', 3000, 'The number of training stories to search for the nearest.'
)
_BATCH = flags.DEFINE_integer(
  'batch', 4, 'The number of articles that the model answers together.'
)
_BITS = (8, 4, 3)


class _Table:
  """A printer of one row per method of answering the articles."""

  def __init__(self, articles: Sequence[dataset.Article]):
    self._highlights = [article.output for article in articles]
    bundle = benchmarks.get(_BENCHMARK.value).bundle
    self._bpe = tokenizer_lib.load(bundle.tokenizer)
    with open(bundle.reference, encoding='utf-8') as file:
      self.answers = json.load(file)['tokens'][: len(articles)]
    label = f'{len(articles)} articles'
    print(
      f'\n{label:<38}{"ROUGE-1":>9}{"ROUGE-2":>9}{"ROUGE-L":>9}'
      f'{"gen_len":>9}{"same":>6}{"KL":>10}{"seconds":>9}'
    )

  def texts(self, label: str, texts: Sequence[str]) -> None:
    self._row(label, rouge.score_texts(texts, self._highlights))

  def tokens(
    self,
    label: str,
    answer: Callable[[str], list[list[int]]],
    kl: float | None = None,
  ) -> None:
    began = time.monotonic()
    tokens = answer(label)
    seconds = time.monotonic() - began
    same = sum(ours == theirs for ours, theirs in zip(tokens, self.answers))
    scores = rouge.score_tokens(
      dict(enumerate(tokens)), self._highlights, self._bpe
    )
    self._row(
      label,
      scores,
      f'{same:6d}' + (' ' * 10 if kl is None else f'{kl:10.6f}'),
      f'{seconds:9.0f}',
    )

  def _row(self, label: str, scores: rouge.Scores, *rest: str) -> None:
    print(
      f'{label:<38}{scores.rouge1:9.4f}{scores.rouge2:9.4f}'
      f'{scores.rougeL:9.4f}{scores.gen_len:9d}' + ''.join(rest),
      flush=True,
    )


def _without_model(table: _Table, articles: Sequence[dataset.Article]) -> None:
  inputs = [article.input for article in articles]
  table.texts(
    'first three sentences',
    [' '.join(writing.sentences(text)[:3]) for text in inputs],
  )
  stories = list(corpus.stories('train', _STORIES.value))
  nearest = retrieval.nearest(inputs, [story.input for story in stories])
  table.texts(
    f'nearest of {_STORIES.value} training stories',
    [stories[index].output for index in nearest],
  )
  for label, unseen in (("training's", False), ('all', True)):
    table.texts(
      f'template matcher, {label} wordings',
      [matcher.summarize(text, unseen) for text in inputs],
    )


def _generate(model, prompts, like, label, search) -> list[list[int]]:
  """Generates answers in batches of prompts with similar answer lengths.

  Args:
    model: The variant of the reference's model.
    prompts: The token ids of each article's prompt.
    like: The answers that have about the expected lengths.
    label: The label of the progress bar.
    search: The search, as in `causal_lm.answer`.
  """
  order = sorted(
    range(len(prompts)), key=lambda i: (len(like[i]), len(prompts[i]))
  )
  generated = reference_model.generate(
    model, [prompts[i] for i in order], label, search, _BATCH.value
  )
  answers = dict(zip(order, generated))
  return [answers[i] for i in range(len(prompts))]


def _with_model(table: _Table, articles: Sequence[dataset.Article]) -> None:
  benchmark = benchmarks.get(_BENCHMARK.value)
  bundle, search = benchmark.bundle, benchmark.search.generation
  bpe = tokenizer_lib.load(bundle.tokenizer)
  model = causal_lm.load(bundle.model)
  prompts = dataset.encode_prompts(
    articles, bpe, bundle.max_input_length, benchmark.prompt.template
  )
  table.tokens('reference, float32 (recorded)', lambda _: table.answers)

  def answer(which, prompts=prompts, **changes):
    return lambda label: _generate(
      which, prompts, table.answers, label, search | changes
    )

  table.tokens(f'the same in batches of {_BATCH.value}', answer(model))
  table.tokens('max_new_tokens=100', answer(model, max_new_tokens=100))

  def compare(label, variant):
    kl = variants.divergence(model, variant, prompts, table.answers)
    table.tokens(label, answer(variant), kl)

  spread = None
  if benchmark is gptj.GPTJ:
    table.tokens('min_new_tokens=0', answer(model, min_new_tokens=0))
    longest = causal_lm.longest_prompt(
      model.config, benchmark.search.max_tokens
    )
    whole = dataset.encode_prompts(articles, bpe, longest)
    table.tokens('no truncation', answer(model, whole))
    compare('exact GELU', variants.exact_gelu(model))
    spread = variants.spread(model)
  for bits in _BITS:
    compare(f'{bits} bits', variants.rounded(model, bits))
    if spread is not None:
      compare(f'{bits} bits, channels spread', variants.rounded(spread, bits))


def main(argv: list[str]) -> None:
  del argv
  articles = dataset.load_articles(gptj.BUNDLE.dataset)
  table = _Table(articles)
  _without_model(table, articles)
  table.tokens('reference, float32 (recorded)', lambda _: table.answers)
  answered = articles[: _ANSWERS.value or len(articles)]
  _with_model(_Table(answered), answered)


if __name__ == '__main__':
  program.run(main)
