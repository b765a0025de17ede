"""Trains the small SentencePiece vocabulary of LmCloudSpmd models.

bazel run //bundled/gptj:vocabulary -- --output=/tmp/small.model

Its first ids are those of T5: 0 is padding and start, 1 is the end, 2 is
unknown. Byte pairs and single bytes can encode any text. The algorithm counts
pairs and does not estimate probabilities, so the result is the same on every
machine.
"""

from collections.abc import Iterator
import io

from absl import flags
import sentencepiece

from bundled.news import corpus
from saxml_ext.common import program
from saxml_ext.common import storage
from saxml_ext.common import user_path

_OUTPUT = flags.DEFINE_string('output', None, 'The .model file to write.')

SIZE = 1024
_STORIES = 500


def train() -> bytes:
  """Returns the content of the model in `saxml_ext/families/vocabulary`."""
  model = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=_texts(_STORIES),
    model_writer=model,
    model_type='bpe',
    vocab_size=SIZE,
    byte_fallback=True,
    pad_id=0,
    eos_id=1,
    unk_id=2,
    bos_id=-1,
    # The tables of Unicode normalization would add 240 kB.
    normalization_rule_name='identity',
    # The longest story is shorter, in bytes. Longer texts would be left out.
    max_sentence_length=1 << 16,
    num_threads=1,
    # Only errors are logged. By default, every merge is.
    minloglevel=2,
  )
  return model.getvalue()


def _texts(count: int) -> Iterator[str]:
  for story in corpus.stories('train', count):
    yield f'{story.input} {story.output}'


def main(argv: list[str]) -> None:
  del argv
  storage.write_bytes(user_path.resolve(_OUTPUT.value), train())


if __name__ == '__main__':
  flags.mark_flag_as_required(_OUTPUT)
  program.run(main)
