"""Defines the small vocabulary of the bundled Llama, of Llama 3's kind.

As in Llama 3, texts are split by one regular expression before byte-level BPE,
the special ids follow the learned ones, and each text begins with a special id.
"""

from collections.abc import Iterator

import tokenizers
from tokenizers import decoders
from tokenizers import models
from tokenizers import pre_tokenizers
from tokenizers import processors
from tokenizers import trainers

SIZE = 4096
BEGIN = '<|begin_of_text|>'
END = '<|end_of_text|>'  # It ends a completion.
END_OF_TURN = '<|eot_id|>'  # It ends a turn of a chat.
SPECIAL = (BEGIN, END, '<|start_header_id|>', '<|end_header_id|>', END_OF_TURN)
# The maximum number of positions of the bundled model.
MAX_LENGTH = 2048

# What Llama 3 never merges across: contractions, words with one leading sign,
# up to three digits, signs, line ends and blanks.
_SPLIT = '|'.join(
  (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
    r'[^\r\n\p{L}\p{N}]?\p{L}+',
    r'\p{N}{1,3}',
    r' ?[^\s\p{L}\p{N}]+[\r\n]*',
    r'\s*[\r\n]+',
    r'\s+(?!\S)',
    r'\s+',
  )
)

# Each message has a header with its role, and ends with END_OF_TURN.
CHAT_TEMPLATE = (
  '{{- bos_token }}'
  '{%- for message in messages %}'
  "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>' }}"
  "{{- '\\n\\n' + message['content'] | trim + '<|eot_id|>' }}"
  '{%- endfor %}'
  '{%- if add_generation_prompt %}'
  "{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
  '{%- endif %}'
)


def train(texts: Iterator[str]) -> tokenizers.Tokenizer:
  """Learns byte-level BPE tokens and adds SPECIAL: SIZE in total."""
  bpe = tokenizers.Tokenizer(models.BPE(ignore_merges=True))
  bpe.pre_tokenizer = pre_tokenizers.Sequence(
    [
      pre_tokenizers.Split(tokenizers.Regex(_SPLIT), 'isolated'),
      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
  )
  bpe.decoder = decoders.ByteLevel()
  trainer = trainers.BpeTrainer(
    vocab_size=SIZE - len(SPECIAL),
    show_progress=False,
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
  )
  bpe.train_from_iterator(texts, trainer)
  bpe.add_special_tokens(list(SPECIAL))
  if bpe.get_vocab_size() != SIZE:
    raise ValueError(
      f'the tokenizer has {bpe.get_vocab_size()} tokens. Expected'
      f' {SIZE}. Increase --stories.'
    )
  bpe.post_processor = processors.TemplateProcessing(
    single=f'{BEGIN} $A',
    pair=f'{BEGIN} $A {BEGIN}:1 $B:1',
    special_tokens=[(BEGIN, bpe.token_to_id(BEGIN))],
  )
  return bpe
