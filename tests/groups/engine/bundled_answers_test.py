"""Tests the bundled model in groups of two and four processes, by every search.

Each process has two devices. One process compiles the programs in advance;
answers_test.py has groups that compile their own programs.
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
  def test_groups_answer_like_one_process(self, processes, shape):
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
    alone = self.alone(cases, devices=2 * processes)
    shares = [1 / shape[-1]] * len(cases)
    group = self.run_script(cases, processes)
    for answers in group:
      self.check(answers, alone, shares)
    self.check_bits(group)


if __name__ == '__main__':
  absltest.main()
