"""The flag of `roots`; importing this module gives it to a model server."""

from absl import flags

from saxml_ext.common import user_path
from saxml_ext.common.security import roots

_LOAD_ROOTS = flags.DEFINE_list(
  'load_roots',
  [],
  'Directories and URLs; checkpoints and vocabularies are loaded from nowhere'
  ' else, also not through symbolic links. Default: from anywhere.',
)


def configure() -> None:
  """Sets what the flag says; raises InvalidArgument if it is no place."""
  roots.configure([user_path.resolve(root) for root in _LOAD_ROOTS.value])
