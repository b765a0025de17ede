"""Trains the byte-level BPE tokenizer of the bundled model.

bazel run //bundled/gptj:tokenizer -- --output_dir=/tmp/model
"""

from collections.abc import Iterator
import os

from absl import flags
import tokenizers
from tokenizers import decoders
from tokenizers import models
from tokenizers import pre_tokenizers
from tokenizers import trainers
import transformers

from bundled.news import corpus
from saxml_ext.common import program
from saxml_ext.common import user_path

_OUTPUT_DIR = flags.DEFINE_string(
  'output_dir', None, 'The Hugging Face directory to write to.', required=True
)
_STORIES = flags.DEFINE_integer(
  'stories', 30_000, 'The number of stories to learn merges from.'
)

VOCAB_SIZE = 4096
# As in GPT-2 and GPT-J, this is the last id, and also the padding.
END_OF_TEXT = '<|endoftext|>'
# The value of GPTJConfig.n_positions of the bundled model.
MAX_LENGTH = 1024


def train(texts: Iterator[str]) -> tokenizers.Tokenizer:
  """Learns VOCAB_SIZE - 1 byte-level BPE tokens and adds END_OF_TEXT."""
  bpe = tokenizers.Tokenizer(models.BPE())
  bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  bpe.decoder = decoders.ByteLevel()
  trainer = trainers.BpeTrainer(
    vocab_size=VOCAB_SIZE - 1,
    show_progress=False,
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
  )
  bpe.train_from_iterator(texts, trainer)
  bpe.add_special_tokens([END_OF_TEXT])
  if bpe.get_vocab_size() != VOCAB_SIZE:
    raise ValueError(
      f'the tokenizer has {bpe.get_vocab_size()} tokens. Expected'
      f' {VOCAB_SIZE}. Increase --stories.'
    )
  return bpe


def _texts(count: int) -> Iterator[str]:
  for story in corpus.stories('train', count):
    yield f'{story.prompt} {story.output}'


def main(argv: list[str]) -> None:
  del argv
  out = user_path.resolve(_OUTPUT_DIR.value)
  os.makedirs(out, exist_ok=True)
  fast = transformers.PreTrainedTokenizerFast(
    tokenizer_object=train(_texts(_STORIES.value)),
    bos_token=END_OF_TEXT,
    eos_token=END_OF_TEXT,
    unk_token=END_OF_TEXT,
    pad_token=END_OF_TEXT,
    padding_side='left',
    model_max_length=MAX_LENGTH,
    clean_up_tokenization_spaces=False,
  )
  fast.save_pretrained(out)


if __name__ == '__main__':
  program.run(main)
