"""Splits texts into sentences with the user's copy of nltk's Punkt."""

import os
import typing

from absl import flags

from saxml_ext.common import user_path

if typing.TYPE_CHECKING:
  from nltk.tokenize import punkt

_MODEL = os.path.join('tokenizers', 'punkt_tab', 'english')

_NLTK_DATA = flags.DEFINE_string(
  'nltk_data',
  None,
  "The directory of nltk's data with punkt_tab, which rougeLsum needs."
  ' Default: $NLTK_DATA. Without both, rougeLsum is omitted.',
)


class Splitter:
  """Splits English texts into sentences.

  Attributes:
    path: The directory of the parameters of Punkt.
  """

  def __init__(self, *directories: str):
    """Reads the parameters of Punkt.

    Args:
      *directories: The directories of nltk's data, as
        `nltk.download('punkt_tab')` fills them. The first directory that has
        the parameters is used.

    Raises:
      ValueError: The parameters are missing or cannot be read.
    """
    # nltk treats relative paths as unsafe.
    absolute = [os.path.abspath(path) for path in directories]
    for path in absolute:
      self.path = os.path.join(path, _MODEL)
      if os.path.isdir(self.path):
        self._punkt = self._load(path)
        return
    raise ValueError(
      f'There is no {_MODEL} in {", ".join(absolute)}. Download it with:'
      f' python3 -m nltk.downloader -d {absolute[0]} punkt_tab (older versions'
      ' of nltk read punkt, without _tab)'
    )

  def split(self, text: str) -> list[str]:
    """Returns the sentences of a text, equal to those of nltk.sent_tokenize."""
    return list(self._punkt.tokenize(text))

  def _load(self, directory: str) -> 'punkt.PunktTokenizer':
    # They import scipy, which takes seconds.
    import nltk.data
    from nltk.tokenize import punkt

    before = list(nltk.data.path)
    nltk.data.path.insert(0, directory)
    try:
      return punkt.PunktTokenizer('english')
    except (LookupError, OSError, ValueError) as error:
      raise ValueError(f'{self.path} cannot be used: {error}') from error
    finally:
      nltk.data.path[:] = before


def from_flags() -> tuple[Splitter | None, str]:
  """Returns the splitter, or None and the reason if nltk's data is missing.

  Raises:
    ValueError: The data is not in the directory that --nltk_data names.
  """
  if _NLTK_DATA.value:
    return Splitter(user_path.resolve(_NLTK_DATA.value)), ''
  # The variable may list several directories, as PATH does.
  listed = list(filter(None, os.environ.get('NLTK_DATA', '').split(os.pathsep)))
  if not listed:
    return None, "it needs nltk's punkt_tab (--nltk_data or $NLTK_DATA)"
  try:
    return Splitter(*listed), ''
  except ValueError as error:  # The variable may be for another program.
    return None, str(error)
