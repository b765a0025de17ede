"""Runs a model server that also serves Pax experiments, through praxis.

    PYTHONPATH=/my/code pax_server --pax_experiments=my_pkg.my_mod.MyExperiment
        --sax_root=/tmp/sax-root --sax_cell=/sax/test --port=10001

Users who may publish models in the cell choose which of the named classes is
loaded. This runs the code of its module. No other module is ever imported. All
flags of `server` are supported.
"""

from collections.abc import Sequence
import sys

from absl import flags

from saxml_ext.common import errors
from saxml_ext.common import program
from saxml_ext.server import server
from saxml_ext.server.loading import pax_loader

_PAX_EXPERIMENTS = flags.DEFINE_list(
  'pax_experiments',
  [],
  'The Python paths of the Pax experiment classes that may be published here,'
  ' such as my_pkg.my_mod.MyExperiment. Each module is imported when its class'
  ' is loaded.',
)


def main(argv: Sequence[str]) -> None:
  """Serves until the program is asked to stop; see `server.main`."""
  experiments = _PAX_EXPERIMENTS.value
  try:
    pax_loader.check(experiments)
  except errors.SaxError as e:
    sys.exit(f'pax_server: --pax_experiments: {e.message}')
  server.main(
    argv, lambda load: pax_loader.load_fn(experiments, load), experiments
  )


if __name__ == '__main__':
  program.run(main)
