"""Tests that groups of processes answer with the tokens of one process.

Each process has two devices and only its own shards of the weights. gloo
transfers the sums. The processes stay in step because all of them run the same
script.
"""

import os
from typing import Any

from absl.testing import absltest
import numpy as np

from tests.groups.engine import group_case


class AnswersTest(group_case.GroupCase):
  def test_two_processes_answer_like_one(self):
    directory = self.create_tempdir().full_path
    cases = [
      {**case, 'programs': [os.path.join(directory, name)]}
      for name, case in (
        (
          'bundled',
          group_case.bundled_case(
            self.bundled_checkpoint, ICI_MESH_SHAPE=[1, 1, 4]
          ),
        ),
        (
          'random',
          self._random(
            ICI_MESH_SHAPE=[1, 2, 2],
            BEAM_RULE='pax',
            QUANTIZATION='int8',
            KV_CACHE_DTYPE='int8',
          ),
        ),
      )
    ]
    alone = self.alone(cases, devices=4)
    group = self.run_script(cases, processes=2)
    for answers in group:
      self.check(answers, alone, shares=(0.25, 0.76))
      self.assertIn('of the set', answers[0]['identity']['programs'])
      self.assertEqual(answers[1]['identity'], group[0][1]['identity'])
    self.check_bits(group)

  def test_two_processes_sample_and_refuse_uneven_meshes(self):
    case = self._random(
      ICI_MESH_SHAPE=[1, 4, 1],
      USE_BEAM_SEARCH=False,
      NUM_SAMPLES=2,
      TOP_K=20,
      TEMPERATURE=1.0,
    )
    shapes = ([1, 1, 1], [1, 1, 3], [1, 2, 4])
    uneven = [self._random(ICI_MESH_SHAPE=shape) for shape in shapes]
    alone = self.alone([case], devices=4)
    group = self.run_script([case, *uneven], processes=2)
    for answers in group:
      self.check(answers, alone, shares=(1,))
      for answer, shape in zip(answers[1:], shapes):
        self._check_refused(answer['error'], shape)

  def test_four_processes_answer_like_one(self):
    programs = os.path.join(self.create_tempdir().full_path, 'set')
    cases = [{**self._random(ICI_MESH_SHAPE=[1, 2, 4]), 'programs': [programs]}]
    alone = self.alone(cases, devices=8)
    group = self.run_script(cases, processes=4)
    for answers in group:
      self.check(answers, alone, shares=(0.35,))
    self.check_bits(group)

  def _random(self, **overrides) -> dict[str, Any]:
    return group_case.random_case(self.random_checkpoint, **overrides)

  def _check_refused(self, error: str, shape: list[int]) -> None:
    self.assertIn(
      f'ICI_MESH_SHAPE={shape} has {np.prod(shape)} devices, but this group'
      ' has 2 hosts with 2, 2 devices',
      error,
    )
    self.assertIn('Publish with ICI_MESH_SHAPE=[1, 1, 4]', error)


if __name__ == '__main__':
  absltest.main()
