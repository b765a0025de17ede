"""Groups of processes answer with one process's tokens.

Each process has two devices and only its own shards of the weights; gloo carries
the sums. What drives them in step here is that all run the same script.
"""

import os

from absl.testing import absltest
import numpy as np

from tests.groups.engine import group_case


class AnswersTest(group_case.GroupCase):
  def test_two_processes(self):
    cases = [
      group_case.bundled_case(
        self.bundled_checkpoint, ICI_MESH_SHAPE=[1, 1, 4]
      ),
      group_case.random_case(
        self.random_checkpoint,
        ICI_MESH_SHAPE=[1, 2, 2],
        BEAM_RULE='pax',
        QUANTIZATION='int8',
        KV_CACHE_DTYPE='int8',
      ),
      group_case.random_case(
        self.random_checkpoint,
        ICI_MESH_SHAPE=[1, 4, 1],
        USE_BEAM_SEARCH=False,
        NUM_SAMPLES=2,
        TOP_K=20,
        TEMPERATURE=1.0,
      ),
    ]
    self.compare(cases, processes=2, shares=(0.25, 0.76, 1))

  def test_four_processes(self):
    cases = [
      group_case.random_case(self.random_checkpoint, ICI_MESH_SHAPE=[1, 2, 4])
    ]
    self.compare(cases, processes=4, shares=(0.35,))

  def test_programs_compiled_ahead(self):
    """One process of four devices compiles for a group of two times two."""
    path = os.path.join(self.create_tempdir().full_path, 'set')
    case = group_case.random_case(
      self.random_checkpoint, ICI_MESH_SHAPE=[1, 1, 4]
    )
    self.run_script([{**case, 'compile': path}], processes=1, devices=4)
    group = self.run_script([{**case, 'programs': [path]}], processes=2)
    [[alone]] = self.run_script([case], processes=1, devices=4)
    for [answer] in group:
      self.assertEqual(answer['tokens'], alone['tokens'])
      self.assertIn('of the set', answer['identity']['programs'])
    self.assertEqual(group[0][0]['identity'], group[1][0]['identity'])

  def test_uneven_meshes_are_refused(self):
    shapes = ([1, 1, 1], [1, 1, 3], [1, 2, 4])
    cases = [
      group_case.random_case(self.random_checkpoint, ICI_MESH_SHAPE=shape)
      for shape in shapes
    ]
    for answers in self.run_script(cases, processes=2):
      for answer, shape in zip(answers, shapes):
        self.assertIn(
          f'ICI_MESH_SHAPE={shape} is of {np.prod(shape)} devices, but this'
          ' group has 2 hosts with 2, 2 devices',
          answer['error'],
        )
        self.assertIn('publish with ICI_MESH_SHAPE=[1, 1, 4]', answer['error'])


if __name__ == '__main__':
  absltest.main()
