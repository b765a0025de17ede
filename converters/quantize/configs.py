"""What --quantization_configs names: which matrices of a model become int8.

Stock Sax's tool has a table of matrices for each kind of model; the table of
"gptj" is `matrix_table`. Given a model that the table does not fit, that tool
quantizes the matrices whose names it happens to know and leaves the others in
float; here such a checkpoint is refused.
"""

from converters.quantize import model_files
from saxml_ext.engine import variables
from saxml_ext.families import all as families
from saxml_ext.families import hf_config
from saxml_ext.pax import checkpoint
from saxml_ext.pax import errors

_SCALE = '_quantized_scale'
_SHOWN = 3


def check_fits(name: str | None, reader: checkpoint.Reader) -> None:
  """Checks that a checkpoint has the variables that a table is of.

  Args:
    name: The name of the table; None stands for that of its family.
    reader: The float checkpoint.

  Raises:
    errors.CheckpointError: The table is of another family, variables are
      missing, or there are others whose numbers it knows nothing of.
  """
  found = {n.removesuffix(_SCALE) for n in reader.specs}
  layers = set(map(variables.layer_of, found)) - {None}
  family = model_files.family_of(reader)
  if name not in (None, family.name) or not family.tensors:
    raise errors.CheckpointError(
      f'{reader.step_dir} is a {family.title}, which the table'
      f' --quantization_configs={name} does not fit; leave the flag out. There'
      f' are tables of {" and ".join(families.convertible())}'
    )
  # Their names depend on nothing but the number of layers.
  shape = hf_config.HFConfig(len(layers) or 1, 1, 1, 1, 1)
  expected = {row.path(layer) for row, layer in family.table.of_model(shape)}
  problems = [
    f'it has no {_some(expected - found)}' if expected - found else '',
    f'it has {_some(found - expected)}' if found - expected else '',
  ]
  if any(problems):
    raise errors.CheckpointError(
      f'{reader.step_dir} is not a whole {family.title}:'
      f' {", and ".join(filter(None, problems))}; quantize what convert_hf'
      ' writes'
    )


def _some(names: set[str]) -> str:
  first = ', '.join(sorted(names)[:_SHOWN])
  more = len(names) - _SHOWN
  return first + (f' and {more} more' if more > 0 else '')
