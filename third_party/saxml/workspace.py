"""Makes a workspace of upstream Saxml with our GPT-J serving params in it.

  bazel run //third_party/saxml:workspace -- --out=DIR

copies the branch mlperf4.0, which this fetches unless
--override_repository=saxml=CHECKOUT says where it lies, and lays the overlay
over the copy; //third_party/saxml:workspace_r1_2_0 and saxml_r1_2_0 do the same
for the release r1.2.0. In there upstream's own Bazel builds
//saxml/gptj_overlay:server, upstream's model server with the params registered.
Upstream's targets cannot be depended on from here, as its BUILD files load what
only its own WORKSPACE declares.
"""

from collections.abc import Sequence
import pathlib
import sys

from absl import flags
import saxml_checkout

from saxml_ext.common import program
from saxml_ext.common import user_path
from third_party.saxml import tree

_OUT = flags.DEFINE_string(
  'out', None, 'Directory to make; must not exist.', required=True
)


def main(argv: Sequence[str]) -> None:
  del argv
  out = pathlib.Path(user_path.resolve(_OUT.value))
  try:
    tree.lay(pathlib.Path(saxml_checkout.ROOT), out)
  except OSError as e:
    print(f'workspace: {e}', file=sys.stderr)
    sys.exit(1)
  print(f'Made {out}; in there: bazel run //saxml/gptj_overlay:server')


if __name__ == '__main__':
  program.run(main)
