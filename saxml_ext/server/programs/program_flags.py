"""The flags for program sets, in every program that loads models."""

from absl import flags

from saxml_ext.common import flag_rules
from saxml_ext.common import user_path
from saxml_ext.server.programs import programs

_PROGRAMS = flags.DEFINE_list(
  'programs',
  [],
  'The directories of program sets, which are compiled ahead of time. A model'
  ' with a matching set is loaded without compilation.',
)
_PROGRAMS_MISMATCH = flags.DEFINE_enum(
  'programs_mismatch',
  programs.REFUSE,
  programs.MISMATCH,
  'The action for a model whose program set does not match this machine, its'
  ' settings or its checkpoint: refuse it, or compile it with a warning.',
)
_PROGRAMS_CACHE = flags.DEFINE_string(
  'programs_cache',
  None,
  'The directory for the programs of models without a set in --programs. They'
  ' are compiled once, and loaded at later starts.',
)
flag_rules.act_only(
  'with --programs', lambda: _PROGRAMS.value, 'programs_mismatch'
)


def sets() -> programs.Programs:
  """Opens the program sets that the flags name.

  Raises:
    errors.InvalidArgument: A path has no program set, or a damaged one.
  """
  paths = [user_path.resolve(path) for path in _PROGRAMS.value]
  cache = user_path.resolve(_PROGRAMS_CACHE.value) or ''
  return programs.Programs.open(paths, _PROGRAMS_MISMATCH.value, cache)
