"""The bundled model in groups of two and four processes, by every search.

Each group has two devices a process. Its programs are compiled once, by one
process with as many devices, since each process of a group would compile all of
them; answers_test.py has groups that compile for themselves.
"""

import os
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized

from tests.groups.engine import group_case

_SEARCHES: tuple[dict[str, Any], ...] = (
  {},
  {'BEAM_RULE': 'pax'},
  {'USE_BEAM_SEARCH': False, 'NUM_SAMPLES': 2, 'TOP_K': 40, 'TEMPERATURE': 1.0},
)


class BundledAnswersTest(group_case.GroupCase, parameterized.TestCase):
  @parameterized.parameters((2, [1, 1, 4]), (2, [1, 2, 2]), (4, [1, 2, 4]))
  def test_answers_are_one_process_s(self, processes, shape):
    directory = self.create_tempdir().full_path
    cases = [
      {
        **group_case.bundled_case(
          self.bundled_checkpoint, ICI_MESH_SHAPE=shape, **search
        ),
        'programs': [os.path.join(directory, f'{i}')],
      }
      for i, search in enumerate(_SEARCHES)
    ]
    self.run_script(
      [{**case, 'compile': case['programs'][0]} for case in cases],
      processes=1,
      devices=2 * processes,
    )
    share = 1 / shape[-1]
    self.compare(cases, processes, shares=[share] * len(cases))


if __name__ == '__main__':
  absltest.main()
