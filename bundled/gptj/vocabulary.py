"""Trains the small SentencePiece vocabulary that LmCloudSpmd models come with.

bazel run //bundled/gptj:vocabulary -- --output=/tmp/small.model

Its ids begin as those of T5: 0 pads and starts, 1 ends, 2 is unknown. Byte
pairs and single bytes write any text; counting pairs, unlike estimating
probabilities, gives the same bytes on every machine.
"""

from collections.abc import Iterator
import io

from absl import flags
import sentencepiece

from bundled.gptj import corpus
from saxml_ext.common import program
from saxml_ext.common import storage
from saxml_ext.common import user_path

_OUTPUT = flags.DEFINE_string('output', None, 'File to write, a .model.')

SIZE = 1024
_STORIES = 500


def train() -> bytes:
  """Returns the model file, which is in `saxml_ext/families/vocabulary`."""
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
    # Unicode's own tables would be 240 kB.
    normalization_rule_name='identity',
    # The longest story, in bytes, is shorter; what is longer is left out.
    max_sentence_length=1 << 16,
    num_threads=1,
    # Errors alone; without this it tells of each merge.
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
