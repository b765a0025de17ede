"""Trains the tokenizer of the bundled Llama.

bazel run //bundled/llama:tokenizer -- --output_dir=/tmp/model
"""

from collections.abc import Iterator
import os

from absl import flags
import transformers

from bundled.llama import vocabulary
from bundled.news import corpus
from saxml_ext.common import program
from saxml_ext.common import user_path
from saxml_ext.evaluation import dataset

_OUTPUT_DIR = flags.DEFINE_string(
  'output_dir', None, 'The Hugging Face directory to write to.', required=True
)
_STORIES = flags.DEFINE_integer(
  'stories', 30_000, 'The number of stories to learn merges from.'
)


def _texts(count: int) -> Iterator[str]:
  for story in corpus.stories('train', count):
    yield f'{story.filled(dataset.LLAMA_TEMPLATE)} {story.output}'


def main(argv: list[str]) -> None:
  del argv
  out = user_path.resolve(_OUTPUT_DIR.value)
  os.makedirs(out, exist_ok=True)
  fast = transformers.PreTrainedTokenizerFast(
    tokenizer_object=vocabulary.train(_texts(_STORIES.value)),
    bos_token=vocabulary.BEGIN,
    eos_token=vocabulary.END,
    model_max_length=vocabulary.MAX_LENGTH,
    clean_up_tokenization_spaces=False,
  )
  fast.chat_template = vocabulary.CHAT_TEMPLATE
  fast.save_pretrained(out, save_jinja_files=False)


if __name__ == '__main__':
  program.run(main)
