"""Writes distinct articles in the schema of Llama's cnn_eval.json.

bazel build //harness/bundled/llama:eval_13368
"""

from collections.abc import Iterator
import itertools

from absl import flags

from bundled.news import corpus
from bundled.summaries.baselines import overlap
from harness.data import cnn_dailymail
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.evaluation import tokenizer as tokenizer_lib

_OUTPUT = flags.DEFINE_string('output', None, 'The JSON file to write.')
_COUNT = flags.DEFINE_integer('count', None, 'The number of articles.', 1)
_TOKENIZER = flags.DEFINE_string(
  'tokenizer', None, "The model's tokenizer.json."
)

# The value of each entry's "source", so that no program takes the articles for
# those of the official files.
SOURCE = '//bundled/news'


def entries() -> Iterator[dict[str, str]]:
  """Yields articles without end, in an order that never changes.

  No article and no highlights are equal to others here, to recorded ones or to
  those of training. Training has none of the names of the evaluation, so texts
  with a name cannot be there. Some short highlights have no name; they are left
  out.
  """
  recorded = corpus.stories('eval', corpus.RECORDED)
  seen = {text for story in recorded for text in (story.input, story.output)}
  for index in itertools.count(corpus.RECORDED):
    story = corpus.write_story('eval', index)
    texts = {story.input, story.output}
    if all(map(overlap.names_anyone, texts)) and seen.isdisjoint(texts):
      seen |= texts
      yield {'input': story.input, 'output': story.output, 'source': SOURCE}


def main(argv: list[str]) -> None:
  del argv
  cnn_dailymail.write(
    user_path.resolve(_OUTPUT.value),
    cnn_dailymail.with_tokens(
      itertools.islice(entries(), _COUNT.value),
      tokenizer_lib.load(user_path.resolve(_TOKENIZER.value)),
      cnn_dailymail.LLAMA_INSTRUCTION,
    ),
  )


if __name__ == '__main__':
  flags.mark_flags_as_required([_OUTPUT, _COUNT, _TOKENIZER])
  program.run(main)
