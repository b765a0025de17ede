"""Sentences of a text, as the reference's evaluation finds them.

It splits by nltk's Punkt, whose parameters were learnt from a corpus and are a
download of their own. Without them no substitute finds the same sentences.
"""

import os

import nltk.data
from nltk.tokenize import punkt

_MODEL = os.path.join('tokenizers', 'punkt_tab', 'english')


class Splitter:
  """Splits English texts."""

  def __init__(self, *directories: str):
    """Reads Punkt's parameters.

    Args:
      *directories: nltk's data: what `nltk.download('punkt_tab')` fills. The
        first that holds the parameters is used.

    Raises:
      ValueError: the parameters are not there, or cannot be read.
    """
    # Relative paths are unsafe ones for nltk.
    absolute = [os.path.abspath(path) for path in directories]
    for path in absolute:
      if os.path.isdir(os.path.join(path, _MODEL)):
        self._punkt = _load(path)
        return
    raise ValueError(
      f'no {_MODEL} in {", ".join(absolute)}; `python3 -m nltk.downloader -d'
      f' {absolute[0]} punkt_tab` downloads it (punkt, without _tab, is what'
      ' older versions of nltk read)'
    )

  def split(self, text: str) -> list[str]:
    """The sentences of a text, as nltk.sent_tokenize returns them."""
    return list(self._punkt.tokenize(text))


def _load(directory: str) -> punkt.PunktTokenizer:
  before = list(nltk.data.path)
  nltk.data.path.insert(0, directory)
  try:
    return punkt.PunktTokenizer('english')
  except (LookupError, OSError, ValueError) as error:
    raise ValueError(
      f'{os.path.join(directory, _MODEL)} cannot be used: {error}'
    ) from error
  finally:
    nltk.data.path[:] = before
