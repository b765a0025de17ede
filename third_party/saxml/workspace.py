"""Makes a workspace of upstream Saxml with our GPT-J serving params.

  bazel run //third_party/saxml:workspace -- --out=DIR

copies the branch mlperf4.0 and adds the overlay. Bazel fetches the branch,
unless --override_repository=saxml=CHECKOUT gives a local checkout. Its files
must be those of the pinned commit.
//third_party/saxml:workspace_r1_2_0 and saxml_r1_2_0 do the same for the
release r1.2.0.

In the new workspace, upstream's own Bazel builds //saxml/gptj_overlay:server,
which is upstream's model server with our params. Targets here cannot depend on
upstream's targets, because upstream's BUILD files load repositories that only
its own WORKSPACE declares.
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
  'out', None, 'The directory to create, which must not exist.', required=True
)


def main(argv: Sequence[str]) -> None:
  del argv
  out = pathlib.Path(user_path.resolve(_OUT.value))
  try:
    tree.lay(
      pathlib.Path(saxml_checkout.ROOT),
      out,
      tree.MLPERF4_0.with_name(f'{saxml_checkout.RELEASE}.tree'),
    )
  except (OSError, ValueError) as e:
    print(f'workspace: {e}', file=sys.stderr)
    sys.exit(1)
  print(f'Created {out}. Next: cd {out}; bazel run //saxml/gptj_overlay:server')


if __name__ == '__main__':
  program.run(main)
