"""From the text of a request to the prompt that the engine gets."""

import numpy as np

from saxml_ext.common import errors
from saxml_ext.params import settings as settings_lib

# A prompt whose text is far longer than any prompt of so many tokens is not
# worth the time to tokenize it.
_MOST_CHARACTERS_PER_TOKEN = 64
_MOST_CHARACTERS_AT_LEAST = 1 << 16


def check_size(text: str, settings: settings_lib.Settings) -> None:
  """Refuses absurd texts before time is spent on them.

  Raises:
    errors.InvalidArgument: it is far longer than the model could read, which
      would cut it.
  """
  most = (
    _MOST_CHARACTERS_PER_TOKEN * settings.engine.max_prompt
    + _MOST_CHARACTERS_AT_LEAST
  )
  if len(text) > most:
    raise errors.InvalidArgument(
      f'the text has {len(text)} characters, but this model, which reads'
      f' {settings.engine.max_prompt} tokens, takes {most} at most: shorten it'
    )


def finish(ids: np.ndarray, settings: settings_lib.Settings) -> np.ndarray:
  """Applies the model's start id and length limit to a tokenized prompt.

  Args:
    ids: the prompt as given, [T] int32.
    settings: of the model.

  Returns:
    [N] int32, N at most `max_prompt`.

  Raises:
    errors.InvalidArgument: there is no id at all, or too many where the model
      is set to refuse instead of cutting.
  """
  has_start = settings.sos_id is not None
  room = settings.engine.max_prompt - has_start
  if not len(ids) and not has_start:
    raise errors.InvalidArgument('the prompt has 0 tokens; send at least 1')
  if len(ids) > room and settings.fail_on_truncation:
    raise errors.InvalidArgument(
      f'the prompt has {len(ids)} tokens, but this model takes at most'
      f' {room} (INPUT_SEQ_LEN); shorten it'
    )
  kept = ids[:room] if settings.keep_left else ids[max(len(ids) - room, 0) :]
  return with_start(kept, settings)


def with_start(ids: np.ndarray, settings: settings_lib.Settings) -> np.ndarray:
  """Puts the model's start id, if it has one, before `ids` [T]."""
  if settings.sos_id is None:
    return ids
  return np.concatenate([np.array([settings.sos_id], np.int32), ids])


def check_score(
  prefix: np.ndarray, suffix: np.ndarray, settings: settings_lib.Settings
) -> None:
  """Checks the lengths of a prefix and the suffix to score after it.

  Raises:
    errors.InvalidArgument: the suffix is empty or one is too long; a score of
      a cut text would be that of another text.
  """
  if not len(prefix):
    raise errors.InvalidArgument(
      'the prefix has 0 tokens; send at least 1, for the first token after it'
      ' to have a probability'
    )
  if not len(suffix):
    raise errors.InvalidArgument(
      'the suffix has 0 tokens; send at least 1 to score'
    )
  if settings.max_suffix:
    too_long = (
      len(prefix) > settings.engine.max_prompt
      or len(suffix) > settings.max_suffix
    )
    limits = (
      f'{settings.engine.max_prompt} (INPUT_SEQ_LEN) and {settings.max_suffix}'
      ' (SUFFIX_SEQ_LEN)'
    )
  else:
    too_long = len(prefix) + len(suffix) > settings.engine.max_prompt
    limits = f'{settings.engine.max_prompt} together (INPUT_SEQ_LEN)'
  if too_long:
    raise errors.InvalidArgument(
      f'prefix and suffix have {len(prefix)} and {len(suffix)} tokens, but'
      f' this model scores at most {limits}; shorten them'
    )
